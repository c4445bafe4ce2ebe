//! A data process that took the place of another while the host runs.

use serde::{Deserialize, Serialize};

/// What became of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The data process before.
    pub from: u32,
    /// The version of the program that goes on.
    pub version: String,
    /// What was handed over; absent: it was drained, and one is started anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
    /// Why nothing was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// What was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// The data process that goes on.
    pub to: u32,
    /// TAPs, sockets and rings that went on with what waited in them.
    pub ports: usize,
    /// For how long no port was read, in microseconds.
    pub gap_us: u64,
    /// How much of that frames took to leave the process before, in microseconds.
    pub drain_us: u64,
    /// Frames that did not leave in time, for their receiver took nothing, and ended.
    pub left: u64,
}
