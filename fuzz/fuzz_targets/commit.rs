//! Fuzzes the commit of the configuration at one host with what other members say, in well-formed
//! messages with some fields that do not fit and in other bytes, between time, requests, results of
//! checks and of writes.
//!
//! Nothing may panic. A record that is to be written can be read back. One write is on its way at a
//! time. A message has a bounded size and can be parsed. Work due at a deadline is done.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{
    Commit, Config, Formats, MESSAGE_BYTES_MAX, Mark, Output, Policy, Proposal, Record, Recovered,
    Request, Seat, Start, Timing, WriteTicket, check_message,
};
use sluice_fuzz::Source;

#[path = "../../crates/control/tests/commit/doc.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod doc;

use doc::Doc;

const STEPS_MAX: usize = 400;
const OWN: u16 = 1;
const MEMBERS: [(u16, u64); 3] = [(1, 1_001), (2, 1_002), (3, 1_003)];

/// Writes a number, mostly a small one.
fn number(source: &mut Source<'_>, out: &mut Vec<u8>) {
    let value = if source.one_in(24) { source.u64() } else { u64::from(source.byte() % 16) };
    out.extend(value.to_be_bytes());
}

fn node(source: &mut Source<'_>, host: u16) -> u64 {
    let host = if source.one_in(24) { u16::from(source.byte() % 6) } else { host };
    u64::from(host) << 48 | (1_000 + u64::from(host))
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(u32::try_from(bytes.len()).expect("short").to_be_bytes());
    out.extend_from_slice(bytes);
}

fn change(source: &mut Source<'_>) -> Vec<u8> {
    let name = source.byte() % 4;
    let line = match source.byte() % 6 {
        0 => format!("add n{name} 1"),
        1 => format!("set n{name} 2"),
        2 => format!("del n{name}"),
        3 => format!("evict {name}"),
        4 => format!("member {name} 77"),
        _ => String::from_utf8_lossy(source.bytes()).into_owned(),
    };
    line.into_bytes()
}

fn id(source: &mut Source<'_>, host: u16, out: &mut Vec<u8>) {
    let host = if source.one_in(8) { u16::from(source.byte() % 5) } else { host };
    out.extend(host.to_be_bytes());
    out.extend(1_u64.to_be_bytes());
    number(source, out);
}

fn command(source: &mut Source<'_>, from: u16) -> Vec<u8> {
    let mut out = vec![1];
    let kind = source.byte() % 5;
    out.push(kind);
    id(source, from, &mut out);
    if kind == 1 {
        out.extend((1_000 + u64::from(from)).to_be_bytes());
        number(source, &mut out);
        text(&change(source), &mut out);
        text(b"a", &mut out);
        number(source, &mut out);
        text(b"", &mut out);
        out.extend([0, 0, 0, 2, 0, 1, 0, source.byte() % 4]);
        out.push(source.byte() % 2);
        number(source, &mut out);
    }
    out
}

/// Writes a message of the log in the format of `control/src/commit/message/raft_message.rs`.
fn log_message(source: &mut Source<'_>, from: u16, out: &mut Vec<u8>) {
    let kind = source.byte() % 11;
    out.push(kind);
    out.extend(node(source, OWN).to_be_bytes());
    out.extend(node(source, from).to_be_bytes());
    for _ in 0..5 {
        number(source, out);
    }
    out.push(source.byte() % 2);
    number(source, out);
    out.push(u8::from(source.one_in(4)));
    let count = source.byte() % 4;
    out.extend(u32::from(count).to_be_bytes());
    let (first, term) = (source.byte() % 16, source.byte() % 8);
    for n in 0..count {
        out.extend(u64::from(first + n).to_be_bytes());
        out.extend(u64::from(term).to_be_bytes());
        let is_voters = source.one_in(4);
        out.push(u8::from(is_voters));
        if is_voters {
            let mut step = vec![1, source.byte() % 3];
            let host = 1 + u16::from(source.byte() % 4);
            step.extend(node(source, host).to_be_bytes());
            text(&step, out);
        } else {
            text(&command(source, from), out);
        }
    }
    let has_snapshot = kind == 4;
    out.push(u8::from(has_snapshot));
    if has_snapshot {
        let index = u64::from(source.byte() % 32);
        out.extend(index.to_be_bytes());
        number(source, out);
        out.extend([0, 0, 0, 1]);
        out.extend(node(source, from).to_be_bytes());
        out.extend([0, 0, 0, 1]);
        out.extend(node(source, OWN).to_be_bytes());
        let mut state = vec![1];
        text(b"member 1 1001\nmember 2 1002\nmember 3 1003", &mut state);
        state.extend(index.to_be_bytes());
        state.extend([0; 24]);
        state.extend([0, 0, 0, 0, 0, 0, 0, 0, 0]);
        text(&state, out);
    }
}

