//! The gate against a model of sockets that is charged as the kernel charges them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use sluice_base::{Nanos, Priority};
use sluice_switch::{Egress, Hold};

use super::SocketHolds;
use super::charge;
use super::flow::Flow;
use super::gate::{Admit, FRAMES_MAX, Gate, HELD_MAX, Waiting};
use super::room::{Room, RoomSource};
use crate::net_header::HEADER_SIZE;

/// What the kernel charges for a frame of these tests: a kilobyte of payload takes a block of two.
const TRUESIZE: u32 = 2304;
const LIMIT: u32 = 20 * TRUESIZE;
const FRAME_SIZE: usize = 14 + 20 + 8 + 1000;
/// Frames that wait to be sent together.
const STAGED_MAX: usize = 4;

/// Sockets by port, one each.
#[derive(Debug, Default)]
struct Model {
    used: BTreeMap<u16, u32>,
    lost: u64,
    armed: BTreeMap<u64, u32>,
    drained: Vec<u64>,
    is_signalled: bool,
    ticks: bool,
    asked: u64,
    /// Datagrams that the receiver takes between a question and what follows it.
    taken_after_ask: u32,
    /// Where sending does not deliver: datagrams under way, and how many were sent and arrived.
    road: Option<VecDeque<u16>>,
    sent: u64,
    arrived: u64,
    /// Frames that the gate knows to be sent.
    noted: u64,
    /// Added to the identity of each socket: another socket has taken its place.
    successor: u64,
    /// True if that happens between a question and what follows it.
    replaced_after_ask: bool,
}

impl Model {
    fn receive(&mut self, port: u16) {
        let used = self.used.entry(port).or_default();
        if *used > 0 && *used + TRUESIZE > LIMIT {
            self.lost += 1;
        } else {
            *used += TRUESIZE;
        }
    }

    fn send(&mut self, port: u16) {
        match &mut self.road {
            None => self.receive(port),
            Some(road) => {
                road.push_back(port);
                self.sent += 1;
            }
        }
    }

    /// The first datagrams under way arrive.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(port) = self.road.as_mut().and_then(VecDeque::pop_front) else { return };
            self.arrived += 1;
            self.receive(port);
        }
    }

    fn drain(&mut self, port: u16, count: u32) {
        let used = self.used.get_mut(&port).unwrap();
        *used = used.saturating_sub(count * TRUESIZE);
        let mark = self.armed.get(&port.into());
        if self.is_signalled && mark.is_some_and(|mark| *used <= *mark) {
            self.armed.remove(&port.into());
            self.drained.push(port.into());
        }
    }
}

#[derive(Clone, Debug)]
struct Source(Rc<RefCell<Model>>);

impl RoomSource for Source {
    fn ask(&mut self, flow: &Flow) -> Option<Room> {
        let mut model = self.0.borrow_mut();
        model.asked += 1;
        let port = flow.receiver().port();
        let used = *model.used.get(&port)?;
        let drained = std::mem::take(&mut model.taken_after_ask);
        if drained > 0 {
            model.drain(port, drained);
        }
        let socket = u64::from(port) + model.successor;
        if std::mem::take(&mut model.replaced_after_ask) {
            model.successor += 1 << 16;
        }
        Some(Room { socket, used, limit: LIMIT, in_flight: 0 })
    }

    fn arm(&mut self, socket: u64, mark: u32) {
        self.0.borrow_mut().armed.insert(socket, mark);
    }

    fn disarm(&mut self, socket: u64) {
        self.0.borrow_mut().armed.remove(&socket);
    }

    fn next_drained(&mut self) -> Option<u64> {
        self.0.borrow_mut().drained.pop()
    }

    fn is_signalled(&self) -> bool {
        self.0.borrow().is_signalled
    }

    fn tick(&mut self, interval: Option<Nanos>) {
        self.0.borrow_mut().ticks = interval.is_some();
    }

    fn note_sent(&mut self, total: u64) {
        self.0.borrow_mut().noted = total;
    }

    fn sent(&self) -> u64 {
        let model = self.0.borrow();
        model.noted
    }

    fn arrived(&mut self, _now: Nanos, _flow: &Flow) -> u64 {
        let model = self.0.borrow();
        if model.road.is_none() {
            return u64::MAX;
        }
        assert!(model.arrived <= model.noted, "others' frames seem to have come");
        model.arrived
    }
}

