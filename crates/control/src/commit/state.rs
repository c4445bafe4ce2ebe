//! The replicated state: the document and what the log says about transactions.
//!
//! Every member applies the same entries in the same order, and nothing else changes it. An entry
//! that does not fit any more is recorded as refused, alike everywhere.

mod snapshot;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::chain;
use super::command::{Command, Entry};
use super::record::LogEntry;
use super::surface::{
    Member, Outcome, Progress, Refusal, Refused, Replica, Revision, Transaction, TxnId,
};

/// Transactions that the history keeps.
pub const HISTORY_MAX: usize = 256;
/// Bytes of changes and inverses that the history keeps, beside the newest transaction.
pub const HISTORY_BYTES_MAX: usize = 1 << 20;
/// Hashes of revisions that are kept for comparisons.
const HASHES_MAX: usize = 256;

/// A transaction that waits to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unconfirmed {
    pub(super) id: TxnId,
    pub(super) revision: Revision,
    pub(super) inverse: Vec<u8>,
    pub(super) within: Nanos,
}

#[derive(Clone, Debug)]
pub(super) struct State<R> {
    pub(super) replica: R,
    pub(super) revision: Revision,
    pub(super) hash: u64,
    pub(super) transactions: u64,
    /// Last transaction of each originator that has ended: incarnation and number.
    ended: BTreeMap<HostId, (u64, u64)>,
    pub(super) unconfirmed: Option<Unconfirmed>,
    history: VecDeque<Transaction>,
    history_bytes: usize,
    /// Revision of the newest transaction that the history does not hold any more.
    forgotten: Revision,
    /// Hashes of the last revisions, newest last. Not part of snapshots.
    hashes: VecDeque<(Revision, u64)>,
}

/// Effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing that anybody waits for.
    Nothing,
    /// A transaction has ended without a place in the history.
    Aborted(TxnId),
    /// A transaction has a place in the history.
    Recorded(Transaction),
    Confirmed(TxnId),
}

/// Reason why an entry cannot be applied by this version.
pub(super) type Halt = String;

impl<R: Replica> State<R> {
    pub(super) fn new(replica: R, revision: Revision) -> Self {
        Self {
            replica,
            revision,
            hash: 0,
            transactions: 0,
            ended: BTreeMap::new(),
            unconfirmed: None,
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: 0,
            hashes: VecDeque::new(),
        }
    }

    pub(super) fn member(&self, host: HostId) -> Option<Member> {
        self.replica.members().into_iter().find(|member| member.host == host)
    }

    pub(super) fn has_ended(&self, id: TxnId) -> bool {
        self.ended.get(&id.host).is_some_and(|last| (id.incarnation, id.number) <= *last)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { revision: self.revision, transactions: self.transactions, hash: self.hash }
    }

    /// Returns the hash at an earlier revision, if it is remembered.
    pub(super) fn hash_at(&self, revision: Revision) -> Option<u64> {
        let found = self.hashes.binary_search_by_key(&revision, |(at, _)| *at).ok()?;
        Some(self.hashes[found].1)
    }

    /// Applies an entry that carries a command, or one that carries none.
    ///
    /// # Errors
    /// This version does not understand the entry. The state is what it was.
    pub(super) fn apply(&mut self, entry: &LogEntry) -> Result<Effect, Halt> {
        let is_command = entry.kind == super::record::Kind::Command && !entry.data.is_empty();
        let effect = if is_command {
            let command = Command::parse(&entry.data)
                .map_err(|why| format!("entry {} is {why}", entry.index))?;
            self.command(entry.index, command)?
        } else {
            Effect::Nothing
        };
        self.hash = chain::next(self.hash, entry);
        self.revision = entry.index;
        if self.hashes.len() == HASHES_MAX {
            self.hashes.pop_front();
        }
        self.hashes.push_back((self.revision, self.hash));
        Ok(effect)
    }

    fn command(&mut self, revision: Revision, command: Command) -> Result<Effect, Halt> {
        match command {
            Command::Transaction(entry) => self.transaction(revision, entry),
            Command::Abort(id) if self.has_ended(id) => Ok(Effect::Nothing),
            Command::Abort(id) => {
                self.end(id);
                Ok(Effect::Aborted(id))
            }
            Command::Confirm(id) => {
                let waits = self.unconfirmed.take_if(|waits| waits.id == id);
                Ok(waits.map_or(Effect::Nothing, |_| Effect::Confirmed(id)))
            }
            Command::Revert(id) => self.revert(revision, id),
        }
    }

    fn end(&mut self, id: TxnId) {
        self.ended.insert(id.host, (id.incarnation, id.number));
    }

