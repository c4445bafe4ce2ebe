//! The queue pairs of a port, and the pair of each priority.
//!
//! The transmit queue of a frame limits its priority, so that a priority that is held back waits in
//! a ring of its own (`PortConfig::queue_priorities` of the switch has the other consequences). In
//! the other direction a frame goes into the receive queue of its priority, or into the first one
//! if the guest has not started or enabled that queue (virtio 1.2 section 5.1.5.5.1).

use sluice_base::{Priority, PriorityMask};

/// Maximum of pairs of a port: one for each priority.
pub(super) const QUEUES_MAX: usize = Priority::COUNT;

/// A set of pairs, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs(u8);

impl Pairs {
    #[inline]
    pub(super) fn insert(&mut self, pair: usize) {
        self.0 |= 1 << pair;
    }

    #[inline]
    pub(super) fn remove(&mut self, pair: usize) {
        self.0 &= !(1 << pair);
    }

    #[inline]
    pub(super) const fn has(self, pair: usize) -> bool {
        self.0 >> pair & 1 == 1
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Intersection of both sets.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Pair of the receive queue of each priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routes {
    /// Pairs as configured.
    wanted: [u8; Priority::COUNT],
    /// Pairs in use, given the queues that the guest has started.
    now: [u8; Priority::COUNT],
}

impl Routes {
    /// Makes routes from the priorities of each pair. A priority without a pair goes to the first
    /// one.
    pub(super) fn new(priorities: &[PriorityMask]) -> Self {
        let of = |at: usize| {
            let priority = Priority::from_low_bits(u8::try_from(at).unwrap_or(0));
            let pair = priorities.iter().position(|mask| mask.contains(priority)).unwrap_or(0);
            u8::try_from(pair).unwrap_or(0)
        };
        Self { wanted: std::array::from_fn(of), now: [0; Priority::COUNT] }
    }

    /// Uses only the receive queues of these pairs.
    pub(super) fn use_only(&mut self, usable: Pairs) {
        let pair = |wanted: u8| if usable.has(wanted.into()) { wanted } else { 0 };
        self.now = self.wanted.map(pair);
    }

    /// Returns the pair for frames of a priority.
    #[inline]
    pub(super) fn of(&self, priority: Priority) -> usize {
        self.now[priority.index()].into()
    }

    /// Priorities whose pair is in the set.
    pub(super) fn priorities(&self, pairs: Pairs) -> PriorityMask {
        let mut mask = PriorityMask::NONE;
        for priority in Priority::all().filter(|priority| pairs.has(self.of(*priority))) {
            mask.insert(priority);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(priorities: &[u8]) -> PriorityMask {
        let mut mask = PriorityMask::NONE;
        priorities.iter().for_each(|p| mask.insert(Priority::from_low_bits(*p)));
        mask
    }

    #[test]
    fn priority_goes_to_own_queue_or_first() {
        let mut routes = Routes::new(&[mask(&[0, 1]), mask(&[2, 3, 7]), mask(&[4, 5])]);
        let now = |routes: &Routes| Priority::all().map(|p| routes.of(p)).collect::<Vec<_>>();
        let mut usable = Pairs::default();
        assert_eq!(now(&routes), [0; 8]);
        usable.insert(0);
        usable.insert(1);
        usable.insert(2);
        routes.use_only(usable);
        assert_eq!(now(&routes), [0, 0, 1, 1, 2, 2, 0, 1]);
        usable.remove(1);
        routes.use_only(usable);
        assert_eq!(now(&routes), [0, 0, 0, 0, 2, 2, 0, 0]);
        let mut full = Pairs::default();
        full.insert(2);
        assert_eq!(routes.priorities(full), mask(&[4, 5]));
        // A first queue that is unusable takes no frames, and no other queue's place.
        usable.remove(0);
        routes.use_only(usable);
        assert_eq!(now(&routes), [0, 0, 0, 0, 2, 2, 0, 0]);
    }
}
