//! Starts and ends: what a plane does when the switch that it serves is new, when it is itself new
//! beside a switch that went on, and when it leaves.
//!
//! A switch forwards with its last tables while nobody controls it. The plane that comes next is
//! told what is there ([`Plane::adopt`]) and leaves it as it is, for frames are on their way. What
//! is at an own port is claimed again at once, or every other host would hear that it is gone. What
//! is elsewhere is confirmed by the claims of the hosts that come in; what nobody has confirmed
//! when these must long be here is taken out, and misses if it is used.

use alloc::vec::Vec;

use sluice_base::{Mac, Nanos, PortId, Vni};

use super::Plane;
use super::surface::{End, Event, Way};
use crate::vport::Key;

/// How long what was found in the chip may wait to be confirmed: several times what it takes to
/// connect to every member and hear all that it claims.
const ADOPTED_LIFE: Nanos = Nanos::from_millis(15_000);
/// A frame that says nothing but who sent it: EtherType 0x88b5, for local experiments (IEEE 802
/// clause 9.2.4).
const HEAD: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0xb5];

impl Plane {
    /// The switch is new and has nothing in its chip; or it is gone.
    pub fn chip_lost(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        while self.outbox.next_command().is_some() {}
        self.adopted.clear();
        let installed: Vec<_> = self.chip.iter().collect();
        for (key, way, _) in installed {
            self.chip.remove(key);
            self.flow_ended(now, key, way, End::Removed);
        }
        let decaps: Vec<_> = self.tunnels.decaps().collect();
        for (vni, host, _) in decaps {
            self.tunnels.remove_decap(now, vni, host);
            self.outbox.event(Event::DecapEnded(vni, host, End::Removed));
        }
        self.holds_lost(now);
        self.end_bindings_again();
    }

    /// An endpoint was in the chip before this plane was there.
    pub fn adopt(&mut self, now: Nanos, vni: Vni, mac: Mac, way: Way) {
        let now = self.clock.at(now);
        let key = Key { vni, mac };
        if !self.nets.is_local(vni) {
            return;
        }
        if let Way::Port(port) = way
            && self.table.holder(key).is_none()
        {
            self.relearn(now, port, key);
        }
        match self.table.holder(key) {
            Some((holder, _)) if self.way_to(holder) != way => {
                let there = self.way_to(holder);
                self.note_installed(now, key, way);
                self.install(now, key, there);
            }
            Some(_) => self.note_installed(now, key, way),
            None => {
                self.note_installed(now, key, way);
                self.adopted.set(key, now.after(ADOPTED_LIFE));
            }
        }
    }

    /// Claims what is at an own port, as if a frame had just said so.
    fn relearn(&mut self, now: Nanos, port: PortId, key: Key) {
        let mut head = HEAD;
        head[6..12].copy_from_slice(&key.mac.0);
        // Not policed: the chip is bounded, and so is what can be found there.
        self.learn_head(now, port, key.vni, &head);
    }

    /// Remembers what the chip has without ordering it.
    fn note_installed(&mut self, now: Nanos, key: Key, way: Way) {
        if self.chip.way(key).is_some() {
            return;
        }
        self.make_flow_room(now, way);
        self.flow_made(now, key, way);
        self.chip.put(now, key, way);
    }

    /// Takes out what was found and nobody has confirmed.
    pub(super) fn age_adopted(&mut self, now: Nanos) {
        while let Some(key) = self.adopted.due(now) {
            self.adopted.remove(key);
            if self.table.holder(key).is_none() {
                self.uninstall(now, key, End::Withdrawn);
            }
        }
    }

    /// This host stops on purpose: members need not find out. Datagrams are to be sent once more,
    /// and connections written to and closed.
    pub fn leave(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        self.liveness.leave(now);
        self.hear(now);
        self.peers.close_all();
    }

    /// How long ago a moment was that a query names.
    #[must_use]
    pub fn ago(&self, at: Nanos) -> Nanos {
        self.clock.latest().since(at)
    }

    /// How far off a moment is that a query names.
    #[must_use]
    pub fn until(&self, at: Nanos) -> Nanos {
        at.since(self.clock.latest())
    }
}

#[cfg(test)]
mod tests;
