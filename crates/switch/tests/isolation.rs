//! A receiver that does not take its frames holds up its own senders only: bounds in simulated
//! time.

mod harness;

use harness::config::{access, config, limit, pausing, underlay, with_tunnels};
use harness::frames::{Tenant, pfc};
use harness::ops::address;
use harness::world::{Sent, World};
use sluice_base::{
    BitRate, ByteCount, DropReason, InputId, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId,
    VnetId,
};
use sluice_switch::{
    Command, CommandError, HOLD_LEASE, Hold, InputFull, IsolationConfig, PortConfig, RateLimit,
    ReceiverState, SwitchConfig,
};

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);
/// The ports of a host: the culprit, an innocent one, a sender, and the wire.
const CULPRIT: u8 = 0;
const INNOCENT: u8 = 1;
const SENDER: u8 = 2;
const WIRE: usize = 3;
const PAUSED: u8 = 3;
const STEP: Nanos = Nanos::from_micros(50);
const PATIENCE: Nanos = Nanos::from_millis(10);
/// Time within which a receiver is found, and within which the wire is free again.
const FOUND_MAX: Nanos = Nanos(PATIENCE.0 * 11 / 10 + STEP.0);
/// Delay of a message from the receiver's host to a sender's.
const MESSAGE: Nanos = Nanos::from_millis(1);
const HOLD: Nanos = Nanos::from_millis(100);
const SIZE: u32 = 1_000;

fn priority() -> Priority {
    Priority::new(PAUSED).unwrap()
}

fn to(port: u8) -> Tenant {
    Tenant::new(address(0, port), SRC, PAUSED << 3, SIZE)
}

fn host(reserve: u32, hold: Hold, remotes: &[u8]) -> SwitchConfig {
    let mut ports = vec![access(0), access(0), access(0), pausing(underlay(1))];
    ports.iter_mut().for_each(|port| port.hold = [hold; 8]);
    let mut config = with_tunnels(config(ports), u16::try_from(WIRE).unwrap(), remotes);
    config.pool.from_underlay = limit(256, 1_000_000);
    config.pool.from_local = limit(256, 1_000_000);
    let reserve = limit(reserve, u64::from(reserve) * 2_000);
    config.isolation = Some(IsolationConfig { holds: 4, ..IsolationConfig::new(reserve) });
    config
}

/// A receiver's host, and two hosts that send to it over one wire, which apply pauses at once and
/// holds after [`MESSAGE`].
struct Scene {
    world: World,
    /// By remote host: moment since which it holds the culprit, if it was asked to; members only.
    holds: [Option<Nanos>; 2],
    members: bool,
    /// Frames for the innocent and the culprit that each host sends in a step.
    loads: [(u32, u32); 2],
    told: ReceiverState,
    /// Frames that came for the innocent, and that left.
    innocent_in: usize,
    innocent_out: usize,
    culprit_out: usize,
    /// Longest time for which the wire was paused without a break.
    paused_max: Nanos,
    paused_since: Option<Nanos>,
    /// The frames that the culprit takes in a step.
    culprit_takes: u32,
}

impl Scene {
    fn new(reserve: u32, hold: Hold) -> Self {
        let mut world = World::new(&host(reserve, hold, &[2, 3]), 1);
        for port in 0..3 {
            world.at_port(address(0, port), port.into());
        }
        world.log();
        Self {
            world,
            holds: [None; 2],
            members: true,
            loads: [(4, 4), (4, 4)],
            told: ReceiverState::default(),
            innocent_in: 0,
            innocent_out: 0,
            culprit_out: 0,
            paused_max: Nanos::ZERO,
            paused_since: None,
            culprit_takes: 0,
        }
    }

    fn now(&self) -> Nanos {
        self.world.now
    }

    fn is_pausing(&self) -> bool {
        self.world.switch.pause_state(self.now(), port_of(WIRE), priority()).pausing
    }

