//! Tests of the formats: bytes that a version of the program has written or sent are read by every
//! later one.
//!
//! `tests/format-N.txt` has the bytes, a value a line. Whoever changes a format raises its
//! `VERSION`, goes on reading the old one, and adds a file for the new one; a file that is there
//! never changes.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write as _;

use raft::eraftpb;
use raft::eraftpb::MessageType;
use sluice_base::{HostId, Nanos};

use super::command::{Command, Entry};
use super::format::Formats;
use super::message::{Body, Message, Vote, raft_snapshot, to_raft_entry};
use super::record::{Conf, Kind, LogEntry, Record};
use super::state::State;
use super::surface::{Epoch, Key, Member, Progress, Refusal, Replica, Role, Seat, TxnId};

/// Bytes of the current version.
const CURRENT: &str = include_str!("tests/format-2.txt");
/// Bytes of every version.
const ALL: [&str; 2] = [include_str!("tests/format-1.txt"), CURRENT];

/// A document of lines. A change is a line more; the line `?` never fits.
#[derive(Clone, Debug)]
struct Lines(Vec<u8>);

impl Replica for Lines {
    fn check(&self, _: &[u8]) -> Result<Vec<Key>, Refusal> {
        Ok(Vec::new())
    }

    fn apply(&mut self, change: &[u8]) -> Result<Vec<u8>, Refusal> {
        if change == b"?" {
            return Err(Refusal::Unfit("it never fits".into()));
        }
        self.0.extend_from_slice(change);
        Ok([b"without ", change].concat())
    }

    fn members(&self) -> Vec<Member> {
        vec![Member { host: HostId(2), seat: seat(7), role: Role::Voter }]
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn restore(bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self(bytes.to_vec()))
    }
}

fn seat(bits: u64) -> Seat {
    Seat::new(bits).unwrap()
}

fn id(number: u64) -> TxnId {
    TxnId { host: HostId(2), incarnation: 3, number }
}

fn epoch() -> Epoch {
    Epoch { number: 2, founder: HostId(1), base: 40 }
}

fn conf() -> Conf {
    Conf { voters: vec![0x10001, 0x20002], learners: vec![0x30003] }
}

fn transaction(number: u64, change: &[u8], confirm_within: Option<Nanos>) -> Command {
    Command::Transaction(Entry {
        id: id(number),
        seat: seat(7),
        base: 41,
        change: change.to_vec(),
        author: "h2".into(),
        time_ms: 1_767_225_600_000,
        comment: "for the shop".into(),
        votes: vec![HostId(1), HostId(2)],
        confirm_within,
    })
}

fn commands() -> Vec<Command> {
    vec![
        transaction(4, b"blue", Some(Nanos::from_millis(5_000))),
        Command::Abort(id(5)),
        Command::Confirm(id(6)),
        Command::Revert(id(7)),
    ]
}

fn entry(index: u64, kind: Kind, data: Vec<u8>) -> LogEntry {
    LogEntry { index, term: 5, kind, data }
}

fn entries() -> Vec<LogEntry> {
    let command = commands().swap_remove(0).to_bytes();
    vec![entry(42, Kind::Command, command), entry(43, Kind::Voters, vec![1, 2])]
}

/// Returns a state with a history, an end, and a transaction that waits to be confirmed.
fn state() -> State<Lines> {
    let mut state = State::new(Lines(Vec::new()), 1);
    let ends = Command::Abort(TxnId { host: HostId(3), incarnation: 1, number: 8 });
    let waits = transaction(3, b"red", Some(Nanos::from_millis(5_000)));
    for command in [transaction(1, b"blue", None), transaction(2, b"?", None), ends, waits] {
        let applied = state.apply(&entry(state.revision + 1, Kind::Command, command.to_bytes()));
        assert!(applied.is_ok(), "{applied:?}");
    }
    state
}

fn records() -> Vec<Record> {
    vec![
        Record::Identity { seat: seat(7), epoch: epoch() },
        Record::HardState { term: 5, vote: 0x10001, commit: 42 },
        Record::Snapshot { index: 40, term: 4, conf: conf(), state: state().to_bytes() },
        Record::Entry(entries().swap_remove(0)),
        Record::Entry(entries().swap_remove(1)),
        Record::Truncate { from: 43 },
        Record::Compact { to: 40 },
        Record::Reservation { id: id(4), keys: vec![b"VNI 7".to_vec()], change: b"blue".to_vec() },
        Record::Released { id: id(4) },
        Record::Aside { epoch: epoch(), entries: entries() },
        Record::Kept { state: vec![1, 2, 3] },
        Record::Removed { by: HostId(2) },
    ]
}

