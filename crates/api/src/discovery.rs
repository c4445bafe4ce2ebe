//! Hosts that are heard on the wire: output of `sluice fabric discover`.
//!
//! All of it is hearsay: anybody on the network can send it.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Hosts that were heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// The hosts, by name.
    pub hosts: Vec<HeardRow>,
    /// Number of beacons beyond the size of the list.
    pub more: u64,
    /// Number of datagrams that were no beacons.
    pub unreadable: u64,
}

/// A host, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardRow {
    /// Name of the host.
    pub host: String,
    /// Name of its fabric; absent: it waits to create or join one.
    pub fabric: Option<String>,
    /// Fingerprint of the fabric's authority.
    pub authority: Option<String>,
    /// Address that the beacon came from.
    pub address: Ipv4Addr,
    /// Port of the host's fabric sessions.
    pub port: u16,
    /// Version of its program.
    pub program: String,
    /// Device that the beacon came in by.
    pub device: String,
    /// Time since its newest beacon, in milliseconds.
    pub age_ms: u64,
}
