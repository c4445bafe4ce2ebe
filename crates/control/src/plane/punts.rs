//! Handling of punted frames.
//!
//! ```text
//!   punt ── fit? ── Policer ── source: learn, claim ──┬─ miss ──> found:   Install, flow, tunnel
//!            │        │              │                │           unknown: wanted, asked for
//!            │        │              │                ├─ ARP, ND ─> answer or flood
//!            │        │              │                └─ new, moved ─> Install the source
//!   taken:   │        └─> flood      └─ refused_source
//!            └─ stopped
//! ```
//!
//! **A frame that the switch took is answered, flooded or counted.** ARP and Neighbor Discovery to
//! a group are taken out of the data path until this host has decided ([`PuntCause::is_taken`]). A
//! frame that the policer refuses loses only the service of the control plane: the switch floods
//! it, as it would without one. A frame that is only punted as a copy ([`PuntCause::Snooped`]) is
//! forwarded anyway, and teaches its source.
//!
//! **A source that is refused gets no service**: an endpoint that lies is not answered and not
//! claimed; its frames are dropped under `refused_source`. A frozen source does get service: it is
//! not claimed, but it is real.
//!
//! **An unknown destination** is remembered as wanted for as long as the policer refuses to look
//! for it again. A claim for it meanwhile installs it at once; without one, the frames that wait
//! are rejected. The switch has a time-out of its own, shorter than that, so that a rejection finds
//! frames only if the switch is configured to wait longer.
//!
//! **Frames of other hosts** are served by the ports of this host and by nothing else: a frame from
//! the underlay never goes back there. All other hosts together are one more port to the policer
//! and to the budgets of floods.

use core::net::IpAddr;

use sluice_base::{DropReason, HostId, Mac, Nanos, PortId, PuntCause, Vni};
use sluice_wire::icmpv6;

use super::Plane;
use super::ask;
use super::surface::{Command, Event, Full, Kind, Location};
use crate::bridge::View;
use crate::directory::{Directory, Found, Places, State};
use crate::frame::{Body, Frame};
use crate::learn::{Intent, Note, Observed, Reason};
use crate::resolve::{Action, Ignored, Why};
use crate::vport::{Claim, Key, Origin};

/// A punt: the frame, and its ingress.
#[derive(Clone, Copy)]
struct Punt<'a> {
    now: Nanos,
    vni: Vni,
    /// The port, or the number that stands for all other hosts.
    port: PortId,
    /// The host that sent the frame, if one did.
    host: Option<HostId>,
    head: &'a [u8],
}

impl Plane {
    /// Takes a punt: a copy of the first bytes of a frame, with its `cause`. There are at most
    /// [`PUNT_HEAD_SIZE_MAX`](sluice_base::PUNT_HEAD_SIZE_MAX) bytes. `head` begins with the
    /// destination address and has no tags but the tenant's.
    pub fn punt(&mut self, now: Nanos, from: Location, vni: Vni, cause: PuntCause, head: &[u8]) {
        let now = self.clock.at(now);
        let (port, host) = match from {
            Location::Port(port) => (port, None),
            Location::Host(host) => (self.hosts_port, Some(host)),
        };
        let known = match from {
            Location::Port(port) => self.nets.is_member(port, vni),
            Location::Host(host) => self.peers.get(host).is_some() && self.nets.is_local(vni),
        };
        let taken = cause.is_taken() && host.is_none();
        let Some(frame) = Frame::parse(head).ok().filter(|_| known) else {
            self.outbox.counts.punts_unfit += 1;
            if taken {
                self.outbox.refuse(port, DropReason::Stopped, head.len());
            }
            return;
        };
        let punt = Punt { now, vni, port, host, head };
        if self.policer.admit(now, port, vni, cause, &frame).is_err() {
            self.outbox.counts.punts_refused += 1;
            if taken {
                self.flood_taken(&punt);
            }
            return;
        }
        self.outbox.counts.punts += 1;
        if frame.src == ask::MAC {
            // No endpoint has this address.
            if taken {
                self.outbox.refuse(port, DropReason::RefusedSource, head.len());
            }
            return;
        }
        self.heard(now, vni, &frame);
        if self.is_for_asker(vni, frame.dst) {
            return;
        }
        let learned = match host {
            None => self.learn(&punt, &frame),
            Some(host) => {
                let kind = self.peers.get(host).map(|peer| peer.kind);
                if kind == Some(Kind::Foreign) {
                    self.learn_foreign(now, host, vni, &frame);
                }
                Ok(())
            }
        };
        match learned {
            Ok(()) => self.serve(&punt, cause, &frame),
            Err(why) if taken && self.may_say(&punt, &frame, why) => self.flood_taken(&punt),
            Err(_) if taken => self.outbox.refuse(port, DropReason::RefusedSource, head.len()),
            Err(_) => {}
        }
    }

