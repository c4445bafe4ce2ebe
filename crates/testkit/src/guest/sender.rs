//! The driver of a guest's transmit queue (virtio 1.2, 5.1.6.2).
//!
//! ```text
//!   stage() ─▶ slot taken, frame written, head offered     … up to a burst
//!   flush() ─▶ avail.idx published once, kick if wanted
//!   room()  ─▶ used.idx read when few slots are left, slots free again
//! ```
//!
//! Slots are used one after the other if order is agreed. Otherwise the last one that came back is
//! used first, because its lines are still in the cache. A full ring refuses a frame; no frame is
//! dropped here.

use std::sync::Arc;
use std::time::Duration;

use super::error::{GuestError, Violation};
use super::feature;
use super::memory::{Bytes, Memory};
use super::ring::Ring;
use super::shape::{HEADER_BYTES, Shape, Slots};

/// `room` reads the used ring only if fewer slots are free: each look costs a cache miss.
const FREE_ENOUGH: usize = 32;

/// Distance of the prefetch for writing, in frames.
const WRITE_AHEAD: usize = 24;

/// The transmit queue of a guest.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    slots: Slots,
    in_order: bool,
    /// Number of slots taken so far, and of those that came back. Only `taken` is written for a
    /// frame: two adjacent fields that were both written would be read with one load, which waits
    /// until every store before it has left the core.
    taken: usize,
    returned: usize,
    /// Without order: slots that are free.
    free: Vec<u16>,
    is_out: Vec<bool>,
    frames: u64,
    violation: Option<Violation>,
}

impl Sender {
    pub(super) fn new(
        memory: &Arc<Memory>,
        ring_size: u16,
        shape: Shape,
        frame_bytes_max: usize,
        outstanding_max: Option<u16>,
    ) -> Result<Self, GuestError> {
        let ring = Ring::new(memory, ring_size)?;
        let slots = Slots::new(memory, ring_size, shape, frame_bytes_max, outstanding_max)?;
        let count = usize::from(slots.count());
        let mut sender = Self {
            ring,
            slots,
            in_order: false,
            taken: 0,
            returned: 0,
            free: Vec::with_capacity(count),
            is_out: vec![false; count],
            frames: 0,
            violation: None,
        };
        sender.reset(0);
        Ok(sender)
    }

    /// Resets the queue with the agreed features; no slot is out.
    pub(super) fn reset(&mut self, features: u64) {
        self.ring.reset(features);
        self.slots.forget();
        self.in_order = features & feature::IN_ORDER != 0;
        (self.taken, self.returned) = (0, 0);
        self.free.clear();
        self.free.extend((0..self.slots.usable()).rev());
        self.is_out.fill(false);
        self.violation = None;
        // Clears the headers: that of a frame without offloads is zero, and no device writes it.
        for slot in 0..self.slots.usable() {
            self.slots.header(slot).fill(0);
        }
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

    /// Returns the frames staged since it was made.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the frames that the device has not completed, as of the last look of the driver.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.taken - self.returned
    }

    #[inline]
    fn free_count(&self) -> usize {
        usize::from(self.slots.usable()) - self.outstanding()
    }

    /// Returns the number of frames that can be staged now.
    #[inline]
    pub fn room(&mut self) -> usize {
        if self.free_count() < FREE_ENOUGH {
            self.reap();
        }
        self.free_count()
    }

    /// Takes back the frames that the device has completed. Returns their number.
    pub fn reap(&mut self) -> usize {
        let back = self.ring.back();
        let out = u16::try_from(self.outstanding()).unwrap_or(u16::MAX);
        if back > out {
            let violation = Violation::UsedAhead { used: back, out };
            self.violation.get_or_insert(violation);
            return 0;
        }
        if self.in_order {
            // One element may stand for many (2.7.9), so only the index counts.
            self.returned += usize::from(back);
            self.ring.take(back);
            return usize::from(back);
        }
        for _ in 0..back {
            let (head, _) = self.ring.peek(0);
            self.ring.take(1);
            let slot = self.slots.slot(head);
            let Some(slot) = slot.filter(|&slot| self.is_out[usize::from(slot)]) else {
                self.violation.get_or_insert(Violation::NotOut { head });
                continue;
            };
            self.is_out[usize::from(slot)] = false;
            self.free.push(slot);
            self.returned += 1;
        }
        usize::from(back)
    }

    #[inline]
    fn take_slot(&mut self) -> Option<u16> {
        if self.free_count() == 0 {
            return None;
        }
        let turn = self.taken;
        self.taken += 1;
        if self.in_order {
            // Prefetches the line of a later slot, which is in the device's cache until then.
            self.slots.prefetch_to_write(self.slots.turn(turn + WRITE_AHEAD));
            return Some(self.slots.turn(turn));
        }
        let slot = self.free.pop()?;
        self.is_out[usize::from(slot)] = true;
        Some(slot)
    }

    /// Puts a frame of `frame_bytes` bytes into the ring, which `fill` writes, without showing it
    /// to the device yet. Returns false if there is no room; [`room`](Self::room) may free some.
    ///
    /// # Panics
    /// If the frame is longer than the buffers, or they are not whole ([`super::Cut::Whole`]).
    #[inline]
    pub fn stage(&mut self, frame_bytes: usize, fill: impl FnOnce(Bytes<'_>)) -> bool {
        assert!(self.slots.is_whole(), "frames of many pieces are sent with `send`");
        let Some(slot) = self.take_slot() else { return false };
        let part = self.slots.part(slot, HEADER_BYTES, frame_bytes);
        assert!(part.len() == frame_bytes, "a frame of {frame_bytes} bytes does not fit");
        fill(part);
        self.finish(slot, frame_bytes);
        true
    }

    #[inline]
    fn finish(&mut self, slot: u16, frame_bytes: usize) {
        self.slots.describe(&mut self.ring, slot, HEADER_BYTES + frame_bytes, false);
        self.ring.offer(self.slots.head(slot));
        self.frames += 1;
    }

    /// Shows the staged frames to the device, and kicks it if it wants that.
    #[inline]
    pub fn flush(&mut self) {
        self.ring.publish();
    }

    /// Sends one frame at once. Returns false if the ring is full.
    ///
    /// # Panics
    /// If the frame is longer than the buffers.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.send_with_header(&[0; HEADER_BYTES], frame)
    }

    /// Sends one frame with this header, for tests of offloads and of invalid headers.
    ///
    /// # Panics
    /// If the frame is longer than the buffers.
    pub fn send_with_header(&mut self, header: &[u8; HEADER_BYTES], frame: &[u8]) -> bool {
        self.reap();
        let Some(slot) = self.take_slot() else { return false };
        self.slots.scatter(slot, 0, header);
        self.slots.scatter(slot, HEADER_BYTES, frame);
        self.finish(slot, frame.len());
        self.flush();
        if header.iter().any(|&byte| byte != 0) {
            self.slots.forget();
        }
        true
    }

    /// Sleeps until there is room or the time is over. Returns true if there is room.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn wait(&mut self, time_max: Duration) -> Result<bool, GuestError> {
        self.reap();
        if self.free_count() > 0 {
            return Ok(true);
        }
        self.ring.wait(time_max)?;
        self.reap();
        Ok(self.free_count() > 0)
    }
}
