//! Places of removed networks and tunnels that no frame names any more
//! ([`crate::switch::changes`]).
//!
//! Their number may be thousands, and so may that of queues and slots. So all places are looked at
//! in one walk.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Buf, Priority, TunnelId, VnetId};

use crate::networks::{PlaceState, Tunnel, Vnet};
use crate::slots::List;
use crate::switch::Switch;

/// Places of networks and tunnels that can be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreePlaces {
    /// By number of the network.
    pub vnets: Box<[bool]>,
    /// By number of the tunnel.
    pub tunnels: Box<[bool]>,
}

impl FreePlaces {
    /// Returns true if a network can take its place.
    #[must_use]
    pub fn has_vnet(&self, vnet: VnetId) -> bool {
        self.vnets.get(vnet.index()).copied().unwrap_or(false)
    }

    /// Returns true if a tunnel can take its place.
    #[must_use]
    pub fn has_tunnel(&self, tunnel: TunnelId) -> bool {
        self.tunnels.get(tunnel.index()).copied().unwrap_or(false)
    }
}

/// Networks and sources that frames in the switch name.
struct Named {
    vnets: Box<[bool]>,
    sources: Box<[bool]>,
}

impl Named {
    fn add(&mut self, vnet: u16, source: u16) {
        // A frame of control has no source, and a frame of several networks none of its own.
        if let Some(vnet) = self.vnets.get_mut(usize::from(vnet)) {
            *vnet = true;
        }
        if let Some(source) = self.sources.get_mut(usize::from(source)) {
            *source = true;
        }
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
        match self.networks.vnet(vnet.0).state() {
            PlaceState::Removed if !self.named().vnets[vnet.index()] => PlaceState::Free,
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
        let place = self.networks.tunnel(tunnel.0);
        match place.state() {
            PlaceState::Removed if !self.named().sources[usize::from(place.source())] => {
                PlaceState::Free
            }
            state => state,
        }
    }

    /// Returns the places that can be taken. The call walks the queues and slots that were in use
    /// at a time, once, if something was removed.
    #[must_use]
    pub fn free_places(&self) -> FreePlaces {
        let (vnets, tunnels) = (self.networks.vnets(), self.networks.tunnels());
        let states = vnets.iter().map(Vnet::state).chain(tunnels.iter().map(Tunnel::state));
        let is_any_removed = states.into_iter().any(|state| state == PlaceState::Removed);
        let named = is_any_removed.then(|| self.named());
        let is_free = |state, is_named: &dyn Fn(&Named) -> bool| match state {
            PlaceState::Free => true,
            PlaceState::InUse => false,
            PlaceState::Removed => named.as_ref().is_some_and(|named| !is_named(named)),
        };
        let vnets = vnets.iter().enumerate();
        let vnets = vnets.map(|(at, place)| is_free(place.state(), &|named| named.vnets[at]));
        let tunnels = tunnels.iter().map(|place| {
            is_free(place.state(), &|named| named.sources[usize::from(place.source())])
        });
        FreePlaces { vnets: vnets.collect(), tunnels: tunnels.collect() }
    }

    /// Makes those of some removed places free that no frame names, so that adding to them needs no
    /// walk each. The caller is about to take them: a frame that another switch has handed off, and
    /// that names one, must not come any more.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn clear_places(&mut self, vnets: &[VnetId], tunnels: &[TunnelId]) {
        self.egress.shorten_walks();
        let free = self.free_places();
        for vnet in vnets.iter().filter(|vnet| free.has_vnet(**vnet)) {
            self.networks.free_vnet(*vnet);
        }
        for tunnel in tunnels.iter().filter(|tunnel| free.has_tunnel(**tunnel)) {
            self.networks.free_tunnel(*tunnel);
        }
    }

    /// Walks all queues and slots, for what their frames name.
    fn named(&self) -> Named {
        let tunnels = self.networks.tunnels().iter();
        let sources = tunnels.map(|place| usize::from(place.source()) + 1).max();
        let mut named = Named {
            vnets: vec![false; self.networks.vnets().len()].into(),
            sources: vec![false; sources.unwrap_or(0)].into(),
        };
        let queued = self.egress.leaves().map(|leaf| self.egress.queue(leaf).list());
        let waiting = self.ingress.inputs().iter().flat_map(|i| [i.awaiting(), i.deferred()]);
        let slots = |list: List| self.slots.walk(list);
        for slot in queued.chain(waiting).flat_map(slots).chain(self.slots.remote_indices()) {
            let slot = self.slots.get(slot);
            named.add(slot.vnet(), slot.source());
        }
        for at in 0..self.egress.ports().len() {
            let classes = Priority::all().map(|p| self.egress.class_of(at, p.index()));
            for tag in classes.flat_map(|class| self.egress.tags(class)) {
                let vnet = self.ingress.input(tag.input()).vnet();
                named.add(vnet, self.egress.source_of_tag(at, tag));
            }
        }
        named
    }
}
