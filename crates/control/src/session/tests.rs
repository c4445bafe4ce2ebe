use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use sluice_base::{Mac, PortId, Vni};
use sluice_wire::fabric::{FRAME_SIZE_MAX, HEADER_SIZE};

use super::*;
use crate::publisher::Change;
use crate::vport::{Ips, Origin};

const OWN: HostId = HostId(1);
const PEER: HostId = HostId(2);
const T0: Nanos = Nanos::from_millis(5_000);

fn claim(n: u8) -> Claim {
    let key = Key { vni: Vni::new(1).unwrap(), mac: Mac([2, 0, 0, 0, 0, n]) };
    Claim { key, port: PortId(9), ips: Ips::default(), origin: Origin::Learned, moves: 0 }
}

/// A replica that writes down all calls.
#[derive(Default)]
struct Log {
    said: Vec<String>,
    full: bool,
    digest: Digest,
}

impl Replica for Log {
    fn begin_snapshot(&mut self, owner: HostId) {
        self.said.push(std::format!("{} begin", owner.0));
    }
    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom> {
        if self.full {
            return Err(NoRoom);
        }
        self.said.push(std::format!("{} +{}", owner.0, claim.key.mac.0[5]));
        Ok(())
    }
    fn withdraw(&mut self, owner: HostId, key: Key) {
        self.said.push(std::format!("{} -{}", owner.0, key.mac.0[5]));
    }
    fn end_snapshot(&mut self, owner: HostId) {
        self.said.push(std::format!("{} end", owner.0));
    }
    fn digest(&self, _owner: HostId) -> Digest {
        self.digest
    }
}

/// A session, and all that it needs.
struct Side {
    session: Session,
    publisher: Publisher,
    log: Log,
    now: Nanos,
}

impl Side {
    fn new() -> Self {
        let (fabric, timing) = ([7; 16], Timing::DEFAULT);
        let config = Config { own: OWN, peer: PEER, fabric, versions: (1, 1), timing };
        let mut publisher = Publisher::new(5, 10);
        for n in 1..=3 {
            publisher.claim(&claim(n));
        }
        Self { session: Session::new(config, 1), publisher, log: Log::default(), now: T0 }
    }

    fn receive(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.session.received(self.now, message, &mut self.publisher, &mut self.log)
    }

    /// The types of the messages that the session sends now.
    fn sent(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.write(self.now, &self.publisher, 1 << 20, &mut out);
        let (mut kinds, mut rest) = (Vec::new(), &out[..]);
        while let Some((_, size)) = Message::parse(rest).unwrap() {
            kinds.push(rest[2]);
            rest = &rest[size..];
        }
        kinds
    }

    fn claims(&mut self, after: u64, up_to: u64, numbers: &[u8]) -> Result<(), Error> {
        let mut out = vec![0; FRAME_SIZE_MAX];
        let mut writer = fabric::ClaimsWriter::new(&mut out);
        for &n in numbers {
            assert!(writer.push(&convert::record(Change::Claimed(&claim(n)))));
        }
        writer.finish(after, up_to);
        let (message, _) = Message::parse(&out).unwrap().unwrap();
        self.receive(&message)
    }
}

fn hello() -> Hello {
    let have = Have { incarnation: 5, sequence: 3 };
    Hello { versions: (1, 2), fabric: [7; 16], host: PEER, incarnation: 8, have }
}

const fn question() -> fabric::Ask<'static> {
    fabric::Ask { id: 1, topic: fabric::Topic(9), limit_ms: 100, body: b"?" }
}

/// A session that is up and asks and answers.
fn talking() -> Side {
    speaking(2)
}

/// A session that is up and speaks a version.
fn speaking(version: u8) -> Side {
    let mut side = Side::new();
    side.session.config.versions = (1, version);
    side.session.connected(T0);
    assert_eq!(side.sent(), [1]);
    side.receive(&Message::Hello(Hello { versions: (1, version), ..hello() })).unwrap();
    assert_eq!(side.sent(), [6]);
    side
}

const STATES: [&str; 7] =
    ["idle", "greeting", "missing", "snapshot", "whole", "stalled", "closing"];

