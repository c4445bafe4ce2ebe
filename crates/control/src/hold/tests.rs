use alloc::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{HostId, Mac, PortId, PriorityMask, ReceiverState, Vni};
use sluice_wire::fabric::{Held, HoldOrder, HoldPart, HoldWriter};

use super::*;
use crate::rpc::Failure;
use crate::vport::Key;

const HERE: HostId = HostId(1);
const THERE: HostId = HostId(2);

fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

fn key(port: u16, n: u64) -> Key {
    let mac = Mac::from_u64(0x0200_0000_0000 | u64::from(port) << 8 | n);
    Key { vni: Vni::new(9).unwrap(), mac }
}

const fn receiver(held: u8, stuck: u8) -> ReceiverState {
    let (held, stuck) = (PriorityMask(held), PriorityMask(stuck & held));
    ReceiverState { isolated: held, held, stuck: PriorityMask(stuck.0 & held.0) }
}

fn senders(hosts: &[HostId]) -> BTreeSet<HostId> {
    hosts.iter().copied().collect()
}

fn message(order: HoldOrder, all: &[(Key, u8)]) -> Vec<u8> {
    let mut writer = HoldWriter::new();
    for (Key { vni, mac }, held) in all.iter().copied() {
        let (held, stuck) = (PriorityMask(held), PriorityMask::NONE);
        assert!(writer.push(&Held { vni, mac, held, stuck }));
    }
    writer.finish(order).to_vec()
}

fn hear(
    responder: &mut HoldResponder,
    now: Nanos,
    sequence: u64,
    part: (u8, u8),
    all: &[(Key, u8)],
) {
    let order = HoldOrder { incarnation: 1, sequence, part: part.0, parts: part.1 };
    let bytes = message(order, all);
    responder.heard(now, HERE, &HoldPart::new_checked(&bytes).unwrap(), |_| true, |_| true);
}

fn held(responder: &HoldResponder) -> Vec<Key> {
    responder.entries().map(|(key, _)| key).collect()
}

#[test]
fn port_without_senders_sends_no_hold_message() {
    let mut requester = HoldRequester::default();
    requester.up(Nanos::ZERO, THERE);
    assert_eq!(requester.set(millis(1), PortId(1), receiver(1, 0), senders(&[])), None);
    assert_eq!(requester.due(millis(1)), None);
    assert_eq!(requester.deadline(), None);
    requester.set(millis(2), PortId(1), receiver(1, 0), senders(&[THERE]));
    assert_eq!(requester.due(millis(2)), Some(THERE), "it sends now");
}

#[test]
fn isolated_port_without_held_priority_sends_no_hold() {
    let mut requester = HoldRequester::default();
    requester.up(Nanos::ZERO, THERE);
    let only = ReceiverState { held: PriorityMask::NONE, ..receiver(1, 0) };
    requester.set(millis(1), PortId(1), only, senders(&[THERE]));
    assert_eq!(requester.due(millis(9)), None);
    assert_eq!(requester.ports().count(), 1, "it is shown");
}

#[test]
fn release_message_repeated_until_answered() {
    let mut requester = HoldRequester::default();
    requester.up(Nanos::ZERO, THERE);
    requester.set(millis(1), PortId(1), receiver(1, 0), senders(&[THERE]));
    requester.told(millis(1), THERE, &[7], (1, false));
    assert_eq!(requester.due(millis(1)), None);
    assert_eq!(requester.deadline(), Some(millis(1).after(RENEW_EVERY)));
    assert_eq!(requester.answered(millis(2), THERE, 7, Ok(())), Answered::Done);
    // A host that has ceased to send to the port gets the release as well.
    requester.set(millis(3), PortId(1), receiver(0, 0), senders(&[]));
    assert_eq!(requester.due(millis(3)), Some(THERE));
    requester.told(millis(3), THERE, &[8], (2, true));
    assert_eq!(requester.due(millis(400)), None, "an answer is waited for");
    assert_eq!(requester.answered(millis(503), THERE, 8, Err(Failure::TooLate)), Answered::Done);
    assert_eq!(requester.due(millis(503)), Some(THERE), "there was none");
    requester.told(millis(503), THERE, &[9], (3, true));
    assert_eq!(requester.answered(millis(504), THERE, 9, Ok(())), Answered::Done);
    assert_eq!((requester.due(millis(9_000)), requester.deadline()), (None, None));
    assert_eq!(requester.answered(millis(505), THERE, 10, Ok(())), Answered::NotAsked);
}