fn raft(kind: MessageType) -> Body {
    let mut out = eraftpb::Message { msg_type: kind, to: 0x10001, from: 0x20002, ..<_>::default() };
    (out.term, out.log_term, out.index, out.commit) = (5, 4, 41, 40);
    match kind {
        MessageType::MsgAppend => out.entries = entries().iter().map(to_raft_entry).collect(),
        MessageType::MsgSnapshot => {
            out.snapshot = Some(raft_snapshot(40, 4, &conf(), b"state")).into();
        }
        MessageType::MsgAppendResponse => (out.reject, out.reject_hint) = (true, 39),
        _ => {}
    }
    Body::Raft(out)
}

fn messages() -> Vec<Message> {
    let kinds = [
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
    let mut bodies: Vec<Body> = kinds.into_iter().map(raft).collect();
    bodies.push(Body::Reserve { id: id(4), base: 41, dry: true, change: b"blue".to_vec() });
    let votes = [Vote::Yes, Vote::No("no memory".into()), Vote::Conflict(id(3)), Vote::Behind];
    bodies.extend(votes.map(|vote| Body::Vote { id: id(4), vote }));
    bodies.extend(commands().into_iter().map(Body::Propose));
    bodies.extend([
        Body::Query(id(4)),
        Body::Progress(Progress { revision: 41, transactions: 12, hash: 0x1234_5678 }),
        Body::Removed(41),
        Body::Stranger,
    ]);
    let message = |body| Message { epoch: epoch(), from: seat(7), to: Some(seat(9)), body };
    bodies.into_iter().map(message).collect()
}

fn announcement() -> Message {
    let body = Body::Formats(Formats::new(1, 2).unwrap());
    Message { epoch: epoch(), from: seat(7), to: None, body }
}

/// Returns every value in bytes, with a name.
fn written() -> Vec<(String, Vec<u8>)> {
    let mut all = vec![("state".to_string(), state().to_bytes())];
    let mut add = |kind: &str, values: Vec<Vec<u8>>| {
        let named = values.into_iter().enumerate();
        all.extend(named.map(|(number, bytes)| (format!("{kind}-{number}"), bytes)));
    };
    add("command", commands().iter().map(Command::to_bytes).collect());
    add("record", records().iter().map(Record::to_bytes).collect());
    add("message", messages().iter().map(|one| one.to_bytes(2, Formats::OWN)).collect());
    add("first", messages().iter().map(|one| one.to_bytes(1, Formats::OWN)).collect());
    add("announced", vec![announcement().to_bytes(1, Formats::OWN)]);
    all
}

fn text(all: &[(String, Vec<u8>)]) -> String {
    let mut text = String::new();
    for (name, bytes) in all {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{name} {digits}").unwrap();
    }
    text
}

/// Returns the values of a file.
fn golden(text: &str) -> Vec<(String, Vec<u8>)> {
    let byte = |digits: &[u8]| {
        u8::from_str_radix(core::str::from_utf8(digits).unwrap(), 16).expect("two digits")
    };
    let lines = text.lines().map(|line| line.split_once(' ').expect("a name and bytes"));
    lines
        .map(|(name, digits)| (name.to_string(), digits.as_bytes().chunks(2).map(byte).collect()))
        .collect()
}

#[test]
fn formats_change_only_with_their_version() {
    let now = text(&written());
    assert!(
        now == CURRENT,
        "a format has changed: raise its VERSION, go on reading the old one, and add a file; these \
         are the bytes of now:\n{now}"
    );
}

#[test]
fn bytes_of_every_version_are_read() {
    let (commands, records, messages) = (commands(), records(), messages());
    for (name, bytes) in ALL.into_iter().flat_map(golden) {
        let (kind, number) = name.split_once('-').unwrap_or((&name, "0"));
        let number: usize = number.parse().unwrap();
        match kind {
            "state" => {
                let read = State::<Lines>::parse(&bytes).unwrap();
                assert_eq!(read.to_bytes(), state().to_bytes(), "{name}");
            }
            "command" => assert_eq!(Command::parse(&bytes).unwrap(), commands[number], "{name}"),
            "record" => assert_eq!(Record::parse(&bytes).unwrap(), records[number], "{name}"),
            "message" | "first" => {
                let read = Message::parse(&bytes, Formats::OWN);
                assert_eq!(read.as_ref(), Ok(&messages[number]), "{name}");
            }
            "announced" => {
                assert_eq!(Message::parse(&bytes, Formats::OWN), Ok(announcement()), "{name}");
            }
            other => panic!("{other}: an unknown kind of value"),
        }
    }
}
