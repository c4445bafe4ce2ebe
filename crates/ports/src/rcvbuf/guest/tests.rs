//! The room of a guest against a model of its kernel and agent, behind a ring in order.

use std::collections::{BTreeMap, VecDeque};

use sluice_base::Priority;
use sluice_switch::{Egress, Hold};

use super::*;
use crate::net_header::HEADER_SIZE;
use crate::rcvbuf::charge::of_guest_frame;
use crate::rcvbuf::gate::{Admit, Gate};
use crate::rcvbuf::receivers::Receivers;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
/// Charge of virtio-net for a frame of these tests.
const TRUESIZE: u32 = 2304;
const LIMIT: u32 = 92 * TRUESIZE;
const FRAME_SIZE: usize = 14 + 20 + 8 + 1400;

fn heard() -> GuestRoom {
    let mut room = GuestRoom::new().unwrap();
    greet(&mut room, MS(0));
    room
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    let mut out = [0; FRAME_SIZE_MAX];
    let size = message.emit(Mac([2, 0, 0, 0, 0, 9]), &mut out);
    out[..size].to_vec()
}

/// The question that is due, as it is sent.
fn asked(room: &mut GuestRoom, now: Nanos) -> Option<(u64, Vec<FlowEntry>)> {
    let mut out = [0; FRAME_SIZE_MAX];
    let size = room.question(now, &mut out)?;
    room.note_asked(now);
    match Message::parse(&out[..size]) {
        Ok(Message::Question { number, flows }) => Some((number, flows.to_vec())),
        other => panic!("{other:?}"),
    }
}

fn answer(room: &mut GuestRoom, now: Nanos, number: u64, rooms: &[RoomEntry]) {
    room.hear(now, &bytes(&Message::Answer { number, rooms }));
}

fn greet(room: &mut GuestRoom, now: Nanos) {
    room.hear(now, &bytes(&Message::Hello));
    assert!(!room.is_heard(), "a hello alone is no answer");
    let (number, flows) = asked(room, now).unwrap();
    assert!(flows.is_empty());
    answer(room, now, number, &[]);
    assert!(room.is_heard());
}

fn flow(from: u8, port: u16) -> Flow {
    let mut tuple = [0; 36];
    tuple[..8].copy_from_slice(&[10, 0, 0, from, 10, 0, 0, 1]);
    tuple[8..10].copy_from_slice(&9_u16.to_be_bytes());
    tuple[10..12].copy_from_slice(&port.to_be_bytes());
    Flow::of_entry(&FlowEntry::new(false, tuple))
}

fn entry(flow: &Flow, socket: u64, used: u32) -> RoomEntry {
    RoomEntry::new(flow.entry(), socket, used, LIMIT)
}

#[test]
fn agent_is_heard_by_its_answer() {
    let mut room = GuestRoom::new().unwrap();
    let any = flow(1, 7);
    assert!(room.ask(&any).is_none() && room.lacks().unwrap().contains("sluice guest"));
    assert_eq!(asked(&mut room, MS(0)), None, "nobody said hello");
    greet(&mut room, MS(1));
    assert_eq!(room.lacks(), None);
    room.hear(MS(2), &bytes(&Message::Bye));
    assert!(room.lacks().unwrap().contains("sluice guest") && room.ask(&any).is_none());
}

#[test]
fn silent_agent_passes_all_within_bound() {
    let mut room = heard();
    let any = flow(1, 7);
    assert!(room.ask(&any).is_some());
    let mut now = 1;
    let mut times = 0;
    while room.is_heard() {
        times += u32::from(asked(&mut room, MS(now)).is_some());
        now += 1;
        assert!(now <= 1 + SILENT.0 / 1_000_000 + 1, "it holds for no agent for ever");
    }
    assert!(now > 400 && (3..=6).contains(&times), "asked {times} times in {now} ms");
    assert!(room.ask(&any).is_none() && room.lacks().unwrap().contains("silent"));
    assert_eq!(asked(&mut room, MS(now)), None);
    greet(&mut room, MS(now + 1000));
    assert!(room.ask(&any).is_some());
}

