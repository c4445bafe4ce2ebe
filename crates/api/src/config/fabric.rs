//! What a host says of itself as a member of a fabric.

use serde::{Deserialize, Serialize};

/// The host as a member of a fabric: it tells the other members of its endpoints and learns of
/// theirs. The members are the peers that have an `id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// Its name, the same on all members.
    pub name: String,
    /// The number of this host, different on all members; 1 to 32767.
    pub id: u16,
    /// Where it listens; default: the address of the underlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::Ipv4Addr>,
    /// The TCP and UDP port, the same on all members.
    #[serde(default = "default_fabric_port")]
    pub port: u16,
    /// The folder with the certificates of this host (`sluice fabric cert` makes it).
    pub certificates: String,
    /// How many endpoints may be learned at one port.
    #[serde(default = "default_learn_max")]
    pub learn_max: u32,
    /// How many endpoints one other member may claim.
    #[serde(default = "default_claims_per_host")]
    pub claims_per_host: u32,
    /// How many frames a second of one port the control plane looks at for one cause, such as ARP
    /// or a new source. A port may have twice as many for all causes, all ports together five times
    /// as many.
    #[serde(default = "default_punts_per_port")]
    pub punts_per_port: u32,
    /// How many moves of an endpoint between hosts within `moves_window_s` are no reason for alarm;
    /// 0: however many there are.
    #[serde(default = "default_moves_max")]
    pub moves_max: u32,
    /// The window in seconds.
    #[serde(default = "default_moves_window_s")]
    pub moves_window_s: u32,
    /// What is done about an endpoint that moves more often, one place after the other. One that is
    /// at two places at once is frozen.
    #[serde(default)]
    pub on_moves: OnMoves,
    /// For how many seconds it is frozen; not less than the window.
    #[serde(default = "default_freeze_s")]
    pub freeze_s: u32,
    /// For how many seconds a learned endpoint is answered for after it said itself that it has an
    /// address; then a question goes to it.
    #[serde(default = "default_confirmed_s")]
    pub confirmed_s: u32,
    /// How many questions a second control asks for frames of one port whose destination nobody
    /// claims. Half of that may be asked at once.
    #[serde(default = "default_asks_per_port")]
    pub asks_per_port: u32,
}

const fn default_fabric_port() -> u16 {
    7474
}

/// What is done about an endpoint that moves too often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMoves {
    /// The log and `sluice vport show` say so.
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