struct Bench {
    model: Rc<RefCell<Model>>,
    gate: Gate<Source>,
    /// Numbers of the frames that reached each socket.
    reached: BTreeMap<u16, Vec<u32>>,
    sent: u32,
}

impl Bench {
    fn new(sockets: &[u16], hold: Hold) -> Self {
        let used = sockets.iter().map(|port| (*port, 0)).collect();
        let model = Model { used, is_signalled: true, ..Model::default() };
        let model = Rc::new(RefCell::new(model));
        let holds: SocketHolds = [Some(hold); Priority::COUNT];
        let gate = Gate::new(Source(model.clone()), holds);
        Self { model, gate, reached: BTreeMap::new(), sent: 0 }
    }

    /// Offers a datagram with the next number.
    fn offer(&mut self, port: u16) -> Admit {
        let bytes = frame(port, self.sent);
        self.tell();
        let admit = self.gate.admit(&[0; HEADER_SIZE], &egress(&bytes));
        if admit == Admit::Pass {
            self.model.borrow_mut().send(port);
            self.reached.entry(port).or_default().push(self.sent);
        }
        self.sent += u32::from(admit != Admit::Full);
        admit
    }

    fn tell(&self) {
        let mut model = self.model.borrow_mut();
        model.noted = model.sent;
    }

    fn resume(&mut self, now: Nanos) -> bool {
        self.tell();
        let (model, reached) = (&self.model, &mut self.reached);
        self.gate.resume(now, |waiting| {
            let (port, number) = read(waiting);
            let mut model = model.borrow_mut();
            model.send(port);
            // Beyond some staged frames the port sends by itself.
            let staged = model.road.as_ref().map_or(0, VecDeque::len);
            model.arrive(staged.saturating_sub(STAGED_MAX));
            reached.entry(port).or_default().push(number);
            Some(model.sent)
        })
    }

    fn drain(&self, port: u16, count: u32) {
        self.model.borrow_mut().drain(port, count);
    }

    /// Offers until the socket is held and its queue is full.
    fn fill(&mut self, port: u16) {
        while self.offer(port) != Admit::Full {}
    }
}

fn egress(bytes: &[u8]) -> Egress<'_, crate::FrameBuf> {
    Egress {
        header: bytes,
        buf: None,
        strip: 0,
        size: u32::try_from(bytes.len()).unwrap(),
        first: 0,
        priority: Priority::ZERO,
        tunnel: None,
    }
}

fn frame(port: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_SIZE];
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[23] = 17;
    bytes[30..34].copy_from_slice(&[10, 0, 0, 1]);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes[42..46].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn read(waiting: &Waiting) -> (u16, u32) {
    let bytes = &waiting.bytes;
    (
        u16::from_be_bytes([bytes[36], bytes[37]]),
        u32::from_be_bytes(bytes[42..46].try_into().unwrap()),
    )
}

#[test]
fn full_socket_loses_nothing_and_keeps_order() {
    let mut bench = Bench::new(&[1, 2], Hold::Forever);
    for round in 0..400 {
        for _ in 0..3 {
            bench.offer(1);
            assert_eq!(bench.offer(2), Admit::Pass, "another socket has room");
        }
        bench.drain(2, 3);
        bench.drain(1, 1);
        bench.resume(Nanos::from_micros(round));
    }
    for at in 0..400 {
        bench.drain(1, 20);
        bench.resume(Nanos::from_micros(400 + at));
    }
    assert_eq!(bench.model.borrow().lost, 0);
    assert!(bench.gate.held().is_empty() && bench.gate.waiting().frames == 0);
    let reached: usize = bench.reached.values().map(Vec::len).sum();
    assert_eq!(reached, bench.sent as usize);
    for numbers in bench.reached.values() {
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    assert!(!bench.model.borrow().ticks, "nothing is held any more");
}

#[test]
fn charge_covers_truesize_of_frame() {
    // Measured on Linux 6.18 by `crates/ports/tests/rcvbuf.rs`: a block of two kilobytes and more.
    assert!(charge::of_frame(u32::try_from(FRAME_SIZE).unwrap()) >= TRUESIZE);
    for size in 42..70_000 {
        let charge = charge::of_frame(size);
        assert!(charge >= size + 768, "{size}");
        assert!(charge <= 4 * size + 2048, "{size}: a socket would seem full too soon");
    }
}

#[test]
fn drain_between_question_and_arming_is_seen() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    while bench.model.borrow().used[&1] + 2 * TRUESIZE <= LIMIT {
        assert_eq!(bench.offer(1), Admit::Pass);
    }
    // The receiver takes all behind the question, before anything is armed, and then nothing.
    bench.model.borrow_mut().taken_after_ask = 20;
    let mut offers = (0..3).map(|_| bench.offer(1));
    assert!(offers.all(|admit| admit == Admit::Pass));
    assert!(bench.gate.held().is_empty());
}

