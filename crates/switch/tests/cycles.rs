//! Cyclic waits: receivers of several hosts that block each other. Each is found and isolated in
//! time, the wires between their hosts are free again, and frames are dropped only by the hold
//! contract.
//!
//! ```text
//!   host i:  RELAY     what the flooder of host i - 1 sends; it may read only while it can send
//!            INNOCENT  talks to the innocent one of host i + 1, and reads all that comes
//!            FLOODER   floods the relay of host i + 1, and reads what relays send to it
//!            WIRE ═════ a physical switch with a cable to each host
//! ```
//!
//! Two hosts face each other; three are a ring. Hosts and switch are switches of their own, which
//! apply each other's pauses.

mod harness;

use std::collections::{BTreeMap, VecDeque};

use harness::config::{access, config, limit, pausing, underlay, with_tunnels};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::{Sent, World};
use sluice_base::{DropReason, InputId, Mac, Nanos, PortId, Priority, TunnelId, VnetId};
use sluice_switch::{Command, Hold, IsolationConfig, ReceiverState, SwitchConfig};

const RELAY: u8 = 0;
const INNOCENT: u8 = 1;
const FLOODER: u8 = 2;
const WIRE: usize = 3;
const PAUSED: u8 = 3;
const STEP: Nanos = Nanos::from_micros(50);
const PATIENCE: Nanos = Nanos::from_millis(10);
/// Time within which a closed cycle is found and isolated, and affects no other sender.
const FOUND_MAX: Nanos = Nanos::from_millis(20);
/// Delay of a message from one host to another.
const MESSAGE: Nanos = Nanos::from_millis(1);
/// Interval at which a hold is repeated.
const REPEATED: Nanos = Nanos::from_millis(500);
const HOLD: Nanos = Nanos::from_millis(60);
/// Time until no frame waits after all senders stop, and the time of probation after it.
const EMPTY_MAX: Nanos = Nanos::from_millis(20);
const HEALED_MAX: Nanos = Nanos::from_millis(1_100);
const PROBATION_STEP: Nanos = Nanos::from_millis(1);
/// Time until a relay that reads nothing has filled all buffers.
const FILLED: Nanos = Nanos::from_millis(5);
const SIZE: u32 = 1_000;
/// Frames in a step: of a cable, of a flooder, of an innocent host.
const CABLE_RATE: usize = 24;
const FLOOD_RATE: usize = 8;
const INNOCENT_RATE: usize = 2;
/// Frames that a relay has read and not sent, at most.
const OWED_MAX: usize = 8;
/// Frames between two audits: an audit takes far longer than a frame.
const LOOKS_EVERY: u64 = 500;
/// Frames that may be in front of a switch that pauses its cable.
const UNDER_WAY_MAX: usize = 4 * CABLE_RATE;

fn priority() -> Priority {
    Priority::new(PAUSED).unwrap()
}

fn port_of(port: usize) -> PortId {
    PortId::from_index(port)
}

fn input_of(port: u8) -> InputId {
    InputId(port.into())
}

fn isolation(patience: Nanos) -> IsolationConfig {
    IsolationConfig { patience, ..IsolationConfig::new(limit(2_048, 4_096_000)) }
}

fn host(hold: Hold, isolates: bool, others: usize) -> SwitchConfig {
    let mut ports = vec![access(0), access(0), access(0), pausing(underlay(1))];
    ports.iter_mut().for_each(|port| port.hold = [hold; 8]);
    // A machine that is stuck soon has no room for the frames that it wants to send.
    ports[usize::from(RELAY)].input = limit(8, 16_000);
    let remotes: Vec<u8> = (2..).take(others).collect();
    let mut config = with_tunnels(config(ports), u16::try_from(WIRE).unwrap(), &remotes);
    config.pool.from_underlay = limit(256, 1_000_000);
    config.pool.from_local = limit(32, 64_000);
    config.isolation = isolates.then(|| isolation(PATIENCE));
    config
}