/// A session in a state. In states with a replica, it has two changes.
fn side(state: &str) -> Side {
    let mut side = Side::new();
    if state == "idle" {
        return side;
    }
    side.session.connected(T0);
    assert_eq!(side.sent(), [1]);
    if state == "closing" {
        side.session.close();
    }
    if matches!(state, "greeting" | "closing") {
        return side;
    }
    side.receive(&Message::Hello(hello())).unwrap();
    if state == "missing" {
        return side;
    }
    side.receive(&Message::SnapshotBegin { round: 1 }).unwrap();
    side.claims(0, 2, &[1, 2]).unwrap();
    match state {
        "whole" => side.receive(&Message::SnapshotEnd { up_to: 2 }).unwrap(),
        "stalled" => {
            side.log.full = true;
            side.claims(2, 3, &[3]).unwrap();
        }
        _ => {}
    }
    side
}

/// Results of an event for a session in each of [`STATES`].
fn row(event: impl Fn(&mut Side) -> Result<(), Error>) -> Vec<String> {
    let outcome = |state: &&str| {
        let mut side = side(state);
        let said = side.log.said.len();
        match event(&mut side) {
            Ok(()) => match &side.log.said[said..] {
                [] => std::format!("{:?}", side.session.phase).replace("(Leaving)", ""),
                said => said.join(", "),
            },
            Err(error) => {
                assert!(!error.to_string().is_empty());
                let name = std::format!("{error:?}");
                let end = name.find([' ', '(']).unwrap_or(name.len());
                let kept = matches!(error, Error::Bye(_));
                let phase = side.session.phase;
                assert!(matches!(phase, Phase::Closing(_)) != kept, "{state}: {phase:?}");
                std::format!("!{}", &name[..end])
            }
        }
    };
    STATES.iter().map(outcome).collect()
}

#[test]
fn every_message_in_every_state() {
    type Event = (&'static str, fn(&mut Side) -> Result<(), Error>, [&'static str; 7]);
    let none = "!NoHello";
    let table: [Event; 14] = [
        (
            "Hello",
            |side| side.receive(&Message::Hello(hello())),
            [
                "Idle",
                "Up",
                "!SecondHello",
                "!SecondHello",
                "!SecondHello",
                "!SecondHello",
                "Closing",
            ],
        ),
        (
            "Claims that follow",
            |side| side.claims(2, 4, &[7]),
            ["Idle", none, "!ClaimsWithoutSnapshot", "2 +7", "2 +7", "Up", "Closing"],
        ),
        (
            "Claims that do not",
            |side| side.claims(3, 4, &[7]),
            ["Idle", none, "!ClaimsWithoutSnapshot", "!Gap", "!Gap", "Up", "Closing"],
        ),
        (
            "Claims of nothing",
            |side| side.claims(2, 2, &[]),
            ["Idle", none, "!ClaimsWithoutSnapshot", "!Gap", "!Gap", "Up", "Closing"],
        ),
        (
            "SnapshotBegin, the next",
            |side| {
                let round = side.session.inbound.take_ack().0 + 1;
                side.receive(&Message::SnapshotBegin { round })
            },
            ["Idle", none, "2 begin", "2 begin", "2 begin", "2 begin", "Closing"],
        ),
        (
            "SnapshotBegin, another",
            |side| side.receive(&Message::SnapshotBegin { round: 9 }),
            ["Idle", none, "!WrongRound", "!WrongRound", "!WrongRound", "!WrongRound", "Closing"],
        ),
        (
            "SnapshotEnd",
            |side| side.receive(&Message::SnapshotEnd { up_to: 2 }),
            ["Idle", none, "!EndWithoutBegin", "2 end", "!EndWithoutBegin", "Up", "Closing"],
        ),
        (
            "Digest",
            |side| side.receive(&Message::Digest { at: 2, count: 0, sum: 0 }),
            ["Idle", none, "!DigestElsewhere", "!DigestElsewhere", "Up", "Up", "Closing"],
        ),
        (
            "Ack of what was not sent",
            |side| side.receive(&Message::Ack { round: 0, sequence: 4, whole: true }),
            ["Idle", none, "!WrongAck", "!WrongAck", "!WrongAck", "!WrongAck", "Closing"],
        ),
        (
            "Resync",
            |side| side.receive(&Message::Resync { round: 0 }),
            ["Idle", none, "Up", "Up", "Up", "Up", "Closing"],
        ),
        (
            "a question, where version 1 is spoken",
            |side| side.receive(&Message::Ask(question())),
            ["Idle", none, "!NotSpoken", "!NotSpoken", "!NotSpoken", "!NotSpoken", "Closing"],
        ),
        (
            "a fragment, where version 1 is spoken",
            |side| side.receive(&Message::FragmentAck { taken: 0 }),
            ["Idle", none, "!NotSpoken", "!NotSpoken", "!NotSpoken", "!NotSpoken", "Closing"],
        ),
        (
            "Alive",
            |side| side.receive(&Message::Alive),
            ["Idle", none, "Up", "Up", "Up", "Up", "Closing"],
        ),
        (
            "Bye",
            |side| side.receive(&Message::Bye { reason: Reason::Leaving }),
            ["Idle", "!Bye", "!Bye", "!Bye", "!Bye", "!Bye", "Closing"],
        ),
    ];
    for (name, event, expected) in table {
        assert_eq!(row(event), expected, "{name} in {STATES:?}");
    }
}

