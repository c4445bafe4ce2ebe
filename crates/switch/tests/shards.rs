//! Several switches that share the ports of a host, with the handoff between them: the promises of
//! one switch hold for all of them together.

mod harness;

use std::collections::{BTreeMap, VecDeque};

use harness::config::{
    access, config, limit, next_hop, pick, underlay, underlay_mac, vtep, with_tunnels,
};
use harness::frames::{Outer, Tenant, in_vxlan};
use sluice_base::{
    BitRate, Buf, DropReason, InputId, Mac, Nanos, PortId, Priority, Prng, TunnelId, VnetId,
};
use sluice_switch::{
    Binding, BoundIps, ClassConfig, Command, Destination, Egress, Handoff, HandoffSink, InputFull,
    PlaceState, RateLimit, RemoteRef, Service, Sources, Switch, SwitchConfig, Taken, TunnelConfig,
};

const REFS_MAX: u16 = 4;
const ACCESS: usize = 6;
const UNDERLAY: usize = ACCESS;
const MOVABLE: [PortId; ACCESS] =
    [PortId(0), PortId(1), PortId(2), PortId(3), PortId(4), PortId(5)];

/// Size above which a frame is a super-frame, and the size of its segments.
const SUPER_FROM: u32 = 1_500;
const SEGMENT: u32 = 500;

/// A handle that knows its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    bytes: Vec<u8>,
    /// The switch that owns it, and its input, or `None` for its pool.
    home: (usize, Option<InputId>),
}

impl Buf for Frame {
    fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(Self::HEAD_SIZE_MAX)]
    }

    fn size(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap()
    }

    fn truncate(&mut self, size: u32) {
        self.bytes.truncate(size as usize);
    }

    fn segments(&self) -> u16 {
        u16::try_from(self.bytes.len().div_ceil(self.segment_size() as usize)).unwrap()
    }

    fn segment_size(&self) -> u32 {
        // A frame above the usual sizes of these tests is a super-frame.
        if self.size() > SUPER_FROM { SEGMENT } else { self.size() }
    }
}

/// Frames and handles between two switches, in one direction.
#[derive(Default)]
struct HandoffQueue {
    over: VecDeque<Handoff<Frame>>,
    back: VecDeque<(Frame, RemoteRef)>,
    most: usize,
}

struct Carrier<'a> {
    way: &'a mut HandoffQueue,
    pooled: &'a mut usize,
    from: usize,
}

impl HandoffSink<Frame> for Carrier<'_> {
    fn copy(&mut self, buf: &Frame) -> Option<Frame> {
        *self.pooled += 1;
        Some(Frame { bytes: buf.bytes.clone(), home: (self.from, None) })
    }

    fn take(&mut self, frame: Handoff<Frame>) {
        self.way.over.push_back(frame);
        self.way.most = self.way.most.max(self.way.over.len());
    }
}

fn mac(port: usize) -> Mac {
    Mac([2, 1, 0, 0, 0, u8::try_from(port).unwrap()])
}

const BEHIND_TUNNEL: Mac = Mac([2, 7, 0, 0, 0, 1]);

struct Shards {
    switches: Vec<Switch<Frame>>,
    owners: Vec<usize>,
    ways: BTreeMap<(usize, usize), HandoffQueue>,
    /// Handles of each (switch, input) that are out, and of each pool.
    out: BTreeMap<(usize, Option<InputId>), usize>,
    pooled: Vec<usize>,
    now: Nanos,
    sent: u32,
    /// Numbers of the frames that each port got, without outer headers, by (sender, priority).
    got: BTreeMap<(usize, usize, u8), Vec<u32>>,
    /// A port that is to migrate: it is not read, and no frame is handed over for it.
    held: Option<(usize, usize)>,
    moves: u32,
    /// Number of frames read at each port.
    reads: [u64; ACCESS],
    rng: Prng,
}

impl Shards {
    fn new(config: &SwitchConfig, owners: &[usize], count: usize, seed: u64) -> Self {
        let now = Nanos::from_millis(1);
        let make = |me| {
            let owners: Vec<_> = owners.iter().copied().map(Some).collect();
            let config = config.shard(&owners, &MOVABLE, count, me, REFS_MAX);
            Switch::new(&config, seed, now).unwrap()
        };
        let mut shards = Self {
            switches: (0..count).map(make).collect(),
            owners: owners.to_vec(),
            ways: BTreeMap::new(),
            out: BTreeMap::new(),
            pooled: vec![0; count],
            now,
            sent: 0,
            got: BTreeMap::new(),
            held: None,
            moves: 0,
            reads: [0; ACCESS],
            rng: Prng::new(seed),
        };
        for port in 0..ACCESS {
            shards.install(mac(port), Destination::Port(PortId::from_index(port)));
        }
        if owners.len() > UNDERLAY {
            shards.install(BEHIND_TUNNEL, Destination::Tunnel(TunnelId(0)));
        }
        shards
    }