    fn step(&mut self) {
        self.world.now = self.now().after(STEP);
        let now = self.now();
        self.listen(now);
        let input = InputId::from_index(WIRE);
        if self.world.switch.window(input).needs_copy {
            self.world.copy_to_shared(input, usize::MAX);
        }
        for host in 0..2_u16 {
            if self.is_pausing() {
                break;
            }
            let (innocent, culprit) = self.loads[usize::from(host)];
            let held = self.holds[usize::from(host)].is_some_and(|from| from <= now);
            let culprit = if held { 0 } else { culprit };
            self.innocent_in += innocent as usize;
            let mut bufs = Vec::new();
            for (count, port) in [(innocent, INNOCENT), (culprit, CULPRIT)] {
                bufs.extend((0..count).map(|_| self.world.tunnel_frame(WIRE, host, &to(port))));
            }
            assert!(self.world.switch.window(input).frames as usize >= bufs.len(), "no window");
            self.world.receive(input, bufs);
            if self.world.switch.window(input).needs_copy {
                self.world.copy_to_shared(input, usize::MAX);
            }
        }
        self.world.advance();
        self.world.transmit(port_of(WIRE), || true);
        self.world.transmit(port_of(INNOCENT.into()), || true);
        let mut left = self.culprit_takes;
        self.world.transmit(port_of(CULPRIT.into()), || {
            let takes = left > 0;
            left = left.saturating_sub(1);
            takes
        });
        self.world.reclaim_all();
        for Sent { port, .. } in self.world.log() {
            self.innocent_out += usize::from(port == usize::from(INNOCENT));
            self.culprit_out += usize::from(port == usize::from(CULPRIT));
        }
        self.note_pause(now);
    }

    /// Delivers the events to the senders' hosts.
    fn listen(&mut self, now: Nanos) {
        let port = port_of(CULPRIT.into());
        let state = self.world.switch.receiver(port);
        if self.members && state.held != self.told.held {
            let senders: Vec<TunnelId> = self.world.switch.senders(port).collect();
            for (host, hold) in self.holds.iter_mut().enumerate() {
                let is_sender = senders.contains(&TunnelId::from_index(host));
                let holds = is_sender && !state.held.is_empty();
                *hold = holds.then_some(now.after(MESSAGE));
            }
        }
        self.told = state;
    }

    fn note_pause(&mut self, now: Nanos) {
        if !self.is_pausing() {
            self.paused_since = None;
            return;
        }
        let since = *self.paused_since.get_or_insert(now);
        self.paused_max = self.paused_max.max(now.since(since));
    }

    fn run(&mut self, span: Nanos) {
        let end = self.now().after(span);
        while self.now() < end {
            self.step();
        }
        self.world.check();
    }

    /// Runs until a condition holds. Returns the time that it took.
    fn until(&mut self, most: Nanos, mut is_so: impl FnMut(&Self) -> bool) -> Nanos {
        let begin = self.now();
        while !is_so(self) {
            self.step();
            assert!(self.now().since(begin) <= most, "not within {most:?}");
        }
        self.world.check();
        self.now().since(begin)
    }

    fn isolated(&self) -> usize {
        self.world.switch.isolated().count()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        dropped(&self.world, reason)
    }
}

fn port_of(port: usize) -> PortId {
    PortId::from_index(port)
}

fn dropped(world: &World, reason: DropReason) -> u64 {
    let of = |input| {
        let drops = Priority::all().map(|p| world.switch.dropped(input, p, reason).frames);
        drops.sum::<u64>()
    };
    (0..=world.switch.pool_input().index()).map(InputId::from_index).map(of).sum()
}