#[test]
fn hello_without_answers_holds_nothing() {
    let mut room = GuestRoom::new().unwrap();
    for now in 0..20_000 {
        if now % 1000 == 0 {
            room.hear(MS(now), &bytes(&Message::Hello));
        }
        asked(&mut room, MS(now));
        assert!(room.ask(&flow(1, 7)).is_none(), "{now}");
    }
    assert!(room.lacks().is_some());
}

#[test]
fn agent_unheard_for_seconds_is_silent() {
    let mut room = heard();
    assert_eq!(asked(&mut room, MS(4_999)), None);
    assert!(room.is_heard());
    assert_eq!(asked(&mut room, MS(5_000)), None);
    assert!(!room.is_heard());
}

#[test]
fn answers_out_of_turn_change_nothing() {
    let mut room = heard();
    let any = flow(1, 7);
    room.ask(&any);
    let (number, flows) = asked(&mut room, MS(1)).unwrap();
    assert_eq!(flows, [any.entry()]);
    answer(&mut room, MS(2), number + 1, &[entry(&any, 5, 0)]);
    assert_eq!(room.invalid(), 1, "of a question that nobody asked");
    answer(&mut room, MS(2), number - 1, &[entry(&any, 5, 0)]);
    assert_eq!(room.ask(&any).unwrap().socket, unknown(&any), "of the one before");
    // Of a flow that was never sent to this guest.
    let other = flow(2, 8);
    answer(&mut room, MS(3), number, &[entry(&any, 5, 10), entry(&other, 6, 0)]);
    let known = room.ask(&any).unwrap();
    assert_eq!((known.socket, known.limit, known.used), (5, LIMIT, 10 + UNKNOWN));
    assert_eq!(room.ask(&other).unwrap().socket, unknown(&other));
    for garbage in [&[0; 60][..], &bytes(&Message::Idle), &bytes(&Message::Hello)[..40]] {
        room.hear(MS(4), garbage);
    }
    assert_eq!(room.invalid(), 1 + 2, "a hello may be short");
}

#[test]
fn room_of_socket_is_newest_of_all_flows() {
    let mut room = heard();
    let (one, two) = (flow(1, 7), flow(2, 7));
    room.ask(&one);
    let (number, _) = asked(&mut room, MS(1)).unwrap();
    answer(&mut room, MS(2), number, &[entry(&one, 5, 0)]);
    // Another flow to the same address has that socket's room, until it is known better.
    assert_eq!(room.ask(&two).unwrap().socket, 5);
    room.ask(&one);
    let (number, flows) = asked(&mut room, MS(3)).unwrap();
    assert_eq!(flows.len(), 2);
    answer(&mut room, MS(4), number, &[entry(&two, 5, 700), entry(&one, 5, 600)]);
    assert_eq!(room.ask(&one).unwrap().used, 700);
    assert_eq!((room.arrived(MS(4), &one), room.arrived(MS(4), &two)), (number, number));
    room.ask(&two);
    let (number, _) = asked(&mut room, MS(5)).unwrap();
    answer(&mut room, MS(6), number, &[entry(&two, 0, 0)]);
    assert!(room.ask(&two).is_none(), "its socket is gone");
}

#[test]
fn question_is_spaced_and_bounded() {
    let mut room = heard();
    for last in 0..100 {
        room.ask(&flow(last, 7));
        room.ask(&flow(last, 7));
    }
    let mut all = 0;
    for turn in 1..=7 {
        let at = Nanos(turn * SPACING.0);
        let (number, flows) = asked(&mut room, at).unwrap();
        assert!(flows.len() <= ENTRIES_MAX);
        all += flows.len();
        assert_eq!(asked(&mut room, at), None, "one at a time");
        answer(&mut room, at, number, &[]);
        room.ask(&flow(200, 7));
        assert_eq!(asked(&mut room, at), None, "too soon");
    }
    assert_eq!(all, 101);
}