    fn install(&mut self, mac: Mac, to: Destination) {
        for switch in &mut self.switches {
            let command = Command::Install { vnet: VnetId(0), mac, to };
            switch.command(self.now, command).unwrap();
        }
    }

    fn handoff_input(&self, me: usize, other: usize) -> InputId {
        self.switches[me].input(SwitchConfig::handoff_port(self.owners.len(), other), 0)
    }

    /// Reads one frame at a port, if its window is open.
    fn read(&mut self, port: usize, dst: Mac, priority: u8, size: u32) -> bool {
        let me = self.owners[port];
        let input = self.switches[me].input(PortId::from_index(port), 0);
        if self.switches[me].window(input).of_any().frames == 0 || self.is_held(port) {
            return false;
        }
        self.reads[port] += 1;
        let mut bytes = Tenant::new(dst, mac(port), priority << 3, size).bytes();
        self.sent += 1;
        bytes[44..48].copy_from_slice(&self.sent.to_be_bytes());
        bytes[48] = u8::try_from(port).unwrap();
        bytes[49] = priority;
        *self.out.entry((me, Some(input))).or_default() += 1;
        let frame = Frame { bytes, home: (me, Some(input)) };
        self.switches[me].receive_one(self.now, input, frame);
        self.copy_to_shared(me, input);
        true
    }

    fn copy_to_shared(&mut self, me: usize, input: InputId) {
        let Self { switches, out, pooled, .. } = self;
        if switches[me].window(input).of_any().needs_copy {
            switches[me].copy_to_shared(input, |buf| {
                *out.get_mut(&buf.home).unwrap() -= 1;
                pooled[me] += 1;
                Ok(Frame { home: (me, None), ..buf })
            });
        }
    }

