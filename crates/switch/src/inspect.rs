//! State of a switch as its readers see it: counters, high-water marks, and the state of places.

use sluice_base::{Nanos, PortId, Priority};

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Counter {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }

    /// Returns the count of one frame.
    pub(crate) const fn of(bytes: u32) -> Self {
        Self { frames: 1, bytes: bytes as u64 }
    }

    /// Adds another counter.
    pub fn add_all(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

/// High-water marks of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Frames.
    pub frames_max: u32,
    /// Bytes.
    pub bytes_max: u64,
}

impl Marks {
    /// Raises each mark to that of `other`, if it is larger.
    pub(crate) fn rise_to(&mut self, other: Self) {
        self.rise(other.frames_max, other.bytes_max);
    }

    #[inline]
    pub(crate) fn rise(&mut self, frames: u32, bytes: u64) {
        if frames > self.frames_max {
            self.frames_max = frames;
        }
        if bytes > self.bytes_max {
            self.bytes_max = bytes;
        }
    }
}

/// Flow control of one (port, priority).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseState {
    /// XOFF sent, refreshes included.
    pub xoff_sent: u64,
    /// XON sent.
    pub xon_sent: u64,
    /// Pauses received, XON included.
    pub received: u64,
    /// Total time for which the output was paused.
    pub paused_time: Nanos,
    /// True if the output is paused.
    pub paused: bool,
    /// True if the sender behind the input is paused.
    pub pausing: bool,
}

/// A receiver that is isolated: see `isolation.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolatedState {
    /// The port.
    pub port: PortId,
    /// The priority.
    pub priority: Priority,
    /// Moment at which it was isolated.
    pub since: Nanos,
    /// Moment at which a frame was last seen to leave, or no frame to wait.
    pub moved_at: Nanos,
    /// Frames that it has in the reserve.
    pub reserve_frames: u32,
    /// Their bytes.
    pub reserve_bytes: u64,
    /// True if its senders are asked to hold it.
    pub asks: bool,
    /// True if its hold contract is over: new frames end under `receiver_stuck`.
    pub stuck: bool,
}

/// Counters of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounters {
    /// Frames taken by the driver.
    pub sent: Counter,
    /// Frames received from it.
    pub received: Counter,
    /// Frames that wait for it.
    pub queued_frames: u32,
    /// True if its next hop is known.
    pub up: bool,
    /// The MTU of the path to its far end, if it was learned and is less than the device's.
    pub path_mtu: Option<u16>,
}

/// Occupancy of the forwarding table (FDB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbState {
    /// Entries, flows included.
    pub macs: usize,
    /// Limit of entries.
    pub macs_max: usize,
    /// Entries that lead through tunnels.
    pub flows: usize,
    /// Limit of entries that lead through tunnels.
    pub flows_max: usize,
    /// Entries of local ports that were evicted.
    pub macs_evicted: u64,
    /// Entries of tunnels that were evicted.
    pub flows_evicted: u64,
}