#[test]
fn peer_without_hold_support_asked_once_per_session() {
    let mut requester = HoldRequester::default();
    requester.up(Nanos::ZERO, THERE);
    for held in [1, 0, 1] {
        requester.set(millis(1), PortId(1), receiver(held, 0), senders(&[THERE]));
        if requester.due(millis(1)).is_some() {
            requester.told(millis(1), THERE, &[7], (1, false));
            let answer = Err(Failure::UnknownTopic);
            assert_eq!(requester.answered(millis(1), THERE, 7, answer), Answered::Deaf);
            assert_eq!(held, 1);
        }
        assert!(requester.is_deaf(THERE));
        assert_eq!(requester.due(millis(9_000)), None);
    }
    requester.down(THERE);
    requester.up(millis(2), THERE);
    assert_eq!(requester.due(millis(2)), Some(THERE), "it may be a newer one");
}

#[test]
fn release_without_session_told_with_next_one() {
    let mut requester = HoldRequester::default();
    requester.up(Nanos::ZERO, THERE);
    requester.set(millis(1), PortId(1), receiver(1, 0), senders(&[THERE]));
    requester.told(millis(1), THERE, &[7], (1, false));
    requester.down(THERE);
    requester.set(millis(2), PortId(1), receiver(0, 0), senders(&[]));
    assert_eq!((requester.due(millis(2)), requester.deadline()), (None, None));
    requester.up(millis(3), THERE);
    assert_eq!(requester.due(millis(3)), Some(THERE), "it may hold still");
    requester.told(millis(3), THERE, &[8], (2, true));
    assert_eq!(requester.answered(millis(4), THERE, 8, Ok(())), Answered::Done);
    assert_eq!((requester.due(millis(9_000)), requester.deadline()), (None, None));
}

#[test]
fn old_message_changes_nothing() {
    let mut responder = HoldResponder::default();
    hear(&mut responder, millis(1), 5, (0, 1), &[(key(1, 1), 1)]);
    hear(&mut responder, millis(2), 4, (0, 1), &[]);
    hear(&mut responder, millis(2), 5, (0, 1), &[(key(1, 2), 1)]);
    assert_eq!(held(&responder), [key(1, 1)]);
    assert_eq!(responder.counts().old, 2);
    hear(&mut responder, millis(3), 6, (0, 1), &[]);
    hear(&mut responder, millis(4), 5, (0, 1), &[(key(1, 1), 1)]);
    assert_eq!(held(&responder), [], "nor does it after a release");
    responder.end_host(HERE);
    hear(&mut responder, millis(5), 6, (0, 1), &[(key(1, 1), 1)]);
    assert_eq!(held(&responder), [], "nor on another connection");
}

#[test]
fn parts_are_one_state() {
    let mut responder = HoldResponder::default();
    hear(&mut responder, millis(1), 1, (0, 1), &[(key(1, 1), 1), (key(1, 2), 1)]);
    hear(&mut responder, millis(2), 2, (1, 2), &[(key(1, 3), 1)]);
    assert_eq!(held(&responder), [key(1, 1), key(1, 2), key(1, 3)], "the rest is not known yet");
    hear(&mut responder, millis(3), 2, (0, 2), &[(key(1, 2), 3)]);
    assert_eq!(held(&responder), [key(1, 2), key(1, 3)]);
    assert_eq!(responder.entry(key(1, 2)).map(|entry| entry.held), Some(PriorityMask(3)));
}

#[test]
fn hold_applied_only_to_fdb_entries_within_limit() {
    let mut responder = HoldResponder::default();
    let all: Vec<_> = (0..100).map(|n| (key(1, n), 1)).collect();
    let order = HoldOrder { incarnation: 1, sequence: 1, part: 0, parts: 1 };
    let bytes = message(order, &all);
    let part = HoldPart::new_checked(&bytes).unwrap();
    responder.heard(millis(1), HERE, &part, |key| key != all[5].0, |key| key == all[7].0);
    assert_eq!(responder.counts().disbelieved, 1);
    assert_eq!(responder.order().map(|one| one.key), Some(all[7].0));
    assert_eq!((responder.order(), responder.entries().count()), (None, 99));
    for (key, _) in &all {
        responder.installed(millis(2), *key, THERE);
        responder.installed(millis(2), *key, HERE);
    }
    let commands: BTreeSet<_> =
        core::iter::from_fn(|| responder.order()).map(|one| one.key).collect();
    assert_eq!(commands.len(), 63, "one was before");
    responder.uninstalled(all[7].0);
    let command = responder.order().unwrap();
    assert!(command.key == all[7].0 && command.held.is_empty());
    responder.installed(millis(3), all[99].0, HERE);
    assert_eq!(responder.order().map(|one| one.key), Some(all[99].0), "there is a place again");
}