    /// Lets a port send up to `most` frames, or hands them over.
    fn transmit(&mut self, port: usize, most: usize) {
        let me = self.owners[port];
        let got = &mut self.got;
        let mut room = most;
        let mut sink = |egress: &Egress<'_, Frame>| {
            let Some(buf) = egress.buf else { return Taken::All };
            if room == 0 {
                return Taken::No;
            }
            room -= 1;
            let bytes = &buf.bytes;
            let number = u32::from_be_bytes(bytes[44..48].try_into().unwrap());
            let key = (bytes[48].into(), port, bytes[49]);
            got.entry(key).or_default().push(number);
            Taken::All
        };
        self.switches[me].transmit(self.now, PortId::from_index(port), &mut sink);
    }

    fn is_held(&self, port: usize) -> bool {
        self.held.is_some_and(|(held, _)| held == port)
    }

    /// Begins, continues or aborts a port migration.
    fn move_on(&mut self) {
        let count = self.switches.len() as u64;
        let Some((port, to)) = self.held else {
            let (port, to) = (pick(&mut self.rng, ACCESS as u64), pick(&mut self.rng, count));
            self.held = (self.owners[port] != to).then_some((port, to));
            return;
        };
        let (from, id) = (self.owners[port], PortId::from_index(port));
        let remote: u32 = self.switches.iter().map(|switch| switch.remote_refs_to(id)).sum();
        if remote == 0 && self.switches[from].may_export_port(id) {
            let its = self.switches[from].export_port(id);
            self.switches[to].import_port(id, its);
            self.owners[port] = to;
            (self.held, self.moves) = (None, self.moves + 1);
        } else if self.rng.below(100) == 0 {
            self.held = None;
        }
    }

    fn hand_over(&mut self, from: usize, port: usize) {
        if self.is_held(port) {
            return;
        }
        let queue = self.ways.entry((from, self.owners[port])).or_default();
        let mut sink = Carrier { way: queue, pooled: &mut self.pooled[from], from };
        self.switches[from].hand_over(PortId::from_index(port), &mut sink);
    }

    /// Carries up to `most` frames across, and as many handles back.
    fn carry(&mut self, from: usize, to: usize, most: usize) {
        let input = self.handoff_input(to, from);
        let queue = self.ways.entry((from, to)).or_default();
        for _ in 0..most {
            let Some(frame) = queue.over.pop_front() else { break };
            self.switches[to].receive_handoff(input, frame);
        }
        while let Some(back) = self.switches[to].reclaim_handoff(input) {
            queue.back.push_back(back);
        }
        for _ in 0..most {
            let Some((buf, remote)) = queue.back.pop_front() else { break };
            if let Some(copied) = self.switches[from].handed_back(buf, remote) {
                assert_eq!(copied.home, (from, None));
                self.pooled[from] -= 1;
            }
        }
    }

    /// Revokes the handles of a port of `from` that `to` has. Frames that wait are copied. Returns
    /// the number of frames that ended.
    fn revoke(&mut self, from: usize, to: usize, port: usize) -> u32 {
        let input = self.handoff_input(to, from);
        let (queue, pooled) = (self.ways.entry((from, to)).or_default(), &mut self.pooled[to]);
        // Frames handed over before the revoke arrive before it.
        for frame in queue.over.drain(..) {
            self.switches[to].receive_handoff(input, frame);
        }
        let ended = self.switches[to].revoke(input, InputId::from_index(port), |buf, remote| {
            *pooled += 1;
            let copy = Frame { home: (to, None), ..buf.clone() };
            queue.back.push_back((buf, remote));
            Ok(copy)
        });
        self.carry(from, to, usize::MAX);
        ended
    }

    /// Takes back the handles of frames that ended, each by its owner.
    fn reclaim(&mut self, me: usize) {
        let inputs: Vec<InputId> = self.own_inputs(me).collect();
        for input in inputs {
            while let Some(buf) = self.switches[me].reclaim_one(input) {
                assert_eq!(buf.home, (me, Some(input)), "a handle came to another's driver");
                *self.out.get_mut(&buf.home).unwrap() -= 1;
            }
        }
        let pool = self.switches[me].pool_input();
        while let Some(buf) = self.switches[me].reclaim_one(pool) {
            assert_eq!(buf.home, (me, None));
            self.pooled[me] -= 1;
        }
    }

    fn own_inputs(&self, me: usize) -> impl Iterator<Item = InputId> + use<'_> {
        let own = (0..self.owners.len()).filter(move |port| self.owners[*port] == me);
        own.map(move |port| self.switches[me].input(PortId::from_index(port), 0))
    }

    fn check(&self) {
        for switch in &self.switches {
            assert!(switch.audit().is_closed(), "{:#?}", switch.audit());
        }
        for (port, reads) in self.reads.iter().enumerate() {
            let input = InputId::from_index(port);
            let counts = self.switches.iter().map(|switch| switch.received(input).frames);
            assert_eq!(counts.clone().sum::<u64>(), *reads, "port {port}");
            let own = self.switches[self.owners[port]].received(input).frames;
            assert_eq!(own, *reads, "the counts of port {port} went along");
        }
        let most = usize::from(REFS_MAX) * Priority::COUNT * self.owners.len();
        assert!(self.ways.values().all(|queue| queue.most <= most), "more is lent than may be");
    }

    /// Lets all frames out, and checks that every handle is back with its owner.
    fn drain(&mut self) {
        let count = self.switches.len();
        self.held = None;
        for _ in 0..2_000 {
            for from in 0..count {
                for port in 0..self.owners.len() {
                    if self.owners[port] != from {
                        self.hand_over(from, port);
                    }
                }
                for to in (0..count).filter(|to| *to != from) {
                    self.carry(from, to, usize::MAX);
                }
            }
            for port in 0..self.owners.len() {
                self.transmit(port, usize::MAX);
            }
            for me in 0..count {
                self.reclaim(me);
                for input in self.own_inputs(me).collect::<Vec<_>>() {
                    self.copy_to_shared(me, input);
                }
                self.switches[me].advance(self.now);
            }
            self.now = self.now.after(Nanos::from_micros(1));
        }
        self.check();
        assert!(self.out.values().all(|&count| count == 0), "handles are missing: {:?}", self.out);
        assert!(self.pooled.iter().all(|&count| count == 0), "of pools: {:?}", self.pooled);
    }

    /// Returns the dropped frames with their reasons.
    fn drops(&self) -> Vec<(usize, InputId, DropReason, u64)> {
        let mut drops = Vec::new();
        for (at, switch) in self.switches.iter().enumerate() {
            for row in switch.audit().rows {
                for &reason in DropReason::ALL {
                    let count = switch.dropped(row.input, row.priority, reason).frames;
                    if count > 0 {
                        drops.push((at, row.input, reason, count));
                    }
                }
            }
        }
        drops
    }

    fn dropped(&self) -> u64 {
        self.drops().iter().map(|drop| drop.3).sum()
    }

    fn delivered(&self) -> usize {
        self.got.values().map(Vec::len).sum()
    }
}

