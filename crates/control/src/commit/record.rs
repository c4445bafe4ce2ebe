//! Durable records, and their encoding.
//!
//! ```text
//!   ┌─────────┬─────┬──────┬──────────┐
//!   │ version │ tag │ body │ checksum │
//!   └─────────┴─────┴──────┴──────────┘
//!        1       1     n        8
//! ```
//!
//! A store keeps records by key ([`Record::store`]) or one after the other; both can be read back
//! ([`super::Recovered::from_records`]). The checksum finds torn and rotten records.

use alloc::vec::Vec;

use sluice_base::HostId;

use super::bytes::{Malformed, Reader, Writer};
use super::chain;
use super::surface::{Epoch, Key, Revision, Seat, TxnId};

const VERSION: u8 = 1;

/// Kind of an entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command; empty at the begin of a term.
    Command,
    /// A change of the voters.
    Voters,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Position in the log.
    pub index: u64,
    /// Term of the leader that appended it.
    pub term: u64,
    /// Kind of its data.
    pub kind: Kind,
    /// A command or a change of voters, encoded.
    pub data: Vec<u8>,
}

/// Voters and learners of the log, as numbers of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that only receive the log.
    pub learners: Vec<u64>,
}

/// A durable record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The disk's seat and epoch.
    Identity {
        /// The seat.
        seat: Seat,
        /// The epoch.
        epoch: Epoch,
    },
    /// Term, vote in that term, and last index known to be committed.
    HardState {
        /// The term.
        term: u64,
        /// The node voted for; zero if none.
        vote: u64,
        /// The index.
        commit: u64,
    },
    /// The state after an entry.
    Snapshot {
        /// Index of the entry.
        index: u64,
        /// Term of the entry.
        term: u64,
        /// Voters after the entry.
        conf: Conf,
        /// The state.
        state: Vec<u8>,
    },
    /// An entry; replaces one of the same index.
    Entry(LogEntry),
    /// Removes entries from an index on.
    Truncate {
        /// The first that goes.
        from: u64,
    },
    /// Removes entries up to an index.
    Compact {
        /// The last that goes.
        to: u64,
    },
    /// A yes to a transaction.
    Reservation {
        /// The transaction.
        id: TxnId,
        /// The keys that it claims.
        keys: Vec<Key>,
        /// The change.
        change: Vec<u8>,
    },
    /// Ends a reservation.
    Released {
        /// The transaction.
        id: TxnId,
    },
    /// Entries of an older epoch, never merged.
    Aside {
        /// The older epoch.
        epoch: Epoch,
        /// Its entries that the newer epoch does not have.
        entries: Vec<LogEntry>,
    },
    /// The last state of an older epoch, in force until a snapshot comes.
    Kept {
        /// The state.
        state: Vec<u8>,
    },
    /// This host is no member any more.
    Removed {
        /// Host that said so.
        by: HostId,
    },
}

/// A store of values by key.
pub trait Store {
    /// Puts a value in place of any other of the same key.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Removes the values of all keys from `first` on and before `end`.
    fn remove(&mut self, first: &[u8], end: &[u8]);
}

const IDENTITY: u8 = 1;
const HARD_STATE: u8 = 2;
const SNAPSHOT: u8 = 3;
const ENTRY: u8 = 4;
const TRUNCATE: u8 = 5;
const COMPACT: u8 = 6;
const RESERVATION: u8 = 7;
const RELEASED: u8 = 8;
const ASIDE: u8 = 9;
const KEPT: u8 = 10;
const REMOVED: u8 = 11;

fn key(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + body.len());
    key.push(tag);
    key.extend_from_slice(body);
    key
}

fn id_key(id: TxnId, after: u64) -> Vec<u8> {
    let mut out = Writer::default();
    let number = id.number + after;
    out.u8(RESERVATION).u16(id.host.0).u64(id.incarnation).u64(number);
    out.take()
}

impl Record {
    /// Carries the record out on a store by key.
    pub fn store(&self, store: &mut impl Store) {
        match self {
            Self::Identity { .. } => store.put(&[IDENTITY], &self.to_bytes()),
            Self::HardState { .. } => store.put(&[HARD_STATE], &self.to_bytes()),
            Self::Snapshot { .. } => {
                store.put(&[SNAPSHOT], &self.to_bytes());
                store.remove(&[KEPT], &[KEPT + 1]);
            }
            Self::Entry(entry) => {
                store.put(&key(ENTRY, &entry.index.to_be_bytes()), &self.to_bytes());
            }
            Self::Truncate { from } => store.remove(&key(ENTRY, &from.to_be_bytes()), &[ENTRY + 1]),
            Self::Compact { to } => {
                store.remove(&[ENTRY], &key(ENTRY, &to.saturating_add(1).to_be_bytes()));
            }
            Self::Reservation { id, .. } => store.put(&id_key(*id, 0), &self.to_bytes()),
            Self::Released { id } => store.remove(&id_key(*id, 0), &id_key(*id, 1)),
            Self::Aside { epoch, .. } => {
                store.put(&key(ASIDE, &epoch.number.to_be_bytes()), &self.to_bytes());
            }
            Self::Kept { .. } => {
                store.put(&[KEPT], &self.to_bytes());
                store.remove(&[SNAPSHOT], &[SNAPSHOT + 1]);
            }
            Self::Removed { .. } => store.put(&[REMOVED], &self.to_bytes()),
        }
    }