    /// Returns true if a frame that teaches nothing may go on to its receivers, rather than count
    /// as a lie. A bond with `balance-alb` and a router without a virtual MAC of its own name
    /// another MAC in the message than in the header. They may do so for any address that no
    /// endpoint is bound with.
    fn may_say(&self, punt: &Punt<'_>, frame: &Frame<'_>, why: Reason) -> bool {
        let said = match (why, frame.body) {
            (Reason::Malformed | Reason::BadAddress | Reason::TableFull, _) => return true,
            (Reason::SenderMismatch, Body::Arp(arp)) => IpAddr::from(arp.sender_ip),
            (Reason::SenderMismatch, Body::Neighbor { src, message, .. }) => match message {
                icmpv6::Repr::Advertisement { target, .. } => target.into(),
                icmpv6::Repr::Solicitation { .. } => src.into(),
            },
            _ => return false,
        };
        let view = View { table: &self.table, me: self.own, confirmed: |_, _| true };
        let holder = view.find_ip(punt.vni, said);
        holder.is_none_or(|found| found.claim.origin != Origin::Bound)
    }

    /// Learns the source of a frame of an own port, and does nothing else.
    pub(super) fn learn_head(&mut self, now: Nanos, port: PortId, vni: Vni, head: &[u8]) {
        if !self.nets.is_member(port, vni) {
            return;
        }
        let Ok(frame) = Frame::parse(head) else { return };
        _ = self.learn(&Punt { now, vni, port, host: None, head }, &frame);
    }

    /// Learns the source of a frame of an own port.
    fn learn(&mut self, punt: &Punt<'_>, frame: &Frame<'_>) -> Result<(), Reason> {
        let &Punt { now, vni, port, .. } = punt;
        let key = Key { vni, mac: frame.src };
        let view = View { table: &self.table, me: self.own, confirmed: |_, _| true };
        let seen = self.learner.observe(now, port, vni, frame, &view, &self.nets);
        let Observed { intent, note } = match seen {
            Ok(observed) => observed,
            Err(why) => {
                self.outbox.event(Event::Refused(port, key, why));
                return Err(why);
            }
        };
        match note {
            Some(Note::Conflict { ip, holder }) => {
                self.outbox.event(Event::Conflict { key, ip, holder: Some(holder) });
            }
            Some(Note::TooManyIps { ip }) => self.outbox.event(Event::TooManyIps(key, ip)),
            None => {}
        }
        match intent {
            Intent::Learned { key, port, ips, origin, announced } => {
                self.claim_learned(now, &Claim { key, port, ips, origin, moves: 0 }, announced);
            }
            Intent::Shared { key, ip, has, announced } => {
                self.share(now, key, ip, has, announced);
            }
            Intent::Seen { .. } => {}
        }
        Ok(())
    }

    fn claim_learned(&mut self, now: Nanos, learned: &Claim, announced: Option<IpAddr>) {
        match self.mobility.learn(now, &self.table, self.own, learned) {
            Ok(claim) => {
                let claim = self.with_sequences(&claim, announced);
                let inherited = self.inherited(&claim);
                self.publish(now, &claim);
                for ip in inherited.into_iter().filter(|ip| announced != Some(*ip)) {
                    self.announce(claim.key, ip);
                }
            }
            // The learner returns the endpoint again with the next frame, because it is not
            // claimed.
            Err(why) => self.held(learned.port, learned.key, why),
        }
    }

