//! The queue pairs of a port, and which of them a priority uses.
//!
//! A guest sends what belongs together by the queue, so that a priority that is held back stands
//! in a ring of its own (`PortConfig::queue_priorities` of the switch says what else that means).
//! The other way a frame goes into the receive queue of its priority, or into the first one's where
//! the guest has not started or enabled that (virtio 1.2 section 5.1.5.5.1).

use sluice_base::{Priority, PriorityMask};

/// The most pairs that a port has: one for each priority.
pub(super) const QUEUES_MAX: usize = Priority::COUNT;

/// Some pairs, a bit each.
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

    /// Those that are in both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Which pair's receive queue each priority goes into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routes {
    /// As configured.
    wanted: [u8; Priority::COUNT],
    /// As it is with what the guest has started.
    now: [u8; Priority::COUNT],
}

impl Routes {
    /// Of the priorities of each pair. One that is nobody's is the first pair's.
    pub(super) fn new(priorities: &[PriorityMask]) -> Self {
        let of = |at: usize| {
            let priority = Priority::from_low_bits(u8::try_from(at).unwrap_or(0));
            let pair = priorities.iter().position(|mask| mask.contains(priority)).unwrap_or(0);
            u8::try_from(pair).unwrap_or(0)
        };
        Self { wanted: std::array::from_fn(of), now: [0; Priority::COUNT] }
    }

    /// The receive queues of these pairs take frames.
    pub(super) fn use_only(&mut self, usable: Pairs) {
        let pair = |wanted: u8| if usable.has(wanted.into()) { wanted } else { 0 };
        self.now = self.wanted.map(pair);
    }

    /// Where frames of a priority go.
    #[inline]
    pub(super) fn of(&self, priority: Priority) -> usize {
        self.now[priority.index()].into()
    }

    /// The priorities whose pairs are among these.
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
    fn a_priority_goes_into_its_own_queue_or_into_the_first() {
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
        // A first one that stands still takes nothing, and nobody's place.
        usable.remove(0);
        routes.use_only(usable);
        assert_eq!(now(&routes), [0, 0, 0, 0, 2, 2, 0, 0]);
    }
}