#[test]
fn drained_socket_resumes_by_signal_alone() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    bench.fill(1);
    assert!(!bench.resume(Nanos::ZERO), "nothing was drained");
    bench.drain(1, 20);
    assert!(bench.resume(Nanos::ZERO), "long before the next look");
    while bench.gate.waiting().frames > 0 {
        bench.drain(1, 20);
        assert!(bench.resume(Nanos::ZERO), "each arming is signalled");
    }
    assert_eq!(bench.model.borrow().lost, 0);
}

#[test]
fn drain_without_signal_is_seen_by_look() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    bench.model.borrow_mut().is_signalled = false;
    bench.fill(1);
    assert!(bench.model.borrow().ticks);
    bench.drain(1, 20);
    assert!(!bench.resume(Nanos::ZERO));
    assert!(bench.resume(Nanos::from_millis(2)));
}

#[test]
fn socket_beyond_hold_keeps_oldest_frame_only() {
    let mut bench = Bench::new(&[1], Hold::For(Nanos::from_millis(800)));
    bench.fill(1);
    let before = bench.sent;
    assert!(!bench.resume(Nanos::from_millis(690)));
    assert!(bench.resume(Nanos::from_millis(710)), "an eighth before the port's own hold");
    assert_eq!(bench.gate.waiting().frames, 1);
    assert_eq!(bench.gate.take_ended().count(), FRAMES_MAX - 1);
    assert_eq!(bench.offer(1), Admit::Stuck);
    assert!(bench.gate.held()[0].is_stuck);
    bench.drain(1, 20);
    assert!(bench.resume(Nanos::from_millis(711)));
    assert!(bench.gate.held().is_empty());
    assert_eq!(bench.offer(1), Admit::Pass);
    assert_eq!((bench.sent, bench.model.borrow().lost), (before + 2, 0));
}

#[test]
fn one_socket_too_many_is_refused_and_counted() {
    let ports: Vec<u16> = (1..=u16::try_from(HELD_MAX).unwrap() + 1).collect();
    let mut bench = Bench::new(&ports, Hold::Forever);
    for port in &ports[..HELD_MAX] {
        bench.fill(*port);
    }
    let last = ports[HELD_MAX];
    bench.fill(last);
    assert_eq!(bench.gate.held().len(), HELD_MAX);
    assert!(bench.gate.counts().beyond > 0);
    bench.drain(1, 20);
    bench.resume(Nanos::ZERO);
    bench.drain(1, 20);
    while bench.gate.held().len() == HELD_MAX {
        bench.resume(Nanos::ZERO);
        bench.drain(1, 20);
    }
    assert_eq!(bench.offer(last), Admit::Waits);
}

#[test]
fn frame_beyond_held_sockets_offered_again_at_look() {
    let ports: Vec<u16> = (1..=u16::try_from(HELD_MAX).unwrap() + 1).collect();
    let mut bench = Bench::new(&ports, Hold::Forever);
    ports.iter().for_each(|port| bench.fill(*port));
    // The held ones are never read again. The last one is, and nobody signals that.
    let last = ports[HELD_MAX];
    bench.drain(last, 20);
    assert!(!bench.resume(Nanos::from_millis(19)));
    assert!(bench.resume(Nanos::from_millis(20)), "its sender is set aside until it is resumed");
    assert_eq!(bench.offer(last), Admit::Pass);
    assert!(!bench.resume(Nanos::from_millis(40)), "nothing was refused since");
}

#[test]
fn full_socket_in_place_of_another_asked_again() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    while bench.model.borrow().used[&1] + 2 * TRUESIZE <= LIMIT {
        assert_eq!(bench.offer(1), Admit::Pass);
    }
    bench.model.borrow_mut().replaced_after_ask = true;
    assert_eq!(bench.offer(1), Admit::Full);
    assert!(bench.gate.held().is_empty() && bench.model.borrow().ticks);
    bench.drain(1, 20);
    assert!(bench.resume(Nanos::ZERO), "nothing is held that could be drained");
    assert_eq!(bench.offer(1), Admit::Pass);
    assert!(!bench.resume(Nanos::from_millis(40)) && !bench.model.borrow().ticks);
}