/// A guest behind a ring: its kernel charges datagrams as virtio-net does, its agent answers when
/// it comes to a question.
struct Guest {
    gate: Gate<GuestRoom>,
    ring: VecDeque<Vec<u8>>,
    /// Bytes in the buffer of each port's socket, and its size.
    sockets: BTreeMap<u16, (u32, u32)>,
    lost: u64,
    taken: u64,
    answers: bool,
}

impl Guest {
    fn new(sockets: &[(u16, u32)]) -> Self {
        let holds = [Some(Hold::For(MS(1000))); Priority::COUNT];
        let sockets = sockets.iter().map(|(port, limit)| (*port, (0, *limit))).collect();
        let gate = Gate::new(heard(), holds);
        Self { gate, ring: VecDeque::new(), sockets, lost: 0, taken: 0, answers: true }
    }

    fn offer(&mut self, port: u16) -> Admit {
        let bytes = frame(port);
        let admit = self.gate.admit(&[0; HEADER_SIZE], &egress(&bytes));
        match admit {
            Admit::Pass => {
                self.ring.push_back(bytes);
                self.taken += 1;
            }
            Admit::Waits => self.taken += 1,
            Admit::Stuck | Admit::Full => {}
        }
        admit
    }

    /// As the port does it in each turn.
    fn turn(&mut self, now: Nanos) {
        let ring = &mut self.ring;
        self.gate.resume(now, |waiting| {
            ring.push_back(waiting.bytes.to_vec());
            Some(0)
        });
        let mut out = [0; FRAME_SIZE_MAX];
        if let Some(size) = self.gate.source_mut().question(now, &mut out) {
            self.ring.push_back(out[..size].to_vec());
            self.gate.source_mut().note_asked(now);
        }
    }

    /// The guest's kernel takes the first frames of its ring.
    fn arrive(&mut self, now: Nanos, count: usize) {
        for _ in 0..count {
            let Some(frame) = self.ring.pop_front() else { return };
            if let Ok(Message::Question { number, flows }) = Message::parse(&frame) {
                let room = |entry: &FlowEntry| {
                    let port = Flow::of_entry(entry).receiver().port();
                    let (used, limit) = self.sockets.get(&port).copied().unwrap_or_default();
                    RoomEntry::new(*entry, port.into(), used, limit)
                };
                let rooms: Vec<_> = flows.iter().map(room).collect();
                if self.answers {
                    answer(self.gate.source_mut(), now, number, &rooms);
                }
                continue;
            }
            let port = u16::from_be_bytes([frame[36], frame[37]]);
            let Some((used, limit)) = self.sockets.get_mut(&port) else { continue };
            if *used > 0 && *used + TRUESIZE > *limit {
                self.lost += 1;
            } else {
                *used += TRUESIZE;
            }
        }
    }

    fn drain(&mut self, port: u16, count: u32) {
        let (used, _) = self.sockets.get_mut(&port).unwrap();
        *used = used.saturating_sub(count * TRUESIZE);
    }
}

fn frame(port: u16) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_SIZE];
    bytes[12] = 8;
    bytes[14] = 0x45;
    bytes[23] = 17;
    bytes[26..34].copy_from_slice(&[10, 0, 0, 9, 10, 0, 0, 1]);
    bytes[36..38].copy_from_slice(&port.to_be_bytes());
    bytes
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

#[test]
fn charge_covers_whole_page_of_guest() {
    let header = 768;
    for size in 42..=9_014_u32 {
        let pages = (size + 12).div_ceil(4096);
        assert!(of_guest_frame(size) >= pages * 4096 + header, "{size}");
    }
    assert!(of_guest_frame(1514) <= 5120, "a socket would seem full too soon");
}