#[test]
fn every_other_event_in_every_state() {
    let tick = |side: &mut Side, millis, due| {
        // No look is later than a session asks for.
        let looks = (80..millis).step_by(80).chain([millis]);
        let dues: Vec<Due> = looks
            .map(|at| {
                side.now = T0.after(Nanos::from_millis(at));
                side.session.tick(side.now)
            })
            .collect();
        let is_idle = dues[0] == Due::Connect;
        assert_eq!(dues.last(), Some(if is_idle { &Due::Nothing } else { &due }));
        Ok(())
    };
    let disconnected = |side: &mut Side| {
        side.session.disconnected(side.now);
        Ok(())
    };
    let connected = |side: &mut Side| {
        side.session.connected(side.now);
        Ok(())
    };
    let writable = |side: &mut Side| {
        side.session.write(side.now, &side.publisher, 1_000, &mut Vec::new());
        Ok(())
    };
    let same = ["Idle", "Greeting", "Up", "Up", "Up", "Up", "Closing"];
    assert_eq!(row(disconnected), ["Idle"; 7]);
    assert_eq!(row(connected), ["Greeting"; 7]);
    assert_eq!(row(|side| tick(side, 249, Due::Nothing)), same);
    assert_eq!(row(|side| tick(side, 250, Due::Hung)), ["Idle"; 7]);
    // A session that has sent Bye is idle.
    assert_eq!(row(writable), ["Idle", "Greeting", "Up", "Up", "Up", "Up", "Idle"]);
}

#[test]
fn who_does_not_belong_here_is_refused() {
    let refused = |hello| side("greeting").receive(&Message::Hello(hello)).unwrap_err();
    assert_eq!(refused(Hello { fabric: [8; 16], ..hello() }), Error::WrongFabric);
    assert_eq!(refused(Hello { host: HostId(3), ..hello() }), Error::WrongHost(HostId(3)));
    let error = Error::NoCommonVersion { theirs: (2, 3) };
    assert_eq!(refused(Hello { versions: (2, 3), ..hello() }), error);
    let error = Error::StaleIncarnation { theirs: 0, known: 1 };
    assert_eq!(refused(Hello { incarnation: 0, ..hello() }), error);
    // An earlier incarnation than the known one.
    let mut side = side("whole");
    side.session.connected(side.now);
    let error = Error::StaleIncarnation { theirs: 7, known: 8 };
    assert_eq!(side.receive(&Message::Hello(Hello { incarnation: 7, ..hello() })), Err(error));
    assert_eq!(side.sent(), [1, 9], "it is told which one is known, and why it ends");
    assert_eq!(side.session.have(), Have { incarnation: 8, sequence: 2 }, "nothing is lost");
}

#[test]
fn peer_sequence_decides_between_delta_and_snapshot() {
    let sent = |incarnation, sequence| {
        let mut side = side("greeting");
        let have = Have { incarnation, sequence };
        side.receive(&Message::Hello(Hello { have, ..hello() })).unwrap();
        side.sent()
    };
    assert_eq!(sent(5, 3), [6], "all: a digest");
    assert_eq!(sent(5, 2), [2, 6], "a delta");
    for (incarnation, sequence) in [(5, 0), (5, 4), (4, 3), (0, 0)] {
        assert_eq!(sent(incarnation, sequence), [3, 2, 4, 6], "a snapshot");
    }
}