fn small(lossless: bool) -> SwitchConfig {
    let mut ports = vec![access(0); ACCESS];
    for port in &mut ports {
        port.rx_pause = false;
        port.input = limit(16, 200_000);
        port.output = limit(8, 200_000);
    }
    ports.push(underlay(1));
    let mut config = with_tunnels(config(ports), u16::try_from(UNDERLAY).unwrap(), &[2]);
    config.classes = [ClassConfig { service: Service::Weighted(1), lossless }; 8];
    // A copy beyond its share would be dropped (SPEC F1).
    (config.pool.copies_per_group, config.pool.replicated_frames) = (4_096, 4_096);
    config
}

/// Takes one random step.
fn step(shards: &mut Shards) {
    let count = shards.switches.len();
    let ports = shards.owners.len();
    let from: usize = pick(&mut shards.rng, count as u64);
    let to: usize = pick(&mut shards.rng, count as u64);
    let port: usize = pick(&mut shards.rng, ports as u64);
    match shards.rng.below(8) {
        0 | 1 => {
            let at: usize = pick(&mut shards.rng, ACCESS as u64);
            let dst = match shards.rng.below(10) {
                0 => Mac::BROADCAST,
                1 | 2 => BEHIND_TUNNEL,
                _ => mac(pick(&mut shards.rng, ACCESS as u64)),
            };
            let (priority, size) =
                (pick(&mut shards.rng, 3), 60 + pick::<u32>(&mut shards.rng, 900));
            if dst != mac(at) {
                shards.read(at, dst, priority, size);
            }
        }
        2 => {
            let most = pick(&mut shards.rng, 4);
            shards.transmit(port, most);
        }
        3 if shards.owners[port] != from => shards.hand_over(from, port),
        4 if from != to => {
            let most = pick(&mut shards.rng, 4);
            shards.carry(from, to, most);
        }
        5 => shards.move_on(),
        6 if from != to && shards.rng.below(8) == 0 => _ = shards.revoke(from, to, port),
        _ => shards.reclaim(from),
    }
}

#[test]
fn handoff_under_migration_neither_loses_nor_reorders() {
    let mut moves = 0;
    for seed in 0..60 {
        let mut rng = Prng::new(seed);
        let count = 2 + pick::<usize>(&mut rng, 3);
        let owners: Vec<usize> = (0..=UNDERLAY).map(|_| pick(&mut rng, count as u64)).collect();
        let mut config = small(true);
        // A revoked frame ends if the pool has no room for it.
        config.pool.from_local = limit(1_000, 2_000_000);
        let mut shards = Shards::new(&config, &owners, count, seed);
        for _ in 0..1_500 {
            step(&mut shards);
        }
        shards.check();
        shards.drain();
        assert_eq!(shards.drops(), [], "seed {seed}");
        assert!(shards.delivered() >= shards.sent as usize, "seed {seed}");
        for (key, numbers) in &shards.got {
            assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}: {key:?} {numbers:?}");
        }
        moves += shards.moves;
    }
    assert!(moves > 60, "{moves} moves");
}

#[test]
fn lossy_frames_at_full_output_counted_handles_returned() {
    let mut dropped = 0;
    for seed in 0..30 {
        let owners = [0, 0, 1, 1, 0, 1, 1];
        let mut shards = Shards::new(&small(false), &owners, 2, seed);
        for _ in 0..3_000 {
            step(&mut shards);
        }
        shards.check();
        shards.drain();
        dropped += shards.dropped();
    }
    assert!(dropped > 0, "no output was ever full");
}