/// Returns the physical switch: as patient as `role = "switch"` is.
fn cables(isolates: bool, legs: usize) -> SwitchConfig {
    let mut config = config((0..legs).map(|_| pausing(access(0))).collect());
    config.pool.from_local = limit(256, 1_000_000);
    config.isolation = isolates.then(|| isolation(Nanos(3 * PATIENCE.0)));
    config
}

/// Condition under which a relay reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Never,
    /// It forwards its frames to this port of the next host, and stops reading while it cannot
    /// send.
    AsItSends(u8),
    /// It reads all frames, for itself.
    All,
}

struct Host {
    world: World,
    /// Frames from the cable that are not in the switch yet: the tunnel and the destination.
    ring: VecDeque<(u16, Mac)>,
    told: ReceiverState,
    told_at: Nanos,
    reads: Reads,
    /// True if the innocent one and the flooder send.
    sends: bool,
    owed: usize,
    /// Frames that the relay read, frames that the flooder got from a relay, and frames that the
    /// innocent host sent and got.
    relay_read: usize,
    sunk: usize,
    innocent_sent: usize,
    innocent_came: usize,
}

/// A hold under way: its time of arrival, host, address and tunnel.
struct Message {
    at: Nanos,
    host: usize,
    tunnel: TunnelId,
    mac: Mac,
    state: ReceiverState,
}

struct Fabric {
    hosts: Vec<Host>,
    cables: World,
    /// Frames on each cable to the physical switch: target host and destination.
    legs: Vec<VecDeque<(usize, Mac)>>,
    /// Frames in the physical switch: source host and destination.
    carried: BTreeMap<u64, (usize, Mac)>,
    messages: Vec<Message>,
}

impl Fabric {
    fn new(count: usize, hold: Hold, isolates: bool, reads: Reads) -> Self {
        let hosts = (0..count).map(|at| {
            let mut world = World::new(&host(hold, isolates, count - 1), 1);
            world.looks_every = LOOKS_EVERY;
            for port in 0..3 {
                world.at_port(mac(at, port), port.into());
                for other in (0..count).filter(|other| *other != at) {
                    world.at_tunnel(mac(other, port), tunnel_to(at, other));
                }
            }
            world.log();
            Host {
                world,
                ring: VecDeque::new(),
                told: ReceiverState::default(),
                told_at: Nanos::ZERO,
                reads,
                sends: true,
                owed: 0,
                relay_read: 0,
                sunk: 0,
                innocent_sent: 0,
                innocent_came: 0,
            }
        });
        let hosts = hosts.collect();
        let mut cables = World::new(&cables(isolates, count), 1);
        cables.looks_every = LOOKS_EVERY;
        (0..count).for_each(|at| cables.at_port(leg_mac(at), at));
        cables.log();
        let legs = (0..count).map(|_| VecDeque::new()).collect();
        Self { hosts, cables, legs, carried: BTreeMap::new(), messages: Vec::new() }
    }

    fn now(&self) -> Nanos {
        self.cables.now
    }

    fn step(&mut self) {
        self.step_by(STEP);
    }

    fn step_by(&mut self, span: Nanos) {
        let now = self.now().after(span);
        self.cables.now = now;
        self.hosts.iter_mut().for_each(|host| host.world.now = now);
        self.deliver_messages(now);
        for at in 0..self.hosts.len() {
            let next = (at + 1) % self.hosts.len();
            self.hosts[at].step(next, now);
            self.leave_host(at);
            self.tell(at, now);
        }
        self.step_cables();
    }

    /// Moves the frames that a host sent onto its cable.
    fn leave_host(&mut self, at: usize) {
        for Sent { port, info, bytes, tunnel, .. } in self.hosts[at].world.log() {
            match (port, info, tunnel) {
                (WIRE, None, _) => self.cables.hear(InputId::from_index(at), &bytes),
                (WIRE, Some(info), Some(tunnel)) => {
                    self.legs[at].push_back((host_behind(at, tunnel), info.dst));
                }
                (_, Some(info), _) if port == usize::from(INNOCENT) => {
                    assert_eq!(info.dst, mac(at, INNOCENT));
                    self.hosts[at].innocent_came += 1;
                }
                (_, Some(_), _) if port == usize::from(FLOODER) => self.hosts[at].sunk += 1,
                _ => {}
            }
        }
    }