#[test]
fn replica_after_disconnect_resumed_only_if_complete() {
    for (state, sequence) in [("missing", 0), ("snapshot", 0), ("whole", 2), ("stalled", 0)] {
        let mut side = side(state);
        side.session.disconnected(side.now);
        assert_eq!(side.session.have(), Have { incarnation: 8, sequence }, "{state}");
    }
}

#[test]
fn refused_claim_not_acknowledged_resync_requested() {
    let mut side = side("stalled");
    let (round, sequence, whole) = side.session.inbound.take_ack();
    assert_eq!((round, sequence, whole), (1, 2, false));
    assert!(!side.sent().contains(&7));
    side.now = side.now.after(Timing::DEFAULT.resync_min);
    assert!(side.sent().contains(&7), "after a while");
    assert!(!side.sent().contains(&7), "once");
}

#[test]
fn a_digest_that_differs_makes_no_storm() {
    let mut side = side("whole");
    let mut asked = 0;
    for _ in 0..1_000 {
        side.receive(&Message::Digest { at: 2, count: 9, sum: 9 }).unwrap();
        asked += side.sent().iter().filter(|&&kind| kind == 7).count();
        side.now = side.now.after(Nanos::from_millis(100));
    }
    // 100 s: at once, and after 1, 2, 4, 8, 16, 32 s.
    assert_eq!(asked, 7);
    side.receive(&Message::Digest { at: 2, count: 0, sum: 0 }).unwrap();
    assert_eq!(side.session.inbound.deadline(), None, "it agrees");
}

#[test]
fn resync_flood_gets_one_snapshot_per_second() {
    let mut side = side("whole");
    let mut begun = 0;
    for _ in 0..100 {
        side.receive(&Message::Resync { round: side.session.outbound.round() }).unwrap();
        begun += side.sent().iter().filter(|&&kind| kind == 3).count();
        side.now = side.now.after(Nanos::from_millis(100));
    }
    assert_eq!(begun, 10, "one each second");
}

#[test]
fn silence_is_broken_and_noticed() {
    let mut side = side("whole");
    assert_eq!(side.sent(), [5, 6]);
    let millis = |ms| T0.after(Nanos::from_millis(ms));
    assert_eq!(side.session.deadline(&side.publisher), Some(millis(80)));
    side.now = millis(79);
    assert_eq!(side.sent(), []);
    side.now = millis(80);
    assert_eq!(side.sent(), [8]);
    side.publisher.claim(&claim(9));
    assert_eq!(side.session.deadline(&side.publisher), Some(side.now), "there is more to say");
    assert_eq!(side.sent(), [2]);
    // A clock that goes back stands still.
    for at in [0, 80, 160, 169] {
        side.now = millis(at);
        assert_eq!(side.session.tick(side.now), Due::Nothing, "249 ms, the jump left out");
    }
    side.now = millis(170);
    assert_eq!(side.session.tick(side.now), Due::Hung);
}

#[test]
fn session_after_pause_of_own_process_stays_up() {
    let after = |at: Nanos, ms| at.after(Nanos::from_millis(ms));
    let mut side = side("whole");
    for look in 1..=6 {
        // The whole machine stood still: the peer could not speak either.
        side.now = after(side.now, 3_000);
        assert_eq!(side.session.tick(side.now), Due::Nothing, "pause {look}");
        assert_eq!(side.session.tick_at(), Some(after(side.now, 80)), "also while nothing is sent");
        side.receive(&Message::Alive).unwrap();
    }
    // Who stays silent counts as hung also if this side always comes late.
    let dues: Vec<Due> = (0..4)
        .map(|_| {
            side.now = after(side.now, 3_000);
            side.session.tick(side.now)
        })
        .collect();
    assert_eq!(dues, [Due::Nothing, Due::Nothing, Due::Nothing, Due::Hung]);
}

#[test]
fn attempts_to_connect_spread_and_become_rare() {
    let mut side = Side::new();
    let mut waits = Vec::new();
    for _ in 0..12 {
        let asked = side.now;
        while side.session.tick(side.now) != Due::Connect {
            side.now = side.now.after(Nanos::from_millis(1));
        }
        waits.push(side.now.since(asked).0 / 1_000_000);
        side.session.disconnected(side.now);
    }
    let (first, last) = (waits[1], *waits.last().unwrap());
    assert!(waits[0] == 0 && (25..=51).contains(&first), "{waits:?}");
    assert!((250..=501).contains(&last), "{waits:?}");
    // Only one of two hosts connects.
    let config = Config { own: PEER, peer: OWN, ..side.session.config };
    assert_eq!(Session::new(config, 1).tick(side.now), Due::Nothing);
}

