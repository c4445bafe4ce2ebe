//! Reasons in words, as the log, `vport watch` and `vport history` print them.

use core::fmt;

use super::surface::{End, Full};
use crate::learn::Reason;
use crate::mobility::{Refusal, Why};

/// The word of a reason.
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
    Evicted = "the chip is full, and it was used least recently",
    Moved = "the endpoint is elsewhere",
    Withdrawn = "nobody claims the endpoint any more",
    Removed = "no longer configured",
} }

words! { Full {
    Claims = "the vport table: no more endpoints are known",
    Wanted = "what waits for an endpoint that nobody claims yet",
    Flows = "the flows of the chip: the least recently used one went (`chip_flows`)",
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

#[cfg(test)]
mod tests;
