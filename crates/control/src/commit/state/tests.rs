use alloc::string::ToString as _;
use alloc::vec;

use super::*;
use crate::commit::record::Kind;
use crate::commit::surface::{Key, Role, Seat};

/// A sum, to which changes add; `?` is an operation that is not understood.
#[derive(Clone, Debug, PartialEq)]
struct Sum(i64);

impl Replica for Sum {
    fn check(&self, change: &[u8]) -> Result<Vec<Key>, Refusal> {
        self.clone().apply(change).map(|_| Vec::new())
    }

    fn apply(&mut self, change: &[u8]) -> Result<Vec<u8>, Refusal> {
        let text = core::str::from_utf8(change).unwrap();
        if text == "?" {
            return Err(Refusal::Unknown("?".into()));
        }
        let add: i64 = text.parse().map_err(|_| Refusal::Unfit("no number".into()))?;
        self.0 += add;
        Ok((-add).to_string().into_bytes())
    }

    fn members(&self) -> Vec<Member> {
        vec![Member { host: HostId(1), seat: Seat::new(9).unwrap(), role: Role::Voter }]
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    fn restore(bytes: &[u8]) -> Result<Self, Refusal> {
        Ok(Self(core::str::from_utf8(bytes).unwrap().parse().unwrap()))
    }
}

fn id(number: u64) -> TxnId {
    TxnId { host: HostId(1), incarnation: 1, number }
}

fn transaction(number: u64, change: &str) -> Command {
    Command::Transaction(Entry {
        id: id(number),
        seat: Seat::new(9).unwrap(),
        base: 0,
        change: change.as_bytes().to_vec(),
        author: "admin".into(),
        time_ms: 1,
        comment: String::new(),
        votes: vec![HostId(1)],
        confirm_within: None,
    })
}

fn confirmed(number: u64, change: &str) -> Command {
    let Command::Transaction(entry) = transaction(number, change) else { unreachable!() };
    Command::Transaction(Entry { confirm_within: Some(Nanos(5)), ..entry })
}

fn apply(state: &mut State<Sum>, command: &Command) -> Result<Effect, Halt> {
    let (index, data) = (state.revision + 1, command.to_bytes());
    state.apply(&LogEntry { index, term: 1, kind: Kind::Command, data })
}

fn outcome(effect: Result<Effect, Halt>) -> Outcome {
    match effect {
        Ok(Effect::Recorded(record)) => record.outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn end_before_transaction_voids_it() {
    let mut state = State::new(Sum(0), 1);
    assert_eq!(apply(&mut state, &Command::Abort(id(1))), Ok(Effect::Aborted(id(1))));
    assert_eq!(apply(&mut state, &transaction(1, "5")), Ok(Effect::Nothing));
    assert_eq!(state.replica, Sum(0));
    assert_eq!(outcome(apply(&mut state, &transaction(2, "5"))), Outcome::Applied);
    assert_eq!(apply(&mut state, &transaction(2, "5")), Ok(Effect::Nothing), "a repetition");
    assert_eq!(apply(&mut state, &Command::Abort(id(2))), Ok(Effect::Nothing));
    assert_eq!(state.replica, Sum(5));
}

#[test]
fn unfit_change_is_recorded_as_refused() {
    let mut state = State::new(Sum(0), 1);
    let refused = Outcome::Refused("no number".into());
    assert_eq!(outcome(apply(&mut state, &transaction(1, "x"))), refused);
    assert!(state.has_ended(id(1)));
    assert_eq!(state.inverses(1), Ok(vec![]));
}

#[test]
fn unknown_operation_leaves_state_as_it_was() {
    let mut state = State::new(Sum(0), 1);
    let before = state.progress();
    assert!(apply(&mut state, &transaction(1, "?")).unwrap_err().contains("`?`"));
    assert_eq!(state.progress(), before);
    assert!(!state.has_ended(id(1)));
}

#[test]
fn unconfirmed_transaction_blocks_others_until_decided() {
    let mut state = State::new(Sum(0), 1);
    apply(&mut state, &confirmed(1, "5")).unwrap();
    let refused = outcome(apply(&mut state, &transaction(2, "7")));
    assert!(matches!(refused, Outcome::Refused(why) if why.contains("waits to be confirmed")));
    assert_eq!(apply(&mut state, &Command::Confirm(id(2))), Ok(Effect::Nothing), "another one");
    assert_eq!(apply(&mut state, &Command::Revert(id(2))), Ok(Effect::Nothing), "another one");
    assert_eq!(outcome(apply(&mut state, &Command::Revert(id(1)))), Outcome::Applied);
    assert_eq!(state.replica, Sum(0));
    assert_eq!(apply(&mut state, &Command::Confirm(id(1))), Ok(Effect::Nothing), "too late");
    apply(&mut state, &confirmed(3, "5")).unwrap();
    assert_eq!(apply(&mut state, &Command::Confirm(id(3))), Ok(Effect::Confirmed(id(3))));
    assert_eq!(apply(&mut state, &Command::Revert(id(3))), Ok(Effect::Nothing));
    assert_eq!(state.replica, Sum(5));
}

#[test]
fn history_is_bounded_and_says_so() {
    let mut state = State::new(Sum(0), 1);
    for number in 1..=300 {
        apply(&mut state, &transaction(number, "1")).unwrap();
    }
    assert_eq!(state.history().len(), HISTORY_MAX);
    assert_eq!(state.inverses(1), Err(Refused::Forgotten(1)));
    assert_eq!(state.inverses(state.revision + 1), Err(Refused::Forgotten(302)));
    assert_eq!(state.inverses(299).unwrap().len(), 2);
    assert_eq!(state.inverses(45).unwrap().len(), HISTORY_MAX);
    assert_eq!(state.inverses(44), Err(Refused::Forgotten(44)));
}

#[test]
fn state_is_read_as_written() {
    let mut state = State::new(Sum(0), 1);
    for number in 1..=3 {
        apply(&mut state, &transaction(number, "1")).unwrap();
    }
    apply(&mut state, &confirmed(4, "2")).unwrap();
    let bytes = state.to_bytes();
    let mut read = State::<Sum>::parse(&bytes).unwrap();
    assert_eq!(read.to_bytes(), bytes);
    for len in 0..bytes.len() {
        assert!(State::<Sum>::parse(&bytes[..len]).is_err(), "{len}");
    }
    for state in [&mut state, &mut read] {
        apply(state, &Command::Revert(id(4))).unwrap();
    }
    assert_eq!(read.progress(), state.progress());
    assert_eq!(read.replica, Sum(3));
}
