//! The receiver's host: the state for each sender's host, and the hosts that are to receive it.
//!
//! ```text
//!   (none) ── it sends to a held port ──> DUE ── sent ──> SENT ── a change, or RENEW_EVERY ──> DUE
//!     ^                                    ^               │  │
//!     │                                    └─ no answer ───┘  │ its version knows no holds
//!     ├── it answered that it holds nothing                   v
//!         its session ended ──> DUE with the next one   DEAF ── another session ──> DUE
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, PortId, ReceiverState};

use super::RENEW_EVERY;
use crate::rpc::Failure;

/// Time after which a failed message to a host is repeated.
const RETRY_AFTER: Nanos = Nanos::from_millis(50);

/// An own port that does not keep up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its state.
    pub receiver: ReceiverState,
    /// The hosts that send to it.
    pub senders: BTreeSet<HostId>,
    /// Time at which that began.
    pub since: Nanos,
}

/// A host that sends to this one.
#[derive(Debug, Default)]
struct Peer {
    /// Time at which the state is sent to the host; `None`: not before something happens.
    at: Option<Nanos>,
    /// Open questions, and the sequence of each.
    open: Vec<(u64, u64)>,
    /// The last sequence that was sent to the host, and true if that asked for nothing.
    last: (u64, bool),
    /// True if the host may hold something that this host has asked for.
    may_hold: bool,
    is_deaf: bool,
}

/// End of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The question was none of the requester's.
    NotAsked,
    /// The question was the requester's.
    Done,
    /// The question was the requester's, and the host's version knows no holds: the host is not
    /// asked again in this session.
    Deaf,
}

/// State of the own receivers, for other hosts.
#[derive(Debug, Default)]
pub struct HoldRequester {
    ports: BTreeMap<PortId, Port>,
    peers: BTreeMap<HostId, Peer>,
    /// Hosts with a session.
    up: BTreeSet<HostId>,
    sequence: u64,
}

impl HoldRequester {
    /// Sets the state of a port. Returns the state before, if anything was wrong with the port.
    pub fn set(
        &mut self,
        now: Nanos,
        port: PortId,
        receiver: ReceiverState,
        senders: BTreeSet<HostId>,
    ) -> Option<Port> {
        let before = self.ports.remove(&port);
        let was = before.as_ref().map(|port| port.receiver).unwrap_or_default();
        let since = before.as_ref().map_or(now, |port| port.since);
        let masks = |receiver: &ReceiverState| (receiver.held, receiver.stuck);
        let none = BTreeSet::new();
        let informed = before.as_ref().map_or(&none, |port| &port.senders);
        let changes: Vec<HostId> = if masks(&was) == masks(&receiver) {
            informed.symmetric_difference(&senders).copied().collect()
        } else {
            informed.union(&senders).copied().collect()
        };
        let is_held = !receiver.held.is_empty() || !was.held.is_empty();
        if !receiver.is_fine() {
            self.ports.insert(port, Port { receiver, senders, since });
        }
        for host in changes.into_iter().filter(|_| is_held) {
            self.hasten(now, host);
        }
        before
    }

    /// Notes that the endpoints at a port have changed.
    pub fn touch(&mut self, now: Nanos, port: PortId) {
        let Some(port) = self.ports.get(&port) else { return };
        if port.receiver.held.is_empty() {
            return;
        }
        for host in port.senders.clone() {
            self.hasten(now, host);
        }
    }

    fn hasten(&mut self, now: Nanos, host: HostId) {
        let wants = self.wanted(host).next().is_some();
        let peer = self.peers.entry(host).or_default();
        peer.at = (wants || peer.may_hold).then_some(now);
        self.tidy(host);
    }

    /// Forgets a host from which nothing is wanted and no answer is pending.
    fn tidy(&mut self, host: HostId) {
        let is_idle = |peer: &mut Peer| {
            peer.at.is_none() && peer.open.is_empty() && !peer.may_hold && !peer.is_deaf
        };
        if self.peers.get_mut(&host).is_some_and(is_idle) {
            self.peers.remove(&host);
        }
    }

    /// Notes a session with a host.
    pub fn up(&mut self, now: Nanos, host: HostId) {
        self.up.insert(host);
        if let Some(peer) = self.peers.get_mut(&host) {
            peer.at = Some(now);
        }
    }

    /// Notes the end of the session. The host holds on until its lease ends, so that it is told
    /// the state with the next session, also if nothing is wanted by then.
    pub fn down(&mut self, host: HostId) {
        self.up.remove(&host);
        let wants = self.wanted(host).next().is_some();
        if let Some(peer) = self.peers.get_mut(&host) {
            *peer = Peer { may_hold: peer.may_hold, ..Peer::default() };
            if !wants && !peer.may_hold {
                self.peers.remove(&host);
            }
        }
    }

