//! The reserve: memory for frames of isolated receivers that came in at a shared input.
//!
//! The reserve is a partition of the [pool](crate::pool), which counts what it holds.

use sluice_base::{Buf, Nanos};

use crate::pool::RESERVE;
use crate::slots::{BufferOwner, NIL};
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Moves the frames of a class in the pool into the reserve: the accounting changes, and no
    /// byte is copied.
    pub(super) fn move_to_reserve(&mut self, now: Nanos, class: usize, index: usize) {
        let leaves = self.take_leaves(class);
        for &leaf in &leaves {
            let queue = self.egress.queue(leaf);
            let (mut at, source) = (queue.list().head(), queue.source());
            self.note_sender_of(index, source);
            while at != NIL {
                let slot = self.slots.get(at);
                let next = slot.next();
                if slot.owner() == BufferOwner::Pool && usize::from(slot.part()) < RESERVE {
                    if !self.pool.reserve_takes(index) {
                        self.isolation.records[index].full_at(now);
                        break;
                    }
                    self.pool.leave(&self.slots, &mut self.ingress, at);
                    self.pool.enter(&mut self.slots, &mut self.ingress, at, RESERVE + index);
                }
                at = next;
            }
        }
        self.isolation.leaves = leaves;
    }

    /// Marks all shared inputs, so that their frames for isolated receivers are moved.
    pub(super) fn sweep_later(&mut self) {
        for at in 0..self.isolation.shared.len() {
            let input = self.isolation.shared[at];
            self.ingress.set_sweep(input, true);
        }
    }

    /// Moves frames of an input for isolated receivers into the reserve, as far as it has room.
    pub(crate) fn sweep(&mut self, input: u16, copy: &mut impl FnMut(B) -> Result<B, B>) {
        let now = self.isolation.now;
        self.ingress.set_sweep(input, false);
        for index in 0..self.isolation.records.len() {
            let record = &self.isolation.records[index];
            if !record.is_used() || self.egress.port(record.port()).has_bundles() {
                continue;
            }
            let class = self.egress.class_of(record.port(), record.priority().index());
            if self.isolation.record(class) != Some(index) {
                continue;
            }
            let leaves = self.take_leaves(class);
            for &leaf in &leaves {
                if self.egress.queue(leaf).ring_frames() > 0
                    && !self.sweep_leaf(input, leaf, index, copy)
                {
                    self.isolation.records[index].full_by(now);
                    break;
                }
            }
            self.isolation.leaves = leaves;
        }
    }

    /// Moves frames of one queue into the reserve. Returns false if it has no room.
    fn sweep_leaf(
        &mut self,
        input: u16,
        leaf: u32,
        index: usize,
        copy: &mut impl FnMut(B) -> Result<B, B>,
    ) -> bool {
        let mut at = self.egress.first_unpooled(&self.slots, leaf);
        let mut all_pooled = true;
        while at != NIL && self.egress.queue(leaf).ring_frames() > 0 {
            let slot = self.slots.get(at);
            let next = slot.next();
            if slot.owner() == BufferOwner::Ring && slot.input() == input && slot.sent().0 == 0 {
                if !self.pool.reserve_takes(index) {
                    return false;
                }
                let moved = self.copy_into(at, leaf, RESERVE + index, &mut |buf, _| copy(buf));
                if !moved {
                    return false;
                }
            }
            // A frame of another input may stay in between; the walk of that input must find it.
            all_pooled &= self.slots.get(at).owner() == BufferOwner::Pool;
            if all_pooled {
                self.egress.pooled_up_to(leaf, at);
            }
            at = next;
        }
        true
    }
}
