//! Configuration of a host that speaks EVPN (BGP).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// The host as a BGP speaker: it tells its neighbors of its endpoints, and learns from them which
/// hosts that are no members of the fabric have which endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evpn {
    /// Number of its autonomous system (AS).
    #[serde(rename = "as")]
    pub local_as: u32,
    /// BGP identifier; default: the address of its VTEP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<Ipv4Addr>,
    /// Address on which it listens, and from which it connects; default: that of its VTEP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// TCP port, here and at the neighbors.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Hold time that is offered, in seconds: 0 (none), or 3 and more.
    #[serde(default = "default_hold_s")]
    pub hold_s: u16,
    /// Seconds for which the routes of a neighbor stay when its session has ended.
    #[serde(default = "default_stale_s")]
    pub stale_s: u32,
    /// Route targets of networks for which it is not `AS:VNI`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, String>,
    /// The neighbors: other VTEPs, or route reflectors.
    #[serde(default, rename = "neighbor", skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<EvpnNeighbor>,
}

/// A BGP neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvpnNeighbor {
    /// Its address.
    pub address: IpAddr,
    /// Number of its AS.
    #[serde(rename = "as")]
    pub remote_as: u32,
    /// True if only the neighbor connects.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub passive: bool,
}

/// TCP port of BGP (RFC 4271 section 8).
const fn default_port() -> u16 {
    179
}

/// Hold time of FRR's profile for data centers.
const fn default_hold_s() -> u16 {
    9
}

const fn default_stale_s() -> u32 {
    30
}