#[test]
fn stuck_receiver_is_isolated_in_time_innocents_unharmed() {
    let mut scene = Scene::new(2_048, Hold::Forever);
    let pressed =
        scene.until(Nanos::from_millis(20), |scene| scene.world.pooled > 64 || scene.is_pausing());
    assert!(pressed < PATIENCE, "the load presses at once");
    scene.until(FOUND_MAX, |scene| scene.isolated() == 1);
    // XON, in the same step at the latest.
    scene.until(STEP, |scene| !scene.is_pausing());
    let before = (scene.innocent_in, scene.innocent_out);
    scene.run(Nanos::from_millis(500));
    let (came, went) = (scene.innocent_in - before.0, scene.innocent_out - before.1);
    assert_eq!(came, 500 * 20 * 8, "the innocent is never held again");
    assert!(went + 64 >= came, "{went} of {came}");
    assert!(scene.paused_max <= FOUND_MAX, "{:?}", scene.paused_max);
    assert_eq!(scene.drops(DropReason::ReceiverStuck), 0, "members hold it in time");
    assert_eq!(scene.culprit_out, 0);
    // The receiver moves again: all frames come out, and it is free after its probation.
    scene.culprit_takes = 1_000;
    scene.until(Nanos::from_millis(2), |scene| scene.told.held.is_empty());
    scene.loads = [(4, 0), (4, 0)];
    scene.until(Nanos::from_millis(1_100), |scene| scene.isolated() == 0);
    assert!(scene.culprit_out > 0);
    scene.world.drain(|_| {});
}

#[test]
fn receiver_past_hold_drops_all_but_oldest_frame() {
    let mut scene = Scene::new(2_048, Hold::For(HOLD));
    scene.run(Nanos(HOLD.0 * 2));
    assert!(scene.told.stuck.contains(priority()));
    let row = scene.world.switch.audit().total(|row| row.frames.resident);
    assert_eq!(row, 1, "the oldest frame stays to be offered");
    let lost = scene.drops(DropReason::ReceiverStuck);
    assert!(lost > 0);
    assert_eq!(scene.innocent_in, scene.innocent_out);
    assert_eq!(DropReason::ReceiverStuck.class().name(), "stuck");
    // The first frame that leaves ends it at once.
    scene.members = false;
    scene.holds = [None; 2];
    scene.culprit_takes = 1_000;
    scene.step();
    let before = scene.drops(DropReason::ReceiverStuck);
    scene.run(Nanos::from_millis(20));
    assert_eq!(scene.drops(DropReason::ReceiverStuck), before);
    assert!(scene.culprit_out > 20 * 20 * 8 - 100, "{}", scene.culprit_out);
    scene.world.drain(|_| {});
}

#[test]
fn wire_pause_without_sender_hold_stays_within_patience() {
    let mut scene = Scene::new(512, Hold::Forever);
    scene.members = false;
    scene.run(Nanos::from_millis(300));
    assert!(scene.paused_max <= Nanos(FOUND_MAX.0 * 2), "{:?}", scene.paused_max);
    let before = scene.innocent_in;
    scene.run(Nanos::from_millis(300));
    assert_eq!(
        scene.innocent_in - before,
        300 * 20 * 8,
        "beyond the reserve it ends, and waits not"
    );
    assert!(scene.drops(DropReason::ReceiverStuck) > 1_000);
    scene.world.drain(|_| {});
}

#[test]
fn slow_receiver_keeps_rate_without_drop_or_pause() {
    let mut scene = Scene::new(2_048, Hold::For(HOLD));
    // A frame in each step: an eighth of the load.
    scene.culprit_takes = 1;
    scene.run(Nanos::from_millis(50));
    let before = (scene.innocent_in, scene.culprit_out);
    scene.paused_max = Nanos::ZERO;
    scene.run(Nanos::from_millis(2_000));
    assert_eq!(scene.innocent_in - before.0, 2_000 * 20 * 8);
    assert_eq!(scene.paused_max, Nanos::ZERO);
    assert_eq!(scene.culprit_out - before.1, 2_000 * 20, "its own rate, to the frame");
    assert_eq!(scene.drops(DropReason::ReceiverStuck), 0);
    assert_eq!(scene.isolated(), 1);
    scene.world.drain(|_| {});
}

