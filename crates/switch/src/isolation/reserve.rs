//! The reserve: memory for frames of isolated receivers that came in at a shared input.
//!
//! The reserve is a third partition of the host pool, which only isolated receivers use: they take
//! no memory from others. One receiver may hold as much of it as is still free, so that none takes
//! it all from the others.

use sluice_base::{Buf, Nanos};

use crate::place::Held;
use crate::slots::{BufferOwner, NIL};
use crate::switch::Switch;

/// The reserve's place among the partitions of the pool. A slot refers to the reserve and the
/// record of its receiver by `PART + record`.
pub(crate) const PART: usize = 2;

impl<B: Buf> Switch<B> {
    /// Returns true if the reserve takes one more frame of a record.
    pub(crate) fn reserve_takes(&self, index: usize) -> bool {
        let (part, held) = (&self.pool.parts()[PART], self.isolation.records[index].held);
        part.frames < part.limit.frames
            && part.bytes < part.limit.bytes.0
            && held.frames < part.limit.frames - part.frames
            && held.bytes < part.limit.bytes.0 - part.bytes
    }

    /// Returns true if the reserve has room for a good part again.
    pub(super) fn reserve_has_room_again(&self, index: usize) -> bool {
        let (part, held) = (&self.pool.parts()[PART], self.isolation.records[index].held);
        let is_small = |held: u64, free: u64| held * 4 <= free * 3;
        let frames = part.limit.frames - part.frames;
        let bytes = part.limit.bytes.0.saturating_sub(part.bytes);
        is_small(held.frames.into(), frames.into()) && is_small(held.bytes, bytes)
    }

    /// Moves the frames of a class in the pool into the reserve: the accounting changes, and no
    /// byte is copied.
    pub(super) fn move_to_reserve(&mut self, now: Nanos, class: usize, index: usize) {
        let leaves = self.take_leaves(class);
        for &leaf in &leaves {
            let queue = self.egress.queue(leaf);
            let (mut at, source) = (queue.list().head, queue.source());
            self.note_sender_of(index, source);
            while at != NIL {
                let slot = self.slots.get(at);
                let next = slot.next;
                if slot.owner == BufferOwner::Pool && usize::from(slot.part) < PART {
                    if !self.reserve_takes(index) {
                        self.isolation.records[index].full_since = now;
                        break;
                    }
                    self.leave_part(at);
                    self.enter_part(at, PART + index);
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
            if !record.is_used() || self.egress.port(usize::from(record.port)).has_bundles() {
                continue;
            }
            let class = self.egress.class_of(record.port.into(), record.priority.into());
            if self.isolation.record(class) != Some(index) {
                continue;
            }
            let leaves = self.take_leaves(class);
            for &leaf in &leaves {
                if self.egress.queue(leaf).ring_frames() > 0
                    && !self.sweep_leaf(input, leaf, index, copy)
                {
                    let record = &mut self.isolation.records[index];
                    record.full_since = record.full_since.min(now);
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
            let next = slot.next;
            if slot.owner == BufferOwner::Ring && slot.input == input && slot.sent == 0 {
                if !self.reserve_takes(index) {
                    return false;
                }
                let moved = self.copy_into(at, leaf, PART + index, &mut |buf, _| copy(buf));
                if !moved {
                    return false;
                }
            }
            // A frame of another input may stay in between; the walk of that input must find it.
            all_pooled &= self.slots.get(at).owner == BufferOwner::Pool;
            if all_pooled {
                self.egress.pooled_up_to(leaf, at);
            }
            at = next;
        }
        true
    }
}

impl<B> Switch<B> {
    /// Takes a frame of the pool out of the count of its partition.
    pub(crate) fn leave_part(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input, u64::from(slot.bytes), slot.priority);
        let part = usize::from(slot.part);
        if let Some(record) = part.checked_sub(PART) {
            let held = &mut self.isolation.records[record].held;
            held.frames -= 1;
            held.bytes -= bytes;
        } else {
            self.ingress.leave_pool(input);
        }
        self.pool.sub(part.min(PART), priority, Held { frames: 1, bytes });
    }

    /// Counts a frame of the pool in a partition from now on.
    pub(crate) fn enter_part(&mut self, index: u32, part: usize) {
        let slot = self.slots.get_mut(index);
        slot.part = u8::try_from(part).expect("fewer partitions than 256");
        let (input, bytes, priority) = (slot.input, u64::from(slot.bytes), slot.priority);
        if let Some(record) = part.checked_sub(PART) {
            let held = &mut self.isolation.records[record].held;
            held.frames += 1;
            held.bytes += bytes;
        } else {
            self.ingress.enter_pool(input);
        }
        self.pool.add(part.min(PART), priority, Held { frames: 1, bytes });
    }
}
