//! The ports and hosts of each network.
//!
//! A network is **local** when it was added here. The hosts of other networks are known, too, so
//! that a network that is added later finds its hosts.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, IpPrefix, PortId, Vni};

use crate::directory::{Places, PortRule};

#[derive(Debug, Default)]
struct Net {
    local: bool,
    ports: Vec<PortId>,
    hosts: Vec<HostId>,
}

#[derive(Debug)]
struct Port {
    rule: PortRule,
    vnis: Vec<Vni>,
    /// Addresses that its bound endpoints may share.
    allowed: Vec<IpPrefix>,
    /// True if the link is up, or its state was never reported.
    is_up: bool,
}

/// The networks.
#[derive(Debug, Default)]
pub(super) struct Nets {
    nets: BTreeMap<Vni, Net>,
    ports: BTreeMap<PortId, Port>,
}

impl Nets {
    pub(super) fn add(&mut self, vni: Vni) {
        self.nets.entry(vni).or_default().local = true;
    }

    /// Removes a network, and the ports that are in no other network.
    pub(super) fn remove(&mut self, vni: Vni) {
        let Some(net) = self.nets.get_mut(&vni) else { return };
        net.local = false;
        for port in core::mem::take(&mut net.ports) {
            if let Some(port) = self.ports.get_mut(&port) {
                port.vnis.retain(|there| *there != vni);
            }
        }
        self.ports.retain(|_, port| !port.vnis.is_empty());
        self.tidy(vni);
    }

    fn tidy(&mut self, vni: Vni) {
        let gone = |net: &Net| !net.local && net.ports.is_empty() && net.hosts.is_empty();
        if self.nets.get(&vni).is_some_and(gone) {
            self.nets.remove(&vni);
        }
    }

    pub(super) fn is_local(&self, vni: Vni) -> bool {
        self.nets.get(&vni).is_some_and(|net| net.local)
    }

    /// Adds a port to a local network.
    pub(super) fn add_port(&mut self, port: PortId, vni: Vni, rule: PortRule) {
        let new = Port { rule, vnis: Vec::new(), allowed: Vec::new(), is_up: true };
        let record = self.ports.entry(port).or_insert(new);
        record.rule = rule;
        insert(&mut record.vnis, vni);
        insert(&mut self.nets.entry(vni).or_default().ports, port);
    }

    /// Sets the addresses that the bound endpoints of a port may share. False if they are those of
    /// before, or there is no such port.
    pub(super) fn allow(&mut self, port: PortId, allowed: &[IpPrefix]) -> bool {
        let Some(port) = self.ports.get_mut(&port) else { return false };
        let before = core::mem::replace(&mut port.allowed, allowed.to_vec());
        before != allowed
    }

    /// Sets the link of a port up or down. False if it is so already, or there is no such port.
    pub(super) fn set_link(&mut self, port: PortId, is_up: bool) -> bool {
        let Some(port) = self.ports.get_mut(&port) else { return false };
        core::mem::replace(&mut port.is_up, is_up) != is_up
    }

    /// Returns true if the link of a port is up, as far as it was reported.
    pub(super) fn is_up(&self, port: PortId) -> bool {
        self.ports.get(&port).is_none_or(|port| port.is_up)
    }

    /// Removes a port from all its networks. False if it is in none.
    pub(super) fn remove_port(&mut self, port: PortId) -> bool {
        let Some(record) = self.ports.remove(&port) else { return false };
        for vni in record.vnis {
            if let Some(net) = self.nets.get_mut(&vni) {
                net.ports.retain(|there| *there != port);
            }
        }
        true
    }

    pub(super) fn set_host(&mut self, host: HostId, before: &[Vni], now: &[Vni]) {
        for vni in before {
            if let Some(net) = self.nets.get_mut(vni) {
                net.hosts.retain(|there| *there != host);
            }
            self.tidy(*vni);
        }
        for vni in now {
            insert(&mut self.nets.entry(*vni).or_default().hosts, host);
        }
    }

    /// Iterates over the local networks in order.
    pub(super) fn local(&self) -> impl Iterator<Item = Vni> + '_ {
        self.nets.iter().filter(|(_, net)| net.local).map(|(vni, _)| *vni)
    }
}

/// Adds an item to a sorted list without doubles.
fn insert<T: Ord>(list: &mut Vec<T>, item: T) {
    if let Err(at) = list.binary_search(&item) {
        list.insert(at, item);
    }
}

impl Places for Nets {
    fn is_member(&self, port: PortId, vni: Vni) -> bool {
        self.ports.get(&port).is_some_and(|port| port.vnis.contains(&vni))
    }

    fn rule(&self, port: PortId) -> PortRule {
        self.ports.get(&port).map_or(PortRule::Bound, |port| port.rule)
    }

    fn allows(&self, port: PortId, ip: IpAddr) -> bool {
        let allowed = self.ports.get(&port).map_or(&[][..], |port| &port.allowed);
        allowed.iter().any(|prefix| prefix.contains(ip))
    }

    fn ports(&self, vni: Vni) -> &[PortId] {
        self.nets.get(&vni).map_or(&[], |net| &net.ports)
    }

    fn hosts(&self, vni: Vni) -> &[HostId] {
        self.nets.get(&vni).map_or(&[], |net| &net.hosts)
    }
}