#[test]
fn full_remote_output_does_not_block_other_output() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    let mut delivered = 0;
    for _ in 0..400 {
        // No driver takes from port 2; the pool has room for the frames that wait.
        if shards.sent < 40 {
            shards.read(0, mac(2), 0, 60);
        }
        delivered += u32::from(shards.read(0, mac(3), 0, 60));
        for port in 2..6 {
            shards.hand_over(0, port);
        }
        shards.carry(0, 1, 8);
        shards.transmit(3, 8);
        shards.carry(0, 1, 8);
        shards.reclaim(0);
    }
    assert_eq!(delivered, 400, "the other output was always read for");
    assert!(shards.got[&(0, 3, 0)].len() >= 396, "and nearly all is there");
    assert!(!shards.got.contains_key(&(0, 2, 0)));
    shards.drain();
}

#[test]
fn full_remote_output_without_shared_buffer_closes_window() {
    let mut config = small(true);
    config.pool.from_local = limit(0, 0);
    let mut shards = Shards::new(&config, &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    let mut count = 0;
    for _ in 0..100 {
        count += u32::from(shards.read(0, mac(2), 0, 60));
        shards.hand_over(0, 2);
        shards.carry(0, 1, 8);
        shards.reclaim(0);
    }
    assert_eq!(count, 16, "what the input may hold, wherever it waits");
    assert_eq!(shards.switches[0].remote_refs(InputId(0)), usize::from(REFS_MAX));
    shards.transmit(2, 1);
    shards.carry(0, 1, 8);
    shards.reclaim(0);
    assert!(shards.read(0, mac(2), 0, 60), "one went, one comes in");
    shards.drain();
}

#[test]
fn full_remote_outputs_leave_input_window_open() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    // Each of three ports whose drivers take nothing has as many remote references as it may have.
    for to in [2, 3, 4] {
        for _ in 0..REFS_MAX {
            assert!(shards.read(0, mac(to), 0, 60));
            shards.hand_over(0, to);
            shards.reclaim(0);
        }
    }
    assert_eq!(shards.switches[0].remote_refs(InputId(0)), 4);
    let window = shards.switches[0].window(InputId(0)).of_any();
    assert_eq!(window.frames, 12, "of 16; the rest was copied");
    shards.check();
    for at in 2..5 {
        shards.hand_over(0, at);
    }
    shards.drain();
    assert_eq!(shards.delivered(), 12);
}

#[test]
fn revoked_handles_return_at_once_frames_still_sent() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    for _ in 0..6 {
        shards.read(0, mac(2), 0, 60);
        shards.read(0, mac(3), 0, 60);
    }
    // Frames of another input with a remote reference stay where they are.
    shards.read(1, mac(2), 1, 60);
    shards.hand_over(0, 2);
    shards.hand_over(0, 3);
    shards.carry(0, 1, 6);
    assert_eq!(
        shards.switches[0].remote_refs(InputId(0)),
        4,
        "a quarter of its own memory, and copies"
    );
    assert_eq!(shards.revoke(0, 1, 0), 0);
    let remote = [0, 1].map(|port| shards.switches[0].remote_refs(InputId(port)));
    assert_eq!(remote, [0, 1]);
    shards.check();
    shards.drain();
    assert_eq!(shards.got[&(0, 2, 0)].len() + shards.got[&(0, 3, 0)].len(), 12);
}

#[test]
fn port_stays_with_worker_until_revoked_frames_leave() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    for _ in 0..3 {
        shards.read(0, mac(2), 0, 60);
    }
    shards.hand_over(0, 2);
    assert_eq!(shards.revoke(0, 1, 0), 0);
    shards.reclaim(0);
    let remote: u32 = shards.switches.iter().map(|switch| switch.remote_refs_to(PortId(2))).sum();
    assert_eq!(remote, 0, "all is back, and waits as copies");
    shards.held = Some((2, 0));
    for sent in 0..3 {
        shards.move_on();
        assert_eq!(shards.owners[2], 1, "{sent} of 3 have left");
        shards.transmit(2, 1);
        shards.held = Some((2, 0));
    }
    // No other switch is waited for.
    shards.read(3, mac(4), 0, 60);
    shards.move_on();
    assert_eq!(shards.owners[2], 0);
    shards.read(0, mac(2), 0, 60);
    shards.drain();
    assert_eq!(shards.got[&(0, 2, 0)], [1, 2, 3, 5]);
}