#[test]
fn endpoint_that_is_elsewhere_is_let_go() {
    let mut responder = HoldResponder::default();
    hear(&mut responder, millis(1), 1, (0, 1), &[(key(1, 1), 1), (key(1, 2), 1)]);
    while responder.order().is_some() {}
    responder.moved(key(1, 1), Some(HERE));
    assert_eq!(responder.order(), None);
    responder.moved(key(1, 1), Some(THERE));
    responder.moved(key(1, 2), None);
    let commands: Vec<_> = core::iter::from_fn(|| responder.order()).collect();
    assert!(commands.len() == 2 && commands.iter().all(|command| command.held.is_empty()));
    assert_eq!(held(&responder), []);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Set { port: u16, held: u8, stuck: u8, sends: bool },
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
    Answer(usize),
    Cut,
    Connect,
    Restart,
    DataRestarts,
}

fn step() -> impl Strategy<Value = Step> {
    let set = (1..4_u16, 0..4_u8, 0..4_u8, any::<bool>());
    prop_oneof![
        4 => (0..300_u64).prop_map(Step::Pass),
        4 => set.prop_map(|(port, held, stuck, sends)| Step::Set { port, held, stuck, sends }),
        6 => (0..8_usize).prop_map(Step::Deliver),
        1 => (0..8_usize).prop_map(Step::Repeat),
        1 => (0..8_usize).prop_map(Step::Lose),
        4 => (0..8_usize).prop_map(Step::Answer),
        1 => Just(Step::Cut),
        2 => Just(Step::Connect),
        1 => Just(Step::Restart),
        1 => Just(Step::DataRestarts),
    ]
}

type State = BTreeMap<Key, (u8, u8)>;

/// Two hosts, and messages between them in any order, also of former connections.
struct World {
    now: Nanos,
    incarnation: u64,
    requester: HoldRequester,
    responder: HoldResponder,
    is_up: bool,
    next: u64,
    /// Messages on their way: question, and content.
    asks: Vec<(u64, Vec<u8>)>,
    /// Questions that will get no answer on this connection, and their deadlines.
    open: BTreeMap<u64, Nanos>,
    answers: Vec<u64>,
    wanted: BTreeMap<u16, (u8, u8, bool)>,
    /// The newest message: its number, its state if it counts, and the time until which it counts.
    newest: ((u64, u64), State, Nanos),
    /// State of the data process, and the time of its last command.
    data: BTreeMap<Key, (u8, u8, Nanos)>,
}

impl World {
    fn new() -> Self {
        Self {
            now: millis(1_000),
            incarnation: 1,
            requester: HoldRequester::default(),
            responder: HoldResponder::default(),
            is_up: false,
            next: 1,
            asks: Vec::new(),
            open: BTreeMap::new(),
            answers: Vec::new(),
            wanted: BTreeMap::new(),
            newest: ((0, 0), State::new(), Nanos::ZERO),
            data: BTreeMap::new(),
        }
    }

    fn keys_of(port: u16) -> impl Iterator<Item = Key> {
        (0..u64::from(port)).map(move |n| key(port, n))
    }

    fn cut(&mut self) {
        self.is_up = false;
        self.open.clear();
        self.answers.clear();
        self.requester.down(THERE);
    }

    fn set(&mut self, port: u16) {
        let (held, stuck, sends) = self.wanted[&port];
        let senders = if sends { senders(&[THERE]) } else { senders(&[]) };
        self.requester.set(self.now, PortId(port), receiver(held, stuck), senders);
    }

