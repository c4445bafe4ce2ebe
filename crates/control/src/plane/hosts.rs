//! Members and their sessions: connections as the caller reports them, and their consequences.

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Vni, mix};

use super::Plane;
use super::peers::Peer;
use super::surface::{Command, End, Event, Health, Kind};
use crate::bridge::{Bounds, Intake};
use crate::liveness;
use crate::mobility::Why;
use crate::session::{self, Due, Error, Session};
use crate::table::{Change, OwnerState, Progress};

/// Claims of a removed host that are forgotten in one step.
const EVICT_STEP: usize = 1 << 12;
/// Period of greetings to hosts that are not known to be alive.
const GREET_EVERY: Nanos = Nanos::from_millis(250);
/// Hosts that are greeted at a time: their answers bring their knowledge of others.
const GREET_COUNT: usize = 3;

impl Plane {
    /// Adds a host of the fabric with its networks, or changes its networks. Knowledge of a host
    /// that was there stays; its claims count in its present networks.
    ///
    /// # Panics
    /// If the host is this one.
    pub fn add_host(&mut self, now: Nanos, host: HostId, vnets: &[Vni], kind: Kind) {
        let now = self.clock.at(now);
        assert!(host != self.own, "host {host} is this one");
        // Old claims of the host must be gone before it claims anew.
        while self.evicting.contains(&host) {
            self.evict_some(now);
        }
        if self.peers.get(host).is_some_and(|peer| peer.kind != kind) {
            self.drop_host(now, host);
            while self.evicting.contains(&host) {
                self.evict_some(now);
            }
        }
        if let Some(peer) = self.peers.get_mut(host) {
            if peer.vnets != vnets {
                let before = core::mem::replace(&mut peer.vnets, vnets.to_vec());
                self.nets.set_host(host, &before, vnets);
                self.networks_changed(now, host);
            }
            return;
        }
        self.nets.set_host(host, &[], vnets);
        let session = (kind == Kind::Member).then(|| self.new_session(host));
        self.peers.insert(host, Peer::new(kind, vnets.to_vec(), session));
        if kind == Kind::Member {
            self.publisher.set_peer(host, 0);
            self.peers.greet_at.get_or_insert(now);
            self.peers.reschedule(host, &self.publisher);
        }
    }

    fn new_session(&self, peer: HostId) -> Session {
        let config = session::Config {
            own: self.own,
            peer,
            fabric: self.fabric,
            versions: self.versions,
            timing: self.timing,
        };
        Session::new(config, mix(self.seed ^ mix(u64::from(peer.0) << 16)))
    }

    /// Removes a host of the fabric: its claims are forgotten, at once as far as they are in the
    /// forwarding table (FDB) and in steps otherwise, and so is its state by the failure detector.
    /// Its connection is to be closed; [`Self::dismiss`] first tells the host why.
    pub fn remove_host(&mut self, now: Nanos, host: HostId) {
        let now = self.clock.at(now);
        self.drop_host(now, host);
    }

    fn drop_host(&mut self, now: Nanos, host: HostId) {
        if let Some(session) = self.session(host) {
            // Own questions to the host end.
            session.disconnected(now);
            self.hear_talk(now, host);
            let was_up = self.peers.get(host).is_some_and(|peer| peer.was_up);
            self.hear_messages(host, was_up);
            if was_up {
                self.outbox.event(Event::SessionDown(host));
            }
        }
        self.hold_requester.remove(host);
        self.hold_responder.remove_host(host);
        let Some(peer) = self.peers.remove(host) else { return };
        self.nets.set_host(host, &peer.vnets, &[]);
        self.liveness.forget(now, host);
        self.report_again(|_, from| from == host);
        self.publisher.forget(host);
        self.evicting.push(host);
        self.foreign.host_gone(host);
        let flows: Vec<_> =
            self.tunnels.decaps_from(host).map(|(vni, there, _)| (vni, there)).collect();
        for (vni, _) in flows.into_iter().take_while(|(_, there)| *there == host) {
            self.end_decap(now, vni, host, End::Removed);
        }
        self.drop_adopted(now, host);
        self.evict_some(now);
    }

    /// Forgets some claims of removed hosts.
    pub(super) fn evict_some(&mut self, now: Nanos) {
        let Some(&host) = self.evicting.first() else { return };
        let mut changes = Vec::new();
        let progress = self.table.evict(now, host, EVICT_STEP, |change| changes.push(change));
        for change in &changes {
            self.foreign.lost(change.key, host);
        }
        self.follow_all(now, &changes, |_| Why::Evicted);
        if progress == Progress::Done {
            self.evicting.remove(0);
            self.outbox.event(Event::ClaimsEvicted(host));
            let is_member = self.peers.get(host).is_some();
            // Nothing of the host is in the forwarding table, so that no flow needs the tunnel.
            if !is_member && self.tunnels.remove(host) {
                self.outbox.command(Command::CloseTunnel { host });
                self.outbox.event(Event::TunnelClosed(host, End::Removed));
            }
        }
    }

