use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn key(n: u64) -> Key {
    Key { vni: Vni::new(u32::try_from(n % 3).unwrap()).unwrap(), mac: Mac::from_u64(n) }
}

/// The keys of a list from its front on, and the same from its end.
fn walk(entries: &Entries, list: &List, by: By) -> (Vec<Key>, Vec<Key>) {
    let step = |mut at: u32, behind: bool| {
        let mut keys = Vec::new();
        while at != NIL {
            let entry = entries.get(at);
            keys.push(entry.key);
            let link = entry.links[by as usize];
            at = if behind { link.behind } else { link.before };
        }
        keys
    };
    (step(list.first, true), step(list.last, false))
}

#[test]
fn one_list_goes_behind_another_in_one_step() {
    let mut entries = Entries::new(8, 1);
    let (mut a, mut b) = (List::EMPTY, List::EMPTY);
    entries.append(&mut a, By::Port, &mut b);
    assert_eq!(a.first, NIL);
    for n in 0..4 {
        let at = entries.insert(key(n), PortId(0), Nanos::ZERO);
        entries.push(if n < 2 { &mut a } else { &mut b }, By::Port, at);
    }
    entries.append(&mut a, By::Port, &mut b);
    let (forward, backward) = walk(&entries, &a, By::Port);
    assert_eq!(forward, [key(0), key(1), key(2), key(3)]);
    assert_eq!(backward, [key(3), key(2), key(1), key(0)]);
    assert_eq!(b.first, NIL);
    let mut empty = List::EMPTY;
    entries.append(&mut empty, By::Port, &mut a);
    assert_eq!(walk(&entries, &empty, By::Port).0.len(), 4);
}

proptest! {
    #[test]
    fn index_and_lists_agree_with_a_plain_queue(
        steps in prop::collection::vec((0..24_u64, 0..3_u8), 1..400), seed: u64,
    ) {
        let mut entries = Entries::new(16, seed);
        let mut list = List::EMPTY;
        let mut model: VecDeque<Key> = VecDeque::new();
        for (n, step) in steps {
            let key = key(n);
            match (step, entries.find(key)) {
                (0, Some(at)) => {
                    entries.unlink(&mut list, By::Age, at);
                    entries.remove(at);
                    model.retain(|&there| there != key);
                }
                (_, Some(at)) => {
                    entries.unlink(&mut list, By::Age, at);
                    entries.push(&mut list, By::Age, at);
                    model.retain(|&there| there != key);
                    model.push_back(key);
                }
                (0, None) => prop_assert!(!model.contains(&key)),
                (_, None) if entries.is_full() => prop_assert_eq!(model.len(), 16),
                (_, None) => {
                    let at = entries.insert(key, PortId(1), Nanos::ZERO);
                    entries.push(&mut list, By::Age, at);
                    model.push_back(key);
                }
            }
            prop_assert_eq!(entries.len(), model.len());
            let (forward, backward) = walk(&entries, &list, By::Age);
            prop_assert!(forward.iter().eq(model.iter()));
            prop_assert!(backward.iter().eq(model.iter().rev()));
            prop_assert!(model.iter().all(|&key| entries.find(key).is_some()));
        }
    }
}