/// Bursts to sockets that are read slowly, with a ring and an agent that stand still at times:
/// none finds its buffer full, and all come.
#[test]
fn slow_sockets_of_guest_lose_nothing() {
    let sizes = [(1, LIMIT), (2, LIMIT), (3, 4 << 20), (4, 2 * TRUESIZE)];
    let mut guest = Guest::new(&sizes);
    // Until the first answer a socket seems to have a little room.
    guest.sockets.get_mut(&4).unwrap().1 = UNKNOWN;
    let mut draw = 1_u64;
    let mut below = move |limit: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (draw >> 33) % limit
    };
    for step in 1..40_000_u64 {
        let now = Nanos::from_micros(100 * step);
        let port = 1 + u16::try_from(below(4)).unwrap();
        (0..below(40)).for_each(|_| _ = guest.offer(port));
        guest.turn(now);
        if below(3) == 0 {
            let count = usize::try_from(below(300)).unwrap();
            guest.arrive(now, count);
        }
        match below(8) {
            0 => guest.drain(1, u32::try_from(below(60)).unwrap()),
            1 => guest.drain(2, 1),
            2 => guest.drain(3, u32::try_from(below(900)).unwrap()),
            3 => guest.drain(4, 20),
            _ => {}
        }
        assert_eq!(guest.lost, 0, "step {step}");
    }
    assert!(guest.gate.counts().holds > 100, "{:?}", guest.gate.counts());
    for step in 0..4_000 {
        let now = MS(4_000 + step);
        guest.turn(now);
        guest.arrive(now, 1_000);
        (1..=4).for_each(|port| guest.drain(port, 5_000));
    }
    assert_eq!((guest.lost, guest.gate.waiting().frames), (0, 0));
    assert!(guest.gate.held().is_empty() && guest.taken > 20_000, "{}", guest.taken);
}

#[test]
fn held_frames_pass_once_agent_is_silent() {
    let mut guest = Guest::new(&[(1, LIMIT)]);
    for step in 0..20 {
        (0..20).for_each(|_| _ = guest.offer(1));
        guest.turn(MS(step));
        guest.arrive(MS(step), 100);
    }
    assert!(guest.gate.waiting().frames > 0 && guest.lost == 0);
    guest.answers = false;
    for step in 20..600 {
        guest.turn(MS(step));
        guest.arrive(MS(step), 100);
    }
    assert_eq!(guest.gate.waiting().frames, 0, "nobody is held for an agent that is gone");
    assert!(guest.gate.held().is_empty() && guest.gate.take_ended().next().is_none());
    assert_eq!(guest.offer(1), Admit::Pass, "as without an agent");
}

#[test]
fn drained_socket_of_guest_goes_on() {
    let mut guest = Guest::new(&[(1, LIMIT)]);
    let mut now = 0;
    let mut turn = |guest: &mut Guest| {
        now += 1;
        guest.turn(MS(now));
        guest.arrive(MS(now), 100);
    };
    for _ in 0..20 {
        (0..20).for_each(|_| _ = guest.offer(1));
        turn(&mut guest);
    }
    let waiting = guest.gate.waiting().frames;
    assert!(waiting > 0);
    guest.drain(1, 1_000);
    (0..4).for_each(|_| turn(&mut guest));
    assert!(guest.gate.waiting().frames < waiting, "within milliseconds");
    assert_eq!(guest.lost, 0);
}

#[test]
fn port_without_hold_answers_hello_with_idle() {
    let mut receivers = Receivers::guest();
    let mut out = [0; FRAME_SIZE_MAX];
    assert_eq!(receivers.question(MS(0), &mut out), None);
    receivers.hear(MS(1), &bytes(&Message::Hello));
    let size = receivers.question(MS(1), &mut out).unwrap();
    assert_eq!(Message::parse(&out[..size]), Ok(Message::Idle));
    assert_eq!(receivers.question(MS(1), &mut out), None, "once");
    assert!(!receivers.is_active());
    assert!(receivers.guest_shot().lacks.unwrap().contains("lossless priority"));
}