#[test]
fn full_shared_buffer_keeps_room_for_other_priorities() {
    let mut config = host(64, Hold::Forever, &[2]);
    config.pool.pair_share = 1;
    for port in [INNOCENT, SENDER] {
        config.ports[usize::from(port)].input = limit(512, 2_000_000);
    }
    let mut world = World::new(&config, 1);
    world.at_port(address(0, CULPRIT), CULPRIT.into());
    world.log();
    let other = Tenant::new(address(0, CULPRIT), SRC, 5 << 3, SIZE);
    let mut pooled = Vec::new();
    for (sender, frame) in [(INNOCENT, to(CULPRIT)), (SENDER, to(CULPRIT)), (SENDER, other)] {
        for _ in 0..4 {
            let bufs = (0..60).map(|_| world.tenant(sender.into(), &frame)).collect();
            world.receive(InputId(sender.into()), bufs);
        }
        world.copy_to_shared(InputId(sender.into()), usize::MAX);
        world.reclaim_all();
        pooled.push(world.switch.pool_used()[0]);
    }
    // Of 256 frames each of the other seven priorities is sure of 16.
    assert_eq!(pooled[..2], [128, 256 - 7 * 16]);
    assert!(pooled[2] > pooled[1], "another priority finds its room");
    world.drain(|_| {});
}

/// Sends broadcasts from a port. Returns the number that came out at the innocent one.
fn shout(world: &mut World, frames: &[Tenant], input: usize, tunnel: Option<u16>) -> usize {
    let bufs = frames.iter().map(|frame| match tunnel {
        Some(tunnel) => world.tunnel_frame(input, tunnel, frame),
        None => world.tenant(input, frame),
    });
    let bufs: Vec<_> = bufs.collect();
    world.receive(InputId::from_index(input), bufs);
    world.copy_to_shared(InputId::from_index(input), usize::MAX);
    for port in 0..=WIRE {
        if port != usize::from(CULPRIT) {
            world.transmit(port_of(port), || true);
        }
    }
    world.reclaim_all();
    world.log().iter().filter(|sent| sent.port == usize::from(INNOCENT)).count()
}

#[test]
fn broadcasts_over_budget_dropped_other_sources_unaffected() {
    let mut config = host(64, Hold::Forever, &[2]);
    config.isolation.as_mut().unwrap().broadcasts_per_second = 100;
    config.pool.replicated_frames = 1_000;
    let mut world = World::new(&config, 1);
    world.now = Nanos::from_millis(1_000);
    world.log();
    let frame = Tenant::new(Mac::BROADCAST, SRC, PAUSED << 3, 100);
    let mut sum = 0;
    for _ in 0..20 {
        sum += shout(&mut world, std::slice::from_ref(&frame), SENDER.into(), None);
    }
    // A tenth of a second's worth at once.
    assert_eq!(sum, 11);
    assert_eq!(dropped(&world, DropReason::StormLimit), 9);
    assert_eq!(shout(&mut world, std::slice::from_ref(&frame), WIRE, Some(0)), 1);
    let multicast = Tenant::new(Mac([1, 0, 0x5e, 0, 0, 1]), SRC, PAUSED << 3, 100);
    assert_eq!(shout(&mut world, &[multicast], SENDER.into(), None), 1);
    world.now = world.now.after(Nanos::from_millis(10));
    assert_eq!(shout(&mut world, std::slice::from_ref(&frame), SENDER.into(), None), 1);
    world.drain(|_| {});
}

#[test]
fn broadcast_with_stuck_receiver_still_reaches_others() {
    let mut config = host(64, Hold::Forever, &[]);
    config.pool.replicated_frames = 16;
    config.pool.copies_per_group = 16;
    let mut world = World::new(&config, 1);
    world.log();
    let frame = Tenant::new(Mac::BROADCAST, SRC, PAUSED << 3, 100);
    let mut came = 0;
    for _ in 0..40 {
        world.now = world.now.after(Nanos::from_millis(1));
        came += shout(&mut world, std::slice::from_ref(&frame), SENDER.into(), None);
        world.advance();
    }
    assert!(came >= 30, "{came} of 40 reach the innocent");
    assert_eq!(world.switch.isolated().count(), 1);
    world.drain(|_| {});
}

