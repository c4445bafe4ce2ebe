//! Reasons in words, as the log, `vport watch` and `vport history` print them.

use core::fmt;
use core::net::IpAddr;

use sluice_base::{HostId, ReceiverState};

use super::surface::{End, Event, Full};
use crate::learn::Reason;
use crate::mobility::{Refusal, Why};
use crate::vport::Key;

/// Maps each reason to its word.
macro_rules! words {
    ($name:ty { $($variant:ident = $word:literal,)* }) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }
    };
}

words! { End {
    Idle = "not used for its life",
    Evicted = "the FDB is full, and it was used least recently",
    Moved = "the endpoint is elsewhere",
    Withdrawn = "nobody claims the endpoint any more",
    Removed = "no longer configured",
} }

words! { Full {
    Claims = "the vport table: no more endpoints are known",
    Wanted = "what waits for an endpoint that nobody claims yet",
    Flows = "the flows of the FDB: the least recently used one went (`chip_flows`)",
    Commands = "orders that wait for the data process",
    Foreign = "endpoints of foreign hosts: the one not heard of for longest went",
} }

words! { Why {
    Learned = "learned",
    Announced = "announced",
    Withdrawn = "withdrawn by the host that had it",
    Swept = "no longer named by the host that had it",
    OwnerStale = "the host that had it is silent",
    OwnerLive = "a host that was silent is back",
    Evicted = "the host that had it was evicted",
} }

words! { Reason {
    GroupSource = "its source is a group address",
    ZeroSource = "its source is all zeros",
    NotMember = "the port is not in the network",
    Malformed = "its ARP or Neighbor Discovery is malformed",
    SenderMismatch = "it names another sender than its frame does",
    BadAddress = "it names an address that no endpoint can have",
    BoundElsewhere = "the endpoint is bound to another place",
    IpBoundElsewhere = "the IP address is bound to another endpoint",
    SpoofedMac = "the port is bound to another MAC (`spoofed_mac`)",
    SpoofedIp = "the endpoint is bound to another IP address (`spoofed_ip`)",
    Quota = "the port has as many endpoints as it may (`learn_max`)",
    TableFull = "this host remembers as many endpoints as it can",
} }

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sticky(_) => "it stays at the port that has it",
            Self::Bound(_) => "it is bound to the port that has it",
            Self::Frozen { .. } => "it moves too often, and is not followed for a while",
        })
    }
}

/// A binding of a host, in numbers.
fn binding(f: &mut fmt::Formatter<'_>, key: &Key, ip: Option<IpAddr>, host: HostId) -> fmt::Result {
    write!(f, "{} {}", key.vni, key.mac)?;
    ip.map_or(Ok(()), |ip| write!(f, " {ip}"))?;
    write!(f, " host {host}")
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Self::VportAdded(key, host)
            | Self::VportChanged(key, host)
            | Self::HoldBegun(key, host)
            | Self::HoldEnded(key, host)
            | Self::FlowMade(key, host) => {
                write!(f, "{} {} host {host}", key.vni, key.mac)
            }
            Self::VportMoved { key, from, to, why } => {
                write!(f, "{} {} host {from} to {to}: {why}", key.vni, key.mac)
            }
            Self::VportWithdrawn(key, host, why) => {
                write!(f, "{} {} host {host}: {why}", key.vni, key.mac)
            }
            Self::Conflict { key, ip, holder } => {
                write!(f, "{} {} has {ip}", key.vni, key.mac)?;
                holder.map_or(Ok(()), |mac| write!(f, " of {mac}"))
            }
            Self::AddressMoved { from, to, ip } => {
                write!(f, "{} {ip} from {} to {to}", from.vni, from.mac)
            }
            Self::AddressSilent { key, ip } | Self::TooManyIps(key, ip) => {
                write!(f, "{} {} {ip}", key.vni, key.mac)
            }
            Self::BoundTwice { key, ip, host } | Self::BindingTaken { key, ip, to: host } => {
                binding(f, key, *ip, *host)
            }
            Self::MovesOften(key, moves) => write!(f, "{} {} {moves} times", key.vni, key.mac),
            Self::Refused(port, Key { vni, mac }, why) => {
                write!(f, "{vni} {mac} port {port}: {why}")
            }
            Self::Held(port, Key { vni, mac }, why) => {
                write!(f, "{vni} {mac} port {port}: {why}")
            }
            Self::HostUp(host, incarnation) | Self::Outdone(host, incarnation) => {
                write!(f, "host {host} incarnation {incarnation}")
            }
            Self::HostSuspected(host)
            | Self::HostDown(host)
            | Self::SessionUp(host)
            | Self::SessionDown(host)
            | Self::SessionHung(host)
            | Self::ClaimsEvicted(host)
            | Self::HoldsUnknown(host)
            | Self::TunnelOpened(host) => write!(f, "host {host}"),
            Self::Isolated(port, receiver) => {
                let ReceiverState { isolated, held, stuck } = receiver;
                write!(f, "port {port}: {:#04x} {:#04x} {:#04x}", isolated.0, held.0, stuck.0)
            }
            Self::Restored(port) | Self::LinkUp(port) | Self::LinkDown(port) => {
                write!(f, "port {port}")
            }
            Self::OutOfBounds(host, key, bound) => {
                write!(f, "{} {} host {host}: {}", key.vni, key.mac, bound.name())
            }
            Self::ClaimsStale(host, count) | Self::ClaimsLive(host, count) => {
                write!(f, "host {host}: {count}")
            }
            Self::TunnelClosed(host, end) => write!(f, "host {host}: {end}"),
            Self::FlowEnded(key, host, end) => {
                write!(f, "{} {} host {host}: {end}", key.vni, key.mac)
            }
            Self::DecapMade(vni, host) => write!(f, "{vni} host {host}"),
            Self::DecapEnded(vni, host, end) => write!(f, "{vni} host {host}: {end}"),
            Self::WrongTalk(host, what) => write!(f, "host {host}: {}", what.name()),
            Self::Full(what) => write!(f, "{what}"),
        }
    }
}

#[cfg(test)]
mod tests;
