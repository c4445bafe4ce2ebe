//! What a punted frame makes this host do.
//!
//! ```text
//!   punt ── fit? ── Policer ── source: learn, claim ──┬─ miss ──> found:   Install, flow, tunnel
//!                                                     │           unknown: wanted, asked for
//!                                                     ├─ ARP, ND ─> answer or flood
//!                                                     └─ new, moved ─> Install the source
//! ```
//!
//! **A source that is refused gets no service**: who says what must not be believed finds out
//! nothing and is found by nobody. One that is frozen does: it is not claimed, but it is real.
//!
//! **What is unknown** is remembered as wanted for as long as the policer refuses to look for it
//! again. Whoever claims it meanwhile makes it installed at once; if nobody does, the frames that
//! wait are rejected. The switch has a time-out of its own, shorter than that, so that a rejection
//! finds frames only where the switch was told to wait longer.
//!
//! **Frames of other hosts** are served by the ports of this host and by nothing else: what came
//! from the underlay never goes back there. All other hosts together are one more port to the
//! policer and to the budgets of floods.

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};

use super::Plane;
use super::ask;
use super::surface::{Command, Event, Full, Kind, PuntFrom, Way};
use crate::bridge::View;
use crate::directory::{Found, Places, State};
use crate::frame::{Body, Frame};
use crate::learn::{Intent, Note, Observed};
use crate::punt::{Cause, Target};
use crate::resolve::{Action, Ignored};
use crate::vport::{Claim, Key, Origin};

/// A punt carries at most so many bytes: a frame of as many may have been longer.
pub const HEAD_SIZE_MAX: usize = 128;

/// The frame behind a punt, and where it came in.
#[derive(Clone, Copy)]
struct Punt<'a> {
    now: Nanos,
    vni: Vni,
    /// The port, or the one that stands for all other hosts.
    port: PortId,
    /// The host that sent it, if one did.
    host: Option<HostId>,
    head: &'a [u8],
}

impl Plane {
    /// A copy of the first [`HEAD_SIZE_MAX`] bytes of a frame, which the switch shows for `cause`.
    /// `head` begins with the destination address and is not tagged but for tags of the tenant.
    pub fn punt(&mut self, now: Nanos, from: PuntFrom, vni: Vni, cause: Cause, head: &[u8]) {
        let now = self.clock.at(now);
        let (port, host) = match from {
            PuntFrom::Port(port) => (port, None),
            PuntFrom::Host(host) => (self.hosts_port, Some(host)),
        };
        let known = match from {
            PuntFrom::Port(port) => self.nets.is_member(port, vni),
            PuntFrom::Host(host) => self.peers.get(host).is_some() && self.nets.is_local(vni),
        };
        let Some(frame) = Frame::parse(head).ok().filter(|_| known) else {
            self.outbox.counts.punts_unfit += 1;
            return;
        };
        if self.policer.admit(now, port, vni, cause, &frame).is_err() {
            self.outbox.counts.punts_refused += 1;
            return;
        }
        self.outbox.counts.punts += 1;
        if frame.src == ask::MAC || self.is_for_asker(vni, frame.dst) {
            // Nobody has the address; an answer to it is heard all the same.
            if frame.src != ask::MAC {
                self.heard(now, vni, &frame);
            }
            return;
        }
        self.heard(now, vni, &frame);
        let punt = Punt { now, vni, port, host, head };
        let served = match host {
            None => self.learn(&punt, &frame),
            Some(host) => {
                let kind = self.peers.get(host).map(|peer| peer.kind);
                if kind == Some(Kind::Foreign) {
                    self.learn_foreign(now, host, vni, &frame);
                }
                true
            }
        };
        if served {
            self.serve(&punt, cause, &frame);
        }
    }

