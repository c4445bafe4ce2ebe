//! Configuration of a port for a virtual machine.

use std::path::PathBuf;

use sluice_base::PriorityMask;

use super::session::Role;

/// Configuration of a port for a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Side that listens there.
    pub role: Role,
    /// Size of the largest layer-3 packet.
    pub mtu: u16,
    /// True if chains of the guest's transmit queues are used in the order in which it made them
    /// available.
    pub in_order: bool,
    /// Priorities of each queue pair, eight pairs at most; one pair if empty.
    pub queues: Vec<PriorityMask>,
    /// True if the guest may leave checksums and segmentation to the port, and the port to it.
    pub offload: bool,
}