#[test]
fn bytes_that_are_no_message_end_the_connection() {
    let mut side = side("greeting");
    let Side { session, publisher, log, now } = &mut side;
    assert_eq!(session.stream(*now, &[0, 1], publisher, log), Ok(0), "not all there");
    let error = session.stream(*now, b"GET / HTTP/1.1", publisher, log).unwrap_err();
    assert!(matches!(error, Error::Malformed(_)));
    assert_eq!((side.sent(), side.session.phase), (vec![9], Phase::Idle));
}

#[test]
fn no_more_is_in_flight_than_is_allowed() {
    let mut side = side("missing");
    side.session.config.timing.flight_bytes_max = 200;
    for n in 10..200 {
        side.publisher.claim(&claim(n));
    }
    assert_eq!(side.sent(), [2]);
    let flight = side.session.flight_bytes();
    assert!((180..=200).contains(&flight), "{flight}");
    assert_eq!(side.sent(), [], "the peer has to acknowledge");
    let sequence = 3 + (flight as u64 - fabric::CLAIMS_SIZE_MIN as u64) / 17;
    side.receive(&Message::Ack { round: 0, sequence, whole: true }).unwrap();
    assert_eq!((side.session.flight_bytes(), side.publisher.acked_by(PEER)), (0, Some(sequence)));
    assert_eq!(side.sent(), [2]);
}

#[test]
fn a_group_address_is_no_endpoint() {
    let mut side = side("whole");
    let record = fabric::Record::Withdrawn { vni: Vni::new(1).unwrap(), mac: Mac::BROADCAST };
    let mut out = [0; HEADER_SIZE + 100];
    let mut writer = fabric::ClaimsWriter::new(&mut out);
    assert!(writer.push(&record));
    let size = writer.finish(2, 3);
    let (message, _) = Message::parse(&out[..size]).unwrap().unwrap();
    assert!(matches!(side.receive(&message), Err(Error::NoEndpoint(_))));
}

#[test]
fn neighbour_version_peer_gets_claims_but_no_ask() {
    let mut side = side("whole");
    side.sent();
    let now = side.now;
    let (rpc, at) = side.session.rpc(now);
    let asked = rpc.ask(at, fabric::Topic(9), Nanos::from_millis(100), b"");
    assert_eq!(asked, Err(crate::rpc::Failure::TooOld));
    side.publisher.claim(&claim(9));
    assert_eq!(side.sent(), [2]);
    assert_eq!(side.claims(2, 3, &[7]), Ok(()));
}

#[test]
fn questions_and_claims_take_turns() {
    let mut side = talking();
    for id in 0..4 {
        side.receive(&Message::Ask(fabric::Ask { id, ..question() })).unwrap();
        let (rpc, at) = side.session.rpc(side.now);
        rpc.reply(at, id + 1, Ok(&[0; 10_000]));
        rpc.ask(at, fabric::Topic(9), Nanos::from_millis(100), b"?").unwrap();
    }
    for n in 0..200 {
        side.publisher.claim(&claim(n));
    }
    // Claims are in each write, and one frame of questions or answers; questions go first.
    side.session.config.timing.flight_bytes_max = 2_000;
    assert_eq!(side.session.deadline(&side.publisher), Some(side.now));
    let mut kinds = Vec::new();
    for _ in 0..10 {
        let mut out = Vec::new();
        let size = side.session.write(side.now, &side.publisher, 12_000, &mut out);
        assert!(size <= 12_000);
        let mut rest = &out[..];
        while let Some((_, size)) = Message::parse(rest).unwrap() {
            kinds.push(rest[2]);
            rest = &rest[size..];
        }
        let acked = Message::Ack { round: 0, sequence: side.session.outbound.told(), whole: true };
        side.receive(&acked).unwrap();
    }
    assert_eq!(kinds, [2, 10, 2, 10, 10, 10, 11, 11, 11, 11]);
}

/// Returns the types and sizes of the messages that the session writes now.
fn written(side: &mut Side, budget: usize) -> Vec<(u8, usize)> {
    let mut out = Vec::new();
    let size = side.session.write(side.now, &side.publisher, budget, &mut out);
    assert!(size == out.len() && size <= budget);
    let (mut frames, mut rest) = (Vec::new(), &out[..]);
    while let Some((_, size)) = Message::parse(rest).unwrap() {
        frames.push((rest[2], size));
        rest = &rest[size..];
    }
    frames
}

