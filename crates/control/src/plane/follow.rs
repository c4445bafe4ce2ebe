//! Consequences of changes of the table.
//!
//! Every change of the table comes through [`Plane::follow`] or, where one call makes several,
//! [`Plane::follow_all`]: the negative cache, wanted endpoints, the forwarding table (FDB), the
//! history of moves and the own claims follow it, the own claims last of all.

use core::slice;

use sluice_base::{HostId, Nanos, PortId, Vni};

use super::Plane;
use super::surface::{Command, End, Event, Full, Location};
use super::tunnels::{Flow, Turn};
use crate::mobility::{Refusal, Why};
use crate::table::{Change, Holder};
use crate::vport::{Claim, Key, Origin};

impl Plane {
    pub(super) fn way_to(&self, holder: Holder) -> Location {
        if holder.owner == self.own {
            Location::Port(holder.port)
        } else {
            Location::Host(holder.owner)
        }
    }

    /// Follows a change of the table.
    pub(super) fn follow(&mut self, now: Nanos, change: &Change, why: Why) {
        self.follow_all(now, slice::from_ref(change), |_| why);
    }

    /// Follows changes that the table has made already, in their order. A withdrawal of an own
    /// claim changes the table once more. Therefore it comes after all changes are followed:
    /// otherwise the other parts would follow the newest change first and end with an older one.
    pub(super) fn follow_all(
        &mut self,
        now: Nanos,
        changes: &[Change],
        why: impl Fn(&Change) -> Why,
    ) {
        for change in changes {
            self.take_over(now, change, why(change));
        }
        for change in changes {
            if change.lost_by(self.own) {
                self.yield_claim(now, change.key);
            }
            self.bindings_follow(now, change);
            self.addresses_follow(now, change);
        }
    }

    fn take_over(&mut self, now: Nanos, change: &Change, why: Why) {
        if change.is_nothing() {
            return;
        }
        if self.mobility.record(now, change, why) {
            self.outbox.event(Event::MovesOften(change.key, self.mobility.limits().moves));
        }
        self.holds_follow(now, change);
        let key = change.key;
        if let Some(holder) = change.after {
            self.policer.known(key.vni, key.mac);
            let location = self.way_to(holder);
            let wanted = self.wanted.remove(key);
            let repoint = self.fdb.way(key).is_some_and(|there| there != location);
            if wanted || repoint {
                self.install(now, key, location);
            }
        } else {
            self.uninstall(now, key, End::Withdrawn);
        }
        self.tell(change, why);
    }

    /// Withdraws the own claim for an endpoint that another host has now (RFC 7432 clause 15),
    /// unless it is bound: a binding is for the operator to change.
    pub(super) fn yield_claim(&mut self, now: Nanos, key: Key) {
        let own = self.own_claim(key);
        if own.is_some_and(|claim| claim.origin != Origin::Bound) {
            self.retract(now, key, Why::Withdrawn);
            self.learner.forget(key);
        }
    }

    /// Returns this host's claim for an endpoint.
    pub(super) fn own_claim(&self, key: Key) -> Option<Claim> {
        self.table.claims(key).find(|vport| vport.owner == self.own).map(|vport| vport.claim)
    }

    /// Claims an endpoint for this host: in the own table at once, and at other hosts with the next
    /// writes. False without room.
    pub(super) fn publish(&mut self, now: Nanos, claim: &Claim) -> bool {
        let Ok(change) = self.table.claim(now, self.own, claim) else {
            self.claims_full();
            return false;
        };
        self.publisher.claim(claim);
        self.own_changes.note(claim.key);
        self.follow(now, &change, Why::Learned);
        true
    }

    /// Withdraws the own claim for an endpoint.
    pub(super) fn retract(&mut self, now: Nanos, key: Key, why: Why) {
        self.publisher.withdraw(key);
        self.own_changes.note(key);
        let change = self.table.withdraw(now, self.own, key);
        self.follow(now, &change, why);
    }

    pub(super) fn claims_full(&mut self) {
        self.outbox.counts.claims_refused += 1;
        self.outbox.event(Event::Full(Full::Claims));
    }

