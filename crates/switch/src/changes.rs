//! Networks and tunnels that come and go while the switch runs.
//!
//! ```text
//!             add                       remove
//!    FREE ───────────> IN USE ────────────────────────> REMOVED
//!     ^                                                    │
//!     └── no frame in the switch names it any more ────────┘
//! ```
//!
//! **Places.** [`Switch::new`] makes the tables with the spare places of the configuration
//! ([`SparePlaces`](crate::SparePlaces)). A network or tunnel that comes takes the place that the
//! caller names, and may allocate memory for its own rows; no frame does.
//!
//! **Removal.** The frames that can only go to what is removed end under `removed`
//! ([`DropReason::Removed`](sluice_base::DropReason::Removed)), and every reference goes: addresses
//! in the forwarding table (FDB), holds, decap flows, events. Frames that came in through a tunnel
//! before it was removed are delivered. A place is taken again only when they have left, since
//! their queues have its number.
//!
//! **Several switches of a host.** Each of them executes every change. Frames on their way between
//! two switches name places of both: add a place in all switches before any frame can name it, and
//! take one again only when all switches have removed it and every frame that was handed off before
//! that has been received.

use sluice_base::{Buf, PortId, Priority, TunnelId, VnetId};

use crate::config::{ConfigError, Service};
use crate::slots::List;
use crate::switch::Switch;

/// State of the place of a network or tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// There is nothing; something may come.
    Free,
    /// There is a network or tunnel.
    InUse,
    /// What was there is removed, and frames that name it are still in the switch.
    Removed,
}

/// Reason why a network or tunnel cannot come, go or change. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeError {
    /// No place of that number, or no network there.
    NoSuchVnet(VnetId),
    /// No place of that number, or no tunnel there.
    NoSuchTunnel(TunnelId),
    /// The place of the network is not free.
    VnetTaken(VnetId, PlaceState),
    /// The place of the tunnel is not free.
    TunnelTaken(TunnelId, PlaceState),
    /// A local port is in the network.
    HasPort(VnetId, PortId),
    /// No port of that number, or none whose values change.
    NoSuchPort(PortId),
    /// The configuration is invalid.
    Config(ConfigError),
}

/// Sums over the networks in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    vnets: usize,
    /// Least MTU of a network; `None` without a network.
    vnet_mtu_min: Option<u32>,
}

impl Places {
    /// Returns true if there are at least two networks.
    pub(crate) const fn has_several_vnets(self) -> bool {
        self.vnets > 1
    }

    /// Returns the least MTU of a network.
    pub(crate) fn vnet_mtu_min(self) -> u32 {
        self.vnet_mtu_min.unwrap_or(u32::MAX)
    }
}

impl<B: Buf> Switch<B> {
    /// Returns the state of a place for a network. The call is cheap while the network is in use or
    /// the place is free; otherwise it walks the queues ([`Self::free_places`]: once for all).
    ///
    /// # Panics
    /// If there is no such place.
    #[must_use]
    pub fn vnet_state(&self, vnet: VnetId) -> PlaceState {
        let names = |slot: u32| self.slots.get(slot).vnet == vnet.0;
        match self.vnets[vnet.index()].state {
            PlaceState::Removed if !self.has_slot_that(names) && !self.has_tag_of_vnet(vnet) => {
                PlaceState::Free
            }
            state => state,
        }
    }

    /// Returns the state of a place for a tunnel. The call is cheap while the tunnel is in use or
    /// the place is free; otherwise it walks the queues.
    ///
    /// # Panics
    /// If there is no such place.
    #[must_use]
    pub fn tunnel_state(&self, tunnel: TunnelId) -> PlaceState {
        let place = &self.tunnels[tunnel.index()];
        let names = |slot: u32| self.slots.get(slot).source == place.source;
        match place.state {
            PlaceState::Removed
                if !self.has_slot_that(names) && !self.has_tag_of_source(place.source) =>
            {
                PlaceState::Free
            }
            state => state,
        }
    }

    /// Returns the number of places for networks.
    #[must_use]
    pub const fn vnet_places(&self) -> usize {
        self.vnets.len()
    }

    /// Returns the number of places for tunnels.
    #[must_use]
    pub const fn tunnel_places(&self) -> usize {
        self.tunnels.len()
    }

    /// Sets the service of a priority at all ports.
    ///
    /// # Errors
    /// A weight of zero; nothing was changed.
    pub fn set_service(&mut self, priority: Priority, service: Service) -> Result<(), ChangeError> {
        if service == Service::Weighted(0) {
            return Err(ChangeError::Config(ConfigError::ZeroWeight { priority }));
        }
        self.egress.set_service(priority, service);
        Ok(())
    }

    /// Recomputes the sums over networks, and the sizes up to which frames fit into tunnels.
    pub(crate) fn places_changed(&mut self) {
        let before = self.places.vnet_mtu_min;
        let in_use = self.vnets.iter().filter(|vnet| vnet.is_in_use());
        let mtu = |vnet: &crate::place::Vnet| vnet.mtu();
        self.places = Places { vnets: in_use.clone().count(), vnet_mtu_min: in_use.map(mtu).min() };
        if self.places.vnet_mtu_min == before {
            return;
        }
        for tunnel in 0..self.tunnels.len() {
            if self.tunnels[tunnel].is_in_use() {
                self.fit_tunnel(tunnel);
            }
        }
    }

    /// Returns true if a frame that has a slot is in the switch, or held by another switch, and is
    /// one that `names` selects.
    fn has_slot_that(&self, names: impl Fn(u32) -> bool) -> bool {
        let any = |list: List| self.slots.walk(list).any(&names);
        self.egress.leaves().any(|leaf| any(self.egress.queue(leaf).list()))
            || self.ingress.inputs().iter().any(|i| any(i.awaiting()) || any(i.deferred()))
            || self.slots.remote_indices().any(&names)
    }

    fn has_tag_of_vnet(&self, vnet: VnetId) -> bool {
        self.egress.all_tags().any(|(_, tag)| self.ingress.input(tag.input).vnet() == vnet.0)
    }

    fn has_tag_of_source(&self, source: u16) -> bool {
        let ports = 0..self.egress.ports().len();
        ports.into_iter().any(|at| {
            let mut tags =
                Priority::all().flat_map(|p| self.egress.tags(self.egress.class_of(at, p.index())));
            tags.any(|tag| self.egress.source_of_tag(at, tag) == source)
        })
    }
}
