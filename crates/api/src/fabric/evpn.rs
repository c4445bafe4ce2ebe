//! A host as a BGP speaker (`sluice fabric evpn`).

use serde::{Deserialize, Serialize};

/// State of the speaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evpn {
    /// AS of this host.
    #[serde(rename = "as")]
    pub local_as: u32,
    /// BGP identifier.
    pub router_id: String,
    /// Address and TCP port on which it listens.
    pub address: String,
    /// Reason why it does not listen; absent: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Number of routes of this host: of networks, endpoints, and addresses of endpoints.
    pub announced_routes: u64,
    /// Number of MACs of which neighbors have told.
    pub heard_macs: u64,
    /// Hosts that neighbors have named.
    pub vteps: Vec<EvpnVtepRow>,
    /// The neighbors.
    pub neighbors: Vec<EvpnNeighborRow>,
}

/// A host that neighbors have named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvpnVtepRow {
    /// Address of its VTEP.
    pub vtep: String,
    /// VNIs of the networks of which it takes frames to all.
    pub vnis: Vec<u32>,
}

/// A neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvpnNeighborRow {
    /// Its address.
    pub address: String,
    /// Its AS.
    #[serde(rename = "as")]
    pub remote_as: u32,
    /// `idle`, `open-sent`, `open-confirm` or `established`.
    pub state: String,
    /// Its BGP identifier, while established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Number of its routes that are in use.
    pub routes: u64,
    /// True if these are those of a session that ended: they stay for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stale: bool,
    /// Number of routes of this host that it does not know yet.
    pub unsent_routes: u64,
    /// Its routes that are not in use, since the start.
    pub kept_out: EvpnKeptOut,
    /// End of its last session, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ending: Option<String>,
}

/// Number of routes that are not in use, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EvpnKeptOut {
    /// None of their targets is that of a network here, or their label is another network's.
    pub not_ours: u64,
    /// They have been here before.
    pub looped: u64,
    /// Their tunnel is not VXLAN to an IPv4 address.
    pub other_tunnel: u64,
    /// Their type is neither 2 nor 3.
    pub other_type: u64,
    /// They cannot be read, or name no machine's address.
    pub malformed: u64,
    /// Their MAC has as many routes as it may have.
    pub too_many: u64,
}

impl EvpnKeptOut {
    /// Returns the reasons that occurred, each with its number.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let all = [
            ("not of a network here", self.not_ours),
            ("have been here before", self.looped),
            ("of another tunnel", self.other_tunnel),
            ("of another type", self.other_type),
            ("malformed", self.malformed),
            ("beyond the most for a MAC", self.too_many),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}
