//! Networks that come, go and change ([`crate::switch::changes`]).

use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Buf, DropReason, Nanos, PortId, TunnelId, VnetId};

use crate::config::{ConfigError, VnetConfig};
use crate::mac_table;
use crate::networks::PlaceState;
use crate::slots::List;
use crate::surface::{Notice, Target};
use crate::switch::Switch;
use crate::switch::changes::ChangeError;
use crate::switch::detach::dropped_since;
use crate::validate;

impl<B: Buf> Switch<B> {
    /// Adds a network at a free place.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed.
    pub fn add_vnet(&mut self, vnet: VnetId, config: &VnetConfig) -> Result<(), ChangeError> {
        self.may_add_vnet(vnet, config)?;
        let (ports, inputs) = (self.egress.ports().len(), self.ingress.count());
        self.networks.add_vnet(vnet, config, ports, inputs);
        if let Some(vni) = config.vni {
            self.fdb.add_vni(vni.get(), vnet.0);
        }
        self.storms.restart_vnet(vnet.index());
        self.places_changed();
        Ok(())
    }

    fn may_add_vnet(&self, vnet: VnetId, config: &VnetConfig) -> Result<(), ChangeError> {
        if vnet.index() >= self.networks.vnets().len() {
            return Err(ChangeError::NoSuchVnet(vnet));
        }
        match self.vnet_state(vnet) {
            PlaceState::Free => {}
            state => return Err(ChangeError::VnetTaken(vnet, state)),
        }
        if let Some(vni) = config.vni
            && self.fdb.vnet_of(vni.get()).is_some()
        {
            return Err(ChangeError::Config(ConfigError::VniTwice { vni }));
        }
        self.check_vnet_config(vnet, config)
    }

    fn check_vnet_config(&self, vnet: VnetId, config: &VnetConfig) -> Result<(), ChangeError> {
        let mtu_of = |tunnel: TunnelId| {
            let tunnels = self.networks.tunnels();
            let there = tunnels.get(tunnel.index()).filter(|tunnel| tunnel.is_in_use());
            there.map(|tunnel| self.egress.port(usize::from(tunnel.port())).mtu())
        };
        validate::check_vnet(vnet, config, mtu_of).map_err(ChangeError::Config)
    }

    /// Sets the tunnels and the MTU of a network. Returns the number of frames that ended, as they
    /// waited for a tunnel that the network has no more. The limits of its local ports stay as they
    /// are.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed.
    pub fn set_vnet(
        &mut self,
        now: Nanos,
        vnet: VnetId,
        mtu: u16,
        tunnels: &[TunnelId],
    ) -> Result<u32, ChangeError> {
        self.networks.check(vnet).map_err(|_| ChangeError::NoSuchVnet(vnet))?;
        let vni = self.networks.vnet(vnet.0).vni();
        let config = VnetConfig { vni, mtu, tunnels: tunnels.to_vec() };
        self.check_vnet_config(vnet, &config)?;
        let before = self.ledger.dropped_as(DropReason::Removed);
        let gone = self.networks.vnet(vnet.0).tunnels().to_vec();
        for tunnel in gone.iter().filter(|tunnel| !tunnels.contains(&TunnelId(**tunnel))) {
            self.part(vnet, TunnelId(*tunnel));
        }
        self.networks.set_vnet(vnet, mtu, tunnels, self.ingress.count());
        self.places_changed();
        self.retry_deferred(now);
        Ok(dropped_since(before, self.ledger.dropped_as(DropReason::Removed)))
    }

    /// Ends what a network and one of its tunnels have with each other.
    fn part(&mut self, vnet: VnetId, tunnel: TunnelId) {
        let group = self.networks.tunnel(tunnel.0).group();
        self.fdb.remove_vnet_group(vnet, group);
        self.end_holds_of(|key, of| of == tunnel.0 && mac_table::unkey(key).0 == vnet);
        self.networks.close_decap(vnet.index(), tunnel.index());
        self.drop_queued(|switch, slot, to| to == group && switch.slots.get(slot).vnet() == vnet.0);
        self.drop_common_of(group, |switch, input| switch.ingress.input(input).vnet() == vnet.0);
        self.forget_notices_that(|notice| match notice {
            Notice::Decap { vnet: of, tunnel: from } => *of == vnet && *from == tunnel,
            _ => false,
        });
    }