    /// Notes a connection, authenticated as the host's.
    pub fn connected(&mut self, now: Nanos, host: HostId) {
        let now = self.clock.at(now);
        if let Some(session) = self.session(host) {
            session.connected(now);
        }
        self.peers.unblock(host);
        self.looked_at(now, host);
    }

    /// Notes that the connection to a host is gone, or an attempt failed.
    pub fn disconnected(&mut self, now: Nanos, host: HostId) {
        let now = self.clock.at(now);
        if let Some(session) = self.session(host) {
            session.disconnected(now);
        }
        self.peers.unblock(host);
        self.looked_at(now, host);
    }

    /// Takes the whole messages at the start of `bytes`, which came on the connection of a host,
    /// and returns their size. The rest is to be handed in again with more behind it. Bytes of an
    /// unknown host are taken and do nothing.
    ///
    /// # Errors
    /// The connection is to be ended: [`Self::write`] once more, then [`Self::disconnected`].
    pub fn stream(&mut self, now: Nanos, host: HostId, bytes: &[u8]) -> Result<usize, Error> {
        let now = self.clock.at(now);
        let Some(peer) = self.peers.get_mut(host) else { return Ok(bytes.len()) };
        let Some(session) = &mut peer.session else { return Ok(bytes.len()) };
        let mut changes = Vec::new();
        let (vnets, aside) = (&peer.vnets, &mut peer.aside);
        let bounds = Bounds { vnets, quota: self.claims_per_host.into(), aside };
        let mut intake = Intake { table: &mut self.table, now, changes: &mut changes, bounds };
        let refused = session.counts().refused;
        let taken = session.stream(now, bytes, &mut self.publisher, &mut intake);
        let is_full = session.counts().refused > refused;
        while let Some((bound, key)) = peer.aside.news() {
            self.outbox.event(Event::OutOfBounds(host, key, bound));
        }
        self.follow_all(now, &changes, |change| why_of(change, host));
        self.hear_lives(host);
        if is_full {
            self.claims_full();
        }
        self.looked_at(now, host);
        taken
    }

    /// Takes a datagram of the failure detector, authenticated as the host's.
    pub fn datagram(&mut self, now: Nanos, host: HostId, bytes: &[u8]) {
        let now = self.clock.at(now);
        let Self { liveness, peers, .. } = self;
        liveness.receive(now, host, bytes, |host| peers.get(host)?.shown());
        self.hear(now);
    }

    /// Appends the bytes for a host to `out`, up to `budget`, and returns their number. Call this
    /// until it returns zero or the connection takes no more, and again when the connection takes
    /// more. Appended bytes must be sent, in order, or the connection closed.
    pub fn write(&mut self, now: Nanos, host: HostId, budget: usize, out: &mut Vec<u8>) -> usize {
        let now = self.clock.at(now);
        let peer = self.peers.get_mut(host).and_then(|peer| peer.session.as_mut());
        let Some(session) = peer else { return 0 };
        let size = session.write(now, &self.publisher, budget, out);
        self.looked_at(now, host);
        self.peers.wrote(now, host, size, &self.publisher);
        size
    }

    /// Returns the action that is due for a host. [`Due::Hung`]: its connection is to be closed,
    /// and the session knows.
    pub fn due(&mut self, now: Nanos, host: HostId) -> Due {
        let now = self.clock.at(now);
        let peer = self.peers.get_mut(host);
        let Some(peer) = peer else { return Due::Nothing };
        let Some(session) = &mut peer.session else { return Due::Nothing };
        let due = session.tick(now);
        if due == Due::Hung {
            peer.hung = true;
            self.outbox.event(Event::SessionHung(host));
        }
        self.looked_at(now, host);
        due
    }

    /// Returns a host whose session has something to do: [`Self::due`] and [`Self::write`] are to
    /// be called for it. Returns the same host until they were.
    #[must_use]
    pub fn ready(&self, now: Nanos) -> Option<HostId> {
        // The caller's clock may be ahead of its last value here: the difference is added.
        let ahead = now.since(self.clock.outside(self.clock.latest()));
        self.peers.ready(self.clock.latest().after(ahead))
    }

    pub(super) fn session(&mut self, host: HostId) -> Option<&mut Session> {
        self.peers.get_mut(host)?.session.as_mut()
    }

    /// Follows the state of a host's session after a call.
    pub(super) fn looked_at(&mut self, now: Nanos, host: HostId) {
        self.hear_talk(now, host);
        let Some(peer) = self.peers.get_mut(host) else { return };
        let is_up = peer.is_up();
        let was_up = core::mem::replace(&mut peer.was_up, is_up);
        self.hear_messages(host, was_up);
        let Some(peer) = self.peers.get_mut(host) else { return };
        if is_up && !was_up {
            (peer.lost_at, peer.hung) = (None, false);
            let is_known = matches!(peer.health, Health::Alive(_));
            self.outbox.event(Event::SessionUp(host));
            self.hold_requester.up(now, host);
            // The connection has shown the host's life, and there are keys: the greeting need not
            // wait for the next round.
            if !is_known {
                self.liveness.greet(now, host);
                self.hear(now);
            }
        } else if was_up && !is_up {
            peer.lost_at = Some(now);
            self.outbox.event(Event::SessionDown(host));
            self.hold_requester.down(host);
        }
        self.judge(now, host);
        self.peers.reschedule(host, &self.publisher);
    }

