//! Headroom: bytes that may still arrive after a sender was told to stop; computed, never guessed.
//!
//! After the decision for XOFF, frames keep arriving while (1) the reader sleeps before it sends
//! the pause, (2) the pause and the last frame travel, and (3) the sender reacts; and on both ends
//! a frame that has begun is finished. In a hardware switch (1) is zero; a program on a shared CPU
//! may be descheduled for tens of milliseconds, which is most of the sum. The kernel's receive ring
//! takes all of these bytes, so its size is part of the promise.

use sluice_base::{BitRate, ByteCount, Nanos};

/// Longest reaction of a sender to a pause frame: 60 quanta of 512 bits (802.3 clause 31B.3.7, at
/// 10 Gbit/s), in bytes.
pub(super) const RESPONSE: ByteCount = ByteCount(60 * 512 / 8);

/// Most memory of one receive ring. A headroom in bytes is many frames if they are small, and the
/// kernel gives each a slot of full size: 1 Gbit/s for 50 ms of the smallest takes 114 MB.
pub(crate) const RING_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Rate that is assumed for a link without a configured one.
pub(super) const RATE_DEFAULT: BitRate = BitRate::from_gbps(10);
/// One-way delay of a link.
pub(super) const DELAY_DEFAULT: Nanos = Nanos::from_micros(1);
/// Longest time for which the reader is descheduled.
pub(super) const STALL_DEFAULT: Nanos = Nanos::from_millis(50);

/// Inputs of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Rate of the link.
    pub rate: BitRate,
    /// One-way delay.
    pub delay: Nanos,
    /// Longest time for which the reader does not run.
    pub stall: Nanos,
    /// The largest frame on the wire.
    pub frame_max: ByteCount,
    /// Priorities that are paused.
    pub lossless: u8,
}

impl Headroom {
    /// Returns the bytes: `rate * (2 * delay + stall) + response + 2 * frame` for each lossless
    /// priority.
    #[must_use]
    pub fn bytes(&self) -> ByteCount {
        let time = self.delay.after(self.delay).after(self.stall);
        let moving = self.rate.bytes_in(time);
        ByteCount(moving.0 + RESPONSE.0 + 2 * self.frame_max.0 * u64::from(self.lossless))
    }
}
