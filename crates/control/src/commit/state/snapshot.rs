//! The replicated state as bytes.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::{State, Unconfirmed, size};
use crate::commit::bytes::{Malformed, Reader, Writer};
use crate::commit::record::{id, put_id};
use crate::commit::surface::{Outcome, Replica, Transaction};

const VERSION: u8 = 1;

/// Smallest sizes of the items of a state.
const ENDED_BYTES_MIN: usize = 2 + 8 + 8;
const TRANSACTION_BYTES_MIN: usize = 8 + 18 + 1 + 4 + 8 + 4 + 4 + 4 + 4 + 1;

impl<R: Replica> State<R> {
    pub(in crate::commit) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION).bytes(&self.replica.snapshot());
        out.u64(self.revision).u64(self.hash).u64(self.transactions).u64(self.forgotten);
        out.count(self.ended.len());
        for (host, (incarnation, number)) in &self.ended {
            out.u16(host.0).u64(*incarnation).u64(*number);
        }
        out.flag(self.unconfirmed.is_some());
        if let Some(waits) = &self.unconfirmed {
            put_id(&mut out, waits.id);
            out.u64(waits.revision).bytes(&waits.inverse).u64(waits.within.0);
        }
        out.count(self.history.len());
        for record in &self.history {
            put_transaction(&mut out, record);
        }
        out.take()
    }

    /// Returns the state that the bytes encode.
    ///
    /// # Errors
    /// The bytes are no state, or the document is not understood.
    pub(in crate::commit) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut from = Reader::new(bytes);
        Self::read(&mut from)
            .and_then(|state| from.end().map(|()| state))
            .map_err(|why| format!("the state is {why}"))?
            .map_err(|why| format!("the configuration cannot be read: {why}"))
    }

    fn read(from: &mut Reader<'_>) -> Result<Result<Self, String>, Malformed> {
        Malformed::unless_known("one", from.u8()?, VERSION)?;
        let document = from.bytes()?;
        let (revision, hash) = (from.u64()?, from.u64()?);
        let (transactions, forgotten) = (from.u64()?, from.u64()?);
        let ended = from
            .items(ENDED_BYTES_MIN, |from| Ok((HostId(from.u16()?), (from.u64()?, from.u64()?))))?;
        let unconfirmed = if from.flag()? { Some(unconfirmed(from)?) } else { None };
        let history: VecDeque<_> = from.items(TRANSACTION_BYTES_MIN, transaction)?.into();
        let replica = match R::restore(document) {
            Ok(replica) => replica,
            Err(why) => return Ok(Err(why.to_string())),
        };
        Ok(Ok(Self {
            replica,
            revision,
            hash,
            transactions,
            ended: ended.into_iter().collect(),
            unconfirmed,
            history_bytes: history.iter().map(size).sum(),
            history,
            forgotten,
            hashes: VecDeque::from([(revision, hash)]),
        }))
    }
}

fn unconfirmed(from: &mut Reader<'_>) -> Result<Unconfirmed, Malformed> {
    Ok(Unconfirmed {
        id: id(from)?,
        revision: from.u64()?,
        inverse: from.bytes()?.to_vec(),
        within: Nanos(from.u64()?),
    })
}

fn put_transaction(out: &mut Writer, record: &Transaction) {
    put_id(out.u64(record.revision), record.id);
    out.flag(record.undoes).bytes(record.author.as_bytes()).u64(record.time_ms);
    out.bytes(record.comment.as_bytes()).count(record.votes.len());
    for host in &record.votes {
        out.u16(host.0);
    }
    out.bytes(&record.change).bytes(&record.inverse);
    match &record.outcome {
        Outcome::Applied => out.u8(0),
        Outcome::Refused(why) => out.u8(1).bytes(why.as_bytes()),
    };
}

fn transaction(from: &mut Reader<'_>) -> Result<Transaction, Malformed> {
    Ok(Transaction {
        revision: from.u64()?,
        id: id(from)?,
        undoes: from.flag()?,
        author: from.text()?,
        time_ms: from.u64()?,
        comment: from.text()?,
        votes: from.items(2, |from| from.u16().map(HostId))?,
        change: from.bytes()?.to_vec(),
        inverse: from.bytes()?.to_vec(),
        outcome: match from.u8()? {
            0 => Outcome::Applied,
            1 => Outcome::Refused(from.text()?),
            _ => return Err(Malformed::of("the outcome is unknown")),
        },
    })
}
