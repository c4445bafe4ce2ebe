//! Transactions that this host originates, one after the other.
//!
//! The next one begins when the one before has ended in the log, so that the end of a transaction
//! is also the end of all earlier ones of its originator.

mod requests;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::command::{Command, Entry};
use super::message::{Body, Vote};
use super::surface::{
    Done, Outcome, OwnPhase, Policy, Proposal, Refused, Replica, RequestId, Revision, TxnId, Veto,
};
use super::{Commit, Timing};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for members that are away.
    Wait,
    Reserve,
    /// The leader has been asked to append the transaction.
    Propose,
    /// The leader has been asked to append its end.
    Abort,
}

/// A transaction on its way.
#[derive(Debug)]
struct Round {
    id: TxnId,
    /// `None` once it is answered.
    request: Option<RequestId>,
    proposal: Proposal,
    base: Revision,
    is_dry: bool,
    asked: BTreeSet<HostId>,
    votes: BTreeMap<HostId, Vote>,
    phase: Phase,
    until: Nanos,
    /// End of the wait for a majority.
    majority_until: Nanos,
    resend_at: Nanos,
    /// A leader was asked to append it.
    is_proposed: bool,
}

/// A request to confirm or to undo.
#[derive(Debug)]
struct Confirmation {
    request: RequestId,
    id: TxnId,
    revision: Revision,
    command: Command,
    until: Nanos,
    resend_at: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct Origin {
    number: u64,
    round: Option<Round>,
    dry: Vec<Round>,
    queue: VecDeque<(RequestId, Proposal, Nanos)>,
    confirmations: Vec<Confirmation>,
}

impl<R: Replica> Commit<R> {
    /// Returns the transaction that this host originates just now, and how far it is.
    #[must_use]
    pub fn own_transaction(&self) -> Option<(TxnId, OwnPhase)> {
        let round = self.origin.round.as_ref()?;
        let phase = match round.phase {
            Phase::Wait => OwnPhase::Waits,
            Phase::Reserve => OwnPhase::Reserves,
            Phase::Propose => OwnPhase::PreCommits,
            Phase::Abort => OwnPhase::Aborts,
        };
        Some((round.id, phase))
    }

    fn next_id(&mut self) -> TxnId {
        self.origin.number += 1;
        TxnId { host: self.own, incarnation: self.incarnation, number: self.origin.number }
    }

    /// Returns true if the transaction is one that this host still works on.
    pub(super) fn is_under_way(&self, id: TxnId) -> bool {
        self.origin.round.as_ref().is_some_and(|round| round.id == id)
    }

    fn round_mut(&mut self, id: TxnId) -> Option<&mut Round> {
        let origin = &mut self.origin;
        origin.round.iter_mut().chain(&mut origin.dry).find(|round| round.id == id)
    }

    /// Members that are away.
    fn away(&self) -> Vec<HostId> {
        let members = self.state.as_ref().map(|state| state.replica.members()).unwrap_or_default();
        let mut away: Vec<_> = members.into_iter().map(|member| member.host).collect();
        away.retain(|host| !self.is_live(*host));
        away.sort_unstable();
        away
    }

    /// Begins a transaction, or refuses it.
    fn begin(&mut self, request: RequestId, proposal: Proposal, is_dry: bool) {
        let id = self.next_id();
        let (phase, until) = match proposal.policy {
            Policy::Wait(span) => (Phase::Wait, self.now.after(span)),
            Policy::RequireAll | Policy::Quorum => (Phase::Wait, self.now),
        };
        let round = Round {
            id,
            request: Some(request),
            proposal,
            base: self.revision(),
            is_dry,
            asked: BTreeSet::new(),
            votes: BTreeMap::new(),
            phase,
            until,
            majority_until: self.now.after(self.timing.majority),
            resend_at: self.now,
            is_proposed: false,
        };
        if is_dry {
            self.origin.dry.push(round);
        } else {
            self.origin.round = Some(round);
        }
        self.end_wait(id);
    }