    fn deliver(&mut self, at: usize, again: bool) {
        if at >= self.asks.len() {
            return;
        }
        let (id, bytes) = if again { self.asks[at].clone() } else { self.asks.remove(at) };
        if !self.is_up {
            return;
        }
        let part = HoldPart::new_checked(&bytes).unwrap();
        self.responder.heard(self.now, HERE, &part, |_| true, |_| true);
        let order = (part.order().incarnation, part.order().sequence);
        if order > self.newest.0 {
            let all = part
                .iter()
                .map(|one| (Key { vni: one.vni, mac: one.mac }, (one.held.0, one.stuck.0)));
            self.newest = (order, all.collect(), self.now.after(LEASE));
        }
        if self.open.contains_key(&id) && !self.answers.contains(&id) {
            self.answers.push(id);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Pass(span) => self.now = self.now.after(millis(span)),
            Step::Set { port, held, stuck, sends } => {
                self.wanted.insert(port, (held, stuck, sends));
                self.set(port);
            }
            Step::Deliver(at) => self.deliver(at, false),
            Step::Repeat(at) => self.deliver(at, true),
            Step::Lose(at) if at < self.asks.len() => _ = self.asks.remove(at),
            Step::Answer(at) if at < self.answers.len() => {
                let id = self.answers.remove(at);
                if self.open.remove(&id).is_some() {
                    let answered = self.requester.answered(self.now, THERE, id, Ok(()));
                    assert_eq!(answered, Answered::Done, "{id} was asked");
                }
            }
            Step::Lose(_) | Step::Answer(_) => {}
            Step::Cut => self.cut(),
            Step::Connect if !self.is_up => {
                self.is_up = true;
                self.requester.up(self.now, THERE);
            }
            Step::Connect => {}
            Step::Restart => {
                self.cut();
                self.incarnation += 1;
                self.requester = HoldRequester::default();
                let ports: Vec<_> = self.wanted.keys().copied().collect();
                ports.into_iter().for_each(|port| self.set(port));
            }
            Step::DataRestarts => {
                self.requester.forget_ports(self.now);
                self.wanted.clear();
            }
        }
        self.drive();
    }

    fn drive(&mut self) {
        let now = self.now;
        let late: Vec<_> = self.open.iter().filter(|(_, until)| **until <= now).collect();
        for id in late.into_iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.open.remove(&id);
            self.requester.answered(now, THERE, id, Err(Failure::TooLate));
        }
        while let Some(host) = self.requester.due(now) {
            assert!(host == THERE && self.is_up);
            let mut writer = HoldWriter::new();
            let wanted: Vec<_> = self.requester.wanted(THERE).collect();
            for (port, ReceiverState { held, stuck, .. }) in &wanted {
                for Key { vni, mac } in Self::keys_of(port.0) {
                    assert!(writer.push(&Held { vni, mac, held: *held, stuck: *stuck }));
                }
            }
            let (incarnation, sequence) = (self.incarnation, self.requester.next_sequence());
            let order = HoldOrder { incarnation, sequence, part: 0, parts: 1 };
            self.asks.push((self.next, writer.finish(order).to_vec()));
            self.open.insert(self.next, now.after(ANSWER_MAX));
            self.requester.told(now, THERE, &[self.next], (sequence, wanted.is_empty()));
            self.next += 1;
        }
        self.responder.advance(now, |_, _| true);
        if self.newest.2 <= now {
            self.newest.1.clear();
        }
        while let Some(command) = self.responder.order() {
            self.data.remove(&command.key);
            if !command.held.is_empty() {
                self.data.insert(command.key, (command.held.0, command.stuck.0, now));
            }
        }
        while self.responder.turn().is_some() {}
    }

    fn check(&self) {
        let entries = self.responder.entries();
        let kept: State = entries.map(|(key, one)| (key, (one.held.0, one.stuck.0))).collect();
        assert_eq!(kept, self.newest.1, "the newest message counts");
        let data: State = self.data.iter().map(|(key, one)| (*key, (one.0, one.1))).collect();
        assert_eq!(data, kept, "data does what is kept");
        let renewed = self.data.values().map(|one| one.2).min().unwrap_or(self.now);
        assert!(self.now.since(renewed) < LEASE, "data is told again");
    }

    fn wanted(&self) -> State {
        let sending = self.wanted.iter().filter(|(_, one)| one.2 && one.0 != 0);
        let all = sending
            .flat_map(|(port, one)| Self::keys_of(*port).map(|key| (key, (one.0, one.1 & one.0))));
        all.collect()
    }
}

proptest! {
    #[test]
    fn what_is_wanted_is_kept_after_any_faults(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        // One message is lost without a word; the rest comes, and in order.
        world.take(Step::Connect);
        world.take(Step::Lose(0));
        for _ in 0..40 {
            while !world.asks.is_empty() || !world.answers.is_empty() {
                world.take(Step::Deliver(0));
                world.take(Step::Answer(0));
                world.check();
            }
            world.take(Step::Pass(50));
            world.check();
        }
        let wanted = world.wanted();
        prop_assert_eq!(&world.newest.1, &wanted);
        prop_assert_eq!(wanted.is_empty(), world.requester.deadline().is_none());
        // The receiver's host dies without a word.
        for _ in 0..5 {
            world.asks.clear();
            world.take(Step::Pass(400));
            world.check();
        }
        prop_assert_eq!(world.responder.entries().count(), 0, "nobody is held for ever");
    }
}
