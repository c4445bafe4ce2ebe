//! Work that the log's engine has ready: records to write, messages, entries to apply.
//!
//! One write is on its way at a time. What comes meanwhile gathers in the next batch, so that many
//! entries share one flush. Messages that speak of durable state wait for their batch. Those of a
//! leader to its followers do not: its own copy is one of the quorum's, and counts when it is
//! durable.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use raft::eraftpb::{self, MessageType, Snapshot};
use sluice_base::Nanos;

use super::Commit;
use super::mark::Mark;
use super::message::{Body, from_raft_entry, raft_snapshot};
use super::node::{self, Step, host_of, node_of};
use super::record::{Kind, LogEntry, Record};
use super::reserve::RecordNumber;
use super::state::{Effect, State};
use super::surface::{
    Done, Output, Refused, Replica, RequestId, Revision, Seat, TxnId, WriteTicket,
};

/// Applied entries that are kept for members that are a little behind.
const KEPT_ENTRIES: usize = 64;
/// Applied entries, and their bytes, after which a snapshot takes their place.
const ENTRIES_MAX: usize = 256;
const ENTRIES_BYTES_MAX: usize = 4 << 20;

/// Records of one write, and what follows when they are durable.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    /// Records that may wait for the next write, or the next tick.
    lazy: Vec<Record>,
    /// Number of the engine's last piece of work in this batch.
    ready: Option<u64>,
    messages: Vec<eraftpb::Message>,
    /// Term and vote that this batch makes durable.
    pub(super) vote: Option<(u64, u64)>,
    /// Reservations of which this has a record.
    pub(super) votes: Vec<(TxnId, RecordNumber)>,
    pub(super) answers: Vec<(RequestId, Result<Done, Refused>)>,
    /// Revision of a state that came as a whole.
    installed: Option<Revision>,
    /// Effects of entries that nothing but these records makes part of the log.
    pub(super) effects: Vec<Effect>,
}

impl Batch {
    /// Returns the batch that a start begins with.
    pub(super) fn first(records: Vec<Record>, vote: (u64, u64)) -> Self {
        Self { records, vote: Some(vote), ..Self::default() }
    }

    /// Adds a record that nothing waits for.
    pub(super) fn add_lazy(&mut self, record: Record) {
        if matches!(record, Record::HardState { .. }) {
            self.lazy.retain(|old| !matches!(old, Record::HardState { .. }));
        }
        self.lazy.push(record);
    }

    /// Forgets that a reservation was taken back.
    pub(super) fn forget_released(&mut self, id: TxnId) {
        let is_other =
            |record: &Record| !matches!(record, Record::Released { id: of } if *of == id);
        self.lazy.retain(is_other);
        self.records.retain(is_other);
    }

    /// Lets lazy records be written now.
    pub(super) fn hurry(&mut self) {
        self.records.append(&mut self.lazy);
    }

    /// Forgets what the engine of an older epoch waits for.
    pub(super) fn forget_engine(&mut self) {
        self.ready = None;
        self.vote = None;
        self.messages.clear();
        self.lazy.retain(|old| !matches!(old, Record::HardState { .. }));
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.ready.is_none()
            && self.messages.is_empty()
            && self.votes.is_empty()
            && self.answers.is_empty()
            && !self.delays()
    }

    /// Returns true if the state has changed by what only these records make durable.
    pub(super) const fn delays(&self) -> bool {
        self.installed.is_some() || !self.effects.is_empty()
    }
}

/// The write that is on its way, or waits to be tried again.
#[derive(Debug, Default)]
pub(super) struct Writing {
    ticket: Option<WriteTicket>,
    batch: Batch,
    retry_at: Option<Nanos>,
}

impl Writing {
    pub(super) const fn is_busy(&self) -> bool {
        self.ticket.is_some() || self.retry_at.is_some()
    }

    pub(super) fn forget_engine(&mut self) {
        self.batch.forget_engine();
    }

    pub(super) const fn delays(&self) -> bool {
        self.batch.delays()
    }
}

impl<R: Replica> Commit<R> {
    /// Reports that a write is durable.
    pub fn persisted(&mut self, now: Nanos, ticket: WriteTicket) {
        self.at(now);
        if self.writing.ticket != Some(ticket) {
            return;
        }
        self.writing.ticket = None;
        self.disk = None;
        let batch = core::mem::take(&mut self.writing.batch);
        self.complete(batch);
        self.pump();
    }

