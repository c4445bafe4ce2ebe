//! The other hosts: their sessions, their liveness and their deadlines.
//!
//! ```text
//!     without a session, and suspected or down (SWIM); hung, or without a session for as long
//!      live ───────────────────────────────────────────────────────────────────> stale
//!       ▲                                                                          │
//!       └── SWIM says up, and a session is up (or nothing was wrong with it) ──────┤
//!                                                                                  │ stale life
//!                                                            claims evicted <──────┘
//! ```
//!
//! A host is stale when its session hung, or when it has no session and SWIM suspects it or calls
//! it dead. The end of a session is not yet a reason: connections break, and are made again. While
//! a session is up the host itself is heard several times a second, and no other host's word counts
//! against that.
//!
//! **Deadlines.** The deadlines of all sessions are in one order, so that the first is found at
//! once for any number of sessions. Each call that touches a session sets its deadline anew. A
//! change of the own claims concerns every session: it is noted, and one tick looks at all of them,
//! for any number of changes. A session whose connection takes nothing is *blocked*: its pending
//! output does not count until the caller writes again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Vni};

use super::agenda::Agenda;
use super::surface::{Health, Kind};
use crate::bridge::RefusedClaims;
use crate::publisher::Publisher;
use crate::session::Session;

/// Another host.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) kind: Kind,
    pub(super) vnets: Vec<Vni>,
    /// Claims of the host that are not believed.
    pub(super) aside: RefusedClaims,
    /// The session; `None` for a foreign host.
    pub(super) session: Option<Session>,
    /// True if the session was up when it was last looked at.
    pub(super) was_up: bool,
    /// Time since which there is no session, if there was one.
    pub(super) lost_at: Option<Nanos>,
    pub(super) hung: bool,
    pub(super) health: Health,
    pub(super) stale_since: Option<Nanos>,
    blocked: bool,
}

impl Peer {
    pub(super) fn new(kind: Kind, vnets: Vec<Vni>, session: Option<Session>) -> Self {
        Self {
            kind,
            vnets,
            aside: RefusedClaims::default(),
            session,
            was_up: false,
            lost_at: None,
            hung: false,
            health: Health::Unknown,
            stale_since: None,
            blocked: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_up)
    }

    /// Returns true if the host is thought to be gone. The word of other hosts counts only without
    /// a session: a host that speaks on its connection is alive.
    pub(super) fn is_gone(&self) -> bool {
        self.hung || (matches!(self.health, Health::Suspected | Health::Down) && !self.is_up())
    }

    /// Returns the incarnation that the host's connection has shown, if there ever was one.
    pub(super) fn shown(&self) -> Option<u64> {
        let incarnation = self.session.as_ref().map(Session::incarnation);
        incarnation.filter(|incarnation| *incarnation > 0)
    }
}

/// All other hosts.
#[derive(Debug)]
pub(super) struct Peers {
    hosts: BTreeMap<HostId, Peer>,
    /// Deadlines of sessions.
    sessions: Agenda<HostId>,
    /// Times at which the grace of a host without a session, or of stale claims, is over.
    pub(super) grace: Agenda<HostId>,
    /// The host that was greeted last: hosts that are not known to be alive are greeted in turn.
    greeted: HostId,
    pub(super) greet_at: Option<Nanos>,
    /// Last sequence and horizon of the publisher that all sessions know of.
    woken: (u64, u64),
}

impl Peers {
    pub(super) const fn new() -> Self {
        Self {
            hosts: BTreeMap::new(),
            sessions: Agenda::new(),
            grace: Agenda::new(),
            greeted: HostId(0),
            greet_at: None,
            woken: (0, 0),
        }
    }

    pub(super) fn get(&self, host: HostId) -> Option<&Peer> {
        self.hosts.get(&host)
    }

    pub(super) fn get_mut(&mut self, host: HostId) -> Option<&mut Peer> {
        self.hosts.get_mut(&host)
    }

    pub(super) fn insert(&mut self, host: HostId, peer: Peer) {
        self.hosts.insert(host, peer);
    }

    pub(super) fn remove(&mut self, host: HostId) -> Option<Peer> {
        self.sessions.remove(host);
        self.grace.remove(host);
        self.hosts.remove(&host)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HostId, &Peer)> + '_ {
        self.hosts.iter().map(|(host, peer)| (*host, peer))
    }

    /// Sets the deadline of a session anew.
    pub(super) fn reschedule(&mut self, host: HostId, publisher: &Publisher) {
        let Some(peer) = self.hosts.get(&host) else { return };
        let session = peer.session.as_ref();
        let at = session.and_then(|session| {
            if peer.blocked { session.tick_at() } else { session.deadline(publisher) }
        });
        self.sessions.put(host, at);
    }

    /// Notes that `size` bytes were written to the connection of a host. Zero, although there is
    /// something to write, means that the connection has no room: the session waits until the
    /// caller writes again.
    pub(super) fn wrote(&mut self, now: Nanos, host: HostId, size: usize, publisher: &Publisher) {
        if let Some(peer) = self.hosts.get_mut(&host) {
            let session = peer.session.as_ref();
            let at = session.and_then(|session| session.deadline(publisher));
            peer.blocked = size == 0 && at.is_some_and(|at| at <= now);
        }
        self.reschedule(host, publisher);
    }

    /// Notes that the connection of a host is a new one.
    pub(super) fn unblock(&mut self, host: HostId) {
        if let Some(peer) = self.hosts.get_mut(&host) {
            peer.blocked = false;
        }
    }

    /// Returns true if own claims have changed since all sessions were looked at.
    pub(super) fn has_news(&self, publisher: &Publisher) -> bool {
        self.woken != (publisher.last(), publisher.horizon())
    }

    /// Sets the deadlines of all sessions anew, except for blocked ones.
    pub(super) fn wake(&mut self, publisher: &Publisher) {
        self.woken = (publisher.last(), publisher.horizon());
        let Self { hosts, sessions, .. } = self;
        for (host, peer) in hosts.iter().filter(|(_, peer)| !peer.blocked) {
            let session = peer.session.as_ref();
            sessions.put(*host, session.and_then(|session| session.deadline(publisher)));
        }
    }

    /// Ends every session in good order.
    pub(super) fn close_all(&mut self) {
        for session in self.hosts.values_mut().filter_map(|peer| peer.session.as_mut()) {
            session.close();
        }
    }

    /// Returns a host whose session has something to do.
    pub(super) fn ready(&self, now: Nanos) -> Option<HostId> {
        self.sessions.due(now)
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        let times = [self.sessions.deadline(), self.grace.deadline(), self.greet_at];
        times.into_iter().flatten().min()
    }

    /// Returns the next hosts to be greeted, at most `count`: members of which nothing was heard,
    /// and dead ones, because a host that thinks all others dead is asked by none of them.
    pub(super) fn next_to_greet(&mut self, count: usize) -> Vec<HostId> {
        let silent = |(_, peer): &(&HostId, &Peer)| {
            peer.kind == Kind::Member && matches!(peer.health, Health::Unknown | Health::Down)
        };
        let after = self
            .hosts
            .range(self.greeted..)
            .filter(silent)
            .skip_while(|(host, _)| **host == self.greeted);
        let before = self.hosts.range(..=self.greeted).filter(silent);
        let hosts: Vec<_> = after.chain(before).map(|(host, _)| *host).take(count).collect();
        self.greeted = hosts.last().copied().unwrap_or(self.greeted);
        hosts
    }
}
