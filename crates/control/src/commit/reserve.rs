//! RESERVE at a member: votes, and the reservations behind them.
//!
//! ```text
//!                                    record written
//!                                   ┌───────────────┐
//!   (state behind) Behind ──caught up──> Checking ──checked──> Writing ──durable──> Durable
//!                    │ time                  │ veto                │ disk              │ entry
//!                    └──> vote "behind"      └──> vote "no"        └──> vote "no"      └──> gone
//! ```
//!
//! Only `Durable` has said yes, and only an entry of the log ends it. The record is written while
//! the change is checked, since a disk takes as long as a check. A veto takes it back, but not at
//! once: a reservation that a start finds on the disk may have been vetoed or not checked, and says
//! yes to nobody again.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::command::Command;
use super::message::{Body, Vote};
use super::record::Record;
use super::surface::{CheckTicket, Key, Output, Refused, Replica, Revision, TxnId};
use super::{Commit, Timing};

/// Reservations of one host at the same time.
const HELD_MAX: usize = 1_024;

/// Vetoes that are remembered.
const VETOES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the log, until a time.
    Behind(Revision, Nanos),
    Checking(CheckTicket),
    Writing,
    Durable,
    /// Found on the disk.
    Found,
}

/// Number of a reservation's record: a later one of the same transaction may have other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordNumber(u64);

/// The newest record of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    No,
    Soon(RecordNumber),
    Yes,
}

/// A transaction that has asked for this host's vote.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) change: Vec<u8>,
    keys: Vec<Key>,
    stage: Stage,
    on_disk: OnDisk,
    is_dry: bool,
    /// Next question about it.
    ask_at: Nanos,
}

impl Held {
    /// A reservation that a start found on the disk.
    pub(super) const fn found(keys: Vec<Key>, change: Vec<u8>, now: Nanos) -> Self {
        let (stage, on_disk) = (Stage::Found, OnDisk::Yes);
        Self { change, keys, stage, on_disk, is_dry: false, ask_at: now }
    }

    /// Returns true if only an entry of the log ends it.
    pub(super) const fn is_kept(&self) -> bool {
        matches!(self.stage, Stage::Durable | Stage::Found)
    }

    /// Returns true if others may not claim its keys.
    const fn is_open(&self) -> bool {
        !self.is_dry && !matches!(self.stage, Stage::Behind(..))
    }
}

impl<R: Replica> Commit<R> {
    /// Answers an `Output::Check`.
    pub fn checked(&mut self, now: Nanos, ticket: CheckTicket, result: Result<(), String>) {
        self.at(now);
        let is_asked = |held: &Held| held.stage == Stage::Checking(ticket);
        let Some(id) = self.held.iter().find(|(_, held)| is_asked(held)).map(|(id, _)| *id) else {
            return;
        };
        if let Err(reason) = result {
            self.vote(id, Vote::No(reason));
        } else if let Err(vote) = self.judge(id) {
            // The state has moved on meanwhile.
            self.out.push_back(Output::Released { id });
            self.vote(id, vote);
        } else if self.held.get(&id).is_some_and(|held| held.is_dry) {
            self.vote(id, Vote::Yes);
        } else if let Some(held) = self.held.get_mut(&id) {
            held.stage = Stage::Writing;
            if held.on_disk == OnDisk::Yes {
                self.agree(id);
            }
        }
        self.pump();
    }

