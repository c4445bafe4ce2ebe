//! Places for networks and peers that come while a host runs.

use std::collections::BTreeSet;

use sluice_base::{TunnelId, VnetId};
use sluice_switch::SparePlaces;

use super::Builder;

impl Builder<'_> {
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
