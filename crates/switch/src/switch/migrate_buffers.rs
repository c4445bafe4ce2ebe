//! Migration of the buffers of an input whose memory goes away while its port stays: a guest resets
//! a ring, or its memory is mapped anew. The driver needs its handles back at once. The frames need
//! not be lost, since the host pool may take them.
//!
//! The order of a pair is kept, since a frame that moves keeps its place in its queue. Frames in a
//! common queue have no such place, so all frames of a queue group are first moved into the queues
//! of their sources.

use sluice_base::{Buf, DropReason, InputId, Priority};

use crate::slots::{BufferOwner, NIL};
use crate::switch::Switch;
use crate::switch::detach::dropped_since;

impl<B: Buf> Switch<B> {
    /// Takes every handle of an input out of the switch. A frame that waits is moved into the host
    /// pool, by `copy` as in [`Self::copy_to_shared`], or ends under `stopped` if the pool has no
    /// room for it or its priority is lossy. Afterwards all handles of the driver can be
    /// [reclaimed](Self::reclaim). Returns the number of frames that ended.
    pub fn migrate_buffers(
        &mut self,
        input: InputId,
        mut copy: impl FnMut(B) -> Result<B, B>,
    ) -> u32 {
        if !self.ingress.input(input.0).awaiting().is_empty() {
            self.replicate(input.0, &mut copy);
        }
        self.migrate_queues(input, |_| true, |buf, _| copy(buf))
    }

    /// Migrates buffers as [`Self::migrate_buffers`], but only queues of the sources that
    /// `is_meant` selects. `copy` also gets the number that the frame has in the switch that handed
    /// it off, if one did.
    pub(crate) fn migrate_queues(
        &mut self,
        input: InputId,
        is_meant: impl Fn(u16) -> bool,
        mut copy: impl FnMut(B, u32) -> Result<B, B>,
    ) -> u32 {
        let before = self.ledger.dropped_as(DropReason::Stopped);
        self.drop_unqueued(input.0);
        for port in 0..self.egress.ports().len() {
            for priority in Priority::all() {
                while let Some(group) = self.group_in_common(port, priority, input) {
                    self.leave_common(group);
                }
            }
        }
        let mut from = 0;
        while let Some(leaf) = self.egress.leaf_from(from) {
            if is_meant(self.egress.queue(leaf).source()) {
                self.migrate_leaf(leaf, input.0, &mut copy);
            }
            from = leaf + 1;
        }
        dropped_since(before, self.ledger.dropped_as(DropReason::Stopped))
    }

    /// Ends the frames of an input that stand in no queue, and clears the list of its queues whose
    /// frames should be copied to the shared buffer.
    pub(crate) fn drop_unqueued(&mut self, input: u16) {
        let mut lists = [self.ingress.take_awaiting(input), self.ingress.take_deferred(input)];
        self.ingress.forget_over(input);
        for list in &mut lists {
            while let Some(slot) = self.slots.pop(list) {
                self.drop_frame(slot, DropReason::Stopped);
            }
        }
    }

    /// Returns a queue group for which a frame of this input waits in a common queue.
    fn group_in_common(&self, port: usize, priority: Priority, input: InputId) -> Option<u32> {
        let class = self.egress.class_of(port, priority.index());
        let tag = self.egress.tags(class).find(|tag| tag.input() == input.0)?;
        Some(self.egress.group_of_tag(port, tag))
    }

    fn migrate_leaf(
        &mut self,
        leaf: u32,
        input: u16,
        copy: &mut impl FnMut(B, u32) -> Result<B, B>,
    ) {
        let mut at = self.egress.queue(leaf).list().head();
        let mut some_left = false;
        while at != NIL {
            let slot = self.slots.get(at);
            let next = slot.next();
            if slot.input() == input {
                some_left |= match slot.owner() {
                    BufferOwner::Ring => !self.move_to_pool(at, leaf, copy),
                    BufferOwner::Output => true,
                    BufferOwner::Pool | BufferOwner::Copy => false,
                };
            }
            at = next;
        }
        if some_left {
            self.drop_from_leaf(leaf, DropReason::Stopped, |switch, slot| {
                let s = switch.slots.get(slot);
                s.input() == input && matches!(s.owner(), BufferOwner::Ring | BufferOwner::Output)
            });
        }
    }
}
