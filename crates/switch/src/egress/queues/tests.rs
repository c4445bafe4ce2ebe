use super::*;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use proptest::prelude::*;

#[test]
fn key_differs_by_queue_group_source_priority_kind() {
    let keys = [
        Key::leaf(1, 2, 3),
        Key::leaf(1, 2, 4),
        Key::leaf(1, 3, 3),
        Key::leaf(2, 2, 3),
        Key::bundle(1, 2, 3),
    ];
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[i + 1..] {
            assert_ne!(a, b);
        }
        assert!(a.0 < 1 << 40, "a key has 40 bits");
    }
}

proptest! {
    #[test]
    fn queue_index_finds_exactly_bound_leaves(
        ops in prop::collection::vec((any::<bool>(), 0u32..60, 0u16..4, 0u8..10), 0..300),
    ) {
        let mut queues = Queues::new(64);
        let mut model: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        for (bind, group, source, lower) in ops {
            let key = (group, source);
            if bind && !model.contains_key(&key) && model.len() < 64 {
                model.insert(key, queues.bind_leaf(group, source, 0));
            } else if !bind && let Some(node) = model.remove(&key) {
                queues.unbind(node);
            }
            if lower == 0 {
                queues.lower_bound_end();
                let last = model.values().max();
                prop_assert_eq!(queues.bound_end, last.map_or(0, |node| node + 1));
            }
            let bound: BTreeSet<u32> = model.values().copied().collect();
            prop_assert_eq!(queues.leaves().collect::<BTreeSet<u32>>(), bound);
            for group in 0..60 {
                for source in 0..4 {
                    let found = queues.find(Key::leaf(group, source, 0));
                    prop_assert_eq!(found, model.get(&(group, source)).copied());
                }
            }
        }
    }

    #[test]
    fn a_ring_is_a_queue_that_turns(ops in prop::collection::vec(0u8..4, 0..100)) {
        let mut queues = Queues::new(128);
        let mut model: VecDeque<u32> = VecDeque::new();
        let mut tail = NIL;
        for (at, op) in ops.into_iter().enumerate() {
            match op {
                0 | 1 => {
                    let node = queues.bind_leaf(u32::try_from(at).unwrap(), 0, 0);
                    queues.ring_push(&mut tail, node);
                    model.push_back(node);
                }
                2 if !model.is_empty() => {
                    prop_assert_eq!(Some(queues.ring_pop(&mut tail)), model.pop_front());
                }
                3 if !model.is_empty() => {
                    tail = queues.ring_head(tail);
                    model.rotate_left(1);
                }
                _ => {}
            }
            prop_assert_eq!(tail == NIL, model.is_empty());
            if tail != NIL {
                prop_assert_eq!(Some(&queues.ring_head(tail)), model.front());
            }
        }
    }
}
