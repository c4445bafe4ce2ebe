use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_wire::mac_control::FRAME_SIZE;

use super::{Buffering, Ecn, Ends, Net, NetConfig, NetConfigError, Outcome, PathId, Shape};
use crate::event::{Event, Events};
use crate::events::Ties;
use crate::net::link::Link;
use crate::topology::{Cable, LinkId, Node, Routes, Topology};

const GIGABIT: u64 = 1_000_000_000;

/// Links of the line, towards host 1: host 0 to switch 0, on to switch 1, on to host 1.
const LINE: [LinkId; 3] = [LinkId(0), LinkId(2), LinkId(4)];

/// `host 0 ── switch 0 ── switch 1 ── host 1`, and host 2 at switch 1; the last link has `rate`.
fn line(rate: BitRate, delay: u64) -> Topology {
    let cable = |a, b, rate| Cable { a, b, rate, delay: Nanos(delay) };
    let fast = BitRate(10 * GIGABIT);
    Topology {
        hosts: 3,
        switches: 2,
        cables: vec![
            cable(Node::Host(0), Node::Switch(0), fast),
            cable(Node::Switch(0), Node::Switch(1), fast),
            cable(Node::Switch(1), Node::Host(1), rate),
            cable(Node::Host(2), Node::Switch(1), fast),
        ],
    }
}

fn config(lossless: PriorityMask) -> NetConfig {
    NetConfig {
        lossless,
        buffer: ByteCount(20_000),
        buffering: Buffering::Input,
        xoff: ByteCount(3_000),
        xon: ByteCount(1_000),
        mark: None,
        latency: Nanos::ZERO,
        pause_response: Nanos(200),
        overhead: 0,
        frame_max: 1_000,
    }
}

/// A network, and its events.
struct Rig {
    net: Net<u32>,
    events: Events,
    routes: Routes,
    /// Arrivals: the time and the frame.
    arrived: Vec<(u64, u32)>,
    /// Transmissions: the time, the link, and true for a pause frame.
    sent: Vec<(u64, LinkId, bool)>,
}

