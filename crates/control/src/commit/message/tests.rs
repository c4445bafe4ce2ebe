use alloc::vec;
use alloc::vec::Vec;

use raft::eraftpb::MessageType;
use sluice_base::{HostId, Prng};

use super::*;
use crate::commit::record::{Conf, Kind, LogEntry};

const OWN: Formats = Formats::OWN;

fn id(number: u64) -> TxnId {
    TxnId { host: HostId(2), incarnation: 3, number }
}

fn raft(kind: MessageType) -> eraftpb::Message {
    let mut out = eraftpb::Message { msg_type: kind, to: 1, from: 2, ..Default::default() };
    (out.term, out.log_term, out.index, out.commit) = (5, 4, 9, 8);
    let entry = |index, kind| LogEntry { index, term: 5, kind, data: vec![1, 2] };
    if kind == MessageType::MsgAppend {
        let entries = [entry(10, Kind::Command), entry(11, Kind::Voters)];
        out.entries = entries.iter().map(to_raft_entry).collect();
    }
    if kind == MessageType::MsgSnapshot {
        let conf = Conf { voters: vec![1, 2], learners: vec![3] };
        out.snapshot = Some(raft_snapshot(9, 4, &conf, b"state")).into();
    }
    out
}

fn bodies() -> Vec<Body> {
    let kinds = [
        MessageType::MsgAppend,
        MessageType::MsgSnapshot,
        MessageType::MsgRequestVote,
        MessageType::MsgHeartbeatResponse,
    ];
    let mut out: Vec<_> = kinds.into_iter().map(|kind| Body::Raft(raft(kind))).collect();
    out.extend([
        Body::Reserve { id: id(1), base: 7, dry: true, change: b"add".to_vec() },
        Body::Vote { id: id(1), vote: Vote::Yes },
        Body::Vote { id: id(1), vote: Vote::No("full".into()) },
        Body::Vote { id: id(1), vote: Vote::Conflict(id(2)) },
        Body::Vote { id: id(1), vote: Vote::Behind },
        Body::Propose(Command::Abort(id(4))),
        Body::Query(id(5)),
        Body::Progress(Progress { revision: 1, transactions: 2, hash: 3 }),
        Body::Removed(6),
        Body::Stranger,
    ]);
    out
}

fn message(body: Body) -> Message {
    let epoch = Epoch { number: 1, founder: HostId(1), base: 0 };
    Message { epoch, from: Seat::new(7).unwrap(), to: Seat::new(8), body }
}

#[test]
fn every_message_is_read_as_written() {
    for body in bodies() {
        let message = message(body);
        assert_eq!(Message::parse(&message.to_bytes(2, OWN), OWN), Ok(message));
    }
}

#[test]
fn every_cut_message_is_malformed() {
    for body in bodies() {
        let bytes = message(body).to_bytes(2, OWN);
        for len in 0..bytes.len() {
            assert!(Message::parse(&bytes[..len], OWN).is_err(), "{len} of {}", bytes.len());
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let mut prng = Prng::new(1);
    for body in bodies() {
        let bytes = message(body).to_bytes(2, OWN);
        for _ in 0..5_000 {
            let mut bytes = bytes.clone();
            let at = usize::try_from(prng.below(bytes.len() as u64)).unwrap();
            bytes[at] = prng.next_u64().to_be_bytes()[0];
            if let Ok(message) = Message::parse(&bytes, OWN) {
                assert_eq!(Message::parse(&message.to_bytes(2, OWN), OWN), Ok(message));
            }
        }
    }
}

#[test]
fn count_beyond_input_allocates_nothing() {
    let mut bytes = message(Body::Raft(raft(MessageType::MsgHeartbeat))).to_bytes(2, OWN);
    let at = bytes.len() - 5;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(Message::parse(&bytes, OWN), Err(Malformed::of("more items than bytes")));
}

#[test]
fn message_read_by_programs_of_its_format() {
    let of = |oldest, newest| Formats::new(oldest, newest).unwrap();
    for body in bodies() {
        let message = message(body);
        for (format, sender) in [(1, of(1, 2)), (2, of(1, 2)), (2, of(2, 3)), (3, of(2, 3))] {
            let bytes = message.to_bytes(format, sender);
            let head = Head::parse(&bytes).unwrap();
            assert_eq!(head, Head { format, formats: (format > 1).then_some(sender) });
            for own in [of(1, 1), of(1, 2), of(2, 3), of(3, 3)] {
                let read = Message::parse(&bytes, own);
                assert_eq!(read.as_ref().ok(), own.has(format).then_some(&message), "{own}");
            }
        }
    }
}

#[test]
fn announcement_read_by_all_but_first_program() {
    let of = |oldest, newest| Formats::new(oldest, newest).unwrap();
    let announced = message(Body::Formats(of(3, 4)));
    let bytes = announced.to_bytes(1, of(3, 4));
    for own in [of(1, 2), of(2, 3), of(3, 4)] {
        assert_eq!(Message::parse(&bytes, own).as_ref(), Ok(&announced), "{own}");
    }
    assert!(Message::parse(&bytes, Formats::FIRST).is_err());
    // Formats of which the one that is used is none.
    assert!(Head::parse(&announced.to_bytes(2, of(3, 4))).is_err());
    assert!(Head::parse(&[2, 0, 2]).is_err() && Head::parse(&[0]).is_err());
}