    /// Writes the record of a reservation.
    fn record(&mut self, id: TxnId) {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.is_dry) else { return };
        let number = RecordNumber(self.next_ticket);
        self.next_ticket += 1;
        held.on_disk = OnDisk::Soon(number);
        let (keys, change) = (held.keys.clone(), held.change.clone());
        // An earlier one was taken back a moment ago.
        self.pending.forget_released(id);
        self.pending.records.push(Record::Reservation { id, keys, change });
        self.pending.votes.push((id, number));
    }

    /// Takes the record of a reservation back that nobody relies on.
    fn take_back(&mut self, id: TxnId, held: &Held) {
        if held.on_disk != OnDisk::No {
            self.pending.votes.retain(|(of, _)| *of != id);
            self.pending.add_lazy(Record::Released { id });
        }
    }

    /// Takes the question for a vote.
    pub(super) fn reserve(&mut self, id: TxnId, base: Revision, is_dry: bool, change: Vec<u8>) {
        if let Some(held) = self.held.get(&id) {
            match held.stage {
                Stage::Durable => self.vote(id, Vote::Yes),
                Stage::Found => self.vote(id, Vote::Behind),
                Stage::Behind(..) | Stage::Checking(_) | Stage::Writing => {}
            }
            return;
        }
        if !is_dry && self.state.as_ref().is_some_and(|state| state.has_ended(id)) {
            return;
        }
        if let Some((_, reason)) = self.vetoes.iter().find(|(of, _)| *of == id) {
            let vote = Vote::No(reason.clone());
            return self.vote(id, vote);
        }
        let keys = Vec::new();
        let until = self.now.after(self.timing.catch_up);
        let ask_at = self.now.after(Timing::longer(self.timing.orphan, &change));
        let stage = Stage::Behind(base, until);
        let is_full = self.held.len() >= HELD_MAX;
        let on_disk = OnDisk::No;
        self.held.insert(id, Held { change, keys, stage, on_disk, is_dry, ask_at });
        if is_full {
            self.vote(id, Vote::No("too many transactions are open: try again later".into()));
        } else if let Some(why) = self.halted.clone() {
            self.vote(id, Vote::No(why));
        } else if let Some(why) = self.disk.clone() {
            self.vote(id, self.vote_without_disk(id, &why));
        } else if self.state.is_none() || self.is_stale {
            self.vote(id, Vote::Behind);
        } else if base <= self.revision() {
            self.begin_check(id);
        }
    }

    /// Returns the vote of a host that cannot write: it has none, as if it were away, so that one
    /// full disk does not stop a fabric. It originates nothing itself.
    fn vote_without_disk(&self, id: TxnId, why: &str) -> Vote {
        match id.host == self.own {
            true => Vote::No(format!("it cannot write to its disk: {why}")),
            false => Vote::Behind,
        }
    }

    fn begin_check(&mut self, id: TxnId) {
        if let Err(vote) = self.judge(id) {
            return self.vote(id, vote);
        }
        let ticket = CheckTicket(self.next_ticket);
        self.next_ticket += 1;
        let Some(held) = self.held.get_mut(&id) else { return };
        held.stage = Stage::Checking(ticket);
        let (change, dry) = (held.change.clone(), held.is_dry);
        self.out.push_back(Output::Check { ticket, id, change, dry });
        self.record(id);
    }

    /// Checks a transaction against the state and the other reservations, and notes its keys.
    fn judge(&mut self, id: TxnId) -> Result<(), Vote> {
        let (Some(state), Some(held)) = (self.state.as_ref(), self.held.get(&id)) else {
            return Err(Vote::Behind);
        };
        if let Some(waits) = &state.unconfirmed {
            return Err(Vote::No(Refused::Unconfirmed(waits.revision).to_string()));
        }
        let keys = state.replica.check(&held.change).map_err(|why| Vote::No(why.to_string()))?;
        let others = self.held.iter().filter(|(other, held)| **other != id && held.is_open());
        let claims = |held: &Held| held.keys.iter().any(|key| keys.contains(key));
        if let Some((other, _)) = others.clone().find(|(_, held)| claims(held)) {
            return Err(Vote::Conflict(*other));
        }
        let Some(held) = self.held.get_mut(&id) else { return Ok(()) };
        let has_changed = held.keys != keys;
        held.keys = keys;
        if has_changed && held.on_disk != OnDisk::No {
            self.record(id);
        }
        Ok(())
    }

    /// Sends a vote. One that is not a durable yes leaves nothing behind.
    fn vote(&mut self, id: TxnId, vote: Vote) {
        if self.held.get(&id).is_some_and(|held| !held.is_kept()) {
            if let Some(held) = self.held.remove(&id) {
                self.take_back(id, &held);
            }
            if let Vote::No(reason) = &vote {
                // A veto whose message is lost is not taken back when the question is repeated.
                self.vetoes.truncate(VETOES_MAX - 1);
                self.vetoes.push_front((id, reason.clone()));
            }
        }
        if id.host == self.own {
            self.take_vote(self.own, id, vote);
        } else {
            self.send(id.host, Body::Vote { id, vote });
        }
    }

    /// A record of a reservation is durable.
    pub(super) fn reservation_is_durable(&mut self, id: TxnId, number: RecordNumber) {
        let is_newest = |held: &&mut Held| held.on_disk == OnDisk::Soon(number);
        let Some(held) = self.held.get_mut(&id).filter(is_newest) else { return };
        held.on_disk = OnDisk::Yes;
        if held.stage == Stage::Writing {
            self.agree(id);
        }
    }

    /// Says yes to a transaction that was checked and whose reservation is durable.
    fn agree(&mut self, id: TxnId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.stage = Stage::Durable;
            self.vote(id, Vote::Yes);
        }
    }

    /// The record of a reservation cannot be written.
    pub(super) fn refuse_for_disk(&mut self, id: TxnId, why: &str) {
        if self.held.contains_key(&id) {
            self.out.push_back(Output::Released { id });
            self.vote(id, self.vote_without_disk(id, why));
        }
    }

    /// Ends the reservations whose transactions have ended in the log.
    pub(super) fn release_ended(&mut self) {
        let Some(state) = self.state.as_ref() else { return };
        let has_ended =
            |(id, held): (&TxnId, &Held)| (!held.is_dry && state.has_ended(*id)).then_some(*id);
        let ended: Vec<_> = self.held.iter().filter_map(has_ended).collect();
        for id in ended {
            let Some(held) = self.held.remove(&id) else { continue };
            self.take_back(id, &held);
            if !matches!(held.stage, Stage::Behind(..)) {
                self.out.push_back(Output::Released { id });
            }
        }
    }

    /// Continues with transactions that waited for the log.
    pub(super) fn after_apply(&mut self) {
        if self.is_stale {
            return;
        }
        let revision = self.revision();
        let is_due = |held: &Held| matches!(held.stage, Stage::Behind(base, _) if base <= revision);
        let due = self.held.iter().filter(|(_, held)| is_due(held));
        let due: Vec<_> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.begin_check(id);
        }
    }

    pub(super) fn tick_held(&mut self) {
        let now = self.now;
        let is_over = |held: &Held| matches!(held.stage, Stage::Behind(_, until) if until <= now);
        let over = self.held.iter().filter(|(_, held)| is_over(held));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        for id in over {
            self.vote(id, Vote::Behind);
        }
        self.drop_abandoned();
        let old = self.held.iter_mut().filter(|(_, held)| held.is_kept() && held.ask_at <= now);
        let again = now.after(self.timing.orphan);
        let old: Vec<_> = old.map(|(id, held)| (*id, held.ask_at = again).0).collect();
        for id in old {
            self.ask_about(id);
        }
    }

    /// Drops checks that nobody answers: no vote was given.
    fn drop_abandoned(&mut self) {
        let now = self.now;
        let is_over = |held: &Held| matches!(held.stage, Stage::Checking(_)) && held.ask_at <= now;
        let over = self.held.iter().filter(|(_, held)| is_over(held));
        let over: Vec<_> = over.map(|(id, _)| *id).collect();
        for id in over {
            if let Some(held) = self.held.remove(&id) {
                self.take_back(id, &held);
            }
            self.out.push_back(Output::Released { id });
        }
    }

    /// Asks the leader about a reservation that has been open for long.
    fn ask_about(&mut self, id: TxnId) {
        match self.node.leader() {
            // Of an earlier start of this host.
            Some(_) if id.host == self.own => self.query(self.own, id),
            Some(leader) if leader == self.own => self.query(self.own, id),
            Some(leader) => self.send(leader, Body::Query(id)),
            None => {}
        }
    }

    /// Takes a question about a transaction: from a member as the leader, or from the leader as the
    /// originator.
    pub(super) fn query(&mut self, from: HostId, id: TxnId) {
        if self.state.as_ref().is_none_or(|state| state.has_ended(id)) {
            return;
        }
        if id.host == self.own {
            if !self.is_under_way(id) {
                self.propose(Command::Abort(id));
            }
        } else if self.node.is_leader() {
            self.query_as_leader(from, id);
        }
    }
}