impl Rig {
    fn new(topology: &Topology, config: NetConfig, latency: u64) -> Self {
        let ends = Ends { latency: Nanos(latency), are_switches: false };
        Self {
            net: Net::new(topology, config, ends),
            events: Events::new(Ties::Fifo),
            routes: Routes::new(topology).unwrap(),
            arrived: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn path(&mut self, from: u32, to: u32) -> PathId {
        self.net.open_path(self.routes.path(from, to, 0).unwrap())
    }

    fn send(&mut self, path: PathId, ready: u64, size: u16, priority: u8, name: u32) {
        let priority = Priority::from_low_bits(priority);
        let shape = Shape { size, priority, ecn: Ecn::NotCapable };
        self.net.send(&mut self.events, path, Nanos(ready), shape, name);
    }

    /// Runs until `end`; false if losslessness breaks.
    fn run(&mut self, end: u64) -> bool {
        while let Some(event) = self.events.pop_until(Nanos(end)) {
            let now = self.events.now();
            if let Event::LinkEnd(id) = event {
                let link = &self.net.links[id.index()];
                if link.end_at == now && !link.is_idle() {
                    self.sent.push((now.0, id, link.current == Link::PAUSE));
                }
            }
            match self.net.handle(&mut self.events, event) {
                Outcome::Arrived { payload, .. } => self.arrived.push((now.0, payload)),
                Outcome::Broken(_) => return false,
                _ => {}
            }
        }
        true
    }

    /// Times at which a link had sent frames, or pause frames.
    fn times(&self, link: LinkId, pause: bool) -> Vec<u64> {
        let of = |sent: &&(u64, LinkId, bool)| sent.1 == link && sent.2 == pause;
        self.sent.iter().filter(of).map(|sent| sent.0).collect()
    }
}

#[test]
fn frame_store_and_forward_delay_over_three_links() {
    let fast = BitRate(10 * GIGABIT);
    let config = NetConfig { latency: Nanos(300), overhead: 24, ..config(PriorityMask::NONE) };
    let mut rig = Rig::new(&line(fast, 500), config, 77);
    let path = rig.path(0, 1);
    rig.send(path, 10, 1_000, 0, 1);
    assert!(rig.run(u64::MAX));
    // 1024 bytes take 819.2 ns, rounded up; two switches; the host's own time.
    assert_eq!(rig.arrived, [(10 + 3 * (820 + 500) + 2 * 300 + 77, 1)]);
    assert_eq!((rig.net.hops(), rig.net.hops_ended), (3, 3));
}

#[test]
fn a_pause_takes_effect_to_the_nanosecond() {
    let mut rig = Rig::new(&line(BitRate(GIGABIT), 1_000), config(PriorityMask::ALL), 0);
    let path = rig.path(0, 1);
    (0..10).for_each(|name| rig.send(path, 0, 1_000, 3, name));
    assert!(rig.run(u64::MAX));
    // A frame takes 800 ns on the fast links and 8 us on the last one. The first frame is at the
    // second switch at 2 * (800 + 1000); the third one makes the buffer hold 3,000 bytes 1,600
    // later.
    let xoff = 3_600 + 1_600;
    let pause = FRAME_SIZE as u64 * 8 / 10;
    let pauses = rig.times(LINE[1].reverse(), true);
    assert_eq!(pauses[0], xoff + pause);
    // The pause takes effect 1,000 + 200 later, amid the sixth frame, which goes on: 1,800 + 6 *
    // 800.
    let effect = xoff + pause + 1_200;
    let sent = rig.times(LINE[1], false);
    assert!((sent[4]..sent[5]).contains(&effect), "{effect} {sent:?}");
    assert_eq!(sent[5], 6_600);
    // The buffer holds six frames, until one is left: the fifth one has gone after 5 * 8 us.
    let held_max = rig.net.counters(LINE[1], rig.events.now()).held_max;
    assert_eq!(held_max, ByteCount(6_000));
    let xon = 3_600 + 5 * 8_000;
    assert_eq!(pauses[1], xon + pause);
    assert_eq!(sent[6], xon + pause + 1_200 + 800);
    assert_eq!(rig.arrived.len(), 10);
    // With the last four frames it fills once more.
    assert_eq!(rig.net.counters(LINE[1], rig.events.now()).pauses, (2, 2));
}

#[test]
fn pause_stops_frame_selected_but_not_begun() {
    let config = NetConfig { latency: Nanos(5_000), ..config(PriorityMask::ALL) };
    let mut rig = Rig::new(&line(BitRate(10 * GIGABIT), 1_000), config, 0);
    let path = rig.path(0, 1);
    rig.send(path, 0, 1_000, 3, 0);
    // The frame is chosen by the second link at 800, to begin at 800 + 1,000 + 5,000.
    assert!(rig.run(2_000));
    assert!(rig.net.links[LINE[1].index()].has_not_begun(rig.events.now()));
    let quanta = [0, 0, 0, 1_000, 0, 0, 0, 0];
    let xoff = sluice_wire::mac_control::Message::Pfc { enabled: PriorityMask(8), quanta };
    rig.net.begin_pause(&mut rig.events, LINE[1].reverse(), xoff);
    assert!(rig.run(50_000));
    assert_eq!(rig.times(LINE[1], false), []);
    // The pause lapses: 1,000 quanta of 51.2 ns after it took effect.
    let effect = 2_000 + FRAME_SIZE as u64 * 8 / 10 + 1_000 + 200;
    assert!(rig.run(u64::MAX));
    assert_eq!(rig.times(LINE[1], false), [effect + 51_200 + 800]);
}

/// Number of ten frames that pass a link of a tenth of the rate, and the drops by reason.
fn passed(buffering: Buffering, buffer: u64) -> (usize, u64, u64) {
    let config = NetConfig { buffering, buffer: ByteCount(buffer), ..config(PriorityMask::NONE) };
    let mut rig = Rig::new(&line(BitRate(GIGABIT), 1_000), config, 0);
    let path = rig.path(0, 1);
    (0..10).for_each(|name| rig.send(path, 0, 1_000, 0, name));
    assert!(rig.run(u64::MAX));
    let counters = rig.net.counters(LINE[1], rig.events.now());
    assert_eq!(rig.net.census(rig.events.now()).frames.len(), 0);
    (rig.arrived.len(), counters.input_full, counters.output_full)
}

#[test]
fn lossy_frame_dropped_only_above_exact_buffer_limit() {
    // The ten frames come within the time of the first one. The frame that is being sent counts in
    // the input's buffer; in the output's queue it does not.
    assert_eq!(passed(Buffering::Input, 3_000), (3, 7, 0));
    assert_eq!(passed(Buffering::Input, 2_999), (2, 8, 0));
    assert_eq!(passed(Buffering::Output, 3_000), (4, 0, 6));
    assert_eq!(passed(Buffering::Output, 2_999), (3, 0, 7));
}

#[test]
fn the_higher_priority_goes_first_and_interrupts_nothing() {
    let mut rig = Rig::new(&line(BitRate(10 * GIGABIT), 0), config(PriorityMask::NONE), 0);
    let path = rig.path(0, 1);
    rig.send(path, 0, 1_000, 0, 1);
    rig.send(path, 0, 1_000, 0, 2);
    assert!(rig.run(100));
    rig.send(path, 100, 1_000, 4, 3);
    rig.send(path, 100, 1_000, 7, 4);
    assert!(rig.run(u64::MAX));
    let order: Vec<u32> = rig.arrived.iter().map(|(_, name)| *name).collect();
    assert_eq!(order, [1, 4, 3, 2]);
}

#[test]
fn a_smaller_headroom_is_refused() {
    let (rate, delay) = (BitRate(10 * GIGABIT), Nanos(1_000));
    let mut config = config(PriorityMask::ALL);
    let needed = config.headroom(rate, delay);
    // The frame that reached XOFF, one before the pause frame, the pause frame, one that had begun,
    // and 2,200 ns on the way there and back.
    assert_eq!(needed.0, 3 * 1_000 + FRAME_SIZE as u64 + 2_750 + 1);
    config.buffer = ByteCount(3_000 + needed.0);
    assert_eq!(config.check(rate, delay), Ok(()));
    config.buffer.0 -= 1;
    let there = ByteCount(needed.0 - 1);
    assert_eq!(config.check(rate, delay), Err(NetConfigError::Headroom { needed, there }));
    config.xon = config.xoff;
    assert!(matches!(config.check(rate, delay), Err(NetConfigError::Thresholds { .. })));
}

/// Bytes that the second switch holds at most, when its egress is as good as blocked and a frame
/// against the traffic has begun at any time before XOFF.
#[test]
fn the_worst_case_reaches_at_most_the_limit() {
    let mut unused = u64::MAX;
    for shift in (0..1_000).step_by(13) {
        for size in [1_000, 999, 640] {
            let mut config = config(PriorityMask::ALL);
            let headroom = config.headroom(BitRate(10 * GIGABIT), Nanos(1_000));
            config.buffer = ByteCount(config.xoff.0 + headroom.0);
            let mut rig = Rig::new(&line(BitRate(GIGABIT / 1_000), 1_000), config, 0);
            let (there, back) = (rig.path(0, 1), rig.path(2, 0));
            (0..20).for_each(|name| rig.send(there, 0, size, 0, name));
            (0..20).for_each(|name| rig.send(back, shift, 1_000, 1, name));
            assert!(rig.run(60_000), "{size} {shift}");
            let held = rig.net.counters(LINE[1], rig.events.now()).held_max.0;
            assert!(held <= config.buffer.0);
            unused = unused.min(config.buffer.0 - held);
        }
    }
    assert!(unused < 1_000, "the formula asks for {unused} bytes that are never used");
}
