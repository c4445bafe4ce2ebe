use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const T0: Nanos = Nanos::from_millis(1_000);
const LIMIT: Nanos = Nanos::from_millis(100);
const TOPIC: Topic = Topic(7);

fn millis(ms: u64) -> Nanos {
    T0.after(Nanos::from_millis(ms))
}

fn answer(id: u64, body: &[u8]) -> Answer<'_> {
    Answer { id, outcome: Outcome::Done, body }
}

fn ask(id: u64, body: &[u8]) -> Ask<'_> {
    Ask { id, topic: TOPIC, limit_ms: 100, body }
}

fn written(rpc: &mut Rpc, now: Nanos) -> Vec<u8> {
    let mut out = Vec::new();
    while rpc.write(now, 1 << 20, &mut out) > 0 {}
    out
}

/// A peer in a state, with one question of each side.
fn peer(state: &str) -> Rpc {
    let mut rpc = Rpc::new();
    if state == "down" {
        return rpc;
    }
    rpc.up(state != "old");
    match state {
        "old" | "up" => {}
        "waiting" => {
            rpc.ask(T0, TOPIC, LIMIT, b"q").unwrap();
        }
        "sent" | "answered" | "late" => {
            rpc.ask(T0, TOPIC, LIMIT, b"q").unwrap();
            written(&mut rpc, T0);
            if state == "answered" {
                rpc.answered(T0, &answer(1, b"a"));
            } else if state == "late" {
                rpc.expire(millis(100));
            }
        }
        "open" | "ready" | "replied" => {
            rpc.asked(T0, &ask(1, b"q"));
            if state != "open" {
                rpc.reply(T0, 1, Ok(b"a"));
            }
            if state == "replied" {
                written(&mut rpc, T0);
            }
        }
        state => panic!("{state}"),
    }
    while rpc.event().is_some() {}
    rpc
}

const STATES: [&str; 10] =
    ["down", "old", "up", "waiting", "sent", "answered", "late", "open", "ready", "replied"];

/// Events, open questions and counters, in short.
fn outcome(mut rpc: Rpc) -> String {
    let mut words = Vec::new();
    while let Some(event) = rpc.event() {
        words.push(match event {
            Event::Asked { ticket, .. } => std::format!("asked {ticket}"),
            Event::Done { id, answer: Ok(body), .. } => std::format!("done {id} {}", body.len()),
            Event::Done { id, answer: Err(why), .. } => std::format!("failed {id} {why:?}"),
            Event::Wrong(what) => what.name().to_string(),
        });
    }
    let late = rpc.counts.late_answers + rpc.counts.late_replies;
    if late > 0 {
        words.push(std::format!("{late} late"));
    }
    let (mine, theirs) = rpc.open();
    words.push(std::format!("{mine}/{theirs}"));
    words.join(" ")
}