    fn step_cables(&mut self) {
        let world = &mut self.cables;
        for (at, leg) in self.legs.iter_mut().enumerate() {
            let input = InputId::from_index(at);
            let mut bufs = Vec::new();
            for (to, dst) in take(leg, world, input) {
                let outer = Tenant::new(leg_mac(to), leg_mac(at), PAUSED << 3, SIZE + 50);
                let buf = world.tenant(at, &outer);
                self.carried.insert(buf.info.id, (at, dst));
                bufs.push(buf);
            }
            world.receive(input, bufs);
            copy_to_shared(world, input);
        }
        world.advance();
        for at in 0..self.legs.len() {
            transmit(world, at, CABLE_RATE);
        }
        world.reclaim_all();
        for Sent { port, info, bytes, .. } in world.log() {
            let host = &mut self.hosts[port];
            let Some(info) = info else {
                host.world.hear(InputId::from_index(WIRE), &bytes);
                continue;
            };
            let (from, dst) = self.carried.remove(&info.id).expect("it came in");
            host.ring.push_back((tunnel_to(port, from), dst));
            assert!(host.ring.len() <= UNDER_WAY_MAX, "the switch sends on while it is paused");
        }
    }

    /// Asks the hosts that send to a relay to hold it, or to release it.
    fn tell(&mut self, at: usize, now: Nanos) {
        let host = &mut self.hosts[at];
        let port = port_of(RELAY.into());
        let state = host.world.switch.receiver(port);
        let is_due = !state.held.is_empty() && now.since(host.told_at) >= REPEATED;
        let told = host.told;
        if (state.held, state.stuck) == (told.held, told.stuck) && !is_due {
            return;
        }
        let senders: Vec<TunnelId> = host.world.switch.senders(port).collect();
        (host.told, host.told_at) = (state, now);
        for sender in senders {
            let other = host_behind(at, sender.0);
            let tunnel = TunnelId(tunnel_to(other, at));
            let (at, mac) = (now.after(MESSAGE), mac(at, RELAY));
            self.messages.push(Message { at, host: other, tunnel, mac, state });
        }
    }

    fn deliver_messages(&mut self, now: Nanos) {
        for message in self.messages.extract_if(.., |message| message.at <= now) {
            let Message { host, tunnel, mac, state, .. } = message;
            let (held, stuck) = (state.held, state.stuck);
            let hold = Command::Hold { vnet: VnetId(0), mac, tunnel, held, stuck };
            self.hosts[host].world.command(hold);
        }
    }

    fn run(&mut self, span: Nanos) {
        let end = self.now().after(span);
        while self.now() < end {
            self.step();
        }
        self.check();
    }

    /// Runs until a condition holds. Returns the time that it took.
    fn until(&mut self, most: Nanos, mut is_so: impl FnMut(&Self) -> bool) -> Nanos {
        let begin = self.now();
        while !is_so(self) {
            self.step();
            assert!(self.now().since(begin) <= most, "not within {most:?}");
        }
        self.check();
        self.now().since(begin)
    }

    fn check(&self) {
        self.hosts.iter().for_each(|host| host.world.check());
        self.cables.check();
    }

    fn set(&mut self, reads: Reads) {
        self.hosts.iter_mut().for_each(|host| host.reads = reads);
    }

    /// Returns true if every cable is paused both ways: the cycle is closed.
    fn is_closed(&self) -> bool {
        let legs = 0..self.hosts.len();
        legs.into_iter().all(|leg| is_pausing(&self.cables, leg))
            && self.hosts.iter().all(|host| is_pausing(&host.world, WIRE))
    }

