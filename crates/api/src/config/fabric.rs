//! Configuration of a host as a member of a fabric.

use serde::{Deserialize, Serialize};

/// The host as a member of a fabric: it announces its endpoints to the other members and learns
/// theirs. The members are the peers that have an `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Name of the fabric, the same on all members.
    pub name: String,
    /// Number of this host, different on all members; 1 to 32767.
    pub id: u16,
    /// Address on which it listens; default: the address of the underlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::Ipv4Addr>,
    /// TCP and UDP port, the same on all members.
    #[serde(default = "default_fabric_port")]
    pub port: u16,
    /// Folder with the certificates of this host (`sluice fabric cert` makes it).
    pub certificates: String,
    /// Most endpoints that may be learned at one port.
    #[serde(default = "default_learn_max")]
    pub learn_max: u32,
    /// Most endpoints that one other member may claim.
    #[serde(default = "default_claims_per_host")]
    pub claims_per_host: u32,
    /// Most frames per second of one port that the control plane handles for one cause, such as ARP
    /// or a new source. A port may have twice as many for all causes, all ports together five times
    /// as many.
    #[serde(default = "default_punts_per_port")]
    pub punts_per_port: u32,
    /// Moves of an endpoint between hosts within `moves_window_s` that are allowed; 0: any number.
    #[serde(default = "default_moves_max")]
    pub moves_max: u32,
    /// Window in seconds.
    #[serde(default = "default_moves_window_s")]
    pub moves_window_s: u32,
    /// Reaction to an endpoint that moves more often, one place after the other. An endpoint that
    /// is at two places at once is frozen.
    #[serde(default)]
    pub on_moves: MobilityPolicy,
    /// Seconds for which it is frozen; not less than the window.
    #[serde(default = "default_freeze_s")]
    pub freeze_s: u32,
    /// Seconds for which this host answers for a learned endpoint after it announced its address
    /// itself; then a question goes to the endpoint.
    #[serde(default = "default_confirmed_s")]
    pub confirmed_s: u32,
    /// Questions per second that control sends for frames of one port whose destination is unknown.
    /// Half of that may be asked at once.
    #[serde(default = "default_asks_per_port")]
    pub asks_per_port: u32,
}

const fn default_fabric_port() -> u16 {
    7474
}

/// Reaction to an endpoint that moves too often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MobilityPolicy {
    /// The log and `sluice vport show` report it.
    #[default]
    Warn,
    /// It is frozen where it is.
    Freeze,
}

const fn default_moves_max() -> u32 {
    5
}

const fn default_moves_window_s() -> u32 {
    180
}

const fn default_freeze_s() -> u32 {
    1_800
}

const fn default_learn_max() -> u32 {
    1024
}

const fn default_claims_per_host() -> u32 {
    1 << 17
}

const fn default_punts_per_port() -> u32 {
    10_000
}

const fn default_confirmed_s() -> u32 {
    1
}

const fn default_asks_per_port() -> u32 {
    100
}
