//! List of the hosts that were heard, of a bounded size. Pure: the time is an argument.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use sluice_api::discovery::{Heard, HeardRow};
use sluice_base::Nanos;

use super::beacon::Beacon;

/// Most hosts on the list.
pub const HEARD_MAX: usize = 256;

/// Hosts that were heard.
#[derive(Debug, Default)]
pub struct HeardHosts {
    /// Newest beacon by name, device and address.
    hosts: BTreeMap<(String, String, Ipv4Addr), (Nanos, Beacon)>,
    more: u64,
    unreadable: u64,
}

impl HeardHosts {
    /// Takes a datagram that came in by `device` from `address`.
    pub fn hear(&mut self, now: Nanos, device: &str, address: Ipv4Addr, datagram: &[u8]) {
        let Ok(beacon) = Beacon::parse(datagram) else {
            self.unreadable += 1;
            return;
        };
        let key = (beacon.host().to_owned(), device.to_owned(), address);
        if self.hosts.len() >= HEARD_MAX && !self.hosts.contains_key(&key) {
            // The first ones stay: a flood of invented hosts hides none that was there before.
            self.more += 1;
            return;
        }
        self.hosts.insert(key, (now, beacon));
    }

    /// Returns the list.
    #[must_use]
    pub fn heard(&self, now: Nanos) -> Heard {
        let row = |((host, device, address), (at, beacon)): (
            &(String, String, Ipv4Addr),
            &(Nanos, Beacon),
        )| {
            let fabric = beacon.fabric();
            HeardRow {
                host: host.clone(),
                fabric: fabric.map(|fabric| fabric.name().to_owned()),
                authority: fabric.map(|fabric| fabric.authority().to_owned()),
                address: *address,
                port: beacon.port(),
                program: beacon.program().to_owned(),
                device: device.clone(),
                age_ms: now.since(*at).0 / 1_000_000,
            }
        };
        let hosts = self.hosts.iter().map(row).collect();
        Heard { hosts, more: self.more, unreadable: self.unreadable }
    }
}

#[cfg(test)]
mod tests;
