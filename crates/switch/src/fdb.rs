//! The forwarding database (FDB): the queue groups of known destinations, those of destinations
//! that wait to be resolved, and the networks and tunnels of frames from the underlay.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Mac, TunnelId, VnetId};

use crate::config::SwitchConfig;
use crate::inspect::FdbState;
use crate::mac_table::{self, Inserted, MacTable, Used};
use crate::numbers::Numbers;

/// The tables, in the order in which a frame needs them. The part of the forwarding table that a
/// lookup reads stands beside the tables in front of it; all behind that part is rarely touched.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fdb {
    /// VTEP addresses with their tunnels.
    vteps: Numbers,
    /// Network numbers with their networks.
    vnis: Numbers,
    /// Destinations with their queue groups.
    known: MacTable,
    /// Destinations that are not resolved, with their queue groups.
    pending: MacTable,
    /// Number of destinations of each network, so that a network without any goes without a walk of
    /// the table.
    by_vnet: Box<[u32]>,
}

impl Fdb {
    /// Creates tables without destinations.
    pub(crate) fn new(config: &SwitchConfig, seed: u64) -> Self {
        Self {
            vteps: make_vteps(config),
            vnis: make_vnis(config),
            known: MacTable::new(config.fdb.macs, config.fdb.flows, seed),
            pending: MacTable::new(u32::from(config.unresolved.destinations), 0, seed ^ 1),
            by_vnet: vec![0; config.vnet_places()].into(),
        }
    }

    /// Returns the tunnel whose far end has this address, through any port.
    #[inline]
    pub(crate) fn vtep(&self, remote: u32) -> Option<u16> {
        self.vteps.find(remote)
    }

    /// Returns the network with a number.
    #[inline]
    pub(crate) fn vnet_of(&self, vni: u32) -> Option<u16> {
        self.vnis.find(vni)
    }

    /// Returns the queue group of a destination, which counts as a use.
    #[inline]
    pub(crate) fn lookup(&mut self, key: u64) -> Option<u32> {
        self.known.lookup(key)
    }

    /// Returns the queue group of a source, which counts as a use as source.
    #[inline]
    pub(crate) fn meet(&mut self, key: u64) -> Option<u32> {
        self.known.meet(key)
    }

    /// Returns the queue group of a destination, for inspection: it does not count as a use.
    #[inline]
    pub(crate) fn peek(&self, key: u64) -> Option<u32> {
        self.known.peek(key)
    }

    /// Adds a destination or changes it.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, group: u32, is_flow: bool) -> Inserted {
        let inserted = self.known.insert(key, group, is_flow);
        if inserted.before.is_none() {
            self.by_vnet[vnet_of(key)] += 1;
        }
        if let Some((evicted, _)) = inserted.evicted {
            self.by_vnet[vnet_of(evicted)] -= 1;
        }
        inserted
    }

    /// Removes a destination and returns its queue group.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let group = self.known.remove(key)?;
        self.by_vnet[vnet_of(key)] -= 1;
        Some(group)
    }

    /// Removes every destination of a queue group.
    pub(crate) fn remove_group(&mut self, group: u32) {
        self.remove_where(|_, to| to == group);
    }

    /// Removes the destinations that `goes` selects by key and queue group. Walks the whole table.
    fn remove_where(&mut self, goes: impl Fn(u64, u32) -> bool) {
        let by_vnet = &mut self.by_vnet;
        self.known.remove_where(|key, group| {
            let goes = goes(key, group);
            by_vnet[vnet_of(key)] -= u32::from(goes);
            goes
        });
    }

    /// Removes every destination of networks, which `goes` selects.
    pub(crate) fn remove_vnets(&mut self, vnets: &[VnetId], goes: impl Fn(VnetId) -> bool) {
        if vnets.iter().any(|vnet| self.by_vnet[vnet.index()] > 0) {
            self.remove_where(|key, _| goes(mac_table::unkey(key).0));
        }
    }

    /// Removes the destinations of a network that have this queue group.
    pub(crate) fn remove_vnet_group(&mut self, vnet: VnetId, group: u32) {
        if self.by_vnet[vnet.index()] > 0 {
            self.remove_where(|key, to| to == group && vnet_of(key) == vnet.index());
        }
    }

    /// Adds the tunnel to an address that has none.
    pub(crate) fn add_vtep(&mut self, remote: u32, tunnel: u16) {
        self.vteps.insert(remote, tunnel);
    }

    /// Removes the tunnel to an address.
    pub(crate) fn remove_vtep(&mut self, remote: u32) {
        self.vteps.remove(remote);
    }

    /// Adds the network of a VNI that has none.
    pub(crate) fn add_vni(&mut self, vni: u32, vnet: u16) {
        self.vnis.insert(vni, vnet);
    }

    /// Removes the network of a VNI.
    pub(crate) fn remove_vni(&mut self, vni: u32) {
        self.vnis.remove(vni);
    }

    /// Walks the next places of the table as [`MacTable::walk_used`].
    #[inline]
    pub(crate) fn walk_used(&mut self, places: u32, each: impl FnMut(u64, u32, Used)) -> bool {
        self.known.walk_used(places, each)
    }

    /// Returns all destinations with their queue groups.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VnetId, Mac, u32)> + '_ {
        self.known.iter()
    }

    /// Returns the occupancy of the table.
    pub(crate) const fn state(&self) -> FdbState {
        let (macs_max, flows_max) = self.known.limits();
        let [macs_evicted, flows_evicted] = self.known.evicted();
        let (macs, flows) = (self.known.len(), self.known.flows());
        FdbState { macs, macs_max, flows, flows_max, macs_evicted, flows_evicted }
    }

    /// Returns the queue group in which frames for a destination wait until it is resolved.
    #[inline]
    pub(crate) fn pending(&mut self, key: u64) -> Option<u32> {
        self.pending.lookup(key)
    }

    /// Adds a destination that waits to be resolved. There are as many places as queue groups for
    /// them, so none is evicted.
    #[inline]
    pub(crate) fn add_pending(&mut self, key: u64, group: u32) {
        let inserted = self.pending.insert(key, group, false);
        debug_assert!(inserted == Inserted::default(), "it was pending, or evicts another one");
    }

    /// Removes a destination that waits to be resolved, and returns its queue group.
    #[inline]
    pub(crate) fn take_pending(&mut self, key: u64) -> Option<u32> {
        self.pending.remove(key)
    }
}

/// Returns the network of a key.
fn vnet_of(key: u64) -> usize {
    mac_table::unkey(key).0.index()
}

/// Returns the tunnels by the addresses of their far ends.
fn make_vteps(config: &SwitchConfig) -> Numbers {
    let mut vteps = Numbers::new(config.tunnel_places());
    for (at, tunnel) in config.numbered_tunnels() {
        vteps.insert(tunnel.remote.to_bits(), TunnelId::from_index(at).0);
    }
    vteps
}

/// Returns the networks by their VNI.
fn make_vnis(config: &SwitchConfig) -> Numbers {
    let mut vnis = Numbers::new(config.vnet_places());
    for (at, vnet) in config.numbered_vnets() {
        if let Some(vni) = vnet.vni {
            vnis.insert(vni.get(), VnetId::from_index(at).0);
        }
    }
    vnis
}