    pub(super) fn held(&mut self, port: PortId, key: Key, why: Refusal) {
        // A freeze is reported once, not for every frame that it holds.
        if !matches!(why, Refusal::Frozen { alarm: false, .. }) {
            self.outbox.event(Event::Held(port, key, why));
        }
    }

    /// Installs an endpoint in the forwarding table, or moves it there.
    pub(super) fn install(&mut self, now: Nanos, key: Key, location: Location) {
        let before = self.fdb.way(key);
        if before.is_none() && !self.outbox.has_room() {
            return;
        }
        if before != Some(location) {
            // The old entry goes first, or it might be evicted to make room for itself.
            if let Some(before) = self.fdb.remove(key) {
                self.flow_ended(now, key, before, End::Moved);
            }
            self.make_flow_room(now, location);
            self.flow_made(now, key, location);
        }
        self.fdb.put(now, key, location);
        self.outbox.command(Command::Install { vni: key.vni, mac: key.mac, to: location });
    }

    /// Evicts the least recently used endpoint if there are as many as may be.
    pub(super) fn make_flow_room(&mut self, now: Nanos, location: Location) {
        let Some(key) = self.fdb.in_the_way(location) else { return };
        if let Location::Host(_) = location {
            self.outbox.counts.flows_evicted += 1;
            self.outbox.event(Event::Full(Full::Flows));
        }
        self.uninstall(now, key, End::Evicted);
    }

    /// Takes an endpoint out of the forwarding table, if it is there.
    pub(super) fn uninstall(&mut self, now: Nanos, key: Key, end: End) {
        let Some(location) = self.fdb.remove(key) else { return };
        self.outbox.command(Command::Remove { vni: key.vni, mac: key.mac });
        self.flow_ended(now, key, location, end);
    }

    /// Notes that an endpoint is installed. A location at another host is a flow, and needs its
    /// tunnel.
    pub(super) fn flow_made(&mut self, now: Nanos, key: Key, location: Location) {
        if let Location::Host(host) = location {
            let turn = self.tunnels.flow_made(now, host, Flow::Encap);
            self.turn(turn, host);
            self.outbox.event(Event::FlowMade(key, host));
            self.hold_responder.installed(now, key, host);
        }
    }

    pub(super) fn flow_ended(&mut self, now: Nanos, key: Key, location: Location, end: End) {
        if let Location::Host(host) = location {
            self.tunnels.flow_ended(now, host, Flow::Encap);
            self.outbox.event(Event::FlowEnded(key, host, end));
            self.hold_responder.uninstalled(key);
        }
    }

    pub(super) fn turn(&mut self, turn: Turn, host: HostId) {
        if turn == Turn::Open {
            self.outbox.command(Command::OpenTunnel { host });
            self.outbox.event(Event::TunnelOpened(host));
        }
    }

    pub(super) fn end_decap(&mut self, now: Nanos, vni: Vni, host: HostId, end: End) {
        if self.tunnels.remove_decap(now, vni, host) {
            self.outbox.command(Command::ForgetDecap { vni, host });
            self.outbox.event(Event::DecapEnded(vni, host, end));
        }
    }

    fn tell(&mut self, change: &Change, why: Why) {
        let key = change.key;
        let event = match (change.before, change.after) {
            (None, Some(after)) => Event::VportAdded(key, after.owner),
            (Some(before), None) => Event::VportWithdrawn(key, before.owner, why),
            (Some(before), Some(after)) if before.owner != after.owner => {
                Event::VportMoved { key, from: before.owner, to: after.owner, why }
            }
            (_, Some(after)) => Event::VportChanged(key, after.owner),
            (None, None) => return,
        };
        self.outbox.event(event);
        for (ip, sequence) in change.duplicates.with_sequences() {
            let all = self.table.all_with_ip(key.vni, ip);
            let mut others = all.filter(|vport| vport.claim.key != key);
            // An announced address moves without conflict.
            if others.all(|vport| vport.claim.ips.sequence(ip) < Some(sequence)) {
                continue;
            }
            let others = self.table.all_with_ip(key.vni, ip).map(|vport| vport.claim.key.mac);
            let holder = others.filter(|mac| *mac != key.mac).min();
            self.outbox.event(Event::Conflict { key, ip, holder });
        }
    }
}
