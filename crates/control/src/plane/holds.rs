//! Holds between hosts ([`crate::hold`]): the place of each endpoint and the sessions, of which the
//! state machines know nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, PortId, ReceiverState};
use sluice_wire::fabric::{HOLD_PARTS_MAX, Held, HoldOrder, HoldPart, HoldWriter, Topic};

use super::Plane;
use super::surface::{Command, Event, Kind, Location};
use crate::hold::{ANSWER_MAX, Answered, Entry, Port, Turn};
use crate::rpc::Failure;
use crate::table::Change;
use crate::vport::Key;

impl Plane {
    /// Sets the state of an own port as a receiver, and the hosts that send to it. The members
    /// among them hear of it with the next writes. The data process repeats the state after
    /// [`Self::fdb_lost`].
    pub fn receiver(
        &mut self,
        now: Nanos,
        port: PortId,
        receiver: ReceiverState,
        senders: impl IntoIterator<Item = HostId>,
    ) {
        let now = self.clock.at(now);
        let peers = &self.peers;
        let is_member = |host: &HostId| peers.get(*host).is_some_and(|p| p.kind == Kind::Member);
        let senders = senders.into_iter().filter(is_member).collect();
        self.set_receiver(now, port, receiver, senders);
    }

    fn set_receiver(
        &mut self,
        now: Nanos,
        port: PortId,
        receiver: ReceiverState,
        senders: BTreeSet<HostId>,
    ) {
        let before = self.hold_requester.set(now, port, receiver, senders);
        let after = self.hold_requester.ports().find(|(id, _)| *id == port).map(|(_, port)| port);
        let key = |port: &Port| {
            let ReceiverState { isolated, stuck, .. } = port.receiver;
            (isolated, stuck, port.senders.clone())
        };
        match (before.as_ref().map(key), after.map(key)) {
            (before, Some(after)) if before.as_ref() != Some(&after) => {
                self.outbox.event(Event::Isolated(port, receiver));
            }
            (Some(_), None) => self.outbox.event(Event::Restored(port)),
            _ => {}
        }
    }

    /// Notes that a port is gone, so that it holds no sender.
    pub(super) fn port_is_fine(&mut self, now: Nanos, port: PortId) {
        self.set_receiver(now, port, ReceiverState::default(), BTreeSet::new());
    }

    /// Notes that the switch that knew of receivers and holds is gone.
    pub(super) fn holds_lost(&mut self, now: Nanos) {
        for port in self.hold_requester.forget_ports(now) {
            self.outbox.event(Event::Restored(port));
        }
        self.hold_responder.fdb_lost();
    }

    /// Follows a change of the table.
    pub(super) fn holds_follow(&mut self, now: Nanos, change: &Change) {
        self.hold_responder.moved(change.key, change.after.map(|after| after.owner));
        for holder in [change.before, change.after].into_iter().flatten() {
            if holder.owner == self.own {
                self.hold_requester.touch(now, holder.port);
            }
        }
    }

    /// Tells the hosts that are due.
    pub(super) fn tell_holds(&mut self, now: Nanos) {
        while let Some(host) = self.hold_requester.due(now) {
            let asked = self.tell_host(now, host);
            if let Err(why) = asked
                && self.hold_requester.failed(now, host, why) == Answered::Deaf
            {
                self.outbox.event(Event::HoldsUnknown(host));
            }
            self.looked_at(now, host);
        }
    }

    fn tell_host(&mut self, now: Nanos, host: HostId) -> Result<(), Failure> {
        let all = self.held_for(host);
        let mut parts = Vec::from([HoldWriter::new()]);
        for one in &all {
            let last = parts.last_mut().expect("there is one");
            if last.push(one) {
                continue;
            }
            if parts.len() == usize::from(HOLD_PARTS_MAX) {
                self.outbox.counts.holds_cut += 1;
                continue;
            }
            let mut next = HoldWriter::new();
            next.push(one);
            parts.push(next);
        }
        let count = u8::try_from(parts.len()).expect("a few");
        let (incarnation, sequence) =
            (self.publisher.incarnation(), self.hold_requester.next_sequence());
        let Some(session) = self.session(host) else { return Err(Failure::NotConnected) };
        let (rpc, inside) = session.rpc(now);
        let (mut ids, mut asked) = (Vec::new(), Ok(()));
        for (part, writer) in (0..count).zip(&mut parts) {
            let body = writer.finish(HoldOrder { incarnation, sequence, part, parts: count });
            match rpc.ask(inside, Topic::HOLD, ANSWER_MAX, body) {
                Ok(id) => ids.push(id),
                Err(why) => {
                    asked = Err(why);
                    break;
                }
            }
        }
        self.hold_requester.told(now, host, &ids, (sequence, all.is_empty()));
        asked
    }

