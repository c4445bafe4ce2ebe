//! The driver of a guest's receive queue (virtio 1.2, 5.1.6.3 and 5.1.6.4).
//!
//! All slots are offered at the start. `burst` reads the slots that came back, hands each frame to
//! its caller and offers the slots again, with one publication for many. With mergeable buffers a
//! frame may lie in several slots: the header of the first one has their number.

use std::sync::Arc;
use std::time::Duration;

use super::error::{GuestError, Violation};
use super::feature;
use super::memory::{Bytes, Memory};
use super::ring::Ring;
use super::shape::{HEADER_BYTES, NUM_BUFFERS_AT, Shape, Slots};

/// Slots that are shown to the device together, in large rings.
const OFFER_TOGETHER: usize = 32;
/// Distance of the prefetch in `burst`, in frames.
const FETCH_AHEAD: u16 = 16;

/// The receive queue of a guest.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    slots: Slots,
    in_order: bool,
    merge: bool,
    /// With order: number of slots that came back so far.
    returned: usize,
    is_out: Vec<bool>,
    unpublished: usize,
    /// Slots of the frame at hand, and their bytes; the first with the header.
    parts: Vec<(u16, u32)>,
    frames: u64,
    violation: Option<Violation>,
}

/// A frame that came.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    slots: &'a Slots,
    parts: &'a [(u16, u32)],
    frame_bytes: usize,
}

impl<'a> Received<'a> {
    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frame_bytes
    }

    /// Returns true if it has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frame_bytes == 0
    }

    /// Returns the number of its buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.parts.len()
    }

    /// Returns its first bytes, up to the end of the piece; all of them in a whole buffer.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Bytes<'a> {
        let (slot, bytes) = self.parts[0];
        let bytes = (bytes as usize - HEADER_BYTES).min(self.frame_bytes);
        self.slots.part(slot, HEADER_BYTES, bytes)
    }

    /// Returns the header in front of it.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        self.slots.header(self.parts[0].0).read(0, &mut header);
        header
    }

    /// Returns a copy of the frame.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.frame_bytes);
        for (index, &(slot, bytes)) in self.parts.iter().enumerate() {
            let skip = if index == 0 { HEADER_BYTES } else { 0 };
            self.slots.gather(slot, skip, bytes as usize - skip, &mut frame);
        }
        frame
    }
}

impl Receiver {
    pub(super) fn new(
        memory: &Arc<Memory>,
        ring_size: u16,
        shape: Shape,
        buffer_bytes: usize,
    ) -> Result<Self, GuestError> {
        let ring = Ring::new(memory, ring_size)?;
        let slots = Slots::new(memory, ring_size, shape, buffer_bytes, None)?;
        let count = usize::from(slots.count());
        let mut receiver = Self {
            ring,
            slots,
            in_order: false,
            merge: false,
            returned: 0,
            is_out: vec![false; count],
            unpublished: 0,
            parts: Vec::with_capacity(count),
            frames: 0,
            violation: None,
        };
        receiver.reset(0);
        Ok(receiver)
    }

    /// Resets the queue with the agreed features: all slots are offered.
    pub(super) fn reset(&mut self, features: u64) {
        self.ring.reset(features);
        self.slots.forget();
        self.in_order = features & feature::IN_ORDER != 0;
        self.merge = features & feature::MRG_RXBUF != 0;
        self.returned = 0;
        self.violation = None;
        self.is_out.fill(false);
        for slot in 0..self.slots.count() {
            self.offer(slot);
        }
        self.show();
    }

    #[inline]
    fn offer(&mut self, slot: u16) {
        let bytes = self.slots.bytes_max();
        self.slots.describe(&mut self.ring, slot, bytes, true);
        self.ring.offer(self.slots.head(slot));
        self.is_out[usize::from(slot)] = true;
        self.unpublished += 1;
    }

    #[inline]
    fn show(&mut self) {
        self.unpublished = 0;
        self.ring.publish();
    }

    /// Returns the queue itself: for kicks, sleeping, and tests that break its rules.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Returns the queue itself, to look at.
    #[must_use]
    pub fn ring_ref(&self) -> &Ring {
        &self.ring
    }

