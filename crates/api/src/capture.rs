//! Frames to capture at the ports of a host.

use serde::{Deserialize, Serialize};

/// Smallest part of a frame that is captured.
pub const SNAPLEN_MIN: u32 = 14;
/// Largest part of a frame that is captured: a super-frame has less.
pub const SNAPLEN_MAX: u32 = 256 << 10;

/// The frames that are wanted. Ports, peers and `underlay` say where, networks say which; nothing
/// said means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Names of ports.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Names of networks; at an underlay, their VNIs.
    #[serde(default)]
    pub vnets: Vec<String>,
    /// Names of peers: frames of tunnels from and to them.
    #[serde(default)]
    pub peers: Vec<String>,
    /// True for the ports that lead to other hosts.
    #[serde(default)]
    pub underlay: bool,
    /// True for frames that enter and leave ports.
    pub frames: bool,
    /// True for frames that are dropped.
    pub drops: bool,
    /// Reason of dropped frames; absent: any.
    #[serde(default)]
    pub reason: Option<String>,
    /// Longest part of a frame, in bytes.
    pub snaplen: u32,
}

/// The capture has begun: records follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Number of data workers, each of which has a buffer.
    pub workers: usize,
    /// Size of a buffer in bytes.
    pub buffer_bytes: usize,
}

/// A port, before the first of its frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortName {
    /// Its name.
    pub name: String,
    /// Its network; empty for an underlay.
    pub vnet: String,
}

/// The result of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Frames that were written.
    pub captured: u64,
    /// Frames that were to be captured and found no room: they were forwarded all the same.
    pub missed: u64,
    /// The same by port.
    pub ports: Vec<PortSummary>,
}

/// The result of a capture at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSummary {
    /// Its name.
    pub port: String,
    /// Frames that were to be captured.
    pub seen: u64,
    /// Number of these that found no room.
    pub missed: u64,
}
