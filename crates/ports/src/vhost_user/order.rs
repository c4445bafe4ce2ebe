//! Completions in the order in which chains were taken, for guests and hypervisors that count on it
//! (`VIRTIO_F_IN_ORDER`, virtio 1.2 section 2.7.9).
//!
//! A frame that ends before one that was taken earlier waits here: its chain goes back to the guest
//! only after the earlier one's. So a frame that its receiver holds back holds the descriptors of
//! the frames behind it, too, though not these frames themselves.

/// The chains that were taken and are not given back, by position: the ring's, modulo its size,
/// which is a power of two.
#[derive(Debug)]
pub(super) struct InOrder {
    /// Head at each position, and true if its frame has ended.
    chains: Box<[(u16, bool)]>,
    /// Position of each head.
    positions: Box<[u16]>,
    /// First position that is not given back, and the position behind the last.
    first: u16,
    next: u16,
}

impl InOrder {
    pub(super) fn new(size: u16) -> Self {
        let size = usize::from(size);
        Self {
            chains: vec![(0, false); size].into(),
            positions: vec![0; size].into(),
            first: 0,
            next: 0,
        }
    }

    fn at(&self, position: u16) -> usize {
        usize::from(position) & (self.chains.len() - 1)
    }

    /// Notes that a chain was taken.
    pub(super) fn take(&mut self, head: u16) {
        let at = self.at(self.next);
        self.chains[at] = (head, false);
        self.positions[usize::from(head)] = self.next;
        self.next = self.next.wrapping_add(1);
    }

    /// Notes that the frame of a chain ended.
    pub(super) fn end(&mut self, head: u16) {
        let at = self.at(self.positions[usize::from(head)]);
        debug_assert!(self.chains[at] == (head, false), "a chain ends once");
        self.chains[at].1 = true;
    }

    /// Returns the next chain to give back.
    pub(super) fn pop(&mut self) -> Option<u16> {
        let (head, has_ended) = self.chains[self.at(self.first)];
        if self.first == self.next || !has_ended {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_early_waits_for_those_before_it() {
        let mut order = InOrder::new(4);
        // Past the end of the ring, and past the wrap of the positions.
        for round in 0..70_000_u32 {
            let heads = if round % 2 == 0 { [3, 0, 2, 1] } else { [1, 3, 0, 2] };
            for head in heads {
                order.take(head);
            }
            assert_eq!(order.pop(), None);
            order.end(heads[2]);
            order.end(heads[1]);
            assert_eq!(order.pop(), None, "the first one has not ended");
            order.end(heads[0]);
            assert_eq!([order.pop(), order.pop(), order.pop()], [0, 1, 2].map(|n| Some(heads[n])));
            assert_eq!(order.pop(), None);
            order.end(heads[3]);
            assert_eq!((order.pop(), order.pop()), (Some(heads[3]), None));
        }
    }
}
