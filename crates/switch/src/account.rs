//! Accounting: charges frames to inputs and queue groups, and ends them. This module only counts;
//! it decides nothing.

use sluice_base::{DropReason, Full as BatchFull, PortId, Priority};

use crate::common::Tag;
use crate::inspect::Counter;
use crate::place::{Full, Held};
use crate::slots::BufferOwner;
use crate::switch::Switch;

/// Sums of frames of one input that a driver took one after the other out of one queue, before they
/// are counted.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) input: u16,
    pub(crate) owner: BufferOwner,
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
    /// Bytes of the frames on the wire.
    pub(crate) sent_bytes: u64,
    /// True if the queue's [`Node::shared_cursor`](crate::queues::Node::shared_cursor) is among
    /// them.
    pub(crate) shared_cursor: bool,
}

impl Ends {
    /// Returns the sums of no frame.
    #[inline]
    pub(crate) const fn new(input: u16, owner: BufferOwner) -> Self {
        Self { input, owner, frames: 0, bytes: 0, sent_bytes: 0, shared_cursor: false }
    }
}

impl<B> Switch<B> {
    /// Charges a slot to its input: it waits in that input's memory.
    #[inline]
    pub(crate) fn charge_input(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input, slot.bytes, slot.priority);
        self.charge_input_all(input, priority, Counter { frames: 1, bytes: u64::from(bytes) });
    }

    /// Charges frames of one priority to their input.
    #[inline]
    pub(crate) fn charge_input_all(&mut self, input: u16, priority: u8, sum: Counter) {
        #[expect(clippy::cast_possible_truncation, reason = "at most a batch")]
        let frames = sum.frames as u32;
        let i = &mut self.inputs[usize::from(input)];
        i.held.frames += frames;
        i.held.bytes += sum.bytes;
        i.marks.rise(i.held.frames, i.held.bytes);
        if let Full::Pause(_) = i.full {
            let port = i.port;
            let held = self.ledger.hold(input, priority, Held { frames, bytes: sum.bytes });
            i.holding.insert(Priority::from_low_bits(priority));
            if let Some(pause) = &mut self.ports[usize::from(port)].pause_out {
                let bytes = pause.weight(held.frames, held.bytes);
                pause.rose(Priority::from_low_bits(priority), bytes);
                if pause.has_due() {
                    self.note_pause_due(port);
                }
            }
        }
    }

    /// Takes the charge back when a frame leaves its input's memory.
    #[inline]
    pub(crate) fn uncharge_input(&mut self, input: u16, bytes: u32, priority: u8) {
        let i = &mut self.inputs[usize::from(input)];
        i.held.frames -= 1;
        i.held.bytes -= u64::from(bytes);
        if let Full::Pause(_) = i.full {
            let held = Held { frames: 1, bytes: u64::from(bytes) };
            self.uncharge_paused(input, held, priority);
        }
    }

    fn uncharge_paused(&mut self, input: u16, sum: Held, priority: u8) {
        let port = self.inputs[usize::from(input)].port;
        let held = self.ledger.release(input, priority, sum);
        if held.frames == 0 {
            self.inputs[usize::from(input)].holding.remove(Priority::from_low_bits(priority));
        }
        if let Some(pause) = &mut self.ports[usize::from(port)].pause_out {
            let bytes = pause.weight(held.frames, held.bytes);
            pause.fell(Priority::from_low_bits(priority), bytes);
            if pause.has_due() {
                self.note_pause_due(port);
            }
        }
    }

    /// Ends the frame of a slot that stands in no list: its handle goes back to the buffer owner.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input, slot.bytes, slot.priority);
        match slot.owner {
            BufferOwner::Ring => {
                self.uncharge_input(input, bytes, priority);
                self.inputs[usize::from(input)].unreclaimed += 1;
                self.end_slot(index, input);
            }
            BufferOwner::Output => {
                self.inputs[usize::from(input)].unreclaimed += 1;
                self.end_slot(index, input);
                self.note_excess(input);
            }
            BufferOwner::Pool => self.pool.push_ended(&mut self.slots, index),
            BufferOwner::Copy => self.end_copy(index),
        }
    }

    /// Moves the handle of a slot to the ended handles of its input, and frees the slot.
    #[inline]
    fn end_slot(&mut self, index: u32, input: u16) {
        let input = &mut self.inputs[usize::from(input)];
        self.slots.end(index, &mut input.ended, &mut input.ended_slots);
    }

    /// Keeps an ended handle in a slot: lossy frames of an input ended faster than it reclaims
    /// them, and the handles beyond its own slots wait in slots of its outputs.
    #[cold]
    fn end_late(&mut self, input: u16, buf: B) {
        let index = self.slots.take();
        let slot = self.slots.get_mut(index);
        slot.buf = Some(buf);
        slot.input = input;
        self.slots.stack_push(&mut self.inputs[usize::from(input)].ended_slots, index);
    }

    /// Returns the queue group that a frame in a common queue of this port goes to.
    #[inline]
    pub(crate) fn group_of_tag(&self, port: usize, tag: Tag) -> u32 {
        let port = &self.ports[port];
        if port.has_bundles { tag.source_or_group.into() } else { port.group }
    }

    /// Returns the source of a frame in a common queue of this port.
    pub(crate) fn source_of_tag(&self, port: usize, tag: Tag) -> u16 {
        if self.ports[port].has_bundles { tag.input } else { tag.source_or_group }
    }

    /// Counts and ends a frame that a driver took out of a common queue.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, buf: B, tag: Tag, priority: u8) {
        let (input, bytes) = (tag.input, u32::from(tag.bytes));
        self.ledger.deliver(input, priority, Counter::of(bytes));
        let i = &mut self.inputs[usize::from(input)];
        i.unreclaimed += 1;
        let pushed = i.ended.push(buf);
        if tag.owner == BufferOwner::Ring {
            i.held.frames -= 1;
            i.held.bytes -= u64::from(bytes);
            if let Full::Pause(_) = i.full {
                let held = Held { frames: 1, bytes: u64::from(bytes) };
                self.uncharge_paused(input, held, priority);
            }
        } else {
            self.note_excess(input);
        }
        if let Err(BatchFull(buf)) = pushed {
            self.end_late(input, buf);
        }
    }

    /// Counts frames of one input that a driver took, all at once. Their handles have ended.
    #[inline]
    pub(crate) fn book_ends(&mut self, ends: &Ends, priority: u8) {
        let delivered = Counter { frames: u64::from(ends.frames), bytes: ends.bytes };
        self.ledger.deliver(ends.input, priority, delivered);
        let i = &mut self.inputs[usize::from(ends.input)];
        match ends.owner {
            BufferOwner::Ring => {
                i.unreclaimed += ends.frames;
                i.held.frames -= ends.frames;
                i.held.bytes -= ends.bytes;
                if let Full::Pause(_) = i.full {
                    let held = Held { frames: ends.frames, bytes: ends.bytes };
                    self.uncharge_paused(ends.input, held, priority);
                }
            }
            BufferOwner::Output => {
                i.unreclaimed += ends.frames;
                self.note_excess(ends.input);
            }
            BufferOwner::Pool | BufferOwner::Copy => {}
        }
    }

    /// Updates the number of slots that an input uses beyond its own.
    #[inline]
    pub(crate) fn note_excess(&mut self, input: u16) {
        let i = &mut self.inputs[usize::from(input)];
        let excess = (i.held.frames + i.unreclaimed).saturating_sub(i.slots_max());
        if excess != i.excess {
            self.slots.change_excess(i.excess, excess);
            i.excess = excess;
        }
    }

    /// Frees the memory of a handle of the host pool that goes back.
    pub(crate) fn leave_pool(&mut self, index: u32) {
        let slot = self.slots.get(index);
        if slot.owner != BufferOwner::Pool {
            // The slot was the body of copies.
            self.pool.sub_body();
            return;
        }
        self.leave_part(index);
    }

    #[cold]
    fn end_copy(&mut self, index: u32) {
        let body = self.slots.end_copy(index);
        if !self.slots.has_copies(body) {
            self.pool.push_ended(&mut self.slots, body);
        }
    }

    /// Drops a frame: the only way in which a frame with a slot ends undelivered. The slot stands
    /// in no list.
    #[inline]
    pub(crate) fn drop_frame(&mut self, index: u32, reason: DropReason) {
        self.count_drop(index, reason);
        self.end(index);
    }

    /// Drops a frame without a slot.
    #[cold]
    pub(crate) fn drop_loose(&mut self, buf: B, tag: Tag, priority: u8, reason: DropReason) {
        let (input, bytes) = (tag.input, u32::from(tag.bytes));
        self.ledger.drop(input, priority, reason, Counter::of(bytes));
        if tag.owner == BufferOwner::Ring {
            self.uncharge_input(input, bytes, priority);
        }
        self.end_handle(input, buf);
    }

    /// Counts frames of a port that its driver took and its device then refused for good: the
    /// driver hands them back, and they end here. The input of each frame is not known any more.
    pub fn refused(&mut self, port: PortId, priority: Priority, sum: Counter) {
        let (input, priority) = (self.ports[port.index()].first_input, priority.get());
        self.ledger.inject(input, priority, sum);
        self.ledger.drop(input, priority, DropReason::Refused, sum);
    }

    /// Returns a handle of an input to its driver, without counting a frame.
    pub(crate) fn end_handle(&mut self, input: u16, buf: B) {
        self.inputs[usize::from(input)].unreclaimed += 1;
        if let Err(BatchFull(buf)) = self.inputs[usize::from(input)].ended.push(buf) {
            self.end_late(input, buf);
        }
        self.note_excess(input);
    }

    pub(crate) fn count_drop(&mut self, index: u32, reason: DropReason) {
        let slot = self.slots.get(index);
        let sum = Counter::of(slot.bytes);
        self.ledger.drop(slot.input, slot.priority, reason, sum);
    }

    /// Counts a copy that was not made.
    pub(crate) fn count_lost_copy(&mut self, body: u32, reason: DropReason) {
        self.count_drop(body, reason);
    }

    /// Charges a frame to its queue group when it is queued.
    #[inline]
    pub(crate) fn charge_group(&mut self, group: u32, bytes: u32, owner: BufferOwner) {
        self.charge_group_all(group, Held { frames: 1, bytes: u64::from(bytes) }, owner);
    }

    /// Charges frames to their queue group when they are queued.
    #[inline]
    pub(crate) fn charge_group_all(&mut self, group: u32, sum: Held, owner: BufferOwner) {
        let group = &mut self.groups[group as usize];
        group.frames += sum.frames;
        group.bytes += sum.bytes;
        group.marks.rise(group.frames, group.bytes);
        if owner == BufferOwner::Output {
            group.room.frames -= sum.frames;
            group.room.bytes -= sum.bytes;
        } else if owner == BufferOwner::Copy {
            group.copies += sum.frames;
        }
    }

    /// Takes the charge of a frame back when it is dequeued.
    #[inline]
    pub(crate) fn uncharge_group(&mut self, group: u32, bytes: u32, owner: BufferOwner) {
        let group = &mut self.groups[group as usize];
        group.frames -= 1;
        group.bytes -= u64::from(bytes);
        if owner == BufferOwner::Output {
            group.room.frames += 1;
            group.room.bytes += u64::from(bytes);
        } else if owner == BufferOwner::Copy {
            group.copies -= 1;
        }
    }
}