#[test]
fn unknown_flood_leaves_miss_places_to_other_ports() {
    let config = host(64, Hold::Forever, &[2]);
    let mut world = World::new(&config, 1);
    world.log();
    let places = usize::from(config.unresolved.destinations);
    for n in 0..60 {
        if world.switch.window(InputId(SENDER.into())).frames > 0 {
            send(&mut world, SENDER, 100 + n, 1);
        }
        let buf = world.tunnel_frame(WIRE, 0, &to(180 + n % 40));
        assert!(world.switch.window(InputId::from_index(WIRE)).frames > 0, "the wire stays open");
        world.receive(InputId::from_index(WIRE), vec![buf]);
    }
    world.notices();
    let waiting = world.misses.len();
    assert!(waiting < places, "{waiting} of {places}");
    // Another port still finds a place, and its miss is reported at once.
    let before = world.misses.len();
    send(&mut world, INNOCENT, 90, 1);
    world.notices();
    assert_eq!(world.misses.len(), before + 1);
    world.drain(|_| {});
}

/// Returns a sender's host, whose port [`SENDER`] has frames for two destinations behind a tunnel.
fn sending_host() -> World {
    let mut world = World::new(&host(64, Hold::Forever, &[2, 3]), 1);
    for destination in [10, 11] {
        world.at_tunnel(address(0, destination), 0);
    }
    world.log();
    world
}

fn hold(world: &mut World, destination: u8, held: u8, stuck: u8) -> Result<(), CommandError> {
    let (held, stuck) = (PriorityMask(held), PriorityMask(stuck));
    let (mac, tunnel) = (address(0, destination), TunnelId(0));
    world.switch.command(world.now, Command::Hold { vnet: VnetId(0), mac, tunnel, held, stuck })
}

fn send(world: &mut World, from: u8, destination: u8, count: usize) {
    let bufs = (0..count).map(|_| world.tenant(from.into(), &to(destination))).collect();
    world.receive(InputId(from.into()), bufs);
}

fn leaves(world: &mut World) -> usize {
    world.transmit(port_of(WIRE), || true);
    world.reclaim_all();
    world.log().len()
}

#[test]
fn held_destination_waits_in_sender_input_others_pass() {
    let mut world = sending_host();
    hold(&mut world, 10, 1 << PAUSED, 0).unwrap();
    send(&mut world, SENDER, 10, 40);
    assert!(!world.switch.window(InputId(SENDER.into())).needs_copy, "it has no claim on the pool");
    send(&mut world, SENDER, 11, 5);
    send(&mut world, INNOCENT, 11, 5);
    assert_eq!(leaves(&mut world), 10);
    // Another priority of the same destination is not held.
    let other = Tenant::new(address(0, 10), SRC, 5 << 3, SIZE);
    let buf = world.tenant(SENDER.into(), &other);
    world.receive(InputId(SENDER.into()), vec![buf]);
    assert_eq!(leaves(&mut world), 1);
    hold(&mut world, 10, 0, 0).unwrap();
    send(&mut world, SENDER, 10, 3);
    // The oracle of the world checks that the order is kept.
    assert_eq!(leaves(&mut world), 43);
    world.check();
    world.drain(|_| {});
}

#[test]
fn hold_that_nobody_repeats_ends_with_its_lease() {
    let mut world = sending_host();
    hold(&mut world, 10, 1 << PAUSED, 0).unwrap();
    send(&mut world, SENDER, 10, 4);
    assert_eq!(world.switch.deadline(), Some(world.now.after(HOLD_LEASE)));
    world.now = world.now.after(Nanos(HOLD_LEASE.0 - 1));
    world.advance();
    assert_eq!(leaves(&mut world), 0);
    world.now = world.now.after(Nanos(1));
    world.advance();
    assert_eq!(leaves(&mut world), 4);
    assert_eq!(world.switch.holds().count(), 0);
    world.drain(|_| {});
}

