//! Bytes that a receiver holds beyond a gap, and the SACK blocks that report them.
//!
//! The range that changed last is in front: RFC 2018 clause 4 wants the blocks in this order.

use super::segment::SackBlocks;

/// Bytes held beyond a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    /// Ranges that do not touch; the one that changed last first.
    ranges: Vec<(u64, u64)>,
}

impl Reassembly {
    /// Returns true if no bytes are held.
    pub(super) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds the bytes `start..end`. Returns true if any of them is new.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        let mut merged = (start, end);
        let mut known = false;
        self.ranges.retain(|&(s, e)| {
            let touches = s <= merged.1 && merged.0 <= e;
            if touches {
                known |= s <= start && end <= e;
                merged = (merged.0.min(s), merged.1.max(e));
            }
            !touches
        });
        // Ranges that touch the new one do not touch each other, so one pass is enough.
        self.ranges.insert(0, merged);
        !known
    }

    /// Notes that everything below `next` is in order. Returns the first byte that is still
    /// missing.
    pub(super) fn advance(&mut self, next: u64) -> u64 {
        let mut reached = next;
        // A range that begins at or below `next` can end above it; no second one can follow at
        // once, because ranges do not touch.
        self.ranges.retain(|&(start, end)| {
            let joins = start <= next;
            if joins {
                reached = reached.max(end);
            }
            !joins
        });
        reached
    }

    /// Returns the blocks to report beside the acknowledgement `ack`.
    pub(super) fn blocks(&self, ack: u64) -> SackBlocks {
        let mut blocks = SackBlocks::NONE;
        for &(start, end) in self.ranges.iter().take(super::segment::SACK_BLOCKS_MAX) {
            // A window has fewer than 2^32 bytes, so that both always fit.
            if let (Ok(start), Ok(end)) = (u32::try_from(start - ack), u32::try_from(end - ack)) {
                blocks.push(start, end);
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests;