#[test]
fn every_event_in_every_state() {
    type Row = (&'static str, fn(&mut Rpc), [&'static str; 10]);
    let stray = "unknown_answer 0/0";
    let table: [Row; 9] = [
        (
            "ask",
            |rpc| _ = rpc.ask(T0, TOPIC, LIMIT, b"x"),
            ["0/0", "0/0", "1/0", "2/0", "2/0", "1/0", "1/0", "1/1", "1/1", "1/0"],
        ),
        (
            "answer to the first",
            |rpc| rpc.answered(T0, &answer(1, b"ab")),
            [
                stray,
                stray,
                stray,
                "unknown_answer 1/0",
                "done 1 2 0/0",
                "second_answer 0/0",
                "1 late 0/0",
                "unknown_answer 0/1",
                "unknown_answer 0/1",
                stray,
            ],
        ),
        (
            "refusal of the first",
            |rpc| rpc.answered(T0, &Answer { id: 1, outcome: Outcome::Refused, body: b"" }),
            [
                stray,
                stray,
                stray,
                "unknown_answer 1/0",
                "failed 1 Refused 0/0",
                "second_answer 0/0",
                "1 late 0/0",
                "unknown_answer 0/1",
                "unknown_answer 0/1",
                stray,
            ],
        ),
        (
            "question 1",
            |rpc| rpc.asked(T0, &ask(1, b"x")),
            [
                "asked 1 0/1",
                "asked 1 0/1",
                "asked 1 0/1",
                "asked 1 1/1",
                "asked 1 1/1",
                "asked 1 0/1",
                "asked 1 0/1",
                "asked_twice 0/1",
                "asked_twice 0/1",
                "asked 2 0/1",
            ],
        ),
        (
            "reply to the first",
            |rpc| rpc.reply(T0, 1, Ok(b"x")),
            [
                "1 late 0/0",
                "1 late 0/0",
                "1 late 0/0",
                "1 late 1/0",
                "1 late 1/0",
                "1 late 0/0",
                "1 late 0/0",
                "0/1",
                "1 late 0/1",
                "1 late 0/0",
            ],
        ),
        (
            "written",
            |rpc| drop(written(rpc, T0)),
            ["0/0", "0/0", "0/0", "1/0", "1/0", "0/0", "0/0", "0/1", "0/0", "0/0"],
        ),
        (
            "99 ms",
            |rpc| rpc.expire(millis(99)),
            ["0/0", "0/0", "0/0", "1/0", "1/0", "0/0", "0/0", "0/1", "0/1", "0/0"],
        ),
        (
            "100 ms",
            |rpc| rpc.expire(millis(100)),
            [
                "0/0",
                "0/0",
                "0/0",
                "failed 1 TooLate 0/0",
                "failed 1 TooLate 0/0",
                "0/0",
                "0/0",
                "0/0",
                "1 late 0/0",
                "0/0",
            ],
        ),
        (
            "down",
            Rpc::down,
            [
                "0/0",
                "0/0",
                "0/0",
                "failed 1 NotConnected 0/0",
                "failed 1 NotConnected 0/0",
                "0/0",
                "0/0",
                "0/0",
                "0/0",
                "0/0",
            ],
        ),
    ];
    for (name, event, expected) in table {
        let row = STATES.map(|state| {
            let mut rpc = peer(state);
            event(&mut rpc);
            outcome(rpc)
        });
        assert_eq!(row, expected, "{name} in {STATES:?}");
    }
}

#[test]
fn inadmissible_ask_fails_at_once_with_reason() {
    let why = |state, body: &[u8]| peer(state).ask(T0, TOPIC, LIMIT, body).unwrap_err();
    assert_eq!(why("down", b""), Failure::NotConnected);
    assert_eq!(why("old", b""), Failure::TooOld);
    assert_eq!(why("up", &[0; ASK_SIZE_MAX + 1]), Failure::TooBig);
    let mut rpc = peer("up");
    let ids: Vec<u64> = (0..OPEN_MAX).map(|_| rpc.ask(T0, TOPIC, LIMIT, b"").unwrap()).collect();
    assert_eq!(rpc.ask(T0, TOPIC, LIMIT, b""), Err(Failure::Busy));
    assert_eq!(ids, (1..=16).collect::<Vec<u64>>());
    for why in [Failure::NotConnected, Failure::TooOld, Failure::Busy, Failure::Unknown(9)] {
        assert!(!why.to_string().is_empty());
    }
}

#[test]
fn ask_carries_remaining_time_to_peer() {
    let mut rpc = peer("waiting");
    let bytes = written(&mut rpc, millis(30));
    let (message, _) = Message::parse(&bytes).unwrap().unwrap();
    let expected = Ask { id: 1, topic: TOPIC, limit_ms: 70, body: b"q" };
    assert!(matches!(message, Message::Ask(ask) if ask == expected), "{message:?}");
    assert_eq!(rpc.expires_at(), Some(millis(100)));
    // Limits end at a minute, on both sides.
    let mut rpc = Rpc::new();
    rpc.up(true);
    rpc.ask(T0, TOPIC, Nanos::MAX, b"").unwrap();
    rpc.asked(T0, &Ask { limit_ms: u32::MAX, ..ask(1, b"") });
    assert_eq!(rpc.expires_at(), Some(T0.after(LIMIT_MAX)));
}

#[test]
fn oversized_answer_fails_as_too_big() {
    let mut rpc = peer("sent");
    rpc.answered(T0, &answer(1, &[0; ANSWER_SIZE_MAX + 1]));
    assert_eq!(outcome(rpc), "big_answer failed 1 TooBig 0/0");
    // No such answer is sent either.
    let mut rpc = peer("open");
    rpc.reply(T0, 1, Ok(&[0; ANSWER_SIZE_MAX + 1]));
    let bytes = written(&mut rpc, T0);
    let (message, _) = Message::parse(&bytes).unwrap().unwrap();
    let expected = Answer { id: 1, outcome: Outcome::TooBig, body: b"" };
    assert!(matches!(message, Message::Answer(answer) if answer == expected), "{message:?}");
}

