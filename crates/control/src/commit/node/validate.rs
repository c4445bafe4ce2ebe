//! Checks of what comes from a peer or a disk, before the engine sees it. Each refuses a case in
//! which the engine would panic.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use raft::Raft;
use raft::eraftpb::{ConfState, Message, MessageType};

use super::{Malformed, conf};
use crate::commit::log::Log;
use crate::commit::record::Conf;

/// Nodes of a configuration.
const NODES_MAX: usize = 4_096;

/// Terms that a message may be ahead: a peer cannot use them up.
const TERM_LEAP_MAX: u64 = 1 << 32;

fn is_valid(conf: &Conf) -> bool {
    let nodes = conf.voters.iter().chain(&conf.learners);
    let distinct: BTreeSet<_> = nodes.filter(|node| **node != 0).collect();
    let count = conf.voters.len() + conf.learners.len();
    distinct.len() == count && count <= NODES_MAX
}

fn is_plain(state: &ConfState) -> bool {
    state.voters_outgoing.is_empty() && state.learners_next.is_empty() && !state.auto_leave
}

/// Checks a log that was read from a disk.
pub(super) fn log(log: &Log) -> Result<(), String> {
    let (_, _, commit) = log.hard;
    let base = log.base();
    if commit < base || commit > log.last() {
        let last = log.last();
        return Err(format!("the log holds {base} to {last}, and {commit} is committed"));
    }
    if !is_valid(&log.conf) {
        return Err("the voters of the snapshot contradict each other".into());
    }
    let mut before = log.term_of(base).unwrap_or(0);
    for entry in log.after(0) {
        if entry.term < before {
            return Err(format!("the term falls at entry {}", entry.index));
        }
        before = entry.term;
    }
    if before > log.hard.0 {
        return Err(format!("entries are of term {before}, and the disk is at {}", log.hard.0));
    }
    Ok(())
}

/// Checks a message of a peer against the state of the engine.
pub(super) fn message(message: &Message, raft: &Raft<Log>) -> Result<(), Malformed> {
    let last = raft.raft_log.last_index();
    if message.term == 0 {
        return Err(Malformed::of("a message of term 0"));
    }
    if message.term > raft.term + TERM_LEAP_MAX {
        return Err(Malformed::of("its term is too far ahead"));
    }
    let has_snapshot = message.get_snapshot().get_metadata().index > 0;
    if has_snapshot != (message.msg_type == MessageType::MsgSnapshot) {
        return Err(Malformed::of("a snapshot in a message of another type, or none"));
    }
    if message.term < raft.term {
        return Ok(());
    }
    match message.msg_type {
        MessageType::MsgAppend => append(message, raft),
        MessageType::MsgSnapshot => snapshot(message),
        MessageType::MsgHeartbeat if message.commit > last => {
            Err(Malformed::of("it commits entries that this host does not have"))
        }
        MessageType::MsgAppendResponse if message.index > last || message.reject_hint > last => {
            Err(Malformed::of("it acknowledges entries that were not sent"))
        }
        _ => Ok(()),
    }
}

fn append(message: &Message, raft: &Raft<Log>) -> Result<(), Malformed> {
    let log = &raft.raft_log;
    if (message.log_term == 0) != (message.index == 0) {
        // The engine takes an entry that it does not have for one of term 0.
        return Err(Malformed::of("entries after one without a term"));
    }
    let mut before = (message.index, message.log_term);
    for entry in &message.entries {
        if entry.index != before.0 + 1 || entry.term < before.1 || entry.term > message.term {
            return Err(Malformed::of("entries that do not follow each other"));
        }
        before = (entry.index, entry.term);
    }
    let committed = log.committed;
    if message.index < committed {
        return Ok(());
    }
    if log.term(committed).is_ok_and(|term| message.log_term < term) {
        return Err(Malformed::of("its log contradicts committed entries"));
    }
    Ok(())
}

fn snapshot(message: &Message) -> Result<(), Malformed> {
    let meta = message.get_snapshot().get_metadata();
    let state = meta.get_conf_state();
    if !is_plain(state) || !is_valid(&conf(state)) || state.voters.is_empty() {
        return Err(Malformed::of("the voters of a snapshot contradict each other"));
    }
    if meta.term == 0 || meta.term > message.term {
        return Err(Malformed::of("the term of a snapshot is out of range"));
    }
    Ok(())
}
