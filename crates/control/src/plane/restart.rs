//! Starts and ends: a new switch, a new plane beside a running switch, and the departure of the
//! host.
//!
//! A switch without a control plane forwards with its last tables. The next plane receives their
//! entries ([`Plane::adopt`]) and leaves them as they are, because frames are in flight. An
//! endpoint at an own port is claimed again at once, or every other host would hear that it is
//! gone. An endpoint elsewhere is confirmed by the incoming claims of its host. An entry that no
//! claim has confirmed after a generous time is taken out, and misses if it is used.

use alloc::vec::Vec;

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};

use super::Plane;
use super::surface::{End, Event, Location};
use crate::vport::Key;

/// Time for which an adopted entry may wait for its confirmation: several times what it takes to
/// connect to every member and hear all of its claims.
const ADOPTED_LIFE: Nanos = Nanos::from_millis(15_000);
/// A frame without content, for its source address only: EtherType 0x88b5, for local experiments
/// (IEEE 802 clause 9.2.4).
const HEAD: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0xb5];

impl Plane {
    /// Notes that the switch is new and its forwarding table (FDB) is empty, or that the switch is
    /// gone.
    pub fn fdb_lost(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        while self.outbox.next_command().is_some() {}
        self.adopted.clear();
        let installed: Vec<_> = self.fdb.iter().collect();
        for (key, location, _) in installed {
            self.fdb.remove(key);
            self.flow_ended(now, key, location, End::Removed);
        }
        let decaps: Vec<_> = self.tunnels.decaps().collect();
        for (vni, host, _) in decaps {
            self.tunnels.remove_decap(now, vni, host);
            self.outbox.event(Event::DecapEnded(vni, host, End::Removed));
        }
        self.holds_lost(now);
        self.end_bindings_again();
    }

    /// Takes an endpoint that was in the forwarding table before this plane started.
    pub fn adopt(&mut self, now: Nanos, vni: Vni, mac: Mac, location: Location) {
        let now = self.clock.at(now);
        let key = Key { vni, mac };
        if !self.nets.is_local(vni) {
            return;
        }
        if let Location::Port(port) = location
            && self.table.holder(key).is_none()
        {
            self.relearn(now, port, key);
        }
        match self.table.holder(key) {
            Some((holder, _)) if self.way_to(holder) != location => {
                let there = self.way_to(holder);
                self.note_installed(now, key, location);
                self.install(now, key, there);
            }
            Some(_) => self.note_installed(now, key, location),
            None => {
                self.note_installed(now, key, location);
                self.adopted.set(key, now.after(ADOPTED_LIFE));
            }
        }
    }

    /// Claims an endpoint at an own port, as if it had just sent a frame.
    fn relearn(&mut self, now: Nanos, port: PortId, key: Key) {
        let mut head = HEAD;
        head[6..12].copy_from_slice(&key.mac.0);
        // Not policed: the forwarding table is bounded, and so is the number of adopted entries.
        self.learn_head(now, port, key.vni, &head);
    }

    /// Notes an entry of the forwarding table, without a command.
    fn note_installed(&mut self, now: Nanos, key: Key, location: Location) {
        if self.fdb.way(key).is_some() {
            return;
        }
        self.make_flow_room(now, location);
        self.flow_made(now, key, location);
        self.fdb.put(now, key, location);
    }

    /// Takes out adopted entries that no claim has confirmed.
    pub(super) fn age_adopted(&mut self, now: Nanos) {
        while let Some(key) = self.adopted.due(now) {
            self.adopted.remove(key);
            if self.table.holder(key).is_none() {
                self.uninstall(now, key, End::Withdrawn);
            }
        }
    }

    /// Takes out adopted entries of a host that is removed before its claims have confirmed them:
    /// no change of the table does, since it never had them.
    pub(super) fn drop_adopted(&mut self, now: Nanos, host: HostId) {
        let there = self.fdb.iter().filter(|(_, location, _)| *location == Location::Host(host));
        let unconfirmed = there.filter(|(key, ..)| self.table.holder(*key).is_none());
        let keys: Vec<_> = unconfirmed.map(|(key, ..)| key).collect();
        for key in keys {
            self.adopted.remove(key);
            self.uninstall(now, key, End::Removed);
        }
    }

    /// Announces that this host stops on purpose, so that members need not detect it. Datagrams are
    /// to be sent once more, and connections written to and closed.
    pub fn leave(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        self.liveness.leave(now);
        self.hear(now);
        self.peers.close_all();
    }

    /// Returns the time since a moment in the result of a query.
    #[must_use]
    pub fn ago(&self, at: Nanos) -> Nanos {
        self.clock.latest().since(at)
    }

    /// Returns the time until a moment in the result of a query.
    #[must_use]
    pub fn until(&self, at: Nanos) -> Nanos {
        at.since(self.clock.latest())
    }
}

#[cfg(test)]
mod tests;