#[test]
fn stuck_destination_ends_what_waits_and_what_comes() {
    let mut world = sending_host();
    hold(&mut world, 10, 1 << PAUSED, 0).unwrap();
    send(&mut world, SENDER, 10, 4);
    hold(&mut world, 10, 1 << PAUSED, 1 << PAUSED).unwrap();
    send(&mut world, SENDER, 10, 4);
    send(&mut world, SENDER, 11, 2);
    assert_eq!(leaves(&mut world), 2);
    assert_eq!(dropped(&world, DropReason::ReceiverStuck), 8);
    world.drain(|_| {});
}

#[test]
fn held_destination_that_moves_is_held_no_more() {
    let mut world = sending_host();
    hold(&mut world, 10, 1 << PAUSED, 0).unwrap();
    send(&mut world, SENDER, 10, 4);
    world.at_tunnel(address(0, 10), 1);
    assert_eq!(leaves(&mut world), 4);
    assert_eq!(world.switch.holds().count(), 0);
    world.drain(|_| {});
}

#[test]
fn no_more_is_held_than_there_are_places() {
    let mut world = sending_host();
    for destination in 10..14 {
        hold(&mut world, destination, 1, 0).unwrap();
    }
    assert_eq!(hold(&mut world, 20, 1, 0), Err(CommandError::TooManyHeld));
    hold(&mut world, 11, 0, 0).unwrap();
    hold(&mut world, 20, 1, 0).unwrap();
    world.drain(|_| {});
}

#[test]
fn long_paused_tunnel_loses_claim_on_shared_buffer() {
    let mut world = sending_host();
    let rate = RateLimit {
        rate: BitRate::from_mbps(1),
        catch_up: Nanos::from_micros(20_000),
        overhead: 24,
    };
    let mut config = host(1_024, Hold::Forever, &[2]);
    config.ports[WIRE].rate = Some(rate);
    world.drain(|_| {});
    let mut world = World::new(&config, 1);
    world.at_tunnel(address(0, 10), 0);
    world.log();
    let input = InputId(SENDER.into());
    for _ in 0..2_000 {
        world.now = world.now.after(STEP);
        if world.switch.window(input).frames > 0 {
            send(&mut world, SENDER, 10, 1);
        }
        if world.switch.window(input).needs_copy {
            world.copy_to_shared(input, usize::MAX);
        }
        world.advance();
        world.transmit(port_of(WIRE), || true);
        world.reclaim_all();
    }
    world.check();
    assert_eq!(world.switch.isolated().count(), 1);
    let [from_local, _] = world.switch.pool_used();
    assert_eq!(from_local, 0, "what it had there is in the reserve, and no more comes");
    let _ = world.log();
    world.drain(|_| {});
}

/// A switch of three cables of 1 Gbit/s that pause their hosts, and its step: two hosts send to the
/// third one as much as they may.
struct Incast {
    world: World,
    sent: usize,
    /// Frames that the receiver's driver takes in a step.
    takes: u32,
    /// Frames that each sender gives in a step.
    gives: usize,
}

impl Incast {
    fn new(has_rate: bool) -> Self {
        let limit_1g = RateLimit {
            rate: BitRate::from_gbps(1),
            catch_up: Nanos::from_micros(100),
            overhead: 24,
        };
        let cable = || PortConfig { rate: has_rate.then_some(limit_1g), ..pausing(access(0)) };
        let mut config = config(vec![cable(), cable(), cable()]);
        for port in &mut config.ports {
            // More than a cable carries in three times `PATIENCE`.
            port.input = limit(16_384, 12_000_000);
            let InputFull::Pause(pause) = &mut port.input_full else { unreachable!() };
            (pause.xoff, pause.xon) = (ByteCount(8_000_000), ByteCount(7_000_000));
        }
        let reserve = limit(64, 128_000);
        config.isolation = Some(IsolationConfig::new(reserve));
        let mut world = World::new(&config, 1);
        (0..3).for_each(|port| world.at_port(address(0, port), port.into()));
        world.log();
        Self { world, sent: 0, takes: if has_rate { u32::MAX } else { 6 }, gives: 12 }
    }