#[test]
fn revoke_for_one_worker_spares_others_remote_refs() {
    // Three switches share an underlay. Switch 1 has the ports and holds frames of a peer remotely,
    // from 0 and 2.
    let mut whole = small(false);
    whole.ports[UNDERLAY].input_full = InputFull::Drop;
    let owners: Vec<_> = (0..=UNDERLAY).map(|port| (port != UNDERLAY).then_some(1)).collect();
    let shard = |me| whole.shard(&owners, &[], 3, me, REFS_MAX);
    let make = |me| Switch::<Frame>::new(&shard(me), 1, Nanos::ZERO).unwrap();
    let mut switches: Vec<_> = (0..3).map(make).collect();
    let outer = Outer {
        dst: underlay_mac(1),
        remote: vtep(2),
        local: vtep(1),
        vni: 100,
        dscp: 0,
        ecn: 0,
        pcp: None,
    };
    let handoff_input = |from| InputId::from_index(owners.len() + from);
    let mut hand_off = |from: usize, to: usize| {
        let (id, input) = (PortId::from_index(to), InputId::from_index(UNDERLAY));
        let install = Command::Install { vnet: VnetId(0), mac: mac(to), to: Destination::Port(id) };
        switches[from].command(Nanos::ZERO, install).unwrap();
        let bytes = in_vxlan(&outer, &Tenant::new(mac(to), BEHIND_TUNNEL, 0, 60).bytes());
        switches[from].receive_one(Nanos::ZERO, input, Frame { bytes, home: (from, Some(input)) });
        let mut queue = HandoffQueue::default();
        let mut sink = Carrier { way: &mut queue, pooled: &mut 0, from };
        assert_eq!(switches[from].hand_over(id, &mut sink), 1);
        switches[1].receive_handoff(handoff_input(from), queue.over.pop_front().unwrap());
    };
    // One frame for port 3, which stays held remotely; then one of each switch in the queue of the
    // peer for port 2.
    [(2, 3), (0, 2), (2, 2)].into_iter().for_each(|(from, to)| hand_off(from, to));
    let underlay = InputId::from_index(UNDERLAY);
    let ended = switches[1].revoke(handoff_input(0), underlay, |buf, _| Err(buf));
    assert_eq!(ended, 1, "it is lossy, and ends");
    let (buf, remote) = switches[1].reclaim_handoff(handoff_input(0)).unwrap();
    switches[0].handed_back(buf, remote);
    let mut all = |_: &Egress<'_, Frame>| Taken::All;
    assert_eq!(switches[1].transmit(Nanos::ZERO, PortId(2), &mut all), 1);
    let (buf, remote) = switches[1].reclaim_handoff(handoff_input(2)).unwrap();
    switches[2].handed_back(buf, remote);
    let remote = [2, 3].map(|port| switches[2].remote_refs_to(PortId(port)));
    assert_eq!(remote, [0, 1], "what is back is what was sent");
}

#[test]
fn remote_tunnel_is_one_source_encapsulated_by_owner() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    for _ in 0..5 {
        shards.read(0, BEHIND_TUNNEL, 2, 100);
    }
    shards.hand_over(0, UNDERLAY);
    shards.carry(0, 1, 8);
    let mut headers = Vec::new();
    let mut sink = |egress: &Egress<'_, Frame>| {
        headers.push((egress.header.len(), egress.size, egress.tunnel));
        Taken::All
    };
    let port = PortId::from_index(UNDERLAY);
    shards.switches[1].transmit(shards.now, port, &mut sink);
    assert_eq!(headers, [(50, 150, Some(TunnelId(0))); 4], "as many as may be lent");
    assert_eq!(shards.switches[0].tunnel_counters(TunnelId(0)).sent.frames, 0);
    assert_eq!(shards.switches[1].tunnel_counters(TunnelId(0)).sent.frames, 4);
    shards.drain();
}

