//! Hosts that join and are evicted, and networks that they enter and leave, while the others run.
//! The configurations of the others change one after the other.

use std::collections::BTreeSet;

use sluice_base::{HostId, Vni};

use super::{Packet, World};
use crate::host::millis;

/// Most hosts at a time.
const HOSTS_MAX: usize = 6;
/// Fewest hosts at a time.
const HOSTS_MIN: usize = 3;

impl World {
    /// Returns the hosts whose configuration does not name a new one, or still names one that was
    /// evicted.
    fn others(&self, id: HostId) -> BTreeSet<HostId> {
        self.ids().into_iter().filter(|other| *other != id).collect()
    }

    /// Evicts a host: it is switched off at once, and its endpoints are gone.
    pub(crate) fn evict(&mut self, id: HostId) {
        if self.hosts.len() <= HOSTS_MIN {
            return;
        }
        for other in self.others(id) {
            let tells = self.rng.chance(1, 2);
            self.close(id, other, tells);
        }
        self.hosts.remove(&id);
        self.vms.retain(|vm| vm.host != id);
        let is_under_way = |packet: &Packet| match packet {
            Packet::Overlay(from, to, ..) | Packet::Datagram(from, to, _) => [*from, *to],
            Packet::ToPort(host, ..) => [*host; 2],
            // Numbers of endpoints have changed.
            Packet::FromVm(..) => [id; 2],
        };
        self.packets.retain(|_, packet| !is_under_way(packet).contains(&id));
        self.joining.remove(&id);
        self.joining.values_mut().for_each(|left| _ = left.remove(&id));
        self.leaving.values_mut().for_each(|left| _ = left.remove(&id));
        self.leaving.insert(id, self.others(id));
    }

    /// Starts a host that was never there, or that was evicted. Its configuration names all others.
    pub(crate) fn join(&mut self) {
        self.leaving.retain(|_, left| !left.is_empty());
        let number = 1 + u16::try_from(self.rng.below(8)).unwrap();
        let id = HostId(number);
        let is_known = self.hosts.contains_key(&id) || self.leaving.contains_key(&id);
        if is_known || self.hosts.len() >= HOSTS_MAX {
            return;
        }
        self.joining.insert(id, self.others(id));
        let clock = millis(self.rng.below(100_000));
        self.start(id, 1, clock);
    }

    /// Lets the configurations of some hosts follow, or of `all`.
    pub(crate) fn follow_changes(&mut self, all: bool) {
        let changes = self.joining.iter().map(|(id, left)| (*id, left.clone(), true));
        let leaves = self.leaving.iter().map(|(id, left)| (*id, left.clone(), false));
        let changes: Vec<_> = changes.chain(leaves).collect();
        for (id, left, joins) in changes {
            for other in left {
                if self.hosts[&other].is_down || !(all || self.rng.chance(1, 2)) {
                    continue;
                }
                let vnis = self.vnis.clone();
                if joins {
                    self.host(other).add_peer(id, &vnis);
                    self.joining.get_mut(&id).unwrap().remove(&other);
                } else {
                    self.host(other).remove_peer(id);
                    self.close(other, id, false);
                    self.leaving.get_mut(&id).unwrap().remove(&other);
                }
            }
        }
        if all {
            self.joining.retain(|_, left| !left.is_empty());
            self.leaving.retain(|_, left| !left.is_empty());
        }
    }

    /// Notes that a host has read its whole configuration.
    pub(super) fn has_read_all(&mut self, id: HostId) {
        let all = self.joining.values_mut().chain(self.leaving.values_mut());
        all.for_each(|left| _ = left.remove(&id));
    }

    /// Returns the hosts that a host would be told of now.
    pub(super) fn configured(&self, id: HostId) -> Vec<HostId> {
        self.others(id).into_iter().collect()
    }

    /// Sets the networks that a host believes another one to be in.
    pub(crate) fn set_networks(&mut self, at: HostId, of: HostId, vnis: &[Vni]) {
        let host = self.host(at);
        if !host.is_down && host.knows(of) {
            host.add_peer(of, vnis);
        }
    }

    /// Lets a host believe that another one has left some networks.
    pub(crate) fn narrow(&mut self, at: HostId, of: HostId) {
        let vnis: Vec<_> =
            self.vnis.clone().into_iter().filter(|_| self.rng.chance(1, 2)).collect();
        self.set_networks(at, of, &vnis);
    }
}
