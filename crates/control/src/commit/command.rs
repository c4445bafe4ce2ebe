//! Data of log entries, and their encoding.

use alloc::string::String;
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::bytes::{Malformed, Reader, Writer};
use super::record::{id, put_id, seat};
use super::surface::{CHANGE_BYTES_MAX, Revision, Seat, TEXT_BYTES_MAX, TxnId};

const VERSION: u8 = 1;

/// Data of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A transaction with its votes: the PRE-COMMIT.
    Transaction(Entry),
    /// The end of a transaction that was not handed to the log.
    Abort(TxnId),
    /// A transaction that waited for it is confirmed.
    Confirm(TxnId),
    /// A transaction that was not confirmed is undone.
    Revert(TxnId),
}

/// A transaction as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: TxnId,
    pub(super) seat: Seat,
    pub(super) base: Revision,
    pub(super) change: Vec<u8>,
    pub(super) author: String,
    pub(super) time_ms: u64,
    pub(super) comment: String,
    pub(super) votes: Vec<HostId>,
    pub(super) confirm_within: Option<Nanos>,
}

impl Command {
    pub(super) const fn id(&self) -> TxnId {
        match self {
            Self::Transaction(entry) => entry.id,
            Self::Abort(id) | Self::Confirm(id) | Self::Revert(id) => *id,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Transaction(entry) => {
                put_id(out.u8(1), entry.id);
                out.u64(entry.seat.get()).u64(entry.base).bytes(&entry.change);
                out.bytes(entry.author.as_bytes()).u64(entry.time_ms);
                out.bytes(entry.comment.as_bytes()).count(entry.votes.len());
                for host in &entry.votes {
                    out.u16(host.0);
                }
                out.flag(entry.confirm_within.is_some());
                out.u64(entry.confirm_within.unwrap_or_default().0);
            }
            Self::Abort(id) => put_id(out.u8(2), *id),
            Self::Confirm(id) => put_id(out.u8(3), *id),
            Self::Revert(id) => put_id(out.u8(4), *id),
        }
        out.take()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        Malformed::unless_known("a command", from.u8()?, VERSION)?;
        let command = match from.u8()? {
            1 => Self::Transaction(transaction(&mut from)?),
            2 => Self::Abort(id(&mut from)?),
            3 => Self::Confirm(id(&mut from)?),
            4 => Self::Revert(id(&mut from)?),
            _ => return Err(Malformed::of("the command is unknown")),
        };
        from.end()?;
        Ok(command)
    }
}

fn transaction(from: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let entry = Entry {
        id: id(from)?,
        seat: seat(from)?,
        base: from.u64()?,
        change: from.bytes()?.to_vec(),
        author: from.text()?,
        time_ms: from.u64()?,
        comment: from.text()?,
        votes: from.items(2, |from| from.u16().map(HostId))?,
        confirm_within: {
            let is_some = from.flag()?;
            let span = Nanos(from.u64()?);
            is_some.then_some(span)
        },
    };
    let fits = entry.change.len() <= CHANGE_BYTES_MAX
        && entry.author.len() <= TEXT_BYTES_MAX
        && entry.comment.len() <= TEXT_BYTES_MAX;
    if fits { Ok(entry) } else { Err(Malformed::of("the transaction is too large")) }
}
