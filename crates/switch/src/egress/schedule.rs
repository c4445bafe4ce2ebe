//! The scheduler of a port: it picks among priorities, and among the sources of a priority.

use sluice_base::{Nanos, PriorityMask};

use crate::slots::Slots;
use crate::tunnel::OUTER_BYTES;

use super::{EgressTables, QUANTUM_BYTES};

impl<B> EgressTables<B> {
    /// Returns the priority that is served next; `None` if no frame may go.
    #[inline]
    pub(crate) fn next_priority(&mut self, at: usize, refused: PriorityMask) -> Option<usize> {
        let port = &self.ports[at];
        let paused = if port.restrained { port.pause_in.paused().0 } else { 0 };
        let eligible = port.active & !paused & !refused.0;
        if eligible == 0 {
            return None;
        }
        if eligible & eligible.wrapping_sub(1) == 0 {
            return Some(eligible.trailing_zeros() as usize);
        }
        let strict = self.services.strict(eligible);
        if strict != 0 {
            return Some(7 - strict.leading_zeros() as usize);
        }
        Some(self.next_weighted(at, eligible))
    }

    /// Picks the next of the weighted priorities of a port by deficit round robin.
    #[inline(never)]
    fn next_weighted(&mut self, at: usize, eligible: u8) -> usize {
        loop {
            let turn = usize::from(self.ports[at].class_turn);
            if eligible >> turn & 1 == 1 {
                let class = self.class_of(at, turn);
                let deficit = &mut self.classes[class].deficit;
                if *deficit > 0 {
                    return turn;
                }
                let share = i32::from(self.services.weight(turn)) * QUANTUM_BYTES;
                *deficit = deficit.saturating_add(share);
            }
            self.ports[at].class_turn = (self.ports[at].class_turn + 1) & 7;
        }
    }

    /// Returns the node whose turn it is in a priority that has frames: the first one whose deficit
    /// covers its next frame. A frame larger than a quantum takes several turns of saving.
    #[inline]
    pub(crate) fn next_node(&mut self, slots: &Slots<B>, at: usize, priority: usize) -> u32 {
        let class = self.class_of(at, priority);
        let ring = &mut self.classes[class].ring;
        loop {
            let head = self.queues.ring_head(*ring);
            let is_bundle = self.queues.is_bundle(head);
            let leaf = if is_bundle { self.queues.child_head(head) } else { head };
            let leaf = self.queues.get(leaf);
            let slot = slots.get(leaf.list().head());
            let mut size = slot.bytes_left();
            if is_bundle && self.groups[leaf.group() as usize].tunnel().is_some() {
                size += OUTER_BYTES * u32::from(slot.segments_left());
            }
            let size = i32::try_from(size).unwrap_or(i32::MAX);
            let is_alone = head == *ring;
            let node = self.queues.get_mut(head);
            let deficit = node.deficit();
            if deficit >= size {
                return head;
            }
            // A node that is alone in the ring need not save over several turns.
            node.set_deficit(if is_alone {
                size.max(QUANTUM_BYTES)
            } else {
                deficit + QUANTUM_BYTES
            });
            *ring = head;
        }
    }

    /// Charges a frame to the rate of its port and to its priority's share.
    #[inline(never)]
    pub(crate) fn charge_port(&mut self, now: Nanos, at: usize, priority: usize, size: u32) {
        self.charge_rate(now, at, size);
        self.charge_class(at, priority, size);
    }

    /// Charges a frame to the rate of its port.
    pub(crate) fn charge_rate(&mut self, now: Nanos, at: usize, size: u32) {
        self.ports[at].shaper.charge(now, size);
    }

    /// Charges a frame to its priority's share. Without another weighted priority that could have
    /// sent instead, nothing is charged.
    #[inline]
    pub(crate) fn charge_class(&mut self, at: usize, priority: usize, size: u32) {
        let port = &self.ports[at];
        let rivals = self.services.weighted(port.active & !port.pause_in.paused().0);
        if rivals & rivals.wrapping_sub(1) != 0 {
            let class = self.class_of(at, priority);
            let deficit = &mut self.classes[class].deficit;
            *deficit = deficit.saturating_sub(i32::try_from(size).unwrap_or(i32::MAX));
        }
    }
}