    /// Asks for votes, if nobody is away or the wait is over.
    fn end_wait(&mut self, id: TxnId) {
        let (away, now) = (self.away(), self.now);
        let (reserve, majority) = (self.timing.reserve, self.timing.majority);
        let resend_at = now.after(self.timing.resend);
        let is_hopeless = self.has_lasted(now);
        let Some(round) = self.round_mut(id).filter(|round| round.phase == Phase::Wait) else {
            return;
        };
        if !away.is_empty() && round.until > now {
            return;
        }
        if round.proposal.policy == Policy::RequireAll && !away.is_empty() {
            return self.drop_round(id, Refused::Away(away));
        }
        let majority_until = round.majority_until;
        if !self.is_quorum(|host| self.is_live(host)) {
            if now < majority_until && !is_hopeless {
                return;
            }
            let refused = self.no_quorum(|host| self.is_live(host));
            return self.drop_round(id, refused);
        }
        let members = self.state.as_ref().map(|state| state.replica.members()).unwrap_or_default();
        let asked =
            members.into_iter().map(|member| member.host).filter(|host| self.is_live(*host));
        let asked: BTreeSet<_> = asked.collect();
        let base = self.revision();
        let Some(round) = self.round_mut(id) else { return };
        (round.asked, round.base, round.phase) = (asked.clone(), base, Phase::Reserve);
        let longest = Timing::longer(reserve, &round.proposal.change);
        (round.until, round.resend_at) = (now.after(longest), resend_at);
        round.majority_until = now.after(majority);
        for host in asked {
            self.ask_vote(id, host);
        }
    }

    fn ask_vote(&mut self, id: TxnId, host: HostId) {
        let Some(round) = self.round_mut(id) else { return };
        let (base, dry, change) = (round.base, round.is_dry, round.proposal.change.clone());
        if host == self.own {
            self.reserve(id, base, dry, change);
        } else {
            self.send(host, Body::Reserve { id, base, dry, change });
        }
    }

    /// Refuses a round that has asked for nothing yet.
    fn drop_round(&mut self, id: TxnId, refused: Refused) {
        let Some(round) = self.round_mut(id) else { return };
        if let Some(request) = round.request.take() {
            self.answer(request, Err(refused));
        }
        self.origin.dry.retain(|round| round.id != id);
        if self.is_under_way(id) {
            self.origin.round = None;
            self.begin_next();
        }
    }

    /// Takes a vote.
    pub(super) fn take_vote(&mut self, from: HostId, id: TxnId, vote: Vote) {
        let Some(round) = self.round_mut(id) else { return };
        if round.phase != Phase::Reserve || !round.asked.contains(&from) {
            return;
        }
        let place = round.votes.entry(from).or_insert(Vote::Behind);
        if !matches!(place, Vote::No(_)) {
            *place = vote;
        }
        self.judge_round(id);
    }

    /// Returns true if every voter that is away has been for longer than a majority is waited for.
    fn has_lasted(&self, now: Nanos) -> bool {
        let is_gone = |host: &HostId| {
            let peer = self.peers.get(host);
            peer.is_some_and(|peer| now.since(peer.since) >= self.timing.majority)
        };
        self.voters().iter().filter(|host| !self.is_live(**host)).all(is_gone)
    }

    fn no_quorum(&self, is_yes: impl Fn(HostId) -> bool) -> Refused {
        let voters = self.voters();
        let missing = voters.iter().copied().filter(|host| !is_yes(*host)).collect();
        Refused::NoQuorum { voters: voters.len(), missing }
    }

