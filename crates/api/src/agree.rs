//! Settings that must agree between members of a fabric, compared when they connect and once a
//! minute. The same types travel between hosts.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A page of a member's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedSettings {
    /// Version of its program.
    pub program: String,
    /// Policy of flow control.
    pub policy: String,
    /// VTEP of the member.
    pub vtep: IpAddr,
    /// Wall clock, in ms since 1970.
    pub clock_ms: u64,
    /// Networks that it believes the asking host to be in.
    pub vnets: Vec<VnetParticulars>,
    /// Start of the next page; absent: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A network of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnetParticulars {
    /// Name of the network at the member.
    pub vnet: String,
    /// VNI of the network.
    pub vni: u32,
    /// MTU of the network.
    pub mtu: u16,
}

/// The question for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Start of the page.
    #[serde(default)]
    pub from: u32,
}

/// A setting that differs between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// The VNI of a network of one name.
    Vni,
    /// A network that only one believes both to be in.
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

impl Setting {
    /// Returns the word used in every output.
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

    /// Returns true if frames take another path because of it, or are dropped.
    #[must_use]
    pub const fn concerns_frames(self) -> bool {
        !matches!(self, Self::Version | Self::Clock)
    }

    /// Returns the remedy, as a sentence.
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

/// A setting of a member that differs from this host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Difference {
    /// The setting.
    pub what: Setting,
    /// Network of the setting, if it has one, by its name here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnet: Option<String>,
    /// Value at this host.
    pub here: String,
    /// Value at the member.
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
