//! The audit: per (input, priority) at which a frame was classified, in frames and in bytes,
//!
//! `received + injected + copied = delivered + consumed + resident + dropped`
//!
//! Everything but `resident` is a counter. `resident` is counted by walking every queue and list,
//! so that a frame that was lost, or is in two places, is detected.

use alloc::vec::Vec;

use sluice_base::{InputId, Priority};

/// All rows that are not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The rows.
    pub rows: Vec<AuditRow>,
}

/// One (input, priority).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// The input; the control input for frames that control made; [`crate::Switch::pool_input`] for
    /// frames of ports that are gone, once their numbers belong to other ports.
    pub input: InputId,
    /// The priority.
    pub priority: Priority,
    /// The terms in frames.
    pub frames: Balance,
    /// The terms in bytes, as received.
    pub bytes: Balance,
}

/// The terms of the audit in one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Frames that came in.
    pub received: u64,
    /// Frames made by control, or by flow control.
    pub injected: u64,
    /// Extra frames of replication.
    pub copied: u64,
    /// Frames taken by an output driver.
    pub delivered: u64,
    /// Flow control frames that the switch applied, and ARP and ND that its control plane took.
    pub consumed: u64,
    /// Frames in the switch.
    pub resident: u64,
    /// Frames dropped, over all reasons.
    pub dropped: u64,
    /// Frames dropped for congestion.
    pub dropped_congestion: u64,
}

impl Balance {
    /// Returns true if the two sides are equal.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.received + self.injected + self.copied
            == self.delivered + self.consumed + self.resident + self.dropped
    }
}

impl Audit {
    /// Returns true if every row closes, in frames and in bytes.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.rows.iter().all(|row| row.frames.is_closed() && row.bytes.is_closed())
    }

    /// Returns the sum of a term over all rows.
    pub fn total(&self, term: impl Fn(&AuditRow) -> u64) -> u64 {
        self.rows.iter().map(term).sum()
    }
}