    fn transaction(&mut self, revision: Revision, entry: Entry) -> Result<Effect, Halt> {
        if self.has_ended(entry.id) {
            return Ok(Effect::Nothing);
        }
        let result = self.try_apply(&entry);
        if let Err(Refusal::Unknown(_)) = &result {
            let why = result.err().map(|why| why.to_string()).unwrap_or_default();
            return Err(format!("entry {revision}: {why}"));
        }
        self.end(entry.id);
        let (inverse, outcome) = match result {
            Ok(inverse) => (inverse, Outcome::Applied),
            Err(why) => (Vec::new(), Outcome::Refused(why.to_string())),
        };
        if let (Some(within), Outcome::Applied) = (entry.confirm_within, &outcome) {
            let inverse = inverse.clone();
            self.unconfirmed = Some(Unconfirmed { id: entry.id, revision, inverse, within });
        }
        let record = Transaction {
            revision,
            id: entry.id,
            undoes: false,
            author: entry.author,
            time_ms: entry.time_ms,
            comment: entry.comment,
            votes: entry.votes,
            change: entry.change,
            inverse,
            outcome,
        };
        self.remember(record.clone());
        Ok(Effect::Recorded(record))
    }

    fn try_apply(&mut self, entry: &Entry) -> Result<Vec<u8>, Refusal> {
        let seat = self.member(entry.id.host).map(|member| member.seat);
        if seat != Some(entry.seat) {
            return Err(Refusal::Unfit("its originator is no member any more".into()));
        }
        if let Some(waits) = &self.unconfirmed {
            return Err(Refusal::Unfit(Refused::Unconfirmed(waits.revision).to_string()));
        }
        self.replica.apply(&entry.change)
    }

    fn revert(&mut self, revision: Revision, id: TxnId) -> Result<Effect, Halt> {
        let Some(waits) = self.unconfirmed.clone().filter(|waits| waits.id == id) else {
            return Ok(Effect::Nothing);
        };
        let result = self.replica.apply(&waits.inverse);
        if let Err(why @ Refusal::Unknown(_)) = &result {
            return Err(format!("entry {revision}: {why}"));
        }
        self.unconfirmed = None;
        let (inverse, outcome) = match result {
            Ok(inverse) => (inverse, Outcome::Applied),
            Err(why) => (Vec::new(), Outcome::Refused(why.to_string())),
        };
        let undone = self.history.iter().find(|record| record.revision == waits.revision);
        let record = Transaction {
            revision,
            id,
            undoes: true,
            author: undone.map(|record| record.author.clone()).unwrap_or_default(),
            time_ms: undone.map_or(0, |record| record.time_ms),
            comment: format!("undoes revision {}, which was not confirmed", waits.revision),
            votes: Vec::new(),
            change: waits.inverse,
            inverse,
            outcome,
        };
        self.remember(record.clone());
        Ok(Effect::Recorded(record))
    }

    fn remember(&mut self, record: Transaction) {
        self.transactions += 1;
        self.history_bytes += size(&record);
        self.history.push_back(record);
        let is_over = |history: &VecDeque<_>, bytes| {
            history.len() > HISTORY_MAX || (bytes > HISTORY_BYTES_MAX && history.len() > 1)
        };
        while is_over(&self.history, self.history_bytes) {
            if let Some(oldest) = self.history.pop_front() {
                self.history_bytes -= size(&oldest);
                self.forgotten = oldest.revision;
            }
        }
    }

    /// Returns true if the history may have lost a transaction that is newer than a revision.
    pub(super) const fn has_forgotten(&self, since: Revision) -> bool {
        self.forgotten > since
    }

    pub(super) fn history(&self) -> alloc::collections::vec_deque::Iter<'_, Transaction> {
        self.history.iter()
    }

    /// Returns the changes that undo all transactions after a revision, the newest first.
    pub(super) fn inverses(&self, back_to: Revision) -> Result<Vec<Vec<u8>>, Refused> {
        if back_to > self.revision || back_to < self.forgotten {
            return Err(Refused::Forgotten(back_to));
        }
        let newest_first = self.history.iter().rev();
        let undone = newest_first.take_while(|record| record.revision > back_to);
        let applied = undone.filter(|record| record.outcome == Outcome::Applied);
        Ok(applied.map(|record| record.inverse.clone()).collect())
    }
}

/// Bytes of a record that its originator chose.
fn size(record: &Transaction) -> usize {
    record.change.len() + record.inverse.len() + record.comment.len() + record.author.len()
}

#[cfg(test)]
mod tests;
