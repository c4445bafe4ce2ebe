//! Messages between members, and their encoding.
//!
//! ```text
//!   ┌────────┬──────────────────┬───────┬───────────────┬────────────────────┬──────┐
//!   │ format │ sender's formats │ epoch │ sender's seat │ receiver's seat, 0 │ body │
//!   │        │ (from 2 on)      │       │               │ if any             │      │
//!   └────────┴──────────────────┴───────┴───────────────┴────────────────────┴──────┘
//!       1             2            14           8                 8              n
//! ```
//!
//! The transport has authenticated the sending host. A parser sees bytes of a peer, so it is total:
//! any input gives a message or an error, and allocates no more than its own size.

mod raft_message;

use alloc::string::String;
use alloc::vec::Vec;

use raft::eraftpb;

use super::bytes::{Malformed, Reader, Writer};
use super::command::Command;
use super::format::Formats;
use super::record::{epoch, id, put_epoch, put_id, seat};
use super::surface::{
    CHANGE_BYTES_MAX, Epoch, MESSAGE_BYTES_MAX, Progress, Revision, Seat, TEXT_BYTES_MAX, TxnId,
};
pub(super) use raft_message::{conf_state, from_raft_entry, raft_snapshot, to_raft_entry};

/// A vote of RESERVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    /// Durable, unless only the vote was asked for.
    Yes,
    No(String),
    /// Another reservation has a key of this transaction.
    Conflict(TxnId),
    /// The host has not caught up.
    Behind,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    Raft(eraftpb::Message),
    Reserve {
        id: TxnId,
        base: Revision,
        dry: bool,
        change: Vec<u8>,
    },
    Vote {
        id: TxnId,
        vote: Vote,
    },
    /// Asks the leader to append a command.
    Propose(Command),
    /// Asks about a reservation that has been open for long.
    Query(TxnId),
    Progress(Progress),
    /// The receiver is no member at this revision.
    Removed(Revision),
    /// The receiver's host is a member, with another seat.
    Stranger,
    /// Formats that the sender reads and writes. Always written in format 1.
    Formats(Formats),
}

/// Beginning of a message, which every version of the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) format: u8,
    /// Formats of the sender, if it says so.
    pub(super) formats: Option<Formats>,
}

impl Head {
    /// Returns the beginning of a message.
    ///
    /// # Errors
    /// The bytes are no message.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::read(&mut Reader::new(bytes))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let format = from.u8()?;
        let formats = if format < 2 { None } else { Some(formats(from)?) };
        match formats.unwrap_or_default().has(format) {
            true => Ok(Self { format, formats }),
            false => Err(Malformed::of("its format is none of its sender's")),
        }
    }
}

fn formats(from: &mut Reader<'_>) -> Result<Formats, Malformed> {
    Formats::new(from.u8()?, from.u8()?).ok_or(Malformed::of("formats that are none"))
}

/// A message with its head.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) epoch: Epoch,
    pub(super) from: Seat,
    pub(super) to: Option<Seat>,
    pub(super) body: Body,
}

impl Message {
    /// Returns the message in a format, from a sender that has these.
    pub(super) fn to_bytes(&self, format: u8, own: Formats) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(format);
        if format > 1 {
            out.u8(own.oldest()).u8(own.newest());
        }
        put_epoch(&mut out, self.epoch);
        out.u64(self.from.get()).u64(self.to.map_or(0, Seat::get));
        match &self.body {
            Body::Raft(message) => raft_message::put(out.u8(1), message),
            Body::Reserve { id, base, dry, change } => {
                put_id(out.u8(2), *id);
                out.u64(*base).flag(*dry).bytes(change);
            }
            Body::Vote { id, vote } => {
                put_id(out.u8(3), *id);
                put_vote(&mut out, vote);
            }
            Body::Propose(command) => _ = out.u8(4).bytes(&command.to_bytes()),
            Body::Query(id) => put_id(out.u8(5), *id),
            Body::Progress(progress) => {
                out.u8(6).u64(progress.revision).u64(progress.transactions).u64(progress.hash);
            }
            Body::Removed(revision) => _ = out.u8(7).u64(*revision),
            Body::Stranger => _ = out.u8(8),
            Body::Formats(formats) => _ = out.u8(9).u8(formats.oldest()).u8(formats.newest()),
        }
        out.take()
    }

    /// Reads a message, by a receiver that has these formats.
    pub(super) fn parse(bytes: &[u8], own: Formats) -> Result<Self, Malformed> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed::of("the message is too large"));
        }
        let mut from = Reader::new(bytes);
        let head = Head::read(&mut from)?;
        let (epoch, sender) = (epoch(&mut from)?, seat(&mut from)?);
        let to = match from.u64()? {
            0 => None,
            bits => Some(
                Seat::new(bits)
                    .filter(|seat| seat.get() == bits)
                    .ok_or(Malformed::of("a seat is out of range"))?,
            ),
        };
        let body = body(&mut from)?;
        from.end()?;
        let is_announced = matches!(body, Body::Formats(_));
        if is_announced && (own.newest() < 2 || head.format > 1) {
            return Err(Malformed::of("the message is unknown"));
        }
        if !is_announced && !own.has(head.format) {
            return Err(Malformed::of("the message is of another format"));
        }
        Ok(Self { epoch, from: sender, to, body })
    }
}

fn body(from: &mut Reader<'_>) -> Result<Body, Malformed> {
    Ok(match from.u8()? {
        1 => Body::Raft(raft_message::parse(from)?),
        2 => {
            let (id, base, dry) = (id(from)?, from.u64()?, from.flag()?);
            let change = from.bytes()?;
            if change.len() > CHANGE_BYTES_MAX {
                return Err(Malformed::of("the change is too large"));
            }
            Body::Reserve { id, base, dry, change: change.to_vec() }
        }
        3 => Body::Vote { id: id(from)?, vote: vote(from)? },
        4 => Body::Propose(Command::parse(from.bytes()?)?),
        5 => Body::Query(id(from)?),
        6 => Body::Progress(Progress {
            revision: from.u64()?,
            transactions: from.u64()?,
            hash: from.u64()?,
        }),
        7 => Body::Removed(from.u64()?),
        8 => Body::Stranger,
        9 => Body::Formats(formats(from)?),
        _ => return Err(Malformed::of("the message is unknown")),
    })
}

fn put_vote(out: &mut Writer, vote: &Vote) {
    match vote {
        Vote::Yes => _ = out.u8(0),
        Vote::No(reason) => {
            let end = reason.floor_char_boundary(TEXT_BYTES_MAX);
            out.u8(1).bytes(&reason.as_bytes()[..end]);
        }
        Vote::Conflict(id) => put_id(out.u8(2), *id),
        Vote::Behind => _ = out.u8(3),
    }
}

fn vote(from: &mut Reader<'_>) -> Result<Vote, Malformed> {
    Ok(match from.u8()? {
        0 => Vote::Yes,
        1 => Vote::No(from.text()?),
        2 => Vote::Conflict(id(from)?),
        3 => Vote::Behind,
        _ => return Err(Malformed::of("the vote is unknown")),
    })
}

/// Returns an error if the bytes are no message between members.
///
/// # Errors
/// The reason.
pub fn check_message(bytes: &[u8]) -> Result<(), Malformed> {
    Message::parse(bytes, Formats::OWN).map(|_| ())
}

#[cfg(test)]
mod tests;