    /// Returns true if no switch pauses another.
    fn is_free(&self) -> bool {
        let legs = 0..self.hosts.len();
        !legs.into_iter().any(|leg| is_pausing(&self.cables, leg))
            && !self.hosts.iter().any(|host| is_pausing(&host.world, WIRE))
    }

    /// Returns true if every relay is isolated, and nothing else is.
    fn is_named(&self) -> bool {
        let mut hosts = self.hosts.iter().map(|host| &host.world.switch);
        hosts.all(|switch| {
            let all: Vec<_> = switch.isolated().map(|one| (one.port, one.priority)).collect();
            all == [(port_of(RELAY.into()), priority())]
        })
    }

    /// Checks that the stuck receivers are found and isolated, and the wires are free again.
    /// Returns once the time for that is over.
    fn is_found_in_time(&mut self) {
        let end = self.now().after(FOUND_MAX);
        self.until(FOUND_MAX, Self::is_named);
        self.until(end.since(self.now()), Self::is_free);
        self.run(end.since(self.now()));
        assert!(self.is_named() && self.is_free());
        let count = self.hosts.len();
        for (at, host) in self.hosts.iter().enumerate() {
            let senders: Vec<_> = host.world.switch.senders(port_of(RELAY.into())).collect();
            let before = (at + count - 1) % count;
            assert!(senders.contains(&TunnelId(tunnel_to(at, before))), "who waits: {senders:?}");
        }
    }

    /// Runs for a time, and checks that the innocent hosts send and get all their frames.
    fn innocents_go_on(&mut self, span: Nanos) {
        let read = |fabric: &Self| {
            let rows = fabric.hosts.iter().map(|host| (host.innocent_sent, host.innocent_came));
            rows.collect::<Vec<_>>()
        };
        let before = read(self);
        self.run(span);
        let wanted = usize::try_from(span.0 / STEP.0).unwrap() * INNOCENT_RATE;
        for (before, after) in before.into_iter().zip(read(self)) {
            assert_eq!(after.0 - before.0, wanted, "an innocent one is held");
            let came = after.1 - before.1;
            assert!(came + 64 >= wanted, "{came} of {wanted}");
        }
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.hosts.iter().map(|host| dropped(&host.world, reason)).sum()
    }

    fn dropped_in_all(&self) -> u64 {
        let all = DropReason::ALL.iter();
        all.map(|reason| self.dropped(*reason) + dropped(&self.cables, *reason)).sum()
    }

    /// Stops all senders and lets all read: all frames come out, and no receiver is isolated
    /// afterwards.
    fn drain(&mut self) {
        self.set(Reads::All);
        for host in &mut self.hosts {
            (host.owed, host.sends) = (0, false);
        }
        self.run(EMPTY_MAX);
        let healed = self.now().after(HEALED_MAX);
        while self.now() < healed {
            self.step_by(PROBATION_STEP);
        }
        self.check();
        for host in &mut self.hosts {
            assert_eq!(host.world.switch.isolated().count(), 0, "healed");
            assert_eq!(host.world.switch.holds().count(), 0, "let go");
            host.world.check_empty();
        }
        self.cables.check_empty();
        let sum = |of: fn(&Host) -> usize| self.hosts.iter().map(of).sum::<usize>();
        assert_eq!(sum(|host| host.innocent_came), sum(|host| host.innocent_sent));
    }
}

impl Host {
    fn step(&mut self, next: usize, now: Nanos) {
        let wire = InputId::from_index(WIRE);
        copy_to_shared(&mut self.world, wire);
        let mut bufs = Vec::new();
        for (tunnel, dst) in take(&mut self.ring, &mut self.world, wire) {
            let frame = Tenant::new(dst, leg_mac(0), PAUSED << 3, SIZE);
            bufs.push(self.world.tunnel_frame(WIRE, tunnel, &frame));
        }
        self.world.receive(wire, bufs);
        copy_to_shared(&mut self.world, wire);
        if self.sends {
            self.innocent_sent += self.send(INNOCENT, mac(next, INNOCENT), INNOCENT_RATE);
            self.send(FLOODER, mac(next, RELAY), FLOOD_RATE);
        }
        if let Reads::AsItSends(to) = self.reads {
            self.owed -= self.send(RELAY, mac(next, to), self.owed);
        }
        assert_eq!(now, self.world.now);
        self.world.advance();
        transmit(&mut self.world, WIRE, CABLE_RATE);
        for port in [INNOCENT, FLOODER] {
            self.world.transmit(port_of(port.into()), || true);
        }
        self.read_as_relay();
        self.world.reclaim_all();
    }