    /// Decides on a round, if all votes are there or its time is over.
    fn judge_round(&mut self, id: TxnId) {
        let now = self.now;
        let Some(round) = self.round_mut(id).filter(|round| round.phase == Phase::Reserve) else {
            return;
        };
        if round.votes.len() < round.asked.len() && now < round.until {
            return;
        }
        let (asked, votes) = (round.asked.clone(), round.votes.clone());
        let (policy, is_dry) = (round.proposal.policy, round.is_dry);
        let may_wait = now < round.majority_until && now < round.until;
        let is_yes = |host: HostId| matches!(votes.get(&host), Some(Vote::Yes));
        let vetoes: Vec<_> = votes.iter().filter_map(veto).collect();
        let conflict = votes.values().find_map(|vote| match vote {
            Vote::Conflict(other) => Some(*other),
            _ => None,
        });
        let missing: Vec<_> = asked.iter().copied().filter(|host| !is_yes(*host)).collect();
        let refused = if !vetoes.is_empty() {
            Some(self.refusal(vetoes))
        } else if let Some(other) = conflict {
            Some(Refused::Conflict(other))
        } else if policy == Policy::RequireAll && !missing.is_empty() {
            Some(Refused::Away(missing))
        } else if !self.is_quorum(is_yes) {
            let own_is_behind = matches!(votes.get(&self.own), Some(Vote::Behind));
            let is_away = |host: &HostId| !self.is_live(*host);
            if may_wait && !own_is_behind && self.voters().iter().any(is_away) {
                // A connection that has ended is made again, and its host asked then.
                return;
            }
            let is_silent = |host: &HostId| !votes.contains_key(host) && self.is_live(*host);
            let silent: Vec<_> = asked.iter().copied().filter(is_silent).collect();
            Some(if own_is_behind {
                Refused::Behind
            } else if self.is_quorum(|host| is_yes(host) || silent.contains(&host)) {
                Refused::Slow(silent)
            } else {
                self.no_quorum(is_yes)
            })
        } else {
            None
        };
        match refused {
            Some(refused) => self.fail(id, refused),
            None if is_dry => {
                let yes = asked.into_iter().filter(|host| is_yes(*host)).collect();
                self.end_dry(id, Done::Checked { yes, away: self.away() });
            }
            None => self.pre_commit(id),
        }
    }

    /// A single veto of this host itself is put into simpler words.
    fn refusal(&self, vetoes: Vec<Veto>) -> Refused {
        match (&self.disk, vetoes.as_slice()) {
            (Some(why), [veto]) if veto.host == self.own => Refused::Disk(why.clone()),
            _ => Refused::Vetoed(vetoes),
        }
    }

    fn end_dry(&mut self, id: TxnId, done: Done) {
        let place = self.origin.dry.iter().position(|round| round.id == id);
        let round = place.map(|place| self.origin.dry.remove(place));
        if let Some(request) = round.and_then(|round| round.request) {
            self.answer(request, Ok(done));
        }
    }

    /// Answers a refusal, and asks the leader to append the end of the transaction.
    fn fail(&mut self, id: TxnId, refused: Refused) {
        let Some(round) = self.round_mut(id) else { return };
        let is_dry = round.is_dry;
        if let Some(request) = round.request.take() {
            self.answer(request, Err(refused));
        }
        if is_dry {
            self.origin.dry.retain(|round| round.id != id);
        } else {
            self.enter(id, Phase::Abort);
        }
    }

    fn pre_commit(&mut self, id: TxnId) {
        self.enter(id, Phase::Propose);
    }

    fn enter(&mut self, id: TxnId, phase: Phase) {
        let (now, propose) = (self.now, self.timing.propose);
        if let Some(round) = self.round_mut(id) {
            let longest = Timing::longer(propose, &round.proposal.change);
            (round.phase, round.until) = (phase, now.after(longest));
            self.propose_round();
        }
    }

    /// Sends the leader what is to be appended for the current round.
    fn propose_round(&mut self) {
        let resend_at = self.now.after(self.timing.resend);
        let has_leader = self.node.leader().is_some();
        let seat = self.seat;
        let Some(round) = self.origin.round.as_mut() else { return };
        round.resend_at = resend_at;
        let command = match round.phase {
            Phase::Propose => {
                round.is_proposed |= has_leader;
                let yes = round.votes.iter().filter(|(_, vote)| **vote == Vote::Yes);
                Command::Transaction(Entry {
                    id: round.id,
                    seat,
                    base: round.base,
                    change: round.proposal.change.clone(),
                    author: round.proposal.author.clone(),
                    time_ms: round.proposal.time_ms,
                    comment: round.proposal.comment.clone(),
                    votes: yes.map(|(host, _)| *host).collect(),
                    confirm_within: round.proposal.confirm_within,
                })
            }
            Phase::Abort => Command::Abort(round.id),
            Phase::Wait | Phase::Reserve => return,
        };
        self.propose(command);
    }

    /// Sends a command to the leader, if one is known.
    pub(super) fn propose(&mut self, command: Command) {
        match self.node.leader() {
            Some(leader) if leader == self.own => self.append(command),
            Some(leader) => self.send(leader, Body::Propose(command)),
            None => {}
        }
    }

