//! Encoding of the messages of the quorum log. Of all that its engine can send, the parts that this
//! project uses: no reads, no forwarded proposals, no joint quorums.

use alloc::vec::Vec;

use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};

use crate::commit::bytes::{Malformed, Reader, Writer};
use crate::commit::record::{
    Conf, Kind, LogEntry, NUMBER_MAX, conf, entries, put_conf, put_entries,
};

/// Context of an election that a leader asked for when it handed over.
const TRANSFER: &[u8] = b"CampaignTransfer";

const TYPES: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

/// Returns an entry of the log as the engine has it.
pub(in crate::commit) fn to_raft_entry(entry: &LogEntry) -> Entry {
    let mut out = Entry { index: entry.index, term: entry.term, ..Entry::default() };
    match entry.kind {
        Kind::Command => out.data = entry.data.clone().into(),
        Kind::Voters => {
            out.entry_type = EntryType::EntryConfChange;
            out.context = entry.data.clone().into();
        }
    }
    out
}

/// Returns an entry of the engine as the log has it. A change of voters is in the context; the
/// engine's own encoding of it is dropped.
pub(in crate::commit) fn from_raft_entry(entry: &Entry) -> LogEntry {
    let (kind, data) = match entry.entry_type {
        EntryType::EntryNormal => (Kind::Command, &entry.data),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => (Kind::Voters, &entry.context),
    };
    LogEntry { index: entry.index, term: entry.term, kind, data: data.to_vec() }
}

pub(super) fn put(out: &mut Writer, message: &Message) {
    let place = TYPES.iter().position(|kind| *kind == message.msg_type);
    let place = place.expect("the engine sends these types only");
    out.u8(u8::try_from(place).expect("few types"));
    out.u64(message.to).u64(message.from).u64(message.term).u64(message.log_term);
    out.u64(message.index).u64(message.commit).u64(message.commit_term);
    out.flag(message.reject).u64(message.reject_hint).flag(message.context == TRANSFER);
    let entries: Vec<_> = message.entries.iter().map(from_raft_entry).collect();
    put_entries(out, &entries);
    let snapshot = message.get_snapshot();
    out.flag(!snapshot.is_empty());
    if !snapshot.is_empty() {
        let meta = snapshot.get_metadata();
        let state = meta.get_conf_state();
        let conf = Conf { voters: state.voters.clone(), learners: state.learners.clone() };
        out.u64(meta.index).u64(meta.term);
        put_conf(out, &conf);
        out.bytes(&snapshot.data);
    }
}

fn number(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let number = from.u64()?;
    if number <= NUMBER_MAX { Ok(number) } else { Err(Malformed::of("a number is out of range")) }
}

pub(super) fn parse(from: &mut Reader<'_>) -> Result<Message, Malformed> {
    let kind = *TYPES.get(usize::from(from.u8()?)).ok_or(Malformed::of("a type is unknown"))?;
    let mut message = Message { msg_type: kind, to: from.u64()?, ..Message::default() };
    message.from = from.u64()?;
    message.term = number(from)?;
    message.log_term = number(from)?;
    message.index = number(from)?;
    message.commit = number(from)?;
    message.commit_term = number(from)?;
    message.reject = from.flag()?;
    message.reject_hint = number(from)?;
    if from.flag()? {
        message.context = TRANSFER.into();
    }
    message.entries = entries(from)?.iter().map(to_raft_entry).collect();
    if from.flag()? {
        message.snapshot = Some(snapshot(from)?).into();
    }
    Ok(message)
}

/// Returns a snapshot as the engine has it.
pub(in crate::commit) fn raft_snapshot(
    index: u64,
    term: u64,
    conf: &Conf,
    state: &[u8],
) -> Snapshot {
    let mut out = Snapshot { data: state.to_vec().into(), ..Snapshot::default() };
    let meta = out.mut_metadata();
    (meta.index, meta.term) = (index, term);
    meta.set_conf_state(conf_state(conf));
    out
}

pub(in crate::commit) fn conf_state(conf: &Conf) -> ConfState {
    ConfState {
        voters: conf.voters.clone(),
        learners: conf.learners.clone(),
        ..ConfState::default()
    }
}

fn snapshot(from: &mut Reader<'_>) -> Result<Snapshot, Malformed> {
    let (index, term, conf) = (number(from)?, number(from)?, conf(from)?);
    Ok(raft_snapshot(index, term, &conf, from.bytes()?))
}
