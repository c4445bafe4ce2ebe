//! A data process that replaced another at run time.

use serde::{Deserialize, Serialize};

/// Outcome of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// Process id of the old data process.
    pub from: u32,
    /// Version of the new data process's program.
    pub version: String,
    /// The handover; absent: the old process was drained, and a new one is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
    /// Reason why nothing was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Process id of the new data process.
    pub to: u32,
    /// Number of TAPs, sockets and rings that continued with their waiting frames.
    pub ports: usize,
    /// Time for which no port was read, in microseconds.
    pub gap_us: u64,
    /// Part of that time in which frames left the old process, in microseconds.
    pub drain_us: u64,
    /// Frames that did not leave in time, since their receiver took nothing, and were lost.
    pub left: u64,
}