#[test]
fn detach_of_port_drops_its_remote_ref_frames() {
    let mut shards = Shards::new(&small(true), &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    for _ in 0..6 {
        shards.read(0, mac(2), 0, 60);
    }
    shards.hand_over(0, 2);
    shards.carry(0, 1, 2);
    let now = shards.now;
    assert_eq!(shards.switches[1].detach(now, PortId(2)).dropped, 2);
    shards.drain();
    assert_eq!(shards.dropped(), 6, "what comes later ends, too");
}

#[test]
fn rate_or_pause_on_remote_port_is_refused() {
    let whole = small(true);
    let owners = [0, 0, 1, 1, 1, 1, 1].map(Some);
    let shard = whole.shard(&owners, &[], 2, 0, REFS_MAX);
    assert!(Switch::<Frame>::new(&shard, 1, Nanos::ZERO).is_ok());
    let mut paced = shard.clone();
    paced.ports[UNDERLAY] = whole.ports[UNDERLAY].clone();
    assert!(Switch::<Frame>::new(&paced, 1, Nanos::ZERO).is_err());
    let mut nothing = shard;
    nothing.handoff.refs_max = 0;
    assert!(Switch::<Frame>::new(&nothing, 1, Nanos::ZERO).is_err());
    assert_eq!(next_hop(2), whole.tunnels[0].next_hop.unwrap());
}

#[test]
fn its_rate_goes_along_with_a_port() {
    let mut config = small(true);
    let rate = BitRate::from_mbps(8);
    config.ports[2].rate = Some(RateLimit { rate, catch_up: Nanos::from_millis(1), overhead: 0 });
    let mut shards = Shards::new(&config, &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    let turn = |shards: &mut Shards| {
        if shards.owners[2] == 1 {
            shards.hand_over(0, 2);
            shards.carry(0, 1, 8);
        }
        shards.transmit(2, 8);
        shards.carry(0, 1, 8);
        shards.reclaim(0);
    };
    let sends = |shards: &mut Shards| {
        let before = shards.delivered();
        for _ in 0..8 {
            assert!(shards.read(0, mac(2), 0, 500));
            turn(shards);
        }
        let at_once = shards.delivered() - before;
        for _ in 0..8 {
            shards.now = shards.now.after(Nanos::from_millis(5));
            turn(shards);
        }
        assert_eq!(shards.delivered() - before, 8);
        at_once
    };
    // A millisecond of 8 Mbit/s is 1,000 bytes.
    assert!(sends(&mut shards) < 5);
    shards.held = Some((2, 0));
    shards.move_on();
    assert_eq!(shards.owners[2], 0);
    assert!(sends(&mut shards) < 5, "it has its rate where it is now");
    shards.drain();
}

#[test]
fn bindings_follow_port_moved_to_another_worker() {
    let mut config = small(true);
    config.ports[2].sources = Sources::Bound;
    let ips = BoundIps::default();
    config.control.bindings = vec![Binding { port: PortId(2), mac: mac(2), ips }];
    let mut shards = Shards::new(&config, &[0, 0, 1, 1, 1, 1, 1], 2, 1);
    for to in [0, 1, 0] {
        assert!(shards.read(2, mac(3), 0, 100));
        shards.drain();
        shards.held = Some((2, to));
        shards.move_on();
        assert_eq!(shards.owners[2], to);
    }
    assert!(shards.read(2, mac(3), 0, 100));
    // A frame of another source is refused, whichever switch has the port.
    let (me, input) = (shards.owners[2], InputId(2));
    let bytes = Tenant::new(mac(3), mac(4), 0, 100).bytes();
    *shards.out.entry((me, Some(input))).or_default() += 1;
    shards.reads[2] += 1;
    let frame = Frame { bytes, home: (me, Some(input)) };
    shards.switches[me].receive_one(shards.now, input, frame);
    shards.drain();
    assert_eq!(shards.delivered(), 4);
    assert_eq!(shards.drops(), [(me, input, DropReason::SpoofedMac, 1)]);
}

#[test]
fn port_moved_mid_super_frame_sends_rest_once() {
    let mut shards = Shards::new(&small(true), &[0, 0, 0, 1, 1, 1, 1], 2, 1);
    assert!(shards.read(0, mac(2), 0, 2_000));
    let (now, port) = (shards.now, PortId(2));
    let mut taken = Vec::new();
    let mut some = |egress: &Egress<'_, Frame>| {
        if !taken.is_empty() {
            return Taken::No;
        }
        taken.push((egress.first, egress.size));
        Taken::Segments(1)
    };
    shards.switches[0].transmit(now, port, &mut some);
    assert_eq!(taken, [(0, 2_000)]);
    shards.held = Some((2, 1));
    shards.move_on();
    assert_eq!(shards.owners[2], 1);
    shards.hand_over(0, 2);
    shards.carry(0, 1, 1);
    let mut all = |egress: &Egress<'_, Frame>| {
        taken.push((egress.first, egress.size));
        Taken::All
    };
    shards.switches[1].transmit(now, port, &mut all);
    assert_eq!(taken, [(0, 2_000), (1, 1_500)], "three of four segments");
    assert_eq!(shards.switches[1].sent(port).frames, 4, "those before count as its own, too");
    shards.drain();
}

const OTHER_TUNNEL: TunnelId = TunnelId(1);
const BEHIND_OTHER: Mac = Mac([2, 7, 0, 0, 0, 2]);