    /// Learns the source of a frame of an own port, of which nothing else is wanted.
    pub(super) fn learn_head(&mut self, now: Nanos, port: PortId, vni: Vni, head: &[u8]) {
        if !self.nets.is_member(port, vni) {
            return;
        }
        let Ok(frame) = Frame::parse(head) else { return };
        self.learn(&Punt { now, vni, port, host: None, head }, &frame);
    }

    /// Learns the source of a frame of an own port. False if it is to be refused.
    fn learn(&mut self, punt: &Punt<'_>, frame: &Frame<'_>) -> bool {
        let &Punt { now, vni, port, .. } = punt;
        let key = Key { vni, mac: frame.src };
        let view = View { table: &self.table, me: self.own, confirmed: |_, _| true };
        let seen = self.learner.observe(now, port, vni, frame, &view, &self.nets);
        let Observed { intent, note } = match seen {
            Ok(observed) => observed,
            Err(why) => {
                self.outbox.event(Event::Refused(port, key, why));
                return false;
            }
        };
        match note {
            Some(Note::Conflict { ip, holder }) => {
                self.outbox.event(Event::Conflict { key, ip, holder: Some(holder) });
            }
            Some(Note::TooManyIps { ip }) => self.outbox.event(Event::TooManyIps(key, ip)),
            None => {}
        }
        if let Intent::Learned { key, port, ips, origin, announced } = intent {
            self.claim_learned(now, &Claim { key, port, ips, origin, moves: 0 }, announced);
        }
        true
    }

    fn claim_learned(&mut self, now: Nanos, learned: &Claim, announced: Option<IpAddr>) {
        match self.mobility.learn(now, &self.table, self.own, learned) {
            Ok(claim) => {
                let claim = self.with_sequences(&claim, announced);
                self.publish(now, &claim);
            }
            // The learner tells it again with the next frame, as it is not claimed.
            Err(why) => self.held(learned.port, learned.key, why),
        }
    }

    fn serve(&mut self, punt: &Punt<'_>, cause: Cause, frame: &Frame<'_>) {
        match cause {
            Cause::Miss | Cause::Unresolved => self.find(punt, frame),
            Cause::NewSource | Cause::Moved => self.settle_source(punt, frame.src),
            Cause::Arp | Cause::Nd => {
                self.asked_alone(punt.now, punt.vni, frame);
                if punt.head.len() >= HEAD_SIZE_MAX {
                    self.outbox.counts.floods_cut += 1;
                } else {
                    self.resolve(punt, punt.head, frame);
                }
            }
        }
    }

    /// The chip asks for a source of an own port: that is a use of it.
    fn settle_source(&mut self, punt: &Punt<'_>, src: Mac) {
        let key = Key { vni: punt.vni, mac: src };
        let here = punt.host.is_none()
            && self
                .table
                .holder(key)
                .is_some_and(|(holder, _)| holder.owner == self.own && holder.port == punt.port);
        if here {
            self.install(punt.now, key, Way::Port(punt.port));
        }
    }

    /// The chip asks for a destination.
    fn find(&mut self, punt: &Punt<'_>, frame: &Frame<'_>) {
        let key = Key { vni: punt.vni, mac: frame.dst };
        if key.mac.is_group() {
            return;
        }
        let Some((holder, _)) = self.table.holder(key) else {
            return self.want(punt, key, frame);
        };
        let way = self.way_to(holder);
        if punt.host.is_some() && matches!(way, Way::Host(_)) {
            self.outbox.counts.misdirected += 1;
            return;
        }
        self.table.used(punt.now, key, 1);
        self.install(punt.now, key, way);
    }

    /// Nobody claims a destination: it is wanted, and asked for.
    fn want(&mut self, punt: &Punt<'_>, key: Key, frame: &Frame<'_>) {
        let now = punt.now;
        self.policer.unknown(now, key.vni, Target::Mac(key.mac));
        if self.wanted.len() < self.wanted_max || self.wanted.contains(key) {
            self.wanted.set(key, now.after(self.unknown_life));
        } else {
            self.outbox.counts.wanted_refused += 1;
            self.outbox.event(Event::Full(Full::Wanted));
        }
        let Some(question) = ask::question(punt.head, frame) else { return };
        let Ok(asked) = Frame::parse(&question) else { return };
        if !matches!(asked.body, Body::Arp(_) | Body::Neighbor { .. }) {
            return;
        }
        self.outbox.counts.asked += 1;
        // Somebody else may have its address by now: then the sender is told so.
        self.resolve(punt, &question, &asked);
    }