    /// Removes a network. Returns the number of frames that ended with it.
    ///
    /// # Errors
    /// There is no such network, or a local port is in it; nothing was changed.
    pub fn remove_vnet(&mut self, now: Nanos, vnet: VnetId) -> Result<u32, ChangeError> {
        self.remove_vnets(now, &[vnet]).map_err(|(_, error)| error)
    }

    /// Removes networks, by one walk of queues and tables for all of them. Returns the number of
    /// frames that ended with them.
    ///
    /// # Errors
    /// There is no such network, one stands there twice, or a local port is in it: its position,
    /// and the reason; nothing was changed.
    pub fn remove_vnets(
        &mut self,
        now: Nanos,
        vnets: &[VnetId],
    ) -> Result<u32, (usize, ChangeError)> {
        let mut set = VnetSet::new(self.networks.vnets().len());
        for (at, vnet) in vnets.iter().enumerate() {
            self.may_remove(*vnet).map_err(|error| (at, error))?;
            if !set.insert(*vnet) {
                return Err((at, ChangeError::NoSuchVnet(*vnet)));
            }
        }
        let (before, set) = (self.ledger.dropped_as(DropReason::Removed), &set);
        for vnet in vnets {
            // Its number on the wire stays for frames that another switch has handed off already.
            if let Some(vni) = self.networks.vnet(vnet.0).vni() {
                self.fdb.remove_vni(vni.get());
            }
            self.networks.close_decaps(vnet.index());
        }
        self.fdb.remove_vnets(vnets, |vnet| set.has(vnet));
        self.end_holds_of(|key, _| set.has(mac_table::unkey(key).0));
        self.end_unresolved_of(set);
        let is_of = |switch: &Self, slot: u32| set.has(VnetId(switch.slots.get(slot).vnet()));
        self.drop_queued(|switch, slot, to| {
            is_of(switch, slot) && switch.egress.group(to).is_behind_tunnel()
        });
        for tunnel in 0..self.tunnel_places() {
            let group = self.networks.tunnels()[tunnel].group();
            self.drop_common_of(group, |switch, input| {
                set.has(VnetId(switch.ingress.input(input).vnet()))
            });
        }
        self.drop_waiting_at_inputs(is_of);
        self.forget_notices_that(|notice| vnet_of(notice).is_some_and(|vnet| set.has(vnet)));
        for vnet in vnets {
            self.networks.remove_vnet(*vnet);
        }
        self.places_changed();
        self.retry_deferred(now);
        Ok(dropped_since(before, self.ledger.dropped_as(DropReason::Removed)))
    }

    fn may_remove(&self, vnet: VnetId) -> Result<(), ChangeError> {
        self.networks.check(vnet).map_err(|_| ChangeError::NoSuchVnet(vnet))?;
        match self.networks.vnet(vnet.0).members().first() {
            Some(port) => Err(ChangeError::HasPort(vnet, PortId(*port))),
            None => Ok(()),
        }
    }

    fn end_unresolved_of(&mut self, vnets: &VnetSet) {
        let mut at = 0;
        while let Some((group, of, mac)) = self.egress.unresolved_at(at) {
            if vnets.has(of) {
                // The queue group leaves the list, so `at` is the next one.
                self.fdb.take_pending(mac_table::key(of.0, mac));
                self.drop_parked(group, DropReason::Removed);
                self.free_group(group);
            } else {
                at += 1;
            }
        }
    }