#[test]
fn oversized_ask_answered_as_too_big() {
    let mut rpc = peer("up");
    rpc.asked(T0, &ask(5, &[0; ASK_SIZE_MAX + 1]));
    let bytes = written(&mut rpc, T0);
    let (message, _) = Message::parse(&bytes).unwrap().unwrap();
    let expected = Answer { id: 5, outcome: Outcome::TooBig, body: b"" };
    assert!(matches!(message, Message::Answer(answer) if answer == expected), "{message:?}");
    assert_eq!(outcome(rpc), "big_ask 0/0");
}

/// Ids and outcomes of the answers in `bytes`.
fn answers(mut bytes: &[u8]) -> Vec<(u64, Outcome, usize)> {
    let mut all = Vec::new();
    while let Ok(Some((message, size))) = Message::parse(bytes) {
        if let Message::Answer(Answer { id, outcome, body }) = message {
            all.push((id, outcome, body.len()));
        }
        bytes = &bytes[size..];
    }
    all
}

#[test]
fn rpc_ask_flood_limited_to_open_maximum() {
    let mut rpc = peer("up");
    for id in 0..10_000 {
        rpc.asked(T0, &Ask { limit_ms: 0, ..ask(id, b"") });
    }
    assert_eq!(rpc.open().1, OPEN_MAX);
    assert_eq!(rpc.events.len(), OPEN_MAX + 1, "each once, and that it is too many");
    assert_eq!(rpc.counts.wrong[Wrong::TooMany as usize], 10_000 - 16);
    for ticket in 1..=16 {
        rpc.reply(T0, ticket, Ok(&[0; ANSWER_SIZE_MAX]));
    }
    let bytes = written(&mut rpc, T0);
    assert!(bytes.len() < READY_BYTES_MAX + 2 * OPEN_MAX * 64);
    let all = answers(&bytes);
    let done = all.iter().filter(|(_, outcome, _)| *outcome == Outcome::Done).count();
    assert_eq!((done, all.len()), (READY_BYTES_MAX / ANSWER_SIZE_MAX, 2 * OPEN_MAX));
    assert_eq!(rpc.frame_size(T0), None);
}

#[test]
fn stale_answer_not_matched_to_current_ask() {
    // Own questions: the number is another.
    let mut rpc = peer("sent");
    rpc.up(true);
    assert_eq!(rpc.ask(T0, TOPIC, LIMIT, b"").unwrap(), 2);
    written(&mut rpc, T0);
    rpc.answered(T0, &answer(1, b""));
    assert_eq!(outcome(rpc), "failed 1 NotConnected unknown_answer 1/0");
    // A question of the peer: it has restarted, and asks again under an old number.
    let mut rpc = peer("open");
    rpc.up(true);
    rpc.asked(T0, &ask(1, b""));
    rpc.reply(T0, 1, Ok(b"of before"));
    assert_eq!(answers(&written(&mut rpc, T0)), []);
    rpc.reply(T0, 2, Ok(b"now"));
    assert_eq!(answers(&written(&mut rpc, T0)), [(1, Outcome::Done, 3)]);
}

#[test]
fn nothing_is_written_that_does_not_fit() {
    let mut rpc = peer("waiting");
    let size = rpc.frame_size(T0).unwrap();
    let mut out = vec![1];
    assert_eq!(rpc.write(T0, size - 1, &mut out), 0);
    assert_eq!(out, [1]);
    assert_eq!((rpc.write(T0, size, &mut out), out.len()), (size, 1 + size));
}

/// A step of a peer that follows no rules.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    Reply(u64),
    Asked(u64, u32),
    Answered(u64, u8),
    Write,
    Pass(u64),
    Reconnect(bool),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Ask),
        (0..40_u64).prop_map(Step::Reply),
        (0..40_u64, 0..200_u32).prop_map(|(id, limit)| Step::Asked(id, limit)),
        (0..40_u64, 0..5_u8).prop_map(|(id, outcome)| Step::Answered(id, outcome)),
        Just(Step::Write),
        (0..80_u64).prop_map(Step::Pass),
        (0..12_u8).prop_map(|n| if n == 0 { Step::Reconnect(true) } else { Step::Write }),
    ]
}