    /// Reports that a write failed and has left nothing. It is tried again later; reservations of
    /// it are not, and are answered with the reason.
    pub fn write_failed(&mut self, now: Nanos, ticket: WriteTicket, why: &str) {
        self.at(now);
        if self.writing.ticket != Some(ticket) {
            return;
        }
        self.writing.ticket = None;
        self.writing.retry_at = Some(self.now.after(self.timing.disk_retry));
        self.disk = Some(why.into());
        let votes = core::mem::take(&mut self.writing.batch.votes);
        self.writing.batch.records.retain(|record| !matches!(record, Record::Reservation { .. }));
        for (id, _) in votes {
            self.refuse_for_disk(id, why);
        }
        self.answer_without_disk();
        self.hand_over();
        self.pump();
    }

    /// Answers what the log has decided, whatever this disk does. A new epoch is none until its
    /// records are durable.
    fn answer_without_disk(&mut self) {
        let is_decided = |answer: &mut (RequestId, Result<Done, Refused>)| {
            !matches!(answer.1, Ok(Done::Recovered(_)))
        };
        let written = self.writing.batch.answers.extract_if(.., is_decided);
        let waiting = self.pending.answers.extract_if(.., is_decided);
        let decided: Vec<_> = written.chain(waiting).collect();
        for (request, result) in decided {
            self.answer(request, result);
        }
    }

    /// Hands leadership to another voter, if this host leads.
    pub(super) fn hand_over(&mut self) {
        let own = node_of(self.own, self.seat);
        let heirs = self.node.conf().voters.iter().copied();
        let heir =
            heirs.filter(|voter| *voter != own).find(|voter| self.node.has_caught_up(*voter));
        if let (true, Some(heir)) = (self.node.is_leader(), heir) {
            self.node.transfer(heir);
        }
    }

    pub(super) fn retry_write(&mut self) {
        if self.writing.retry_at.is_some_and(|at| at <= self.now) {
            self.writing.retry_at = None;
            self.write();
        }
    }

    fn write(&mut self) {
        let ticket = WriteTicket(self.next_ticket);
        self.next_ticket += 1;
        self.writing.ticket = Some(ticket);
        let records = self.writing.batch.records.clone();
        self.out.push_back(Output::Write { ticket, records });
    }

    /// Does all work that is ready.
    pub(super) fn pump(&mut self) {
        loop {
            if self.removed.is_none() {
                self.after_apply();
                if self.take_ready() {
                    continue;
                }
            }
            if self.writing.is_busy() || self.pending.is_empty() {
                return;
            }
            let mut batch = core::mem::take(&mut self.pending);
            if batch.records.is_empty() {
                // Lazy records wait on.
                self.pending.lazy = core::mem::take(&mut batch.lazy);
                self.complete(batch);
            } else {
                batch.hurry();
                self.writing.batch = batch;
                self.write();
                return;
            }
        }
    }

    fn complete(&mut self, batch: Batch) {
        if let Some(ready) = batch.ready {
            self.node.persisted(ready);
        }
        self.durable_vote = batch.vote.unwrap_or(self.durable_vote);
        for message in batch.messages {
            self.send_raft(message);
        }
        for (id, number) in batch.votes {
            self.reservation_is_durable(id, number);
        }
        if let Some(revision) = batch.installed {
            self.out.push_back(Output::Installed(revision));
        }
        for effect in batch.effects {
            self.take_effect(effect, false);
        }
        for (request, result) in batch.answers {
            self.answer(request, result);
        }
    }

    fn send_raft(&mut self, message: eraftpb::Message) {
        let to = message.to;
        let is_snapshot = message.msg_type == MessageType::MsgSnapshot;
        let seat = Seat::new(to);
        self.send_to_seat(host_of(to), seat, Body::Raft(message));
        if is_snapshot {
            // A snapshot that is lost is found out by the next append, which is refused.
            self.node.snapshot_sent(to);
        }
    }

    /// Takes one piece of the engine's work; false if there is none.
    fn take_ready(&mut self) -> bool {
        let Some(mut ready) = self.node.ready() else { return false };
        if let Some(hard) = ready.hs() {
            let (term, vote, commit) = (hard.term, hard.vote, hard.commit);
            let record = Record::HardState { term, vote, commit };
            self.pending.add_lazy(record);
            self.pending.vote = Some((term, vote));
        }
        let (term, vote, _) = self.node.hard();
        let mut messages = ready.take_messages();
        if (term, vote) == self.durable_vote {
            for message in messages {
                self.send_raft(message);
            }
        } else {
            // The only voter leads before its vote is durable. If it forgot the vote, it would lead
            // twice in one term.
            self.pending.messages.append(&mut messages);
        }
        self.pending.messages.extend(ready.take_persisted_messages());
        if ready.must_sync() {
            self.pending.hurry();
        }
        let snapshot = ready.snapshot().clone();
        if !snapshot.is_empty() {
            self.install(snapshot);
        }
        let entries: Vec<_> = ready.entries().iter().map(from_raft_entry).collect();
        if self.node.log_mut().append(&entries) {
            self.pending.records.push(Record::Truncate { from: entries[0].index });
        }
        self.pending.records.extend(entries.into_iter().map(Record::Entry));
        let committed = ready.take_committed_entries();
        self.pending.ready = Some(ready.number());
        self.node.taken(ready);
        if let Some(last) = committed.last() {
            self.keep_mark(last.index, last.term);
        }
        for entry in &committed {
            self.apply(&from_raft_entry(entry));
        }
        self.make_wanted_snapshot();
        self.compact();
        self.leave_if_removed();
        true
    }

