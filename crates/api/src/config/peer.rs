//! Other hosts.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Name of the host.
    pub name: String,
    /// Address of its VTEP.
    pub vtep: Ipv4Addr,
    /// Networks that it has.
    pub vnets: Vec<String>,
    /// MAC of the next hop to its VTEP (over vhost-user, which no kernel knows).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// Number in the fabric; absent: it is no member, and its endpoints are learned from its
    /// frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// Address on which it listens for members of the fabric; default: its VTEP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// True if EVPN has named it: this host adds and removes such peers itself.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub by_evpn: bool,
}