    fn serve(&mut self, punt: &Punt<'_>, cause: PuntCause, frame: &Frame<'_>) {
        match cause {
            PuntCause::Miss => self.find(punt, frame),
            PuntCause::NewSource | PuntCause::Moved => self.learn_source(punt, frame.src),
            PuntCause::Arp | PuntCause::Nd | PuntCause::Snooped => {
                self.asked_alone(punt.now, punt.vni, frame);
                // A frame of another host was forwarded there and here.
                if cause.is_taken() && punt.host.is_none() {
                    self.resolve(punt, frame);
                }
            }
        }
    }

    /// Installs a source of an own port that the forwarding table (FDB) misses.
    fn learn_source(&mut self, punt: &Punt<'_>, src: Mac) {
        let key = Key { vni: punt.vni, mac: src };
        let here = punt.host.is_none()
            && self
                .table
                .holder(key)
                .is_some_and(|(holder, _)| holder.owner == self.own && holder.port == punt.port);
        if here {
            self.install(punt.now, key, Location::Port(punt.port));
        }
    }

    /// Installs a destination that the forwarding table misses.
    fn find(&mut self, punt: &Punt<'_>, frame: &Frame<'_>) {
        let key = Key { vni: punt.vni, mac: frame.dst };
        if key.mac.is_group() {
            return;
        }
        let Some((holder, _)) = self.table.holder(key) else {
            return self.want(punt, key, frame);
        };
        let location = self.way_to(holder);
        if punt.host.is_some() && matches!(location, Location::Host(_)) {
            // The switch drops it under `split_horizon`. Frames of own ports may wait behind it.
            self.outbox.counts.misdirected += 1;
        }
        self.table.used(punt.now, key, 1);
        self.install(punt.now, key, location);
    }

    /// Remembers a destination that no host claims as wanted, and asks for it.
    fn want(&mut self, punt: &Punt<'_>, key: Key, frame: &Frame<'_>) {
        let now = punt.now;
        self.policer.unknown(now, key.vni, key.mac);
        if self.wanted.len() < self.wanted_max || self.wanted.contains(key) {
            self.wanted.set(key, now.after(self.unknown_life));
        } else {
            self.outbox.counts.wanted_refused += 1;
            self.outbox.event(Event::Full(Full::Wanted));
        }
        let Some(question) = ask::question(punt.head, frame) else { return };
        let Ok(asks) = Frame::parse(&question) else { return };
        if !matches!(asks.body, Body::Arp(_) | Body::Neighbor { .. }) {
            return;
        }
        let confirmed = |key, ip| self.doubts.is_confirmed(now, key, ip);
        let view = View { table: &self.table, me: self.own, confirmed };
        let Ok(asked) = self.resolver.ask(now, punt.port, punt.vni, &asks, &view) else { return };
        let from = punt.host.map_or(Location::Port(punt.port), Location::Host);
        match asked {
            // Another endpoint has its address by now: the sender hears so, from this host or from
            // the endpoint itself.
            Action::Answer(made) => {
                if self.outbox.has_room() {
                    self.outbox.counts.told += 1;
                    let frame = made.as_slice().to_vec();
                    self.outbox.command(Command::Send { vni: punt.vni, to: from, frame });
                }
            }
            Action::Forward(found) => {
                let is_sent = self.take_to_endpoint(punt, &question, &asks, &found);
                self.outbox.counts.told += u64::from(is_sent);
            }
            Action::Flood(_) => {
                self.outbox.counts.asked += 1;
                if self.outbox.has_room() {
                    self.outbox.command(Command::Flood { vni: punt.vni, from, frame: question });
                }
            }
        }
    }

