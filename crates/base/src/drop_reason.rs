//! Every way in which a frame can end without being delivered. Counters, the command line, JSON and
//! the documentation use the same words.

use core::fmt;

/// Class of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropClass {
    /// There was no room. On a lossless priority this class never occurs.
    Congestion,
    /// A rule does not let the frame pass.
    Policy,
    /// The frame breaks its format.
    Malformed,
    /// Its port or tunnel went away.
    Stopped,
    /// Its receiver took nothing for longer than its hold contract allows, or more frames were
    /// under way to it than are kept for a receiver that holds others up. A lossless priority may
    /// lose frames so, but only those for that receiver; they count as losses.
    Stuck,
}

impl DropClass {
    /// Returns the word used in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Congestion => "congestion",
            Self::Policy => "policy",
            Self::Malformed => "malformed",
            Self::Stopped => "stopped",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for DropClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $class:ident;)*) => {
        /// Reason why a frame ended without being delivered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons, in the order of their indices.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the word used in every output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the class of the reason.
            #[must_use]
            pub const fn class(self) -> DropClass {
                match self { $(Self::$variant => DropClass::$class),* }
            }

            /// Returns the reason as an index below [`Self::COUNT`].
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

drop_reasons! {
    /// The queue of a lossy output is full.
    OutputFull = "output_full", Congestion;
    /// The buffer of a lossy input is full, as the receive ring of a NIC without flow control.
    InputFull = "input_full", Congestion;
    /// A copy of a broadcast, multicast or unknown-unicast frame found its output's share of the
    /// copies taken, or the host pool had no room for the frame.
    ReplicationLimit = "replication_limit", Congestion;
    /// Too many frames wait for a destination that is not resolved yet (lossy priorities only).
    UnresolvedFull = "unresolved_full", Congestion;
    /// The destination was not resolved in time.
    Unresolved = "unresolved", Policy;
    /// A VXLAN frame from an address that is no VTEP of this fabric.
    UnknownVtep = "unknown_vtep", Policy;
    /// A VXLAN frame whose VNI this host does not have, or that its sender may not use.
    UnknownVni = "unknown_vni", Policy;
    /// The destination is behind the port that the frame came from.
    SamePort = "same_port", Policy;
    /// A frame from the underlay whose destination is behind the underlay: every host reaches every
    /// other by itself, and frames relayed between tunnels could circle (split horizon in a full
    /// mesh, as RFC 4762 section 4.4; RFC 7348 says nothing of it). Or a frame of a port that a
    /// device offloads for another port of the device, which has forwarded it.
    SplitHorizon = "split_horizon", Policy;
    /// A broadcast or multicast frame without a receiver.
    NoReceiver = "no_receiver", Policy;
    /// A destination address that bridges do not forward (802.1Q clause 8.6.3).
    ReservedAddress = "reserved_address", Policy;
    /// A VLAN that the frame's port does not have.
    VlanNotAllowed = "vlan_not_allowed", Policy;
    /// A frame without a tag at a trunk port none of whose VLANs is native (802.1Q clause 6.9.1:
    /// only VLAN-tagged frames are admitted).
    Untagged = "untagged", Policy;
    /// Not a frame that an underlay port takes: neither VXLAN to this VTEP nor MAC Control.
    NotForUs = "not_for_us", Policy;
    /// ARP or Neighbor Discovery for a group that a control plane took, and found no room to answer
    /// or to flood.
    PuntLimit = "punt_limit", Policy;
    /// ARP or Neighbor Discovery for a group that a control plane took, of a source that it does
    /// not believe: over its port's quota, bound elsewhere, or no address of a machine.
    RefusedSource = "refused_source", Policy;
    /// A broadcast beyond what its port, or its network through tunnels, may send.
    StormLimit = "storm_limit", Policy;
    /// A source that is not bound to the port, or ARP whose sender is another than that of its
    /// frame.
    SpoofedMac = "spoofed_mac", Policy;
    /// An IP address that its sender, which is bound to the port, does not have.
    SpoofedIp = "spoofed_ip", Policy;
    /// Larger than the MTU of the port or network it must leave by.
    Oversize = "oversize", Policy;
    /// The device of its output never takes it. Counted at that output, not where it came in.
    Refused = "refused", Policy;
    /// Shorter than its headers say.
    Runt = "runt", Malformed;
    /// The source address is a group address, or all zeros.
    BadSource = "bad_source", Malformed;
    /// An 802.1Q tag that is cut off or stacked on another.
    BadVlan = "bad_vlan", Malformed;
    /// An ARP packet whose fixed fields or length are wrong (RFC 826).
    BadArp = "bad_arp", Malformed;
    /// An outer IPv4 header with a wrong version, length, checksum, or a fragment.
    BadIp = "bad_ip", Malformed;
    /// An outer UDP header whose length does not fit.
    BadUdp = "bad_udp", Malformed;
    /// A VXLAN header without the I flag (RFC 7348 section 5), or nothing behind it.
    BadVxlan = "bad_vxlan", Malformed;
    /// A MAC Control frame that is cut off or has an unknown opcode.
    BadPause = "bad_pause", Malformed;
    /// The outer ECN field is "congestion experienced", and the inner transport is not ECN-capable
    /// (RFC 6040 section 4.2).
    NotEcnCapable = "not_ecn_capable", Congestion;
    /// The frame's port was detached.
    Stopped = "stopped", Stopped;
    /// The frame's tunnel has had no next hop for longer than the configured time.
    TunnelDown = "tunnel_down", Stopped;
    /// The frame's tunnel or network was removed from this host.
    Removed = "removed", Stopped;
    /// Its receiver took nothing for longer than its hold contract, or does not take what comes and
    /// more came than is kept for it.
    ReceiverStuck = "receiver_stuck", Stuck;
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
