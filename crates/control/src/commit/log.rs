//! The log in memory, as the engine reads it. Records of all of it are durable, or on their way.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;

use raft::eraftpb::{Entry, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use super::message::{conf_state, raft_snapshot, to_raft_entry};
use super::record::{Conf, LogEntry};

/// Entries after a snapshot, and the snapshot.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Place of the entry before the first.
    base: (u64, u64),
    entries: VecDeque<LogEntry>,
    bytes: usize,
    /// The hard state at the start: term, vote and commit.
    pub(super) hard: (u64, u64, u64),
    /// The voters of the snapshot at the start.
    pub(super) conf: Conf,
    /// The state for members that are behind the first entry.
    snapshot: Snapshot,
    /// Node that needs a snapshot with itself in it.
    wanted: Cell<Option<u64>>,
}

impl Log {
    pub(super) fn new(
        base: (u64, u64),
        entries: Vec<LogEntry>,
        hard: (u64, u64, u64),
        conf: Conf,
        state: &[u8],
    ) -> Self {
        let snapshot = if base.0 == 0 {
            Snapshot::default()
        } else {
            raft_snapshot(base.0, base.1, &conf, state)
        };
        let bytes = entries.iter().map(size).sum();
        let entries = entries.into();
        Self { base, entries, bytes, hard, conf, snapshot, wanted: Cell::new(None) }
    }

    pub(super) const fn base(&self) -> u64 {
        self.base.0
    }

    pub(super) fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// Returns entries after an index.
    pub(super) fn after(&self, index: u64) -> Vec<LogEntry> {
        self.entries.iter().filter(|entry| entry.index > index).cloned().collect()
    }

    /// Returns the number and the bytes of the entries up to an index.
    pub(super) fn weight(&self, index: u64) -> (usize, usize) {
        let before = self.entries.iter().take_while(|entry| entry.index <= index);
        before.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + size(entry)))
    }

    pub(super) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        let place = usize::try_from(index.checked_sub(self.base.0 + 1)?).ok()?;
        self.entries.get(place).map(|entry| entry.term)
    }

    /// Appends entries, in place of those from the first index on. Returns whether there were any.
    pub(super) fn append(&mut self, entries: &[LogEntry]) -> bool {
        let Some(first) = entries.first() else { return false };
        assert!(first.index > self.base.0 && first.index <= self.last() + 1, "a gap in the log");
        let replaces = first.index <= self.last();
        while self.last() >= first.index {
            let gone = self.entries.pop_back();
            self.bytes -= gone.as_ref().map_or(0, size);
        }
        self.bytes += entries.iter().map(size).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
        replaces
    }

    /// Drops all entries in favour of a snapshot.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        let meta = snapshot.get_metadata();
        self.base = (meta.index, meta.term);
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = snapshot;
    }

    /// Takes a newer snapshot of the same log, and drops the entries up to an index.
    pub(super) fn compact(&mut self, snapshot: Snapshot, to: u64) {
        assert!(to <= snapshot.get_metadata().index, "entries after a snapshot are needed");
        self.snapshot = snapshot;
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= to) {
            self.base = (entry.index, entry.term);
            self.bytes -= size(&entry);
        }
    }

    /// Replaces the snapshot by a newer one.
    pub(super) fn refresh(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
    }

    /// Takes the node that waits for a newer snapshot.
    pub(super) fn take_wanted(&self) -> Option<u64> {
        self.wanted.take()
    }
}

fn size(entry: &LogEntry) -> usize {
    32 + entry.data.len()
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        let mut state = RaftState { conf_state: conf_state(&self.conf), ..RaftState::default() };
        (state.hard_state.term, state.hard_state.vote, state.hard_state.commit) = self.hard;
        Ok(state)
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        size_max: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let left = size_max.into().unwrap_or(u64::MAX);
        let (skip, count) = (low - self.base.0 - 1, high.saturating_sub(low));
        let (skip, count) = (usize::try_from(skip), usize::try_from(count));
        let (skip, count) = (skip.unwrap_or(usize::MAX), count.unwrap_or(usize::MAX));
        let mut out = Vec::new();
        let mut sum = 0;
        for entry in self.entries.iter().skip(skip).take(count) {
            sum += size(entry) as u64;
            if sum > left && !out.is_empty() {
                break;
            }
            out.push(to_raft_entry(entry));
        }
        Ok(out)
    }

    fn term(&self, index: u64) -> Result<u64> {
        self.term_of(index).ok_or(Error::Store(if index < self.base.0 {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        }))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        let meta = self.snapshot.get_metadata();
        let conf = meta.get_conf_state();
        let knows = conf.voters.contains(&to) || conf.learners.contains(&to);
        if !knows || meta.index < request_index.max(self.base.0) {
            self.wanted.set(Some(to));
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.snapshot.clone())
    }
}
