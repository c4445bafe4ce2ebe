//! Accounting: charges frames to inputs and queue groups, and ends them. This module only counts;
//! it decides nothing.

use sluice_base::{Buf, DropReason, PortId, Priority};

use crate::egress::Tag;
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
    /// True if the last frame of its queue that is known to be in the pool is among them.
    pub(crate) shared_cursor: bool,
}

impl Ends {
    /// Returns the sums of no frame.
    #[inline]
    pub(crate) const fn new(input: u16, owner: BufferOwner) -> Self {
        Self { input, owner, frames: 0, bytes: 0, sent_bytes: 0, shared_cursor: false }
    }

    /// Returns the sums of one frame.
    #[inline]
    const fn of(input: u16, owner: BufferOwner, bytes: u32) -> Self {
        Self { frames: 1, bytes: bytes as u64, ..Self::new(input, owner) }
    }
}

impl<B: Buf> Switch<B> {
    /// Charges a slot to its input: it waits in that input's memory.
    #[inline]
    pub(crate) fn charge_input(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input(), slot.bytes(), slot.priority());
        self.charge_input_all(input, priority, Counter { frames: 1, bytes: u64::from(bytes) });
    }

    /// Charges frames of one priority to their input.
    #[inline]
    pub(crate) fn charge_input_all(&mut self, input: u16, priority: u8, sum: Counter) {
        #[expect(clippy::cast_possible_truncation, reason = "at most a batch")]
        let sum = Held { frames: sum.frames as u32, bytes: sum.bytes };
        let i = self.ingress.hold(input, priority, sum);
        if let Full::Pause(_) = i.full() {
            let held = self.ledger.hold(input, priority, sum);
            self.egress.input_rose(i.port(), Priority::from_low_bits(priority), held);
        }
    }

    /// Takes the charge of a frame back when it leaves its input's memory.
    #[inline]
    pub(crate) fn uncharge_input(&mut self, input: u16, bytes: u32, priority: u8) {
        let sum = Held { frames: 1, bytes: bytes.into() };
        let i = self.ingress.release(input, sum);
        if let Full::Pause(_) = i.full() {
            self.uncharge_paused(input, sum, priority);
        }
    }

    #[inline(never)]
    fn uncharge_paused(&mut self, input: u16, sum: Held, priority: u8) {
        let held = self.ledger.release(input, priority, sum);
        let priority = Priority::from_low_bits(priority);
        if held.frames == 0 {
            self.ingress.drained(input, priority);
        }
        self.egress.input_fell(self.ingress.input(input).port(), priority, held);
    }

    /// Ends the frame of a slot that stands in no list: its handle goes back to the buffer owner.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (ends, priority) =
            (Ends::of(slot.input(), slot.owner(), slot.bytes()), slot.priority());
        self.release(&ends, priority);
        self.hand_back(index);
    }

    /// Ends the frame of a slot as [`Self::end`]: a driver took it.
    #[inline]
    pub(crate) fn deliver_slot(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (ends, priority) =
            (Ends::of(slot.input(), slot.owner(), slot.bytes()), slot.priority());
        self.book_delivered(&ends, priority);
        self.hand_back(index);
    }

    /// Takes the charges of frames back whose handles go back to their buffer owner.
    #[inline(always)]
    fn release(&mut self, ends: &Ends, priority: u8) {
        if !matches!(ends.owner, BufferOwner::Ring | BufferOwner::Output) {
            return;
        }
        let sum = Held { frames: ends.frames, bytes: ends.bytes };
        let full = self.ingress.end(&mut self.slots, ends.input, ends.owner, sum);
        if let (BufferOwner::Ring, Full::Pause(_)) = (ends.owner, full) {
            self.uncharge_paused(ends.input, sum, priority);
        }
    }

    /// Moves the handle of a slot to those that its buffer owner has back, and frees the slot.
    #[inline]
    fn hand_back(&mut self, index: u32) {
        let slot = self.slots.get(index);
        match slot.owner() {
            BufferOwner::Ring | BufferOwner::Output => {
                let input = slot.input();
                self.ingress.hand_back_slot(&mut self.slots, input, index);
            }
            BufferOwner::Pool => self.pool.push_ended(&mut self.slots, index),
            BufferOwner::Copy => self.end_copy(index),
        }
    }

    /// Ends a frame without a slot, which a driver took out of a common queue.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, buf: B, tag: Tag, priority: u8) {
        self.ledger.deliver(tag.input(), priority, Counter::of(tag.bytes().into()));
        self.end_loose(buf, tag, priority);
    }

    /// Takes the charge of a frame without a slot back, and its handle goes back to the driver.
    #[inline(always)]
    fn end_loose(&mut self, buf: B, tag: Tag, priority: u8) {
        let (input, bytes) = (tag.input(), tag.bytes().into());
        let full = self.ingress.end_loose(&mut self.slots, input, (tag.owner(), bytes), buf);
        if let (BufferOwner::Ring, Full::Pause(_)) = (tag.owner(), full) {
            self.uncharge_paused(input, Held { frames: 1, bytes: bytes.into() }, priority);
        }
    }

    /// Books frames of one input that a driver took. Their handles have ended, or end at once.
    #[inline(always)]
    pub(crate) fn book_delivered(&mut self, ends: &Ends, priority: u8) {
        let delivered = Counter { frames: u64::from(ends.frames), bytes: ends.bytes };
        self.ledger.deliver(ends.input, priority, delivered);
        self.release(ends, priority);
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
        self.ledger.drop(tag.input(), priority, reason, Counter::of(tag.bytes().into()));
        if self.drop_watch.is_on() {
            self.note_dropped(&buf, (tag.input(), priority), reason);
        }
        self.end_loose(buf, tag, priority);
    }

    /// Counts frames of a port that its driver took and its device then refused for good: the
    /// driver hands them back, and they end here. The input of each frame is not known any more.
    pub fn refused(&mut self, port: PortId, priority: Priority, sum: Counter) {
        self.ended_behind(port, priority, DropReason::Refused, sum);
    }

    /// Counts frames of a port that its driver took and then ended, because the socket that they
    /// are for took nothing for longer than its hold.
    pub fn socket_stuck(&mut self, port: PortId, priority: Priority, sum: Counter) {
        self.ended_behind(port, priority, DropReason::ReceiverStuck, sum);
    }

    fn ended_behind(&mut self, port: PortId, priority: Priority, reason: DropReason, sum: Counter) {
        let (input, priority) = (self.egress.port(port.index()).first_input(), priority.get());
        self.ledger.inject(input, priority, sum);
        self.ledger.drop(input, priority, reason, sum);
    }

    /// Returns a handle of an input to its driver, without counting a frame.
    pub(crate) fn end_handle(&mut self, input: u16, buf: B) {
        self.ingress.end_loose(&mut self.slots, input, (BufferOwner::Output, 0), buf);
    }

    pub(crate) fn count_drop(&mut self, index: u32, reason: DropReason) {
        let slot = self.slots.get(index);
        let sum = Counter::of(slot.bytes());
        self.ledger.drop(slot.input(), slot.priority(), reason, sum);
        if self.drop_watch.is_on() {
            self.note_dropped_slot(index, reason);
        }
    }

    /// Counts a copy that was not made.
    pub(crate) fn count_lost_copy(&mut self, body: u32, reason: DropReason) {
        self.count_drop(body, reason);
    }
}
