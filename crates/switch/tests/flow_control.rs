//! Two switches and the wire between them: priority flow control from end to end.

mod harness;

use std::collections::VecDeque;

use harness::config::{access, config, limit, mask, underlay, underlay_mac, with_tunnels};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::{Sent, TUNNELS, World};
use harness::{Info, Owner, TestBuf};
use sluice_base::{BitRate, ByteCount, InputId, Mac, Nanos, PortId, Priority, Prng};
use sluice_switch::{ClassConfig, InputFull, PauseConfig, RateLimit, Service, SwitchConfig};
use sluice_wire::mac_control::Message;

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);
const LINK: BitRate = BitRate::from_gbps(1);
/// The underlay port of both switches; before it come two access ports.
const UNDERLAY: usize = 2;
const XOFF: u64 = 20_000;
const XON: u64 = 10_000;
const FULL: u64 = 1_564;
const DELAY: Nanos = Nanos::from_micros(10);
const STEP: Nanos = Nanos::from_micros(2);

/// Returns the headroom for frames after XOFF: the content of the wire both ways, a frame that has
/// begun on either side, and a step of this test's clock on either side.
fn headroom() -> u64 {
    LINK.bytes_in(Nanos(2 * DELAY.0 + 2 * STEP.0)).0 + 3 * FULL
}

fn address_of(switch: usize, port: usize) -> Mac {
    address(u16::try_from(switch).unwrap(), u8::try_from(port).unwrap())
}

fn switch_config(switch: usize) -> SwitchConfig {
    let (own, other) = if switch == 0 { (1, 2) } else { (2, 1) };
    let mut ports = vec![access(0), access(0), underlay(own)];
    ports[UNDERLAY].input = limit(4_096, XOFF + headroom());
    ports[UNDERLAY].input_full = InputFull::Pause(PauseConfig {
        priorities: mask(&[3, 4]),
        xoff: ByteCount(XOFF),
        xon: ByteCount(XON),
        link: LINK,
        source: underlay_mac(own),
    });
    ports[UNDERLAY].rate = Some(RateLimit { rate: LINK, catch_up: Nanos::ZERO, overhead: 24 });
    let mut config = with_tunnels(config(ports), u16::try_from(UNDERLAY).unwrap(), &[other]);
    config.tunnels[0].next_hop = Some(underlay_mac(other));
    config.classes = [ClassConfig { service: Service::Weighted(1), lossless: true }; 8];
    config.pool.from_local = limit(0, 0);
    config.pool.from_underlay = limit(0, 0);
    config
}

/// True if a frame from a switch is lost.
type Loses = Box<dyn FnMut(usize, &Sent) -> bool>;

/// Two switches, joined by their underlay ports.
struct Pair {
    worlds: [World; 2],
    /// Frames from switch 0 to 1, and from 1 to 0, with their time of arrival.
    wires: [VecDeque<(Nanos, Sent)>; 2],
    /// True if a frame is lost on the wire.
    loses: Loses,
    /// Pause frames on the wire: time, sender, priorities enabled, quanta.
    pauses: Vec<(Nanos, usize, u8, [u16; 8])>,
}

impl Pair {
    fn new() -> Self {
        let mut worlds = [0, 1].map(|n| World::new(&switch_config(n), n as u64 + 1));
        for (at, world) in worlds.iter_mut().enumerate() {
            for port in 0..2 {
                world.at_port(address_of(at, port), port);
                world.at_tunnel(address_of(1 - at, port), 0);
            }
            world.log();
        }
        Self { worlds, wires: Default::default(), loses: Box::new(|_, _| false), pauses: vec![] }
    }

    /// Fills the window of an access port with frames for one of the other switch.
    fn feed(&mut self, from: usize, port: usize, to: usize, priority: u8) -> usize {
        let tenant = Tenant::new(address_of(1 - from, to), SRC, priority << 3, 1_514);
        self.worlds[from].fill(port, |world| world.tenant(port, &tenant))
    }

    /// Advances the time by a step: both underlay ports send, and frames that have arrived are
    /// received.
    fn step(&mut self) {
        for at in 0..2 {
            let world = &mut self.worlds[at];
            world.now = world.now.after(STEP);
            world.advance();
            world.transmit(PortId::from_index(UNDERLAY), || true);
            world.reclaim_all();
            let now = world.now;
            for sent in world.log() {
                if sent.port != UNDERLAY || (self.loses)(at, &sent) {
                    continue;
                }
                if let Some((enabled, quanta)) = pfc_of(&sent) {
                    self.pauses.push((now, at, enabled, quanta));
                }
                self.wires[at].push_back((now.after(DELAY), sent));
            }
        }
        for at in 0..2 {
            let now = self.worlds[at].now;
            while self.wires[1 - at].front().is_some_and(|(arrives, _)| *arrives <= now) {
                let (_, sent) = self.wires[1 - at].pop_front().unwrap();
                arrive(&mut self.worlds[at], sent);
            }
        }
    }

