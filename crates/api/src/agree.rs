//! Particulars that members of a fabric must say alike, compared when they connect and once a
//! minute. The same types go from host to host.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A page of what a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Particulars {
    /// The version of its program.
    pub program: String,
    /// Its policy of flow control.
    pub policy: String,
    /// Its VTEP.
    pub vtep: IpAddr,
    /// Its wall clock, in ms since 1970.
    pub clock_ms: u64,
    /// Its networks, those of them that it takes the asking host to be in.
    pub vnets: Vec<VnetParticulars>,
    /// Where the next page begins; absent: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A network of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnetParticulars {
    /// Its name there.
    pub vnet: String,
    /// Its number on the wire.
    pub vni: u32,
    /// Its MTU.
    pub mtu: u16,
}

/// The question for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Where it begins.
    #[serde(default)]
    pub from: u32,
}

/// A matter that two members say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Matter {
    /// The VNI of a network of one name.
    Vni,
    /// A network that only one takes both to be in.
    Network,
    /// The MTU of a network.
    Mtu,
    /// The policy of flow control.
    Policy,
    /// The VTEP of the other host.
    Vtep,
    /// The version of the program.
    Version,
    /// The wall clock, by more than a second.
    Clock,
}

impl Matter {
    /// The word used in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vni => "vni",
            Self::Network => "network",
            Self::Mtu => "mtu",
            Self::Policy => "policy",
            Self::Vtep => "vtep",
            Self::Version => "version",
            Self::Clock => "clock",
        }
    }

    /// True if frames go another way for it, or end.
    #[must_use]
    pub const fn concerns_frames(self) -> bool {
        !matches!(self, Self::Version | Self::Clock)
    }

    /// The remedy, as a sentence.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Vni => "Give the network the same `vni` on both hosts.",
            Self::Network => {
                "Add the network to the `vnets` of that `[[peer]]`, on the host that lacks it."
            }
            Self::Mtu => "Give the network the same `mtu` on both hosts, or their underlays.",
            Self::Policy => "Give both hosts the same `policy`.",
            Self::Vtep => "Correct `vtep` of that `[[peer]]`, or `underlay.address` there.",
            Self::Version => "Upgrade the older host.",
            Self::Clock => "Let a time service set both clocks; what compares times by hand errs.",
        }
    }
}

/// Something that a member and this host say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The matter.
    pub what: Matter,
    /// The network, if it is about one, by its name here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnet: Option<String>,
    /// The word of this host.
    pub here: String,
    /// The word of the member.
    pub there: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what.name())?;
        if let Some(vnet) = &self.vnet {
            write!(f, " of {vnet}")?;
        }
        write!(f, " is {} here and {} there", self.here, self.there)
    }
}