    /// Returns the encoding.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Identity { seat, epoch } => {
                put_epoch(out.u8(IDENTITY).u64(seat.get()), *epoch);
            }
            Self::HardState { term, vote, commit } => {
                out.u8(HARD_STATE).u64(*term).u64(*vote).u64(*commit);
            }
            Self::Snapshot { index, term, conf, state } => {
                out.u8(SNAPSHOT).u64(*index).u64(*term);
                put_conf(&mut out, conf);
                out.bytes(state);
            }
            Self::Entry(entry) => put_entry(out.u8(ENTRY), entry),
            Self::Truncate { from } => _ = out.u8(TRUNCATE).u64(*from),
            Self::Compact { to } => _ = out.u8(COMPACT).u64(*to),
            Self::Reservation { id, keys, change } => {
                put_id(out.u8(RESERVATION), *id);
                out.count(keys.len());
                for key in keys {
                    out.bytes(key);
                }
                out.bytes(change);
            }
            Self::Released { id } => put_id(out.u8(RELEASED), *id),
            Self::Aside { epoch, entries } => {
                put_epoch(out.u8(ASIDE), *epoch);
                put_entries(&mut out, entries);
            }
            Self::Kept { state } => _ = out.u8(KEPT).bytes(state),
            Self::Removed { by } => _ = out.u8(REMOVED).u16(by.0),
        }
        chain::sealed(out.take())
    }

    /// Returns the record that the bytes encode.
    ///
    /// # Errors
    /// They are no record: cut off, rotten, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(chain::unsealed(bytes, "the checksum of a record differs")?);
        Malformed::unless_known("a record", from.u8()?, VERSION)?;
        let record = match from.u8()? {
            IDENTITY => Self::Identity { seat: seat(&mut from)?, epoch: epoch(&mut from)? },
            HARD_STATE => {
                Self::HardState { term: from.u64()?, vote: from.u64()?, commit: from.u64()? }
            }
            SNAPSHOT => Self::Snapshot {
                index: from.u64()?,
                term: from.u64()?,
                conf: conf(&mut from)?,
                state: from.bytes()?.to_vec(),
            },
            ENTRY => Self::Entry(entry(&mut from)?),
            TRUNCATE => Self::Truncate { from: from.u64()? },
            COMPACT => Self::Compact { to: from.u64()? },
            RESERVATION => Self::Reservation {
                id: id(&mut from)?,
                keys: from.items(4, |from| Ok(from.bytes()?.to_vec()))?,
                change: from.bytes()?.to_vec(),
            },
            RELEASED => Self::Released { id: id(&mut from)? },
            ASIDE => Self::Aside { epoch: epoch(&mut from)?, entries: entries(&mut from)? },
            KEPT => Self::Kept { state: from.bytes()?.to_vec() },
            REMOVED => Self::Removed { by: HostId(from.u16()?) },
            _ => return Err(Malformed::of("the tag of a record is unknown")),
        };
        from.end()?;
        Ok(record)
    }
}

pub(super) fn put_id(out: &mut Writer, id: TxnId) {
    out.u16(id.host.0).u64(id.incarnation).u64(id.number);
}

/// Largest number of an index, a term, an incarnation or a transaction: sums of some of them do
/// not overflow.
pub(super) const NUMBER_MAX: u64 = 1 << 56;

fn number(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let number = from.u64()?;
    if number <= NUMBER_MAX { Ok(number) } else { Err(Malformed::of("a number is out of range")) }
}

pub(super) fn id(from: &mut Reader<'_>) -> Result<TxnId, Malformed> {
    Ok(TxnId { host: HostId(from.u16()?), incarnation: from.u64()?, number: number(from)? })
}

pub(super) fn put_epoch(out: &mut Writer, epoch: Epoch) {
    out.u32(epoch.number).u16(epoch.founder.0).u64(epoch.base);
}

pub(super) fn epoch(from: &mut Reader<'_>) -> Result<Epoch, Malformed> {
    let (number, founder): (_, _) = (from.u32()?, HostId(from.u16()?));
    let base: Revision = self::number(from)?;
    Ok(Epoch { number, founder, base })
}

pub(super) fn seat(from: &mut Reader<'_>) -> Result<Seat, Malformed> {
    let bits = from.u64()?;
    Seat::new(bits).filter(|seat| seat.get() == bits).ok_or(Malformed::of("a seat is out of range"))
}

pub(super) fn put_conf(out: &mut Writer, conf: &Conf) {
    for nodes in [&conf.voters, &conf.learners] {
        out.count(nodes.len());
        for node in nodes {
            out.u64(*node);
        }
    }
}

pub(super) fn conf(from: &mut Reader<'_>) -> Result<Conf, Malformed> {
    Ok(Conf { voters: from.items(8, Reader::u64)?, learners: from.items(8, Reader::u64)? })
}

fn put_entry(out: &mut Writer, entry: &LogEntry) {
    let kind = match entry.kind {
        Kind::Command => 0,
        Kind::Voters => 1,
    };
    out.u64(entry.index).u64(entry.term).u8(kind).bytes(&entry.data);
}

fn entry(from: &mut Reader<'_>) -> Result<LogEntry, Malformed> {
    let (index, term) = (number(from)?, number(from)?);
    let kind = match from.u8()? {
        0 => Kind::Command,
        1 => Kind::Voters,
        _ => return Err(Malformed::of("the kind of an entry is unknown")),
    };
    Ok(LogEntry { index, term, kind, data: from.bytes()?.to_vec() })
}

pub(super) fn put_entries(out: &mut Writer, entries: &[LogEntry]) {
    out.count(entries.len());
    for entry in entries {
        put_entry(out, entry);
    }
}

/// Size of an entry without data.
const ENTRY_BYTES_MIN: usize = 8 + 8 + 1 + 4;

pub(super) fn entries(from: &mut Reader<'_>) -> Result<Vec<LogEntry>, Malformed> {
    from.items(ENTRY_BYTES_MIN, entry)
}
