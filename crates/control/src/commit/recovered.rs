//! Contents of a disk, read back from its records.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use sluice_base::HostId;

use super::mark::Mark;
use super::record::{Conf, LogEntry, Record};
use super::surface::{Epoch, Key, Seat, TxnId};

/// A disk that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the records of the fabric's configuration cannot be used: {}; move them away, evict \
             this host at another member, and join again",
            self.0
        )
    }
}

impl core::error::Error for Unreadable {}

/// Contents of a disk. The default is that of an empty one.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub(super) identity: Option<(Seat, Epoch)>,
    pub(super) hard: (u64, u64, u64),
    pub(super) snapshot: Option<(u64, u64, Conf, Vec<u8>)>,
    pub(super) entries: Vec<LogEntry>,
    pub(super) reservations: Vec<(TxnId, Vec<Key>, Vec<u8>)>,
    pub(super) aside: Vec<(Epoch, Vec<LogEntry>)>,
    pub(super) kept: Option<Vec<u8>>,
    pub(super) removed: Option<HostId>,
    /// A mark knew more than the record of the term.
    pub(super) is_marked: bool,
}

impl Recovered {
    /// Reads records: all that were written, in order, or the values of a [`super::Store`] in the
    /// order of their keys.
    ///
    /// # Errors
    /// A record is missing or damaged.
    pub fn from_records<'a>(
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, Unreadable> {
        let (mut out, mut entries) = (Self::default(), BTreeMap::new());
        let mut reservations = BTreeMap::new();
        for (n, bytes) in records.into_iter().enumerate() {
            let record =
                Record::parse(bytes).map_err(|why| Unreadable(format!("record {n} is {why}")))?;
            match record {
                Record::Identity { seat, epoch } => out.identity = Some((seat, epoch)),
                Record::HardState { term, vote, commit } => out.hard = (term, vote, commit),
                Record::Snapshot { index, term, conf, state } => {
                    out.snapshot = Some((index, term, conf, state));
                    out.kept = None;
                }
                Record::Entry(entry) => _ = entries.insert(entry.index, entry),
                Record::Truncate { from } => _ = entries.split_off(&from),
                Record::Compact { to } => entries = entries.split_off(&(to + 1)),
                Record::Reservation { id, keys, change } => {
                    reservations.insert(id, (keys, change));
                }
                Record::Released { id } => _ = reservations.remove(&id),
                Record::Aside { epoch, entries } => out.aside.push((epoch, entries)),
                Record::Kept { state } => {
                    out.kept = Some(state);
                    out.snapshot = None;
                }
                Record::Removed { by } => out.removed = Some(by),
            }
        }
        let held = reservations.into_iter();
        out.reservations = held.map(|(id, (keys, change))| (id, keys, change)).collect();
        out.entries = entries.into_values().collect();
        out.check()?;
        Ok(out)
    }

    /// Takes the entries up to a mark as committed, if it is of this disk, its epoch and its log.
    #[must_use]
    pub fn with_mark(mut self, mark: Option<Mark>) -> Self {
        let is_of_disk = |mark: &Mark| self.identity == Some((mark.seat, mark.epoch));
        let Some(mark) = mark.filter(is_of_disk) else { return self };
        let is_it = |entry: &LogEntry| (entry.index, entry.term) == (mark.index, mark.term);
        if mark.index > self.hard.2 && self.entries.iter().any(is_it) {
            self.hard.2 = mark.index;
            self.is_marked = true;
        }
        self
    }

    /// Returns true if nothing was ever written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.identity.is_none()
    }

    /// Returns the seat of the disk.
    #[must_use]
    pub fn seat(&self) -> Option<Seat> {
        self.identity.map(|(seat, _)| seat)
    }

    fn check(&mut self) -> Result<(), Unreadable> {
        let holds = !self.entries.is_empty() || self.snapshot.is_some();
        if self.identity.is_none() && (holds || !self.reservations.is_empty()) {
            return Err(Unreadable("the record of its identity is missing".into()));
        }
        let snapshot = self.snapshot.as_ref().map_or(0, |(index, ..)| *index);
        // A store by key has entries before a snapshot until they are compacted.
        let first = self.entries.first().map_or(snapshot + 1, |entry| entry.index);
        if first > snapshot + 1 {
            return Err(Unreadable(format!(
                "entries {} to {} are missing",
                snapshot + 1,
                first - 1
            )));
        }
        self.entries.retain(|entry| entry.index > snapshot);
        for (entry, index) in self.entries.iter().zip(snapshot + 1..) {
            if entry.index != index {
                return Err(Unreadable(format!("entry {index} is missing")));
            }
        }
        self.hard.2 = self.hard.2.max(snapshot);
        let last = snapshot + self.entries.len() as u64;
        if self.hard.2 > last {
            return Err(Unreadable(format!("entries {} to {} are missing", last + 1, self.hard.2)));
        }
        if self.hard.0 == 0 && holds {
            return Err(Unreadable("the record of the term is missing".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