#[test]
fn look_is_not_put_off_by_new_holds() {
    let mut bench = Bench::new(&[1, 2], Hold::Forever);
    bench.fill(1);
    // A socket that is closed is not signalled.
    bench.model.borrow_mut().used.remove(&1);
    assert!(!bench.resume(Nanos::from_millis(10)));
    bench.fill(2);
    assert!(bench.resume(Nanos::from_millis(20)));
}

#[test]
fn socket_that_closes_lets_frames_go() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    bench.fill(1);
    bench.model.borrow_mut().used.remove(&1);
    let before = bench.reached[&1].len();
    assert!(bench.resume(Nanos::from_millis(20)));
    assert_eq!(bench.reached[&1].len(), before + FRAMES_MAX);
}

#[test]
fn questions_are_few_while_socket_is_drained() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    for _ in 0..1000 {
        assert_eq!(bench.offer(1), Admit::Pass);
        bench.drain(1, 1);
    }
    let asked = bench.model.borrow().asked;
    assert!(asked <= 1000 / 6, "{asked} questions for 1000 datagrams");
}

#[test]
fn priority_without_hold_passes_unasked() {
    let mut bench = Bench::new(&[1], Hold::Forever);
    bench.gate.set_holds([None; Priority::COUNT]);
    for _ in 0..100 {
        assert_eq!(bench.offer(1), Admit::Pass);
    }
    assert_eq!(bench.model.borrow().asked, 0);
}

#[test]
fn frames_for_no_single_socket_have_no_flow() {
    let plain = frame(7, 0);
    assert_eq!(Flow::of(&plain).unwrap().receiver(), "10.0.0.1:7".parse().unwrap());
    let changed = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        Flow::of(&bytes)
    };
    assert_eq!(changed(23, 6), None, "TCP");
    assert_eq!(changed(20, 0x20), None, "more fragments");
    assert_eq!(changed(21, 1), None, "a later fragment");
    assert_eq!(changed(30, 224), None, "multicast");
    assert_eq!(changed(14, 0x44), None, "a header that is too short");
    assert_eq!(changed(12, 0x81), None, "a tag");
    assert_eq!(Flow::of(&plain[..36]), None, "cut off");
}

#[test]
fn btf_that_is_cut_off_is_refused() {
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
    assert!(super::btf::find(&bytes).is_some());
    for size in [0, 3, 23, 24, 1000, bytes.len() / 2] {
        assert_eq!(super::btf::find(&bytes[..size]), None);
    }
}

/// Datagrams pass a road of any length on which they stand at times: none finds its buffer full,
/// and all come once the road is free.
#[test]
fn datagrams_under_way_find_room() {
    let mut bench = Bench::new(&[1, 2], Hold::Forever);
    bench.model.borrow_mut().road = Some(VecDeque::new());
    let mut draw = 1_u64;
    let mut below = move |limit: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (draw >> 33) % limit
    };
    let mut taken = 0;
    for step in 1..20_000_u64 {
        let port = 1 + u16::from(below(4) == 0);
        taken += usize::from(bench.offer(port) != Admit::Full);
        match below(8) {
            0 => bench.model.borrow_mut().arrive(usize::try_from(below(90)).unwrap()),
            1 => bench.drain(1, u32::try_from(below(30)).unwrap()),
            2 => bench.drain(2, 1),
            _ => {}
        }
        bench.resume(Nanos::from_micros(100 * step));
    }
    for round in 1..10_000 {
        bench.model.borrow_mut().arrive(usize::MAX);
        bench.drain(1, 20);
        bench.drain(2, 20);
        bench.resume(Nanos::from_millis(10_000 + 2 * round));
    }
    assert_eq!(bench.model.borrow().lost, 0);
    assert!(bench.gate.counts().full > 100, "{:?}", bench.gate.counts());
    let reached = &bench.reached;
    assert_eq!(reached.values().map(Vec::len).sum::<usize>(), taken);
    assert!(reached.values().all(|numbers| numbers.is_sorted()));
    assert!(bench.gate.held().is_empty());
}
