//! Numbers of networks and peers in a data process.
//!
//! The switch of a data process knows a network and a peer by the number of their places. A data
//! process that is started numbers them by their positions in the file. While it runs they keep
//! their numbers, and those that come take the lowest free ones, whatever their positions are. So
//! frames, addresses and events that name a number mean the same throughout. Control takes the
//! numbers over from data, and gives them to the data process that follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_api::config::{HostConfig, Peer, Vnet};
use sluice_base::{TunnelId, VnetId};

/// Numbers of the networks and peers of a configuration, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    vnets: BTreeMap<String, u16>,
    peers: BTreeMap<String, u16>,
}

impl Numbers {
    /// Returns the positions of the networks and peers of a checked configuration.
    #[must_use]
    pub fn of_positions(config: &HostConfig) -> Self {
        Self {
            vnets: config.vnets.iter().map(|vnet| vnet.name.clone()).zip(0..).collect(),
            peers: config.peers.iter().map(|peer| peer.name.clone()).zip(0..).collect(),
        }
    }

    /// Returns the numbers of a configuration that follows one with these numbers: what stays keeps
    /// its number, and the others take the lowest numbers that are `free`.
    ///
    /// # Errors
    /// Kind of the places of which there are too few.
    pub fn follow(
        &self,
        now: &HostConfig,
        next: &HostConfig,
        free: (impl Fn(VnetId) -> bool, impl Fn(TunnelId) -> bool),
    ) -> Result<Self, &'static str> {
        let old: BTreeSet<VnetKey<'_>> = now.vnets.iter().map(vnet_key).collect();
        let stays = |vnet: &Vnet| old.contains(&vnet_key(vnet));
        let names = next.vnets.iter().map(|vnet| (vnet.name.as_str(), stays(vnet)));
        let vnets = renumber(&self.vnets, names, |at| (free.0)(VnetId(at))).ok_or("spare_vnets")?;
        let stays = |peer: &Peer| now.peers.iter().any(|old| is_same_peer(old, peer));
        let names = next.peers.iter().map(|peer| (peer.name.as_str(), stays(peer)));
        let peers =
            renumber(&self.peers, names, |at| (free.1)(TunnelId(at))).ok_or("spare_tunnels")?;
        Ok(Self { vnets, peers })
    }

    /// Returns the numbers of a configuration whose data process does not run yet, in which all
    /// places are free but those of what stays.
    #[must_use]
    pub fn follow_anew(&self, now: &HostConfig, next: &HostConfig) -> Self {
        let done = self.follow(now, next, (|_| true, |_| true));
        done.unwrap_or_else(|_| Self::of_positions(next))
    }

    /// Returns the number of a network.
    #[must_use]
    pub fn vnet(&self, name: &str) -> Option<VnetId> {
        self.vnets.get(name).copied().map(VnetId)
    }

    /// Returns the number of a peer.
    #[must_use]
    pub fn tunnel(&self, name: &str) -> Option<TunnelId> {
        self.peers.get(name).copied().map(TunnelId)
    }

    /// Returns true if these are numbers of exactly this configuration's networks and peers.
    #[must_use]
    pub fn fit(&self, config: &HostConfig) -> bool {
        let vnets: BTreeSet<&str> = config.vnets.iter().map(|vnet| vnet.name.as_str()).collect();
        let peers: BTreeSet<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        vnets.iter().copied().eq(self.vnets.keys().map(String::as_str))
            && peers.iter().copied().eq(self.peers.keys().map(String::as_str))
            && is_unique(&self.vnets)
            && is_unique(&self.peers)
    }

    /// Returns the number of places that a switch needs for networks, and for tunnels.
    pub(super) fn places(&self) -> (usize, usize) {
        let above = |of: &BTreeMap<String, u16>| {
            of.values().max().map_or(0, |highest| usize::from(*highest) + 1)
        };
        (above(&self.vnets), above(&self.peers))
    }

    /// Reads the numbers that control wrote beside a configuration; none if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn beside(config: &Path) -> anyhow::Result<Option<Self>> {
        let path = config.with_extension(EXTENSION);
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::read(&text)
                .with_context(|| format!("{} cannot be read", path.display()))
                .map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Returns the text of the file beside a configuration.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers are plain data")
    }
}

/// Extension of the file with the numbers beside a configuration.
pub(crate) const EXTENSION: &str = "numbers";

/// Name and VNI: equal for a network that is the same one in two configurations. Its MTU may
/// differ.
pub(crate) type VnetKey<'a> = (&'a str, Option<u32>);

/// Returns what makes a network the same one in two configurations.
pub(crate) fn vnet_key(vnet: &Vnet) -> VnetKey<'_> {
    (&vnet.name, vnet.vni)
}

/// Returns true if a peer is the same one in two configurations: its networks and the address of
/// its fabric may differ.
pub(crate) fn is_same_peer(a: &Peer, b: &Peer) -> bool {
    (&a.name, a.vtep, a.id) == (&b.name, b.vtep, b.id)
}

fn is_unique(of: &BTreeMap<String, u16>) -> bool {
    of.values().collect::<BTreeSet<_>>().len() == of.len()
}

/// Returns numbers for these names; `None` if the free ones are too few.
fn renumber<'a>(
    known: &BTreeMap<String, u16>,
    names: impl Iterator<Item = (&'a str, bool)> + Clone,
    is_free: impl Fn(u16) -> bool,
) -> Option<BTreeMap<String, u16>> {
    let kept = names.clone().filter(|(_, stays)| *stays);
    let mut all: BTreeMap<String, u16> =
        kept.filter_map(|(name, _)| Some((name.to_owned(), *known.get(name)?))).collect();
    let taken: BTreeSet<u16> = all.values().copied().collect();
    let mut free = (0..u16::MAX).filter(|at| !taken.contains(at) && is_free(*at));
    for (name, _) in names {
        if !all.contains_key(name) {
            all.insert(name.to_owned(), free.next()?);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests;