    /// Returns the holds of a host: the own endpoints at held ports that the host sends to.
    fn held_for(&self, host: HostId) -> Vec<Held> {
        let ports: BTreeMap<PortId, ReceiverState> = self.hold_requester.wanted(host).collect();
        if ports.is_empty() {
            return Vec::new();
        }
        let vnets = self.peers.get(host).map_or(&[][..], |peer| &peer.vnets);
        let is_own =
            |key| self.table.holder(key).is_some_and(|(holder, _)| holder.owner == self.own);
        let claims = self.table.claims_of(self.own).filter_map(|claim| {
            let ReceiverState { held, stuck, .. } = *ports.get(&claim.port)?;
            let Key { vni, mac } = claim.key;
            let is_meant = vnets.contains(&vni) && is_own(claim.key);
            is_meant.then_some((claim.port, Held { vni, mac, held, stuck }))
        });
        let mut claims: Vec<_> = claims.collect();
        // Endpoints of one port stand together.
        claims.sort_by_key(|(port, one)| (*port, one.vni, one.mac));
        claims.into_iter().map(|(_, one)| one).collect()
    }

    /// Notes that an own question about holds has ended.
    pub(super) fn hold_answered(
        &mut self,
        now: Nanos,
        host: HostId,
        id: u64,
        answer: Result<(), Failure>,
    ) {
        if self.hold_requester.answered(now, host, id, answer) == Answered::Deaf {
            self.outbox.event(Event::HoldsUnknown(host));
        }
    }

    /// Takes a member's message on its holds.
    pub(super) fn hear_hold(&mut self, now: Nanos, host: HostId, ticket: u64, body: &[u8]) {
        let answer = match HoldPart::new_checked(body) {
            Ok(part) => {
                let Self { hold_responder, nets, peers, table, fdb, .. } = self;
                let vnets = peers.get(host).map_or(&[][..], |peer| &peer.vnets);
                // A member may speak for its own endpoints, in networks that both have.
                let believes = |key: Key| {
                    let owner = table.holder(key).map(|(holder, _)| holder.owner);
                    nets.is_local(key.vni) && vnets.contains(&key.vni) && owner == Some(host)
                };
                let installed = |key: Key| fdb.way(key) == Some(Location::Host(host));
                hold_responder.heard(now, host, &part, believes, installed);
                Ok(&[][..])
            }
            Err(_) => Err(Failure::Refused),
        };
        self.reply_member(now, host, ticket, answer);
    }

    /// Renews and ends the holds that others ask for.
    pub(super) fn keep_holds(&mut self, now: Nanos) {
        let Self { hold_responder, fdb, outbox, .. } = self;
        hold_responder.advance(now, |key, host| fdb.way(key) == Some(Location::Host(host)));
        while let Some(turn) = hold_responder.turn() {
            outbox.event(match turn {
                Turn::Begun(key, host) => Event::HoldBegun(key, host),
                Turn::Ended(key, host) => Event::HoldEnded(key, host),
            });
        }
    }

    /// Returns the next [`Command::Hold`]: these wait for no other command.
    pub fn urgent_command(&mut self) -> Option<Command> {
        self.hold_responder.order().map(|command| {
            let (Key { vni, mac }, host) = (command.key, command.host);
            Command::Hold { vni, mac, host, held: command.held, stuck: command.stuck }
        })
    }

    /// Iterates over the own ports that do not keep up, in order.
    pub fn isolated(&self) -> impl Iterator<Item = (PortId, &Port)> + '_ {
        self.hold_requester.ports()
    }

    /// Returns the own endpoints at a port, in order.
    #[must_use]
    pub fn endpoints_at(&self, port: PortId) -> Vec<Key> {
        let claims = self.table.claims_of(self.own).filter(|claim| claim.port == port);
        let mut keys: Vec<_> = claims.map(|claim| claim.key).collect();
        keys.sort_unstable();
        keys
    }

    /// Iterates over the endpoints of other hosts whose frames are to be held here, in order.
    pub fn holds(&self) -> impl Iterator<Item = (Key, &Entry)> + '_ {
        self.hold_responder.entries()
    }

    /// Returns the hold of an endpoint of another host.
    #[must_use]
    pub fn hold_of(&self, key: Key) -> Option<&Entry> {
        self.hold_responder.entry(key)
    }

    /// Returns true if a member sends to an isolated port and its version knows no holds.
    #[must_use]
    pub fn is_deaf_to_holds(&self, host: HostId) -> bool {
        self.hold_requester.is_deaf(host)
    }
}
