//! Commands of the control plane.

use core::net::IpAddr;

use crate::{Destination, DropReason, Mac, PortId, PriorityMask, TunnelId, VnetId};

/// A command of the control plane for the switch. Commands that carry a frame need a buffer, and
/// are no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds an address to the forwarding table (FDB), evicts the least recently used one if the
    /// table is full, and releases the frames that wait for the address.
    Install {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
        /// The destination of its frames.
        to: Destination,
    },
    /// Removes an address from the forwarding table. Queued frames stay queued.
    Remove {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
    },
    /// Ends the frames that wait for an address, under [`DropReason::Unresolved`].
    Reject {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
    },
    /// Drops frames that were taken at a port ([`is_taken`](crate::PuntCause::is_taken)), which
    /// control neither answered nor flooded.
    Refuse {
        /// The port.
        port: PortId,
        /// Reason of the drop.
        reason: DropReason,
        /// Number of frames.
        frames: u64,
        /// Number of their bytes.
        bytes: u64,
    },
    /// Ends a decap flow. The next frame of the peer starts a new one.
    ForgetDecap {
        /// The network.
        vnet: VnetId,
        /// The peer.
        tunnel: TunnelId,
    },
    /// Holds a destination behind a tunnel here, as its host asked: frames for it of some
    /// priorities wait in the inputs of their senders. Without any priority, releases the
    /// destination: the frames that wait are sent in order.
    Hold {
        /// The network.
        vnet: VnetId,
        /// The destination.
        mac: Mac,
        /// The tunnel to its host.
        tunnel: TunnelId,
        /// Priorities that are held.
        held: PriorityMask,
        /// Held priorities whose frames end under [`DropReason::ReceiverStuck`], as the hold
        /// contract of the receiver is over.
        stuck: PriorityMask,
    },
    /// Unbinds a machine from a port, so that its frames end under [`DropReason::SpoofedMac`], or
    /// takes one address from it, which unbinds a machine without another one. An address is not
    /// taken from a machine that may have any.
    Unbind {
        /// The port.
        port: PortId,
        /// The machine.
        mac: Mac,
        /// The address; `None`: all of the binding.
        ip: Option<IpAddr>,
    },
}