/// A peer that comes and goes at one switch after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// So many switches have the tunnel; then all of them have its address.
    Comes(usize),
    There,
    /// So many switches have removed the tunnel.
    Goes(usize),
}

impl Peer {
    fn next(self, shards: &mut Shards) -> Self {
        let count = shards.switches.len();
        match self {
            Self::Comes(done) if done < count => {
                let switch = &mut shards.switches[done];
                let (vnet, port) = (VnetId(0), PortId::from_index(UNDERLAY));
                let next_hop = Some(next_hop(3));
                let config = TunnelConfig { port, remote: vtep(3), next_hop, foreign: false };
                switch.add_tunnel(shards.now, OTHER_TUNNEL, &config).unwrap();
                switch.set_vnet(shards.now, vnet, 1_500, &[TunnelId(0), OTHER_TUNNEL]).unwrap();
                Self::Comes(done + 1)
            }
            Self::Comes(_) => {
                shards.install(BEHIND_OTHER, Destination::Tunnel(OTHER_TUNNEL));
                Self::There
            }
            Self::There => Self::Goes(0),
            Self::Goes(done) if done < count => {
                shards.switches[done].remove_tunnel(shards.now, OTHER_TUNNEL).unwrap();
                Self::Goes(done + 1)
            }
            Self::Goes(_) => {
                let is_free =
                    |switch: &Switch<Frame>| switch.tunnel_state(OTHER_TUNNEL) == PlaceState::Free;
                // No frame that was handed off before is under way.
                let is_empty = shards.ways.values().all(|way| way.over.is_empty());
                match shards.switches.iter().all(is_free) && is_empty {
                    true => Self::Comes(0),
                    false => self,
                }
            }
        }
    }

    /// Returns true if a switch has the address behind the tunnel.
    fn is_known(self, switch: usize) -> bool {
        match self {
            Self::Comes(_) => false,
            Self::There => true,
            Self::Goes(done) => switch >= done,
        }
    }
}

#[test]
fn peer_coming_and_going_costs_only_its_frames() {
    let (mut came, mut removed) = (0, 0);
    for seed in 0..20 {
        let mut rng = Prng::new(seed);
        let count = 2 + pick::<usize>(&mut rng, 3);
        let owners: Vec<usize> = (0..=UNDERLAY).map(|_| pick(&mut rng, count as u64)).collect();
        let mut config = small(seed % 2 == 0);
        config.spare_places.tunnels = vec![OTHER_TUNNEL];
        config.pool.from_local = limit(1_000, 2_000_000);
        let mut shards = Shards::new(&config, &owners, count, seed);
        let (mut peer, mut sent) = (Peer::Comes(0), 0);
        for _ in 0..1_500 {
            step(&mut shards);
            let at: usize = pick(&mut rng, ACCESS as u64);
            if rng.chance(1, 4) && peer.is_known(shards.owners[at]) {
                sent += u64::from(shards.read(at, BEHIND_OTHER, 3, 60));
            }
            if rng.chance(1, 16) {
                let next = peer.next(&mut shards);
                came += u64::from(next == Peer::There && peer != Peer::There);
                peer = next;
            }
        }
        shards.check();
        shards.drain();
        let of_others = shards.got.iter().filter(|((_, _, priority), _)| *priority == 3);
        let delivered: usize = of_others.map(|(_, numbers)| numbers.len()).sum();
        let drops = shards.drops();
        let ended: u64 = drops.iter().map(|drop| drop.3).sum();
        let gone = drops.iter().filter(|drop| drop.2 == DropReason::Removed).map(|drop| drop.3);
        removed += gone.clone().sum::<u64>();
        if seed % 2 == 0 {
            assert_eq!(ended, gone.sum::<u64>(), "seed {seed}: {drops:?}");
            assert!(delivered as u64 + ended >= sent, "seed {seed}");
        }
        // A broadcast goes through both tunnels, each with an order of its own.
        let to_one = |key: &(usize, usize, u8)| key.1 != UNDERLAY || key.2 == 3;
        for (key, numbers) in shards.got.iter().filter(|(key, _)| to_one(key)) {
            assert!(numbers.is_sorted_by(|a, b| a < b), "seed {seed}: {key:?} {numbers:?}");
        }
    }
    assert!(came > 20 && removed > 20, "{came} peers came, {removed} frames ended with one");
}