fn message(source: &mut Source<'_>, from: u16) -> Vec<u8> {
    let mut out = match source.byte() % 8 {
        0..=3 => vec![1],
        4..=6 => vec![2, 1, 2],
        _ => vec![2 + source.byte() % 3, source.byte() % 4, source.byte() % 6],
    };
    out.extend(if source.one_in(16) { u32::from(source.byte() % 4) } else { 1 }.to_be_bytes());
    out.extend([0, 1]);
    out.extend([0; 8]);
    out.extend((1_000 + u64::from(from)).to_be_bytes());
    out.extend(if source.one_in(4) { 0_u64 } else { 1_001 }.to_be_bytes());
    let kind = source.byte() % 11;
    out.push(kind);
    match kind {
        1 => log_message(source, from, &mut out),
        2 => {
            id(source, from, &mut out);
            number(source, &mut out);
            out.push(source.byte() % 2);
            text(&change(source), &mut out);
        }
        3 => {
            id(source, OWN, &mut out);
            let vote = source.byte() % 5;
            out.push(vote);
            match vote {
                1 => text(b"no", &mut out),
                2 => id(source, from, &mut out),
                _ => {}
            }
        }
        4 => {
            let command = command(source, from);
            text(&command, &mut out);
        }
        5 => id(source, from, &mut out),
        6 => (0..3).for_each(|_| number(source, &mut out)),
        7 => number(source, &mut out),
        8 => {}
        9 => out.extend([source.byte() % 4, source.byte() % 6]),
        _ => out.extend_from_slice(source.bytes()),
    }
    if source.one_in(32) {
        out.truncate(usize::from(source.byte()));
    }
    out
}

fn request(source: &mut Source<'_>) -> Request {
    match source.byte() % 8 {
        0 => Request::Confirm,
        1 => Request::Revert,
        2 => Request::Recover { without: vec![HostId(2), HostId(3)] },
        3 => Request::Check(change(source)),
        n => Request::Commit(Proposal {
            change: change(source),
            author: String::new(),
            time_ms: 0,
            comment: String::new(),
            policy: if n == 4 { Policy::RequireAll } else { Policy::Quorum },
            confirm_within: (n == 5).then_some(Nanos::from_millis(500)),
        }),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = (check_message(bytes), Record::parse(bytes), Mark::parse(bytes));
    let mut source = Source::new(bytes);
    let doc = Doc::<2>::new(&MEMBERS);
    let start = if source.one_in(4) { Start::Join } else { Start::Create(doc) };
    let config = Config {
        host: HostId(OWN),
        seat: Seat::new(1_001).expect("not zero"),
        incarnation: 1,
        seed: 7,
        timing: Timing::default(),
        start,
        formats: Formats::OWN,
    };
    let mut now = Nanos::from_millis(1_000);
    let mut commit = Commit::new(config, Recovered::default(), now).expect("an empty disk");
    let mut writing: Option<WriteTicket> = None;
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        let host = 2 + u16::from(source.byte() % 3);
        match source.byte() % 16 {
            0..=8 => {
                let message = message(&mut source, host);
                if let Err(why) = commit.receive(now, HostId(host), &message) {
                    assert!(!why.to_string().is_empty());
                }
            }
            9 | 10 => {
                now = now.after(Nanos::from_millis(u64::from(source.byte()) * 4));
                commit.tick(now);
                assert!(commit.deadline().is_none_or(|at| at > now), "what is due is not done");
            }
            11 => commit.connected(now, HostId(host), !source.one_in(4)),
            12 => _ = commit.submit(now, request(&mut source)),
            _ => {
                if let Some(ticket) = writing.take() {
                    if source.one_in(8) {
                        commit.write_failed(now, ticket, "full");
                    } else {
                        commit.persisted(now, ticket);
                    }
                }
            }
        }
        while let Some(output) = commit.output() {
            match output {
                Output::Send { bytes, .. } => {
                    assert!(bytes.len() <= MESSAGE_BYTES_MAX);
                    check_message(&bytes).expect("a message of its own");
                }
                Output::Keep(mark) => assert_eq!(Mark::parse(&mark.to_bytes()), Ok(mark)),
                Output::Write { ticket, records } => {
                    assert!(writing.replace(ticket).is_none(), "two writes at a time");
                    for record in records {
                        assert_eq!(Record::parse(&record.to_bytes()).as_ref(), Ok(&record));
                    }
                }
                Output::Check { ticket, .. } => {
                    let result = if source.one_in(4) { Err("no".into()) } else { Ok(()) };
                    commit.checked(now, ticket, result);
                }
                _ => {}
            }
        }
    }
});