    /// Marks an entry that is about to take effect as committed, and lets the record of it be
    /// written beside its effect.
    fn keep_mark(&mut self, index: u64, term: u64) {
        if index > self.replay_to {
            let (seat, epoch) = (self.seat, self.epoch);
            self.out.push_back(Output::Keep(Mark { seat, epoch, index, term }));
            self.pending.hurry();
        }
    }

    /// Puts a snapshot of the leader, which `receive` has checked, in place of the state.
    fn install(&mut self, snapshot: Snapshot) {
        let meta = snapshot.get_metadata();
        let (index, term, conf) = (meta.index, meta.term, node::conf(meta.get_conf_state()));
        let state = snapshot.data.to_vec();
        self.node.log_mut().install(snapshot);
        self.node.installed(index, conf.clone());
        self.pending.records.push(Record::Truncate { from: 0 });
        self.pending.records.push(Record::Snapshot { index, term, conf, state: state.clone() });
        match State::parse(&state) {
            Ok(state) => {
                self.state = Some(state);
                self.is_stale = false;
                self.halted = None;
                self.pending.installed = Some(index);
                // Others count this host as behind until they hear of it.
                self.next_progress = self.now;
                self.release_ended();
                self.settle_round();
                self.settle_confirmations();
            }
            Err(why) => self.halt(why),
        }
    }

    pub(super) fn halt(&mut self, why: String) {
        let why = format!("this host stays at revision {}: {why}", self.revision());
        self.halted = Some(why.clone());
        self.out.push_back(Output::Halted(why));
    }

    fn apply(&mut self, entry: &LogEntry) {
        if self.halted.is_some() {
            return;
        }
        let Some(state) = self.state.as_mut() else {
            self.halt("the log begins without a state".into());
            return;
        };
        let effect = match state.apply(entry) {
            Ok(effect) => effect,
            Err(why) => return self.halt(why),
        };
        if entry.kind == Kind::Voters {
            match Step::parse(&entry.data) {
                Ok(step) => {
                    self.node.apply_step(step);
                    if entry.index > self.replay_to {
                        self.tell_removed(step);
                    }
                }
                Err(why) => return self.halt(format!("entry {}: {why}", entry.index)),
            }
        }
        self.node.applied(entry.index);
        self.take_effect(effect, entry.index <= self.replay_to);
    }

    pub(super) fn take_effect(&mut self, effect: Effect, is_replay: bool) {
        match effect {
            Effect::Nothing => return,
            Effect::Aborted(_) => {}
            Effect::Recorded(record) if !is_replay => {
                let originator = record.id.host;
                self.out.push_back(Output::Applied(record));
                self.tell_progress_of(originator);
            }
            Effect::Confirmed(id) if !is_replay => self.out.push_back(Output::Confirmed(id)),
            Effect::Recorded(_) | Effect::Confirmed(_) => {}
        }
        self.release_ended();
        self.settle_round();
        self.settle_confirmations();
    }

    /// Makes a snapshot for a member that the last one does not know.
    fn make_wanted_snapshot(&mut self) {
        let Some(to) = self.node.log().take_wanted() else { return };
        if let Some((snapshot, _)) = self.snapshot() {
            self.node.log_mut().refresh(snapshot);
            self.node.send_append(to);
        }
    }

    fn snapshot(&self) -> Option<(Snapshot, Record)> {
        let state = self.state.as_ref().filter(|_| !self.is_stale)?;
        let (index, conf, bytes) = (state.revision, self.node.conf().clone(), state.to_bytes());
        let term = self.node.log().term_of(index)?;
        let snapshot = raft_snapshot(index, term, &conf, &bytes);
        Some((snapshot, Record::Snapshot { index, term, conf, state: bytes }))
    }

    fn compact(&mut self) {
        let applied = self.revision();
        let (count, bytes) = self.node.log().weight(applied);
        if count < ENTRIES_MAX && bytes < ENTRIES_BYTES_MAX {
            return;
        }
        let Some((snapshot, record)) = self.snapshot() else { return };
        let kept = KEPT_ENTRIES.min(count.saturating_sub(1)) as u64;
        let to = if bytes < ENTRIES_BYTES_MAX { applied - kept } else { applied };
        self.node.log_mut().compact(snapshot, to);
        self.pending.add_lazy(record);
        self.pending.add_lazy(Record::Compact { to });
    }
}