    /// Ends the queued frames that `goes` selects by slot and queue group.
    pub(crate) fn drop_queued(&mut self, goes: impl Fn(&Self, u32, u32) -> bool) {
        self.egress.shorten_walks();
        let mut from = 0;
        while let Some(leaf) = self.egress.leaf_from(from) {
            let queue = self.egress.queue(leaf);
            let group = queue.group();
            if self.slots.walk(queue.list()).any(|slot| goes(self, slot, group)) {
                self.drop_from_leaf(leaf, DropReason::Removed, |switch, slot| {
                    goes(switch, slot, group)
                });
            }
            from = leaf + 1;
        }
    }

    /// Ends the frames of a tunnel's queue group in common queues whose input `goes` selects.
    pub(crate) fn drop_common_of(&mut self, group: u32, goes: impl Fn(&Self, u16) -> bool) {
        let at = usize::from(self.egress.group(group).port());
        if at >= self.egress.ports().len() {
            return;
        }
        // Frames in queues of their sources keep their order in there, and are ended next.
        if self.has_common_that(at, group, &goes) {
            self.leave_common(group);
            self.drop_queued(|switch, slot, to| {
                to == group && goes(switch, switch.slots.get(slot).input())
            });
        }
    }

    fn has_common_that(&self, at: usize, group: u32, goes: impl Fn(&Self, u16) -> bool) -> bool {
        let classes = sluice_base::Priority::all().map(|p| self.egress.class_of(at, p.index()));
        classes
            .flat_map(|class| self.egress.tags(class))
            .any(|tag| self.egress.group_of_tag(at, tag) == group && goes(self, tag.input()))
    }

    /// Ends the frames that wait at their inputs, for their copies or for a queue, and that `goes`
    /// selects.
    fn drop_waiting_at_inputs(&mut self, goes: impl Fn(&Self, u32) -> bool) {
        for input in 0..u16::try_from(self.ingress.count()).expect("checked by `validate`") {
            let any = |list: List| self.slots.walk(list).any(|slot| goes(self, slot));
            let of = self.ingress.input(input);
            let (awaiting, deferred) = (any(of.awaiting()), any(of.deferred()));
            if awaiting {
                let mut list = self.ingress.take_awaiting(input);
                while let Some(slot) = self.slots.pop(&mut list) {
                    match goes(self, slot) {
                        true => self.drop_frame(slot, DropReason::Removed),
                        false => self.ingress.await_copies(&mut self.slots, input, slot),
                    }
                }
            }
            if deferred {
                let mut list = self.ingress.take_deferred(input);
                while let Some(slot) = self.slots.pop(&mut list) {
                    match goes(self, slot) {
                        true => self.drop_frame(slot, DropReason::Removed),
                        false => self.ingress.defer(&mut self.slots, input, slot),
                    }
                }
            }
        }
    }

    /// Discards the events that `goes` selects: their numbers may mean something else when they are
    /// read.
    pub(crate) fn forget_notices_that(&mut self, goes: impl Fn(&Notice) -> bool) {
        self.control.retain_misses(|notice| !goes(notice));
        let networks = &self.networks;
        self.control.forget_that(&goes, |tunnel| networks.tunnel(tunnel.0).port().into());
        self.too_big.retain(|notice| !goes(notice));
    }
}

/// Set of networks, by their places.
struct VnetSet(Vec<bool>);

impl VnetSet {
    fn new(places: usize) -> Self {
        Self(vec![false; places])
    }

    /// Adds a network; false if it is there.
    fn insert(&mut self, vnet: VnetId) -> bool {
        !core::mem::replace(&mut self.0[vnet.index()], true)
    }

    fn has(&self, vnet: VnetId) -> bool {
        self.0.get(vnet.index()).is_some_and(|is_there| *is_there)
    }
}

/// Returns the network of an event.
const fn vnet_of(notice: &Notice) -> Option<VnetId> {
    match *notice {
        Notice::Miss { vnet, .. } | Notice::Punt { vnet, .. } | Notice::Decap { vnet, .. } => {
            Some(vnet)
        }
        Notice::TooBig { to: Target::Address(vnet, _) | Target::Tunnel(vnet, _), .. } => Some(vnet),
        Notice::TooBig { .. } | Notice::PathMtu { .. } | Notice::Receiver { .. } => None,
    }
}