#[test]
fn hold_waits_for_one_window_of_fragments() {
    let mut side = speaking(4);
    side.session.send(vec![7; 1 << 20].into()).unwrap();
    for n in 0..200 {
        side.publisher.claim(&claim(n));
    }
    let frames = written(&mut side, 256 << 10);
    assert_eq!(frames[0], (12, fabric::FRAGMENT_WINDOW), "it is before claims");
    assert_eq!(frames[1].0, 2);
    assert_eq!(written(&mut side, 256 << 10), [], "the peer has to acknowledge");
    let (rpc, at) = side.session.rpc(side.now);
    rpc.ask(at, fabric::Topic::HOLD, Nanos::from_millis(100), b"held").unwrap();
    let taken = fabric::FRAGMENT_WINDOW as u64;
    side.receive(&Message::FragmentAck { taken }).unwrap();
    let kinds: Vec<u8> = written(&mut side, 256 << 10).iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [10, 12], "the hold is before fragments");
}

#[test]
fn fragments_and_claims_share_each_write() {
    for budget in [300, 700, 4_000, 40_000] {
        let mut side = speaking(4);
        side.session.config.timing.flight_bytes_max = usize::MAX;
        side.session.send(vec![7; 4 << 20].into()).unwrap();
        let mut bytes = [0; 2];
        for turn in 0..200_u32 {
            for n in 0..200 {
                side.publisher.claim(&Claim { moves: turn, ..claim(n) });
            }
            for (kind, size) in written(&mut side, budget) {
                bytes[usize::from(kind == 12)] += size;
            }
            // Both are acknowledged at once: nothing but the connection limits them.
            let taken = side.session.fragments.sent();
            side.receive(&Message::FragmentAck { taken }).unwrap();
            let sequence = side.session.outbound.told();
            side.receive(&Message::Ack { round: 0, sequence, whole: true }).unwrap();
        }
        let [claims, fragments] = bytes;
        let all = claims + fragments;
        // With 200 claims of 17 bytes at a time, a large write has room for all of them.
        let least = all.min(200 * 3_400) / 4;
        assert!(claims >= least && fragments >= all / 4, "{budget}: {claims}, {fragments}");
    }
}

#[test]
fn older_peer_gets_no_fragment() {
    let mut side = speaking(3);
    assert_eq!(side.session.send(vec![1].into()), Err(SendError::TooOld));
    assert!(!side.session.takes_messages() && side.session.is_up());
    assert_eq!(side.sent(), []);
    side.session.disconnected(side.now);
    assert_eq!(side.session.send(vec![1].into()), Err(SendError::NotConnected));
}

#[test]
fn ask_pending_until_timeout_or_disconnect() {
    let limit = Nanos::from_millis(50);
    let ask = |side: &mut Side| {
        let (rpc, at) = side.session.rpc(side.now);
        let id = rpc.ask(at, fabric::Topic(9), limit, b"?").unwrap();
        assert_eq!(side.sent(), [10]);
        id
    };
    let ended = |side: &mut Side| {
        let (rpc, _) = side.session.rpc(side.now);
        rpc.event()
    };
    let topic = fabric::Topic(9);
    let done = |id, why| Some(crate::rpc::Event::Done { id, topic, answer: Err(why) });
    let mut side = talking();
    let id = ask(&mut side);
    let until = side.now.after(limit);
    assert_eq!(side.session.deadline(&side.publisher), Some(until));
    assert_eq!(side.session.tick_at(), Some(until), "also if the connection takes nothing");
    side.now = until;
    assert_eq!(side.session.tick(side.now), Due::Nothing);
    assert_eq!(ended(&mut side), done(id, crate::rpc::Failure::TooLate));
    // A late answer counts for nothing, and the session goes on.
    let answer = fabric::Answer { id, outcome: fabric::Outcome::Done, body: b"" };
    side.receive(&Message::Answer(answer)).unwrap();
    assert_eq!(ended(&mut side), None);
    assert_eq!(side.session.rpc_counts().late_answers, 1);
    let id = ask(&mut side);
    side.session.disconnected(side.now);
    assert_eq!(ended(&mut side), done(id, crate::rpc::Failure::NotConnected));
}