    /// Returns a host to which the ports of [`Self::wanted`] are to be sent now.
    #[must_use]
    pub fn due(&self, now: Nanos) -> Option<HostId> {
        let is_due = |peer: &Peer| !peer.is_deaf && peer.at.is_some_and(|at| at <= now);
        let mut due = self.peers.iter().filter(|(host, _)| self.up.contains(host));
        due.find(|(_, peer)| is_due(peer)).map(|(host, _)| *host)
    }

    /// Returns the time of the next message to a host, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let peers =
            self.peers.iter().filter(|(host, peer)| self.up.contains(host) && !peer.is_deaf);
        peers.filter_map(|(_, peer)| peer.at).min()
    }

    /// Iterates over the ports that a host is to hold.
    pub fn wanted(&self, host: HostId) -> impl Iterator<Item = (PortId, ReceiverState)> + '_ {
        self.ports
            .iter()
            .filter(move |(_, port)| !port.receiver.held.is_empty() && port.senders.contains(&host))
            .map(|(id, port)| (*id, port.receiver))
    }

    /// Returns the sequence of the next state.
    pub const fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Notes that the state is being sent to a host, with these questions, in this sequence.
    /// `is_nothing`: the state names no port.
    pub fn told(
        &mut self,
        now: Nanos,
        host: HostId,
        ids: &[u64],
        (sequence, is_nothing): (u64, bool),
    ) {
        let Some(peer) = self.peers.get_mut(&host) else { return };
        peer.open.extend(ids.iter().map(|&id| (id, sequence)));
        peer.last = (sequence, is_nothing);
        peer.may_hold |= !is_nothing;
        peer.at = (!is_nothing).then(|| now.after(RENEW_EVERY));
    }

    /// Notes that the state could not be sent to a host, or not all of it.
    pub fn failed(&mut self, now: Nanos, host: HostId, why: Failure) -> Answered {
        let Some(peer) = self.peers.get_mut(&host) else { return Answered::Done };
        match why {
            Failure::UnknownTopic | Failure::TooOld => {
                (peer.is_deaf, peer.may_hold) = (true, false);
                return Answered::Deaf;
            }
            // The end of the session is reported by [`Self::down`].
            Failure::NotConnected => peer.at = None,
            // That took its time already.
            Failure::TooLate => peer.at = Some(now),
            Failure::Busy | Failure::TooBig | Failure::Refused | Failure::Unknown(_) => {
                peer.at = Some(now.after(RETRY_AFTER));
            }
        }
        Answered::Done
    }

    /// Notes the end of a question.
    pub fn answered(
        &mut self,
        now: Nanos,
        host: HostId,
        id: u64,
        answer: Result<(), Failure>,
    ) -> Answered {
        let Some(peer) = self.peers.get_mut(&host) else { return Answered::NotAsked };
        let Some(at) = peer.open.iter().position(|(open, _)| *open == id) else {
            return Answered::NotAsked;
        };
        let (_, sequence) = peer.open.swap_remove(at);
        let (last, is_nothing) = peer.last;
        let mut end = Answered::Done;
        match answer {
            Ok(()) if sequence == last && is_nothing => peer.may_hold = false,
            Err(why) if sequence == last => end = self.failed(now, host, why),
            _ => {}
        }
        self.tidy(host);
        end
    }

    /// Forgets the state of all ports, so that nothing is to be held. Returns the ports.
    pub fn forget_ports(&mut self, now: Nanos) -> Vec<PortId> {
        let ports: Vec<_> = self.ports.keys().copied().collect();
        for port in &ports {
            self.set(now, *port, ReceiverState::default(), BTreeSet::new());
        }
        ports
    }

    /// Forgets a host that is no member any more.
    pub fn remove(&mut self, host: HostId) {
        self.down(host);
        self.peers.remove(&host);
        for port in self.ports.values_mut() {
            port.senders.remove(&host);
        }
    }

    /// Iterates over the ports that do not keep up.
    pub fn ports(&self) -> impl Iterator<Item = (PortId, &Port)> + '_ {
        self.ports.iter().map(|(id, port)| (*id, port))
    }

    /// Returns true if the state was sent to a host, or is to be sent, and the host cannot hold.
    #[must_use]
    pub fn is_deaf(&self, host: HostId) -> bool {
        self.peers.get(&host).is_some_and(|peer| peer.is_deaf)
    }
}
