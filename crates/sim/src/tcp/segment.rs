//! A segment between two endpoints: the fields of a TCP header that the state machine reads.
//!
//! No payload is carried, only its length. Offsets are 64 bit and never wrap, as a simulator may
//! choose: byte 0 is the first byte that the application writes, and SYN takes no offset. Time
//! stamps (RFC 7323) are 32 bit in units of 64 ns and wrap after 275 s.

use sluice_base::Nanos;

/// Largest number of SACK blocks in a segment: as many as fit beside time stamps (RFC 2018 clause
/// 3).
pub const SACK_BLOCKS_MAX: usize = 3;

/// Bytes of a TCP header without options.
const HEADER_BYTES: u32 = 20;
/// Bytes of the time stamp option with its padding (RFC 7323 appendix A).
const STAMP_BYTES: u32 = 12;
/// Bits by which a time in nanoseconds is shifted to make a time stamp.
const STAMP_SHIFT: u32 = 6;

/// A set of control bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No bit.
    pub const NONE: Self = Self(0);
    /// Opens a direction.
    pub const SYN: Self = Self(1);
    /// The field `ack` is valid.
    pub const ACK: Self = Self(2);
    /// Closes a direction. Room only: no endpoint sends it.
    pub const FIN: Self = Self(4);
    /// ECN echo (RFC 3168). Room only.
    pub const ECE: Self = Self(8);
    /// Congestion window reduced (RFC 3168). Room only.
    pub const CWR: Self = Self(16);
    /// The fields `stamp` and `echo` are valid.
    pub const STAMPED: Self = Self(32);

    /// Returns true if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Blocks of a selective acknowledgement, the one that changed last first (RFC 2018 clause 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    /// First byte and first byte after, both relative to the segment's `ack`.
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// No block.
    pub const NONE: Self = Self { blocks: [(0, 0); SACK_BLOCKS_MAX], count: 0 };

    /// Appends the block of bytes from `start` up to but without `end`, relative to `ack`. A block
    /// that does not fit is left out, because the option has no more room.
    pub fn push(&mut self, start: u32, end: u32) {
        debug_assert!(start < end, "an empty block");
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = (start, end);
            self.count += 1;
        }
    }

    /// Returns the blocks.
    #[must_use]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Returns true if there is no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// One TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Stream offset of the first byte.
    pub seq: u64,
    /// The next byte that the sender of this segment expects of the other direction.
    pub ack: u64,
    /// The advertised window: bytes after `ack` that may be sent.
    pub window: u32,
    /// Number of payload bytes.
    pub len: u32,
    /// Time at which the segment was sent, by its sender's clock in units of 64 ns (RFC 7323
    /// TSval).
    pub stamp: u32,
    /// The stamp of the segment that this one answers (RFC 7323 TSecr).
    pub echo: u32,
    /// Blocks received beyond `ack`.
    pub sack: SackBlocks,
    /// The control bits.
    pub flags: Flags,
}

const _: () = assert!(size_of::<Segment>() <= 64, "a segment is one cache line");

impl Segment {
    /// Returns the offset after the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.seq + self.len as u64
    }

    /// Number of bytes of the TCP header with the options that this segment carries, as on a wire:
    /// time stamps with their padding, SACK blocks with two bytes of padding (RFC 7323 appendix A,
    /// RFC 2018 clause 3).
    #[must_use]
    pub const fn header_bytes(&self) -> u32 {
        let stamps = if self.flags.contains(Flags::STAMPED) { STAMP_BYTES } else { 0 };
        let sack = if self.sack.is_empty() { 0 } else { 4 + 8 * self.sack.count as u32 };
        HEADER_BYTES + stamps + sack
    }
}

/// Returns the time stamp of a moment.
#[inline]
pub(crate) const fn stamp_of(now: Nanos) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a time stamp wraps")]
    let stamp = (now.0 >> STAMP_SHIFT) as u32;
    stamp
}

/// Returns the span from a time stamp to a moment, if it is below 275 s.
#[inline]
pub(crate) const fn since_stamp(now: Nanos, stamp: u32) -> Nanos {
    Nanos((stamp_of(now).wrapping_sub(stamp) as u64) << STAMP_SHIFT)
}

#[cfg(test)]
mod tests;
