//! Copies of the heads of frames that the switch drops, for whoever captures them. Nothing is
//! copied unless somebody watches; beyond the bound they are counted only. A frame that its driver
//! took, and ended later, is not here: nobody has it any more.

use alloc::vec::Vec;

use sluice_base::{Buf, DropReason, InputId, PortId, Priority};

use crate::surface::Head;
use crate::switch::Switch;

/// A frame that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedFrame {
    /// Port that it came in by; absent: control made it, or the port is gone.
    pub port: Option<PortId>,
    /// Its priority.
    pub priority: Priority,
    /// The reason.
    pub reason: DropReason,
    /// Its size in bytes.
    pub size: u32,
    /// A copy of its first bytes, as it came in.
    pub head: Head,
}

/// Frames that were dropped since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct DropWatch {
    frames: Vec<DroppedFrame>,
    limit: usize,
    missed: u64,
}

impl DropWatch {
    fn watch(&mut self, limit: usize) {
        *self = Self { frames: Vec::with_capacity(limit), limit, missed: 0 };
    }

    /// Returns true if somebody watches.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.limit > 0
    }

    fn note(&mut self, frame: DroppedFrame) {
        if self.frames.len() < self.limit {
            self.frames.push(frame);
        } else {
            self.missed += 1;
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Copies the heads of frames that are dropped from now on, up to `limit` until they are taken;
    /// with zero no more. Allocates.
    pub fn watch_drops(&mut self, limit: usize) {
        self.drop_watch.watch(limit);
    }

    /// Takes the frames that were dropped, in order, and returns the number of others that found no
    /// room.
    pub fn take_dropped(&mut self, mut each: impl FnMut(&DroppedFrame)) -> u64 {
        self.drop_watch.frames.drain(..).for_each(|frame| each(&frame));
        core::mem::take(&mut self.drop_watch.missed)
    }

    /// Notes the frame of a slot.
    #[cold]
    pub(crate) fn note_dropped_slot(&mut self, index: u32, reason: DropReason) {
        let slot = self.slots.get(index);
        let head = self.slots.body_of(slot).buf().map_or(&[][..], Buf::head);
        let frame = DroppedFrame {
            port: self.port_of(InputId(slot.input())),
            priority: Priority::from_low_bits(slot.priority()),
            reason,
            size: slot.bytes(),
            head: Head::copy_of(head),
        };
        self.drop_watch.note(frame);
    }

    /// Notes a frame without a slot.
    #[cold]
    pub(crate) fn note_dropped(
        &mut self,
        buf: &B,
        (input, priority): (u16, u8),
        reason: DropReason,
    ) {
        let frame = DroppedFrame {
            port: self.port_of(InputId(input)),
            priority: Priority::from_low_bits(priority),
            reason,
            size: buf.size(),
            head: Head::copy_of(buf.head()),
        };
        self.drop_watch.note(frame);
    }
}
