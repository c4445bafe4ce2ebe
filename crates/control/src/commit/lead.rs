//! Duties of the leader: appending commands, ends of abandoned transactions, the time of a
//! transaction that waits to be confirmed, and the voters.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::Commit;
use super::command::Command;
use super::message::Body;
use super::node::{Step, host_of, node_of};
use super::surface::{Output, Replica, Seat, TxnId};
use super::voters::{self, Candidate, Move};

/// Members of a fabric in which everybody tells everybody; in larger ones the messages of one
/// transaction would grow with the square.
const SMALL: usize = 16;

/// Knowledge of a leader. It is void in the next term.
#[derive(Debug, Default)]
pub(super) struct Leading {
    term: Option<u64>,
    /// Transactions whose entry or end stands in the log.
    appended: BTreeSet<TxnId>,
    /// Transactions whose confirmation stands in the log.
    confirmed: BTreeSet<TxnId>,
    /// Time at which the unconfirmed transaction is undone.
    undo_at: Option<(TxnId, Nanos)>,
    /// Time of the last question to the originator.
    asked: BTreeMap<TxnId, Nanos>,
}

impl<R: Replica> Commit<R> {
    /// Takes a command that a member wants appended.
    pub(super) fn append(&mut self, command: Command) {
        if !self.node.is_leader() || self.halted.is_some() {
            return;
        }
        self.renew_leading();
        let Some(state) = &self.state else { return };
        let id = command.id();
        let command = match command {
            Command::Transaction(_) | Command::Abort(_)
                if state.has_ended(id) || self.leading.appended.contains(&id) =>
            {
                return;
            }
            Command::Transaction(entry) if !self.is_quorum(|host| entry.votes.contains(&host)) => {
                // The voters have changed since the votes were given.
                Command::Abort(id)
            }
            Command::Confirm(_) | Command::Revert(_)
                if state.unconfirmed.as_ref().is_none_or(|waits| waits.id != id)
                    || self.leading.confirmed.contains(&id) =>
            {
                return;
            }
            command => command,
        };
        let is_end = matches!(command, Command::Transaction(_) | Command::Abort(_));
        if self.node.propose(command.to_bytes()) {
            let list =
                if is_end { &mut self.leading.appended } else { &mut self.leading.confirmed };
            list.insert(id);
        }
    }

    fn renew_leading(&mut self) {
        let term = self.node.is_leader().then(|| self.node.term());
        if self.leading.term != term {
            self.leading = Leading { term, ..Leading::default() };
        }
    }

    /// Takes a question about a transaction of another host.
    pub(super) fn query_as_leader(&mut self, from: HostId, id: TxnId) {
        let peer = self.peers.get(&id.host).copied().unwrap_or_default();
        let is_silent = !peer.is_connected && self.now.since(peer.since) >= self.timing.silence;
        if is_silent || self.member(id.host).is_none() {
            return self.append(Command::Abort(id));
        }
        let now = self.now;
        let asked = self.leading.asked.entry(id).or_default();
        if from != id.host && peer.is_connected && now.since(*asked) >= self.timing.resend {
            *asked = now;
            self.send(id.host, Body::Query(id));
        }
    }

    pub(super) fn tick_leading(&mut self) {
        self.renew_leading();
        if !self.node.is_leader() || self.halted.is_some() {
            return;
        }
        self.tick_undo();
        self.align();
        let Some(state) = &self.state else { return };
        self.leading.appended.retain(|id| !state.has_ended(*id));
        self.leading.asked.retain(|id, _| !state.has_ended(*id));
    }

    fn tick_undo(&mut self) {
        let Some(waits) = self.state.as_ref().and_then(|state| state.unconfirmed.as_ref()) else {
            self.leading.undo_at = None;
            self.leading.confirmed.clear();
            return;
        };
        let (id, end) = (waits.id, self.now.after(waits.within));
        match self.leading.undo_at {
            Some((of, at)) if of == id => {
                if at <= self.now {
                    self.append(Command::Revert(id));
                }
            }
            _ => self.leading.undo_at = Some((id, end)),
        }
    }

    /// Brings the voters one step closer to the members.
    fn align(&mut self) {
        let Some(state) = &self.state else { return };
        let candidates = state.replica.members().into_iter().map(|member| {
            let node = node_of(member.host, member.seat);
            let is_own = member.host == self.own;
            let has_caught_up = is_own || self.node.has_caught_up(node);
            Candidate {
                node,
                role: member.role,
                is_ready: self.is_live(member.host) && has_caught_up,
            }
        });
        let candidates: Vec<_> = candidates.collect();
        let own = node_of(self.own, self.seat);
        match voters::next(&candidates, self.node.conf(), own) {
            Some(Move::Change(step)) => _ = self.node.propose_step(step),
            Some(Move::HandOver(node)) => self.node.transfer(node),
            None => {}
        }
    }

    /// Tells the leader and an originator what this host has applied. In a small fabric everybody
    /// hears it at once, so that `status` is right everywhere.
    pub(super) fn tell_progress_of(&mut self, originator: HostId) {
        if self.peers.len() < SMALL {
            self.tell_progress_to_all();
            return;
        }
        let leader = self.node.leader().filter(|leader| *leader != originator);
        for host in leader.into_iter().chain([originator]) {
            if host != self.own {
                self.tell_progress(host);
            }
        }
    }

    pub(super) fn tell_progress_to_all(&mut self) {
        let live = self.peers.iter().filter(|(_, peer)| peer.is_connected);
        let live: Vec<_> = live.map(|(host, _)| *host).collect();
        for host in live {
            self.tell_progress(host);
        }
    }

    pub(super) fn tell_progress(&mut self, host: HostId) {
        let state = self.state.as_ref().filter(|_| !self.is_stale);
        let progress = state.map_or_else(Default::default, super::State::progress);
        self.send(host, Body::Progress(progress));
    }

    /// Notes the progress of a member, and compares its log with the own one.
    pub(super) fn take_progress(&mut self, host: HostId, progress: super::Progress) {
        let state = self.state.as_ref().filter(|_| !self.is_stale);
        let own = state.and_then(|state| state.hash_at(progress.revision));
        if own.is_some_and(|own| own != progress.hash) {
            let revision = progress.revision;
            self.out.push_back(Output::Diverged { host, revision });
        }
        let peer = self.peers.entry(host).or_default();
        if peer.progress != Some(progress) {
            peer.progress = Some(progress);
            self.out.push_back(Output::Progress { host, progress });
        }
    }

    /// Tells a host that the log goes on without it. A leader sends it no more of the log, so that
    /// the entry which takes it out may never reach it.
    pub(super) fn tell_removed(&mut self, step: Step) {
        let Step::Remove(node) = step else { return };
        let host = host_of(node);
        if host == self.own || self.member(host).is_some() || self.is_stale {
            return;
        }
        self.send_to_seat(host, Seat::new(node), Body::Removed(self.revision()));
    }

    /// Returns true if the log's configuration has a node.
    pub(super) fn has_in_conf(&self, node: u64) -> bool {
        let conf = self.node.conf();
        conf.voters.contains(&node) || conf.learners.contains(&node)
    }
}