    fn steps(&mut self, span: Nanos, mut each: impl FnMut(&mut Self)) {
        let end = self.worlds[0].now.after(span);
        while self.worlds[0].now < end {
            each(self);
            self.step();
        }
        self.worlds.iter().for_each(World::check);
    }

    fn is_paused(&self, at: usize, priority: u8) -> bool {
        let world = &self.worlds[at];
        let priority = Priority::new(priority).unwrap();
        world.switch.pause_state(world.now, PortId::from_index(UNDERLAY), priority).paused
    }

    fn resident(&self) -> u64 {
        let of = |world: &World| world.switch.audit().total(|row| row.frames.resident);
        of(&self.worlds[0]) + of(&self.worlds[1])
    }

    /// Lets all frames come out, in bounded time.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            self.step();
            for world in &mut self.worlds {
                for port in 0..UNDERLAY {
                    world.transmit(PortId::from_index(port), || true);
                }
                world.reclaim_all();
            }
            if self.resident() == 0 && self.wires.iter().all(VecDeque::is_empty) {
                self.worlds.iter_mut().for_each(World::check_empty);
                return;
            }
        }
        panic!("{} frames do not come out", self.resident());
    }
}

fn pfc_of(sent: &Sent) -> Option<(u8, [u16; 8])> {
    if sent.info.is_some() {
        return None;
    }
    match Message::parse(&sent.bytes[14..]).unwrap() {
        Message::Pfc { enabled, quanta } => Some((enabled.0, quanta)),
        other => panic!("{other:?}"),
    }
}

/// Receives a frame from the wire at the underlay port. XOFF guarantees that there is room for it.
fn arrive(world: &mut World, sent: Sent) {
    let input = InputId::from_index(UNDERLAY);
    let window = world.switch.window(input).of_any();
    assert!(window.frames > 0, "XOFF came too late: {:?}", world.switch.held(input));
    let port = u16::try_from(UNDERLAY).unwrap();
    let info = match sent.info {
        // Each station of the other switch is a sender of its own.
        Some(info) => Info { from: TUNNELS + info.from, port, ..info },
        None => {
            let (enabled, quanta) = pfc_of(&sent).unwrap();
            world.oracle.paused(world.now, UNDERLAY, enabled, quanta);
            Info {
                id: world.next_id(),
                from: TUNNELS,
                port,
                vnet: 0,
                dst: Mac::PAUSE,
                priority: Priority::ZERO,
                valid: false,
            }
        }
    };
    let buf = TestBuf::new(&world.ledger, info, Owner::Input(input.0), sent.bytes, sent.size);
    world.receive(input, vec![buf]);
}

/// Lets a port of switch 1 take all frames that wait for it. Returns their number.
fn take(pair: &mut Pair, port: usize) -> u32 {
    pair.worlds[1].transmit(PortId::from_index(port), || true)
}

#[test]
fn xoff_sent_within_headroom_pauses_congested_priority_only() {
    let mut pair = Pair::new();
    let (mut taken, mut sent) = (0, 0);
    // Port 0 of switch 1 takes nothing; priority 3 leads there, priority 4 to port 1.
    pair.steps(Nanos::from_millis(20), |pair| {
        sent += pair.feed(0, 0, 0, 3);
        pair.feed(0, 1, 1, 4);
        taken += take(pair, 1);
    });
    assert!(pair.is_paused(0, 3) && !pair.is_paused(0, 4));
    // Capacity of the link in that time, less the frames of priority 3 before XOFF.
    let can = LINK.bytes_in(Nanos::from_millis(20)).0 / (FULL + 24);
    assert!(u64::from(taken) > can * 8 / 10, "{taken} of {can}");
    let held = pair.worlds[1].switch.held_marks(InputId::from_index(UNDERLAY));
    assert!(held.bytes_max >= XOFF && held.bytes_max <= XOFF + headroom(), "{held:?}");
    // The link resumes: all frames of priority 3 come out.
    pair.drain();
    assert!(!pair.is_paused(0, 3));
    assert!(sent > 60, "{sent}");
}