    /// Ends the current round, if the log has.
    pub(super) fn settle_round(&mut self) {
        let (Some(state), Some(round)) = (&self.state, &self.origin.round) else { return };
        let id = round.id;
        if !state.has_ended(id) {
            return;
        }
        let is_it = |record: &&super::Transaction| record.id == id && !record.undoes;
        let record = state.history().rfind(is_it);
        let result = match record.map(|record| (record.revision, record.outcome.clone())) {
            Some((revision, Outcome::Applied)) => Ok(Done::Committed { revision, id }),
            Some((_, Outcome::Refused(why))) => Err(Refused::TooLate(why)),
            None if state.has_forgotten(round.base) => Err(Refused::InDoubt(id)),
            None => Err(Refused::TooLate("the transaction was given up".into())),
        };
        let request = self.origin.round.take().and_then(|round| round.request);
        if let Some(request) = request {
            self.answer_decided(request, result);
        }
        self.begin_next();
    }

    fn begin_next(&mut self) {
        while self.origin.round.is_none() {
            let Some((request, proposal, _)) = self.origin.queue.pop_front() else { return };
            self.admit(request, proposal, false);
        }
    }

    pub(super) fn origin_connected(&mut self, host: HostId, is_connected: bool) {
        let origin = &mut self.origin;
        let rounds = origin.round.iter_mut().chain(&mut origin.dry);
        let mut changed = Vec::new();
        for round in rounds {
            if !is_connected && round.proposal.policy != Policy::RequireAll {
                // A vote that was given stays.
                if round.phase == Phase::Reserve && !round.votes.contains_key(&host) {
                    round.asked.remove(&host);
                }
            }
            changed.push(round.id);
        }
        for id in changed {
            self.end_wait(id);
            if is_connected {
                self.ask_late(id, host);
            }
            self.judge_round(id);
        }
    }

    /// Asks a member for its vote that has come while others are asked.
    fn ask_late(&mut self, id: TxnId, host: HostId) {
        let is_member = self.member(host).is_some() && self.is_live(host);
        let Some(round) = self.round_mut(id).filter(|round| round.phase == Phase::Reserve) else {
            return;
        };
        if is_member && !round.votes.contains_key(&host) && round.asked.insert(host) {
            self.ask_vote(id, host);
        }
    }

    pub(super) fn tick_origin(&mut self) {
        let rounds = self.origin.round.iter().chain(&self.origin.dry);
        let ids: Vec<_> = rounds.map(|round| round.id).collect();
        for id in ids {
            self.end_wait(id);
            self.judge_round(id);
            self.resend(id);
        }
        self.tick_requests();
    }

    fn resend(&mut self, id: TxnId) {
        let (now, again) = (self.now, self.now.after(self.timing.resend));
        let Some(round) = self.round_mut(id).filter(|round| round.resend_at <= now) else { return };
        round.resend_at = again;
        match round.phase {
            Phase::Wait => {}
            Phase::Reserve => {
                let left = round.asked.iter().filter(|host| !round.votes.contains_key(host));
                let left: Vec<_> = left.copied().collect();
                for host in left {
                    self.ask_vote(id, host);
                }
            }
            Phase::Propose if round.until <= now => self.give_up(id),
            Phase::Propose | Phase::Abort => self.propose_round(),
        }
    }

    /// The log has not decided in time. Its end is asked for; what comes first in the log holds.
    fn give_up(&mut self, id: TxnId) {
        let Some(round) = self.round_mut(id) else { return };
        let is_proposed = round.is_proposed;
        if let Some(request) = round.request.take() {
            let live = |host| self.is_live(host);
            let refused = if is_proposed { Refused::InDoubt(id) } else { self.no_quorum(live) };
            self.answer(request, Err(refused));
        }
        self.enter(id, Phase::Abort);
    }
}

fn veto((host, vote): (&HostId, &Vote)) -> Option<Veto> {
    match vote {
        Vote::No(reason) => Some(Veto { host: *host, reason: reason.clone() }),
        Vote::Yes | Vote::Conflict(_) | Vote::Behind => None,
    }
}
