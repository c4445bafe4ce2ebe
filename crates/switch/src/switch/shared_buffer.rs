//! The shared buffer (the host pool). Waiting frames are copied to it out of an input's own memory,
//! so that one slow output does not stop the input's other outputs (head-of-line blocking).
//!
//! One (source, queue group) pair may hold a share of its input. Frames beyond the share are moved
//! into the pool, oldest first, while the pool has room; only then does the input wait. An input
//! may hold as much of the pool as is still free, so that no input takes all of it.
//!
//! The share is a part of the amount that the input may hold before it stops all senders, in frames
//! or in bytes, whichever is used up first. An input that pauses its sender does so at XOFF, so
//! XOFF is the amount there, and several pairs divide it: with a share of `s` a pair may hold `s /
//! (1 - s)` times the room that is still free below XOFF. A pair that is alone then fills `s` of
//! it, and `n` pairs together stay below it (the rule of dynamic thresholds, Choudhury and Hahne
//! 1998). While the pool has room the window ends at XOFF, so that one batch does not exceed it
//! before its frames are copied to the shared buffer.

use sluice_base::{Buf, InputId, Priority, QueueGroupId, SourceId};

use crate::egress::Key;
use crate::pool::part_of;
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Moves handles of an input into the host pool. `copy` gets a handle of the input and returns
    /// one of the pool with the same bytes (the driver owns the first one again), or, if the pool
    /// has no room, the same handle.
    pub fn copy_to_shared(&mut self, input: InputId, mut copy: impl FnMut(B) -> Result<B, B>) {
        let input = input.0;
        if !self.ingress.input(input).awaiting().is_empty() {
            self.replicate(input, &mut copy);
        }
        if self.ingress.input(input).needs_sweep() {
            self.sweep(input, &mut copy);
        }
        let mut at = 0;
        while let Some(key) = self.ingress.over_at(input, at) {
            // A queue that finds no room waits, and blocks no queue of another priority.
            let leaf = self.egress.find(key).filter(|&leaf| self.may_claim_pool(leaf));
            if leaf.is_some_and(|leaf| !self.copy_leaf_to_shared(input, leaf, &mut copy)) {
                at += 1;
            } else {
                self.ingress.forget_over_at(input, at);
            }
        }
    }

    /// Moves frames of one queue until it is within its share. Returns false if the pool is full
    /// before that.
    fn copy_leaf_to_shared(
        &mut self,
        input: u16,
        leaf: u32,
        copy: &mut impl FnMut(B) -> Result<B, B>,
    ) -> bool {
        let mut at = self.egress.first_unpooled(&self.slots, leaf);
        let mut all_pooled = true;
        while at != NIL && self.is_over(input, leaf) {
            let slot = self.slots.get(at);
            let next = slot.next();
            let is_own = slot.owner() == BufferOwner::Ring && slot.input() == input;
            if is_own && !self.move_to_pool(at, leaf, &mut |buf, _| copy(buf)) {
                return false;
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

    /// Moves a frame of a queue from its input's memory into the pool. Returns false if the pool
    /// has no room. `copy` also gets the number that the frame has in the switch that handed it
    /// off, if one did.
    pub(crate) fn move_to_pool(
        &mut self,
        at: u32,
        leaf: u32,
        copy: &mut impl FnMut(B, u32) -> Result<B, B>,
    ) -> bool {
        let slot = self.slots.get(at);
        let input = self.ingress.input(slot.input());
        let part = part_of(input);
        self.pool.takes_of(input, slot.priority()) && self.copy_into(at, leaf, part, copy)
    }

    /// Moves a frame as [`Self::move_to_pool`], into a partition that has room.
    pub(crate) fn copy_into(
        &mut self,
        at: u32,
        leaf: u32,
        part: usize,
        copy: &mut impl FnMut(B, u32) -> Result<B, B>,
    ) -> bool {
        let slot = self.slots.get_mut(at);
        let (number, bytes) = (slot.remote_number(), slot.bytes());
        let copied = copy(slot.take_buf().expect("a waiting frame has its handle"), number);
        let moved = copied.is_ok();
        slot.put_buf(copied.unwrap_or_else(|same| same));
        if moved {
            self.pooled(at, part);
            self.egress.left_input(leaf, bytes);
        }
        moved
    }

    /// Records that the frame of a slot is in the pool now, in this partition.
    pub(crate) fn pooled(&mut self, index: u32, part: usize) {
        let slot = self.slots.get_mut(index);
        slot.move_to_pool();
        let (input, bytes, priority) = (slot.input(), slot.bytes(), slot.priority());
        self.uncharge_input(input, bytes, priority);
        self.ingress.note_excess(&mut self.slots, input);
        self.pool.enter(&mut self.slots, &mut self.ingress, index, part);
    }

    /// Returns true if a queue holds more than its share of its input.
    fn is_over(&self, input: u16, leaf: u32) -> bool {
        let queue = self.egress.queue(leaf);
        let held = self.ledger.held(input.into(), queue.priority().into());
        self.ingress.is_over(
            input,
            queue,
            self.egress.pause_of(self.ingress.input(input).port()),
            held,
        )
    }

    /// Remembers a queue if it holds more than its share of the input of `slot`.
    #[cold]
    pub(crate) fn note_share(&mut self, slot: u32, leaf: u32) {
        let input = self.slots.get(slot).input();
        if !self.is_over(input, leaf) || !self.may_claim_pool(leaf) {
            return;
        }
        let key = self.egress.queue(leaf).key();
        self.ingress.note_over(input, key);
    }

    /// Returns true if frames of a queue may go to the pool. Frames for a receiver that is
    /// isolated, here or at its own host, or that are set aside for it, may not.
    fn may_claim_pool(&self, leaf: u32) -> bool {
        let node = self.egress.queue(leaf);
        let group = self.egress.group(node.group());
        let is_aside = || group.has_parked() && self.egress.is_parked(leaf);
        !matches!(group.kind(), QueueGroupKind::Held(_))
            && !is_aside()
            && !self.is_isolated(group.port(), node.priority())
    }

    /// Returns the frames that wait for a pair, for inspection: in the input's memory, and in all.
    #[must_use]
    pub fn pair(&self, group: QueueGroupId, source: SourceId, priority: Priority) -> (u32, u32) {
        self.egress.find(Key::leaf(group.0, source.0, priority.get())).map_or((0, 0), |leaf| {
            let node = self.egress.queue(leaf);
            (node.ring_frames(), node.frames())
        })
    }
}