    /// Returns the first violation of the device.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// Returns the frames that came since it was made.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of buffers that came back and were not read yet.
    #[must_use]
    pub fn waiting(&self) -> u16 {
        self.ring.back()
    }

    /// Takes up to `max` frames, oldest first. Returns their number.
    #[inline]
    pub fn burst(&mut self, max: usize, mut each: impl FnMut(Received<'_>)) -> usize {
        let mut back = self.ring.back();
        if back > self.ring.out() {
            let violation = Violation::UsedAhead { used: back, out: self.ring.out() };
            self.violation.get_or_insert(violation);
            return 0;
        }
        let ahead = back.min(FETCH_AHEAD);
        for place in 0..ahead {
            self.prefetch(place);
        }
        let mut taken = 0;
        while taken < max && back > 0 {
            if back > FETCH_AHEAD {
                self.prefetch(FETCH_AHEAD);
            }
            let Some(buffers) = self.next_frame(back) else { break };
            back -= buffers;
            if let Some(frame_bytes) = self.collect(buffers) {
                each(Received { slots: &self.slots, parts: &self.parts, frame_bytes });
                self.frames += 1;
                taken += 1;
            }
            for index in 0..self.parts.len() {
                self.offer(self.parts[index].0);
            }
        }
        // A few slots may wait for others to be shown together, while the device has enough.
        if taken < max
            || self.unpublished >= OFFER_TOGETHER.min(usize::from(self.slots.count()) / 8)
        {
            self.show();
        }
        taken
    }

    #[inline]
    fn prefetch(&self, place: u16) {
        if let Some(slot) = self.slots.slot(self.ring.peek(place).0) {
            self.slots.prefetch(slot);
        }
    }

    /// Returns the number of buffers of the next frame; `None` if they are not all back.
    #[inline]
    fn next_frame(&mut self, back: u16) -> Option<u16> {
        if !self.merge {
            return Some(1);
        }
        // `collect` handles an invalid head.
        let Some(slot) = self.slots.slot(self.ring.peek(0).0) else { return Some(1) };
        let mut number = [0; 2];
        self.slots.header(slot).read(NUM_BUFFERS_AT, &mut number);
        let buffers = u16::from_le_bytes(number);
        if buffers == 0 || buffers > self.slots.count() {
            self.violation.get_or_insert(Violation::Buffers { buffers });
            return Some(1);
        }
        (buffers <= back).then_some(buffers)
    }

    /// Takes the buffers of one frame from the used ring into `parts`. Returns the frame's length,
    /// or `None` if they are no frame. Buffers that can be offered again are in `parts` in any
    /// case.
    #[inline]
    fn collect(&mut self, buffers: u16) -> Option<usize> {
        self.parts.clear();
        let (mut frame_bytes, mut good) = (0, true);
        for index in 0..buffers {
            let (head, bytes) = self.ring.peek(0);
            self.ring.take(1);
            let Some(slot) = self.check(head) else {
                good = false;
                continue;
            };
            self.is_out[usize::from(slot)] = false;
            let skip = if index == 0 { HEADER_BYTES } else { 0 };
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            if length < skip || length > self.slots.bytes_max() {
                self.violation.get_or_insert(Violation::Length { head, bytes });
                good = false;
            } else {
                frame_bytes += length - skip;
            }
            self.parts.push((slot, bytes));
        }
        good.then_some(frame_bytes)
    }

    /// Returns the slot of a head that came back, if it was out.
    #[inline]
    fn check(&mut self, head: u32) -> Option<u16> {
        let slot = self.slots.slot(head).filter(|&slot| self.is_out[usize::from(slot)]);
        let Some(slot) = slot else {
            self.violation.get_or_insert(Violation::NotOut { head });
            return None;
        };
        let due = self.slots.turn(self.returned);
        self.returned += 1;
        if self.in_order && slot != due {
            let due = u32::from(self.slots.head(due));
            self.violation.get_or_insert(Violation::OutOfOrder { head, due });
        }
        Some(slot)
    }

    /// Returns the next frame, if one is there.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut frame = None;
        self.burst(1, |received| frame = Some(received.to_vec()));
        self.show();
        frame
    }

    /// Sleeps until a frame came or the time is over. Returns true if one came.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn wait(&mut self, time_max: Duration) -> Result<bool, GuestError> {
        self.ring.wait(time_max)
    }
}