proptest! {
    #[test]
    fn each_question_ends_once_and_in_time(steps in prop::collection::vec(steps(), 0..300)) {
        let (mut rpc, mut now) = (peer("up"), T0);
        let mut open: Vec<(u64, Nanos)> = Vec::new();
        let mut limits: Vec<(u64, Nanos)> = Vec::new();
        for step in steps {
            match step {
                Step::Ask => if let Ok(id) = rpc.ask(now, TOPIC, LIMIT, b"q") {
                    open.push((id, now.after(LIMIT)));
                },
                Step::Reply(ticket) => rpc.reply(now, ticket, Ok(b"a")),
                Step::Asked(id, limit_ms) => rpc.asked(now, &Ask { limit_ms, ..ask(id, b"x") }),
                Step::Answered(id, number) => {
                    let outcome = [
                        Outcome::Done,
                        Outcome::UnknownTopic,
                        Outcome::TooBig,
                        Outcome::Refused,
                        Outcome::Unknown(number),
                    ][usize::from(number)];
                    rpc.answered(now, &Answer { id, outcome, body: b"" });
                }
                Step::Write => drop(written(&mut rpc, now)),
                Step::Pass(ms) => {
                    now = now.after(Nanos::from_millis(ms));
                    rpc.expire(now);
                }
                Step::Reconnect(knows) => {
                    limits.clear();
                    rpc.up(knows);
                }
            }
            while let Some(event) = rpc.event() {
                match event {
                    Event::Done { id, .. } => {
                        let at = open.iter().position(|(one, _)| *one == id);
                        prop_assert!(at.is_some(), "{id} ends twice, or was not asked");
                        open.swap_remove(at.unwrap());
                    }
                    Event::Asked { ticket, limit, .. } => {
                        prop_assert!(limits.iter().all(|(one, _)| *one < ticket));
                        limits.push((ticket, now.after(limit)));
                    }
                    Event::Wrong(_) => {}
                }
            }
            prop_assert!(open.iter().all(|(_, until)| *until > now));
            prop_assert_eq!(rpc.open().0, open.len());
            prop_assert!(rpc.open().1 <= OPEN_MAX);
            prop_assert!(rpc.expires_at().is_none_or(|at| at > now));
        }
    }
}

#[test]
fn urgent_ask_sent_first_with_reserved_slots() {
    let mut rpc = Rpc::new();
    rpc.up(true);
    for _ in 0..OPEN_MAX {
        rpc.ask(T0, TOPIC, LIMIT, b"q").unwrap();
    }
    assert_eq!(rpc.ask(T0, TOPIC, LIMIT, b"q"), Err(Failure::Busy));
    assert_eq!(rpc.urgent_size(T0), None);
    let urgent = rpc.ask(T0, Topic::HOLD, LIMIT, b"held").unwrap();
    for id in 1..=u64::try_from(OPEN_MAX).unwrap() {
        rpc.asked(T0, &ask(id, b"q"));
        rpc.reply(T0, id, Ok(b"a"));
    }
    let ticket = u64::try_from(OPEN_MAX).unwrap() + 1;
    rpc.asked(T0, &Ask { topic: Topic::HOLD, ..ask(ticket, b"held") });
    rpc.reply(T0, ticket, Ok(b""));
    let mut next = || {
        let mut out = Vec::new();
        let size = rpc.urgent_size(T0);
        rpc.write(T0, 1 << 20, &mut out);
        match Message::parse(&out).unwrap().unwrap().0 {
            Message::Ask(ask) => (size.is_some(), "ask", ask.id),
            Message::Answer(answer) => (size.is_some(), "answer", answer.id),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(next(), (true, "ask", urgent));
    assert_eq!(next(), (true, "answer", ticket));
    assert_eq!(next(), (false, "ask", 1));
    assert_eq!(rpc.counts().wrong.iter().sum::<u64>(), 0);
    for id in 0..2 * u64::try_from(URGENT_OPEN_MAX).unwrap() {
        rpc.asked(T0, &Ask { topic: Topic::HOLD, ..ask(1_000 + id, b"held") });
    }
    assert_eq!(rpc.open().1, OPEN_MAX + URGENT_OPEN_MAX, "these are bounded as well");
}