    fn read_as_relay(&mut self) {
        let mut room = match self.reads {
            Reads::Never => 0,
            Reads::AsItSends(_) => OWED_MAX - self.owed,
            Reads::All => usize::MAX,
        };
        let mut read = 0;
        self.world.transmit(port_of(RELAY.into()), || {
            let takes = room > 0;
            room = room.saturating_sub(1);
            read += usize::from(takes);
            takes
        });
        self.relay_read += read;
        self.owed += if matches!(self.reads, Reads::AsItSends(_)) { read } else { 0 };
    }

    /// Sends as many frames as there is room for. Returns their number.
    fn send(&mut self, port: u8, to: Mac, count: usize) -> usize {
        let input = input_of(port);
        copy_to_shared(&mut self.world, input);
        let count = count.min(self.world.switch.window(input).frames as usize);
        let frame = Tenant::new(to, leg_mac(0), PAUSED << 3, SIZE);
        let bufs = (0..count).map(|_| self.world.tenant(port.into(), &frame)).collect();
        self.world.receive(input, bufs)
    }
}

fn mac(host: usize, port: u8) -> Mac {
    address(0, u8::try_from(host * 16).unwrap() + port + 16)
}

fn leg_mac(host: usize) -> Mac {
    Mac([2, 0xca, 0, 0, 0, u8::try_from(host).unwrap()])
}

/// Returns the tunnel of one host to another.
fn tunnel_to(at: usize, other: usize) -> u16 {
    u16::try_from(if other > at { other - 1 } else { other }).unwrap()
}

fn host_behind(at: usize, tunnel: u16) -> usize {
    let tunnel = usize::from(tunnel);
    if tunnel >= at { tunnel + 1 } else { tunnel }
}

/// Takes the frames in front of a switch for which it has room.
fn take<T>(ring: &mut VecDeque<T>, world: &mut World, input: InputId) -> Vec<T> {
    let window = world.switch.window(input);
    let is_closed = window.closed.contains(priority());
    let count = if is_closed { 0 } else { ring.len().min(window.frames as usize) };
    ring.drain(..count).collect()
}

fn copy_to_shared(world: &mut World, input: InputId) {
    if world.switch.window(input).needs_copy {
        world.copy_to_shared(input, usize::MAX);
    }
}

fn transmit(world: &mut World, port: usize, mut room: usize) {
    world.transmit(port_of(port), || {
        let takes = room > 0;
        room = room.saturating_sub(1);
        takes
    });
}

fn is_pausing(world: &World, port: usize) -> bool {
    world.switch.pause_state(world.now, port_of(port), priority()).pausing
}

fn dropped(world: &World, reason: DropReason) -> u64 {
    let of = |input| {
        let drops = Priority::all().map(|p| world.switch.dropped(input, p, reason).frames);
        drops.sum::<u64>()
    };
    (0..=world.switch.pool_input().index()).map(InputId::from_index).map(of).sum()
}

/// Sets up relays that read only while they can send: their frames go over a wire that is paused
/// for the frames of the next relay.
fn closed_cycle(count: usize, hold: Hold, isolates: bool, reads: Reads) -> Fabric {
    let mut fabric = Fabric::new(count, hold, isolates, Reads::Never);
    fabric.until(FILLED, Fabric::is_closed);
    fabric.set(reads);
    fabric
}