    fn step(&mut self) {
        self.world.now = self.world.now.after(STEP);
        for host in 1..3 {
            if !self.world.switch.pause_state(self.world.now, port_of(host), priority()).pausing {
                let bufs = (0..self.gives).map(|_| self.world.tenant(host, &to(0))).collect();
                self.world.receive(InputId::from_index(host), bufs);
            }
        }
        self.world.advance();
        (1..3).for_each(|port| _ = self.world.transmit(port_of(port), || true));
        let mut left = self.takes;
        self.world.transmit(port_of(0), || {
            let takes = left > 0;
            left = left.saturating_sub(1);
            takes
        });
        self.world.reclaim_all();
        self.sent += self.world.log().len();
    }

    fn run(&mut self, ms: u64) {
        (0..ms * 20).for_each(|_| self.step());
        self.world.check();
    }

    fn isolated(&self) -> usize {
        self.world.switch.isolated().count()
    }
}

#[test]
fn overloaded_cable_pauses_senders_without_being_isolated() {
    let mut incast = Incast::new(true);
    incast.run(200);
    let pausing =
        |port| incast.world.switch.pause_state(incast.world.now, port_of(port), priority());
    assert!((1..3).any(|port| pausing(port).xoff_sent > 0), "the senders were paused");
    assert_eq!(incast.isolated(), 0);
    assert_eq!(dropped(&incast.world, DropReason::ReceiverStuck), 0);
    let before = incast.sent;
    incast.run(100);
    // 1 Gbit/s in 100 ms, of frames of 1,000 bytes and their overhead.
    assert!(incast.sent - before > 11_000, "{} frames", incast.sent - before);
}

#[test]
fn overloaded_cable_whose_neighbour_pauses_it_is_isolated() {
    let mut incast = Incast::new(true);
    incast.run(200);
    let mut quanta = [0; 8];
    quanta[usize::from(PAUSED)] = u16::MAX;
    let begin = incast.world.now;
    while incast.isolated() == 0 {
        incast.world.hear(InputId::from_index(0), &pfc(1 << PAUSED, quanta));
        incast.step();
        assert!(incast.world.now.since(begin) <= Nanos(2 * FOUND_MAX.0), "not isolated");
    }
    incast.world.check();
}

#[test]
fn overloaded_cable_without_rate_isolated_only_when_stopped() {
    let mut incast = Incast::new(false);
    incast.run(200);
    assert_eq!(incast.isolated(), 0);
    assert_eq!(dropped(&incast.world, DropReason::ReceiverStuck), 0);
    assert!(incast.sent > 20_000, "{} frames", incast.sent);
    incast.takes = 0;
    incast.run(2 * FOUND_MAX.0 / 1_000_000);
    assert_eq!(incast.isolated(), 1, "nothing leaves");
}

#[test]
fn cable_isolated_for_pauses_free_when_they_end() {
    let mut incast = Incast::new(true);
    incast.run(200);
    let mut quanta = [0; 8];
    quanta[usize::from(PAUSED)] = u16::MAX;
    while incast.isolated() == 0 {
        incast.world.hear(InputId::from_index(0), &pfc(1 << PAUSED, quanta));
        incast.step();
    }
    incast.world.hear(InputId::from_index(0), &pfc(1 << PAUSED, [0; 8]));
    // Its cable has too much to carry again: its senders are paused, and lose nothing.
    let before = dropped(&incast.world, DropReason::ReceiverStuck);
    incast.run(2 * PATIENCE.0 / 1_000_000);
    assert_eq!(incast.isolated(), 0);
    incast.run(100);
    assert_eq!(dropped(&incast.world, DropReason::ReceiverStuck), before);
    assert_eq!(incast.isolated(), 0);
}
