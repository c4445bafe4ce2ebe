use proptest::prelude::*;
use sluice_base::{Nanos, Prng};

use super::{EventQueue, Ties};

/// The order of a sorted list: by time, then in the order of pushing.
fn expected(pushed: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let mut sorted = pushed.to_vec();
    sorted.sort_by_key(|(at, _)| *at);
    sorted
}

fn drain(queue: &mut EventQueue) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| queue.pop()).map(|(at, what)| (at.0, what)).collect()
}

#[test]
fn an_empty_queue_gives_nothing() {
    assert_eq!(EventQueue::new(Ties::Fifo).pop(), None);
}

#[test]
fn simultaneous_events_pop_in_push_order() {
    let mut queue = EventQueue::new(Ties::Fifo);
    for what in 0..1000 {
        queue.push(Nanos(77), what);
    }
    assert_eq!(drain(&mut queue), (0..1000).map(|what| (77, what)).collect::<Vec<_>>());
}

#[test]
fn permuted_ties_reorder_events_without_loss_or_duplicate() {
    let mut orders = Vec::new();
    for seed in 0..4 {
        let mut queue = EventQueue::new(Ties::Permuted(seed));
        for what in 0..100 {
            queue.push(Nanos(1 << 30), what);
            queue.push(Nanos(5), what);
        }
        let order = drain(&mut queue);
        let mut all = order.clone();
        all.sort_unstable();
        assert_eq!(all.len(), 200);
        all.dedup();
        assert_eq!(all.len(), 200);
        assert!(order.is_sorted_by_key(|(at, _)| *at));
        orders.push(order);
    }
    orders.dedup();
    assert_eq!(orders.len(), 4);
}

#[test]
fn an_event_later_than_the_end_stays() {
    let mut queue = EventQueue::new(Ties::Fifo);
    queue.push(Nanos(100), 1);
    assert_eq!(queue.pop_until(Nanos(99)), None);
    assert_eq!(queue.now(), Nanos(99));
    queue.push(Nanos(99), 2);
    assert_eq!(queue.pop_until(Nanos(99)), Some((Nanos(99), 2)));
    assert_eq!(queue.pop_until(Nanos(100)), Some((Nanos(100), 1)));
    queue.push(Nanos(10_000), 3);
    assert_eq!(queue.pop_until(Nanos(5_000)), None);
    queue.push(Nanos(5_000), 4);
    assert_eq!(queue.pop(), Some((Nanos(5_000), 4)));
    assert_eq!(queue.pop(), Some((Nanos(10_000), 3)));
}

#[test]
fn the_wheel_turns_many_times() {
    let mut queue = EventQueue::new(Ties::Fifo);
    queue.push(Nanos(0), 0);
    let mut count = 0;
    while let Some((at, _)) = queue.pop() {
        assert_eq!(at.0, count * 524_287);
        count += 1;
        if count < 50 {
            queue.push(Nanos(count * 524_287), 0);
        }
    }
    assert_eq!(count, 50);
}

proptest! {
    /// Pushes and pops mixed, near and far: the order is that of one sorted list.
    #[test]
    fn the_order_is_that_of_a_sorted_list(seed: u64, count in 1_usize..400) {
        let mut prng = Prng::new(seed);
        let mut queue = EventQueue::new(Ties::Fifo);
        let mut model: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        for what in 0..u32::try_from(count).unwrap() {
            let spans = [1, 64, 4096, 524_288, 600_000, 1 << 32];
            let span = spans[usize::try_from(prng.below(6)).unwrap()];
            let at = now + prng.below(span);
            queue.push(Nanos(at), what);
            model.push((at, what));
            if prng.chance(1, 3) {
                let next = expected(&model)[0];
                model.retain(|e| *e != next);
                let (at, what) = queue.pop().unwrap();
                prop_assert_eq!((at.0, what), next);
                now = at.0;
            }
        }
        prop_assert_eq!(drain(&mut queue), expected(&model));
    }
}