#[test]
fn pause_under_lasting_congestion_is_refreshed_until_xon() {
    let mut pair = Pair::new();
    // Three times as long as a pause lasts.
    let lapse = LINK.time_for(ByteCount(65_535 * 512 / 8));
    let mut paused_once = false;
    pair.steps(Nanos(lapse.0 * 3), |pair| {
        pair.feed(0, 0, 0, 3);
        paused_once |= pair.is_paused(0, 3);
        assert!(!paused_once || pair.is_paused(0, 3), "the pause lapsed");
    });
    let xoff: Vec<Nanos> = pair.pauses.iter().filter(|p| p.3[3] > 0).map(|p| p.0).collect();
    // Four times as often as needed: one that is late by half of that time is still in time.
    assert!((11..=14).contains(&xoff.len()), "{xoff:?}");
    let early = Nanos(lapse.0 / 3);
    assert!(xoff.windows(2).all(|pair| pair[1].since(pair[0]) < early), "{xoff:?}");
    pair.drain();
    let last = pair.pauses.last().unwrap();
    assert_eq!((last.1, last.2, last.3[3]), (1, 0b1000, 0), "XON is the last word");
}

#[test]
fn lost_xon_resumes_after_pause_and_grace_lapse() {
    let mut pair = Pair::new();
    pair.loses = Box::new(|from, sent| {
        from == 1 && pfc_of(sent).is_some_and(|(enabled, quanta)| enabled == 8 && quanta[3] == 0)
    });
    pair.steps(Nanos::from_millis(2), |pair| {
        pair.feed(0, 0, 0, 3);
    });
    assert!(pair.is_paused(0, 3));
    let last_xoff = pair.pauses.last().unwrap().0;
    // Everything is taken, but XON never arrives.
    pair.steps(Nanos::from_millis(10), |pair| {
        take(pair, 0);
    });
    assert!(pair.is_paused(0, 3));
    let lapse = LINK.time_for(ByteCount(65_535 * 512 / 8));
    // Extension for a neighbour that stalls.
    let grace = Nanos::from_millis(50);
    let mut resumed = None;
    pair.steps(lapse.after(grace), |pair| {
        if !pair.is_paused(0, 3) && resumed.is_none() {
            resumed = Some(pair.worlds[0].now);
        }
        take(pair, 0);
    });
    let waited = resumed.expect("it goes on").since(last_xoff);
    let most = lapse.after(grace).after(DELAY).after(Nanos(4 * STEP.0));
    assert!(waited <= most, "{waited} {most}");
    pair.drain();
}

#[test]
fn lost_xoff_is_repaired_by_next_refresh() {
    let mut pair = Pair::new();
    let mut lost = false;
    pair.loses = Box::new(move |from, sent| {
        let lose = from == 1 && pfc_of(sent).is_some() && !lost;
        lost |= lose;
        lose
    });
    // Little enough to send that it fits into the headroom.
    for _ in 0..14 {
        let tenant = Tenant::new(address_of(1, 0), SRC, 3 << 3, 1_514);
        let buf = pair.worlds[0].tenant(0, &tenant);
        pair.worlds[0].receive(InputId(0), vec![buf]);
    }
    let lapse = LINK.time_for(ByteCount(65_535 * 512 / 8));
    pair.steps(lapse, |_| {});
    assert!(pair.is_paused(0, 3));
    pair.drain();
}

#[test]
fn bidirectionally_congested_switches_both_drain_without_drop() {
    for seed in 0..6 {
        let mut rng = Prng::new(seed);
        let mut pair = Pair::new();
        // Every output takes something now and then, and nothing for long.
        let mut stuck = [[0_u64; 2]; 2];
        pair.steps(Nanos::from_millis(15), |pair| {
            for (from, stuck) in stuck.iter_mut().enumerate() {
                for (port, stuck) in stuck.iter_mut().enumerate() {
                    let to = usize::try_from(rng.below(2)).unwrap();
                    let priority = if rng.chance(1, 2) { 3 } else { 4 };
                    pair.feed(from, port, to, priority);
                    *stuck = stuck.saturating_sub(1);
                    if *stuck == 0 {
                        let mut room = rng.below(30);
                        pair.worlds[from].transmit(PortId::from_index(port), || {
                            room = room.saturating_sub(1);
                            room > 0
                        });
                        *stuck = rng.below(1_000);
                    }
                }
            }
        });
        for at in 0..2 {
            assert!(pair.pauses.iter().any(|pause| pause.1 == at), "{at} was never full");
        }
        pair.drain();
        for world in &pair.worlds {
            let dropped = world.switch.audit().total(|row| row.frames.dropped);
            assert_eq!(dropped, 0, "seed {seed}");
        }
    }
}
