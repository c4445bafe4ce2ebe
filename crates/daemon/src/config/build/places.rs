//! Places for networks and peers that come while a host runs.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::config::{Port, PortKind};
use sluice_base::{TunnelId, VnetId};
use sluice_switch::{SpareConfig, SparePlaces};

use super::Builder;

impl Builder<'_> {
    /// Returns the tunnels of each network, in the order of the peers.
    pub(super) fn tunnels_of_vnets(&self) -> BTreeMap<&str, Vec<TunnelId>> {
        let mut all: BTreeMap<&str, Vec<TunnelId>> = BTreeMap::new();
        for peer in &self.config.peers {
            let tunnel = self.tunnel_id(&peer.name);
            for vnet in &peer.vnets {
                all.entry(vnet).or_default().push(tunnel);
            }
        }
        all
    }

    /// Returns the room for ports that are added at run time. All of them are TAPs.
    pub(super) fn spare(&self) -> Option<SpareConfig> {
        let ports = self.config.spare_ports();
        let like = Port::new("", PortKind::Tap, "", "");
        // The networks may all come later.
        let (vnet, mtu) = match self.config.vnets.first() {
            Some(vnet) => (self.vnet_id(&vnet.name), self.vnet_mtu(vnet)),
            None => (VnetId(0), self.inner_mtu()),
        };
        (ports > 0).then(|| SpareConfig { ports, like: self.port_in(&like, vnet, mtu) })
    }

    /// Returns the places that no network and no peer has.
    pub(super) fn spare_places(&self) -> SparePlaces {
        let (vnets, tunnels) = self.numbers.places();
        let (vnets_min, tunnels_min) = (self.config.vnets.len(), self.config.peers.len());
        let vnets = vnets.max(vnets_min + usize::from(self.config.spare_vnets()));
        let tunnels = tunnels.max(tunnels_min + usize::from(self.config.spare_tunnels()));
        let vnet_ids = self.config.vnets.iter().map(|vnet| self.vnet_id(&vnet.name));
        let tunnel_ids = self.config.peers.iter().map(|peer| self.tunnel_id(&peer.name));
        let (in_use, tunnels_in_use): (BTreeSet<_>, BTreeSet<_>) =
            (vnet_ids.collect(), tunnel_ids.collect());
        SparePlaces {
            vnets: (0..vnets).map(VnetId::from_index).filter(|id| !in_use.contains(id)).collect(),
            tunnels: (0..tunnels)
                .map(TunnelId::from_index)
                .filter(|id| !tunnels_in_use.contains(id))
                .collect(),
        }
    }
}