    /// Makes a host's claims stale, or live again, if it is time for that.
    fn judge(&mut self, now: Nanos, host: HostId) {
        let Some(peer) = self.peers.get_mut(host) else { return };
        let (is_gone, was_stale) = (peer.is_gone(), peer.stale_since.is_some());
        if is_gone != was_stale {
            peer.stale_since = is_gone.then_some(now);
            let count = self.table.digest(host).count;
            let (state, why, event) = if is_gone {
                (OwnerState::Stale, Why::OwnerStale, Event::ClaimsStale(host, count))
            } else {
                (OwnerState::Live, Why::OwnerLive, Event::ClaimsLive(host, count))
            };
            self.outbox.event(event);
            let mut changes = Vec::new();
            self.table.set_owner(now, host, state, |change| changes.push(change));
            self.follow_all(now, &changes, |_| why);
        }
        let Some(peer) = self.peers.get(host) else { return };
        let patience = self.timing.silence_max;
        let lost = peer.lost_at.filter(|_| !peer.hung).map(|at| at.after(patience));
        let stale = peer.stale_since.filter(|_| !peer.is_up());
        let at = lost.or_else(|| stale.map(|at| at.after(self.stale_life)));
        let claims = self.table.digest(host).count > 0;
        self.peers.grace.put(host, at.filter(|_| lost.is_some() || claims));
    }

    /// Does everything that is due for hosts without a session.
    pub(super) fn age_hosts(&mut self, now: Nanos) {
        while let Some(host) = self.peers.grace.due(now) {
            let Some(peer) = self.peers.get_mut(host) else { return };
            if peer.lost_at.is_some() && !peer.hung {
                peer.hung = true;
                self.outbox.event(Event::SessionHung(host));
            } else {
                if let Some(session) = &mut peer.session {
                    session.forget_claims();
                }
                self.forget_claims(now, host);
            }
            self.judge(now, host);
        }
    }

    /// Forgets the claims of a host that was away for too long; it stays a member.
    fn forget_claims(&mut self, now: Nanos, host: HostId) {
        if let Some(peer) = self.peers.get_mut(host) {
            peer.aside.clear();
        }
        loop {
            let mut changes = Vec::new();
            let step = self.table.evict(now, host, EVICT_STEP, |change| changes.push(change));
            self.follow_all(now, &changes, |_| Why::Evicted);
            if step == Progress::Done {
                break;
            }
        }
        self.table.set_owner(now, host, OwnerState::Stale, |_| {});
        self.outbox.event(Event::ClaimsEvicted(host));
    }

    /// Greets members that are not known to be alive, a few at a time.
    pub(super) fn greet(&mut self, now: Nanos) {
        if self.peers.greet_at.is_none_or(|at| at > now) {
            return;
        }
        let hosts = self.peers.next_to_greet(GREET_COUNT);
        self.peers.greet_at = (!hosts.is_empty()).then(|| now.after(GREET_EVERY));
        for host in hosts {
            self.liveness.greet(now, host);
        }
    }

    /// Takes changes and datagrams of the failure detector.
    pub(super) fn hear(&mut self, now: Nanos) {
        if self.liveness.take_rejoined() {
            // Members believe the news of this host's life from itself only.
            let members = self.peers.iter().filter(|(_, peer)| peer.kind == Kind::Member);
            for host in members.map(|(host, _)| host).collect::<Vec<_>>() {
                self.liveness.greet(now, host);
            }
        }
        while let Some(datagram) = self.liveness.datagram() {
            if self.peers.get(datagram.0).is_some_and(|peer| peer.kind == Kind::Member) {
                self.outbox.datagram(datagram);
            }
        }
        while let Some(change) = self.liveness.change() {
            let (host, health, event) = match change {
                liveness::Change::Up(host, incarnation) => {
                    (host, Health::Alive(incarnation), Event::HostUp(host, incarnation))
                }
                liveness::Change::Suspected(host) => {
                    (host, Health::Suspected, Event::HostSuspected(host))
                }
                liveness::Change::Down(host) => (host, Health::Down, Event::HostDown(host)),
            };
            let Some(peer) = self.peers.get_mut(host) else { continue };
            if peer.kind == Kind::Member {
                peer.health = health;
                if health == Health::Down {
                    self.hold_responder.end_host(host);
                    self.peers.greet_at.get_or_insert(now.after(GREET_EVERY));
                }
                self.outbox.event(event);
                self.judge(now, host);
            }
        }
    }
}

/// Returns the reason of a change that a host's message made.
pub(super) fn why_of(change: &Change, host: HostId) -> Why {
    let had = change.before.is_some_and(|before| before.owner == host);
    let has = change.after.is_some_and(|after| after.owner == host);
    if had && !has { Why::Withdrawn } else { Why::Announced }
}