    /// Answers a frame of neighbours that the switch took, forwards it to the endpoint that is
    /// asked for, or has it flooded.
    fn resolve(&mut self, punt: &Punt<'_>, frame: &Frame<'_>) {
        let &Punt { now, vni, port, head, .. } = punt;
        let confirmed = |key, ip| self.doubts.is_confirmed(now, key, ip);
        let view = View { table: &self.table, me: self.own, confirmed };
        match self.resolver.resolve(port, vni, frame, &view) {
            Action::Flood(why) => {
                self.flood_taken(punt);
                // The holder hears the question, if it is there.
                if why == Why::Other(Ignored::SamePort)
                    && let Some(ip) = frame.asks_for()
                    && let Some(vport) = self.table.find_ip(vni, ip)
                {
                    self.doubt(now, vport.claim.key, ip, true);
                }
            }
            Action::Answer(made) if self.outbox.has_room() => {
                let frame = made.as_slice().to_vec();
                self.outbox.command(Command::Send { vni, to: Location::Port(port), frame });
            }
            Action::Answer(_) => self.outbox.refuse(port, DropReason::PuntLimit, head.len()),
            Action::Forward(found) => {
                if !self.take_to_endpoint(punt, head, frame, &found) {
                    self.outbox.refuse(port, DropReason::PuntLimit, head.len());
                }
            }
        }
    }

    /// Forwards a question or probe to the endpoint that has the address, which answers it itself.
    /// Returns false if there is no room for it, or no location to send it to.
    fn take_to_endpoint(
        &mut self,
        punt: &Punt<'_>,
        bytes: &[u8],
        frame: &Frame<'_>,
        found: &Found,
    ) -> bool {
        let to = match found.state {
            State::Own => Location::Port(found.claim.port),
            _ if punt.host.is_none() => Location::Host(found.owner),
            // A frame from the underlay never goes back there.
            _ => return false,
        };
        if let Some(ip) = frame.asks_for() {
            match to {
                Location::Port(_) => self.doubt(punt.now, found.claim.key, ip, true),
                Location::Host(host) => self.tell_owner(punt.now, host, found.claim.key, ip),
            }
        }
        if !self.outbox.has_room() {
            return false;
        }
        self.outbox.command(Command::Send { vni: punt.vni, to, frame: bytes.to_vec() });
        true
    }

    /// Gives a frame that the switch took back to it, to be flooded.
    fn flood_taken(&mut self, punt: &Punt<'_>) {
        let &Punt { vni, port, head, .. } = punt;
        if self.outbox.has_room() {
            self.outbox.counts.flooded += 1;
            let (from, frame) = (Location::Port(port), head.to_vec());
            self.outbox.command(Command::Flood { vni, from, frame });
        } else {
            self.outbox.refuse(port, DropReason::PuntLimit, head.len());
        }
    }

    /// Notes that the switch saw an endpoint in use since the last time: a local one as a source, a
    /// remote one as a destination. It stays in the forwarding table, and a learned endpoint does
    /// not age.
    pub fn used(&mut self, now: Nanos, vni: Vni, mac: Mac) {
        let now = self.clock.at(now);
        let key = Key { vni, mac };
        if self.fdb.touch(now, key) {
            self.table.used(now, key, 1);
        }
        let is_own = self.own_claim(key).is_some_and(|claim| claim.origin != Origin::Bound);
        if is_own {
            self.learner.refresh(now, key);
        }
    }

    /// Notes the first frame of a decap flow: of a host, in a network. Nothing happens if the two
    /// do not belong together.
    pub fn decap(&mut self, now: Nanos, vni: Vni, host: HostId) {
        let now = self.clock.at(now);
        let fits = self.nets.is_local(vni) && self.nets.hosts(vni).contains(&host);
        if !fits {
            self.outbox.counts.punts_unfit += 1;
            if self.peers.get(host).is_some() {
                self.tunnels.decap_waits(vni, host);
            }
            return;
        }
        if let Some(turn) = self.tunnels.decap(now, vni, host) {
            self.turn(turn, host);
            self.outbox.event(Event::DecapMade(vni, host));
        }
    }
}