    /// Answers a question of neighbours, takes it to the endpoint that is asked for, or floods it.
    fn resolve(&mut self, punt: &Punt<'_>, bytes: &[u8], frame: &Frame<'_>) {
        let &Punt { now, vni, port, host, .. } = punt;
        let confirmed = |key, ip| self.doubts.is_confirmed(now, key, ip);
        let view = View { table: &self.table, me: self.own, confirmed };
        let back = host.map_or(Way::Port(port), Way::Host);
        match self.resolver.resolve(now, port, vni, frame, &view, &self.nets) {
            Action::Answer(made) => {
                if self.outbox.has_room() {
                    let frame = made.as_slice().to_vec();
                    self.outbox.command(Command::Send { vni, to: back, frame });
                }
            }
            Action::Flood { to, .. } => {
                let hosts = to.hosts().filter(|_| host.is_none()).map(Way::Host);
                let receivers: Vec<_> = to.ports().map(Way::Port).chain(hosts).collect();
                for to in receivers {
                    if self.outbox.has_room() {
                        let frame = bytes.to_vec();
                        self.outbox.command(Command::Send { vni, to, frame });
                    }
                }
            }
            Action::Forward(found) => self.take_to_endpoint(punt, bytes, frame, &found),
            Action::Ignore(Ignored::SamePort) => {
                // It hears the question, if it is there.
                if let Some(ip) = frame.asks_for()
                    && let Some(vport) = self.table.find_ip(vni, ip)
                {
                    self.doubt(now, vport.claim.key, ip, true);
                }
            }
            Action::Ignore(_) => {}
        }
    }

    /// Takes a question or probe to the endpoint that has the address, which answers it itself.
    fn take_to_endpoint(
        &mut self,
        punt: &Punt<'_>,
        bytes: &[u8],
        frame: &Frame<'_>,
        found: &Found,
    ) {
        let to = match found.state {
            State::Own => Way::Port(found.claim.port),
            _ if punt.host.is_none() => Way::Host(found.owner),
            // What came from the underlay never goes back there.
            _ => return,
        };
        if self.outbox.has_room() {
            self.outbox.command(Command::Send { vni: punt.vni, to, frame: bytes.to_vec() });
        }
        if let Some(ip) = frame.asks_for() {
            self.doubt(punt.now, found.claim.key, ip, true);
        }
    }

    /// The chip saw an endpoint used since the last time: a local one as a source, a remote one as
    /// a destination. It stays in the chip, and what was learned does not age.
    pub fn used(&mut self, now: Nanos, vni: Vni, mac: Mac) {
        let now = self.clock.at(now);
        let key = Key { vni, mac };
        if self.chip.touch(now, key) {
            self.table.used(now, key, 1);
        }
        let is_own = self.own_claim(key).is_some_and(|claim| claim.origin != Origin::Bound);
        if is_own {
            self.learner.refresh(now, key);
        }
    }

    /// The first frame of a decap flow came: from a host, in a network. Nothing happens if the two
    /// do not belong together.
    pub fn decap(&mut self, now: Nanos, vni: Vni, host: HostId) {
        let now = self.clock.at(now);
        let fits = self.nets.is_local(vni) && self.nets.hosts(vni).contains(&host);
        if !fits {
            self.outbox.counts.punts_unfit += 1;
            return;
        }
        if let Some(turn) = self.tunnels.decap(now, vni, host) {
            self.turn(turn, host);
            self.outbox.event(Event::DecapMade(vni, host));
        }
    }
}