#[test]
fn paused_wire_cycle_without_isolation_deadlocks_all() {
    for count in [2, 3] {
        let mut fabric = closed_cycle(count, Hold::Forever, false, Reads::AsItSends(FLOODER));
        fabric.run(Nanos::from_millis(20));
        let read = |fabric: &Fabric| {
            let rows = fabric.hosts.iter().map(|h| (h.relay_read, h.sunk, h.innocent_came));
            rows.collect::<Vec<_>>()
        };
        let before = read(&fabric);
        fabric.run(Nanos::from_millis(100));
        assert_eq!(before, read(&fabric), "this is what isolation is for");
    }
}

#[test]
fn paused_wire_cycle_with_isolation_resolves_without_drop() {
    for count in [2, 3] {
        for hold in [Hold::Forever, Hold::For(HOLD)] {
            let mut fabric = closed_cycle(count, hold, true, Reads::AsItSends(FLOODER));
            fabric.is_found_in_time();
            let before: Vec<_> = fabric.hosts.iter().map(|host| host.sunk).collect();
            fabric.innocents_go_on(Nanos::from_millis(100));
            for (host, before) in fabric.hosts.iter().zip(before) {
                let sunk = host.sunk - before;
                assert!(sunk > 100 * 20, "a relay goes on, with a frame in each step: {sunk}");
            }
            assert_eq!(fabric.dropped_in_all(), 0);
            fabric.drain();
            assert_eq!(fabric.dropped_in_all(), 0);
        }
    }
}

#[test]
fn stuck_receiver_cycle_holds_only_its_own_senders() {
    for count in [2, 3] {
        let mut fabric = closed_cycle(count, Hold::Forever, true, Reads::Never);
        fabric.is_found_in_time();
        fabric.innocents_go_on(Nanos::from_millis(100));
        assert!(fabric.is_named() && fabric.is_free());
        assert_eq!(fabric.dropped_in_all(), 0, "senders hold it in time, and for ever");
        fabric.drain();
        assert_eq!(fabric.dropped_in_all(), 0);
    }
}

#[test]
fn stuck_receiver_cycle_past_hold_drops_own_frames() {
    for count in [2, 3] {
        let mut fabric = closed_cycle(count, Hold::For(HOLD), true, Reads::Never);
        fabric.is_found_in_time();
        fabric.innocents_go_on(Nanos(HOLD.0 / 2));
        assert_eq!(fabric.dropped_in_all(), 0, "not before");
        fabric.innocents_go_on(Nanos(HOLD.0 * 2));
        let lost = fabric.dropped(DropReason::ReceiverStuck);
        assert!(lost > 0);
        assert_eq!(fabric.dropped_in_all(), lost, "under its own reason, at hosts");
        fabric.drain();
    }
}

/// Each relay waits for the next one, in a cycle, which no bounded memory resolves. The cycle
/// affects only the relays, for as long as they may hold each other.
#[test]
fn relay_cycle_spares_innocent_ports_ends_after_hold() {
    for count in [2, 3] {
        for hold in [Hold::Forever, Hold::For(HOLD)] {
            let mut fabric = closed_cycle(count, hold, true, Reads::AsItSends(RELAY));
            fabric.is_found_in_time();
            let span = Nanos(HOLD.0 / 2);
            fabric.innocents_go_on(span);
            assert_eq!(fabric.dropped_in_all(), 0, "not before");
            fabric.innocents_go_on(Nanos(HOLD.0 * 2));
            let before: Vec<_> = fabric.hosts.iter().map(|host| host.relay_read).collect();
            fabric.innocents_go_on(Nanos(HOLD.0 * 2));
            let lost = fabric.dropped(DropReason::ReceiverStuck);
            assert_eq!(fabric.dropped_in_all(), lost, "under its own reason, at hosts");
            let reads = fabric.hosts.iter().zip(before).map(|(host, was)| host.relay_read > was);
            match hold {
                Hold::Forever => assert_eq!(lost, 0, "held for ever"),
                Hold::For(_) => assert!(reads.into_iter().all(|reads| reads), "they move again"),
            }
            fabric.drain();
        }
    }
}
