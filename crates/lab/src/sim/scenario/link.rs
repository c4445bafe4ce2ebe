//! `[[topology.link]]`: the links of some hosts, where they differ from the others.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// Longest delay of a host's link: 100 ms, once around half of the earth.
const DELAY_NS_MAX: u64 = 100_000_000;

/// Values of the links of these hosts, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostLink {
    /// Numbers of the hosts, from 0.
    pub(crate) hosts: Vec<u32>,
    /// The delay in place of `topology.delay_ns`.
    pub(crate) delay_ns: u64,
}

/// Checks the links of a topology with so many hosts.
///
/// # Errors
///
/// Names the key with the wrong value, and the value to write instead.
pub(super) fn check(links: &[HostLink], hosts: u32) -> anyhow::Result<()> {
    let mut named = vec![false; hosts as usize];
    for link in links {
        ensure!(!link.hosts.is_empty(), "topology.link.hosts: one host at least");
        ensure!(
            link.delay_ns <= DELAY_NS_MAX,
            "topology.link.delay_ns: {DELAY_NS_MAX} at most (100 ms)"
        );
        for &host in &link.hosts {
            let place = named.get_mut(host as usize);
            let Some(place) = place else {
                anyhow::bail!(
                    "topology.link.hosts: there is no host {host}; use 0 to {}",
                    hosts - 1
                );
            };
            ensure!(
                !std::mem::replace(place, true),
                "topology.link.hosts: host {host} has one link and is named twice; name it once"
            );
        }
    }
    Ok(())
}
