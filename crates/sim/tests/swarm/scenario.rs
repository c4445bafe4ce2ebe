//! Draws a scenario from a seed: small, and tight enough to run full somewhere.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask, Prng};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{OverlayConfig, SAME_WEIGHT};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::{Cable, FatTree, LeafSpine, Node, Topology};
use sluice_sim::workload::draw::Sizes;
use sluice_sim::workload::{Aggregate, Background, Carrier, Full};
use sluice_sim::world::WorldConfig;
use sluice_switch::Limit;

use crate::mix::Flow;

/// Waves of answers, before they run.
#[derive(Clone, Debug)]
pub(crate) struct WavePlan {
    pub(crate) tcp: Arc<Config>,
    pub(crate) hosts: u32,
    pub(crate) rack: u32,
    pub(crate) workers: u32,
    pub(crate) bytes: u64,
    pub(crate) waves: u32,
    pub(crate) gap: Nanos,
    pub(crate) seed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// The kind of topology, in a word.
    pub(crate) shape: &'static str,
    pub(crate) config: WorldConfig,
    pub(crate) flows: Vec<Flow>,
    pub(crate) aggregate: Option<Aggregate>,
    pub(crate) waves: Option<WavePlan>,
    pub(crate) background: Option<Background>,
}

/// Sizes of background flows: the tail of data-centre distributions is too long for a small run.
const SMALL: Sizes = Sizes {
    name: "small",
    source: "made for these tests",
    points: &[(0, 0), (1_000, 500_000), (20_000, 900_000), (100_000, 1_000_000)],
};

/// A generator with the draws that a scenario needs.
struct Draw(Prng);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.0.below(u64::from(bound))).unwrap()
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(u32::try_from(of.len()).unwrap()) as usize]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.0.chance(percent, 100)
    }
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Draw(Prng::stream(seed, "scenario"));
        let (shape, mut topology) = topology(&mut draw);
        if draw.chance(35) {
            for cable in &mut topology.cables {
                cable.delay = Nanos(draw.between(0, 3_000));
            }
        }
        let overlay = draw.chance(50);
        let net = net(&mut draw, &topology, overlay);
        let overlay = overlay.then(|| virtual_network(&mut draw, &topology, &net));
        let vms = overlay.as_ref().map_or(1, |o| o.vms_per_host);
        let stations = topology.hosts * vms;
        let mss_max = if overlay.is_some() { 1_398 } else { 1_448 };
        let mut tcp = || Arc::new(tcp(&mut draw, mss_max));
        let tcps = [tcp(), tcp()];
        let aggregate = draw.chance(25).then(|| aggregate(&mut draw, &tcps, stations));
        let waves = draw.chance(25).then(|| waves(&mut draw, &tcps, stations));
        let background = draw.chance(30).then(|| background(&mut draw, &tcps, stations));
        let flows = flows(&mut draw, &tcps, topology.hosts, stations);
        let ties = if draw.chance(50) { Ties::Permuted(seed) } else { Ties::Fifo };
        let latency = |draw: &mut Draw| Nanos(draw.one(&[0, 0, 700, 5_000]));
        let config = WorldConfig {
            net,
            overlay,
            send_latency: latency(&mut draw),
            receive_latency: latency(&mut draw),
            seed,
            ties,
            topology,
        };
        Self { seed, shape, config, flows, aggregate, waves, background }
    }

    /// Number of bytes that the messages of all workloads are to carry.
    pub(crate) fn bytes(&self) -> u64 {
        let mix: u64 = self.flows.iter().map(|flow| flow.bytes).sum();
        mix + self.aggregate.as_ref().map_or(0, asked) + self.waves.as_ref().map_or(0, waved)
    }

    /// Returns the workloads, a word each.
    pub(crate) fn work(&self) -> String {
        let background = self.background.as_ref().map(|plan| match plan.carrier {
            Carrier::Tcp(_) => "tcp",
            Carrier::Udp { .. } => "udp",
        });
        let mix = (!self.flows.is_empty()).then_some("mix");
        let asking = self.aggregate.as_ref().map(|_| "ask");
        let waves = self.waves.as_ref().map(|_| "waves");
        let words = [mix, asking, waves, background];
        words.into_iter().flatten().collect::<Vec<_>>().join("+")
    }
}

/// Bytes of all questions and answers.
fn asked(plan: &Aggregate) -> u64 {
    let connections = plan.workers.len() as u64;
    let questions = u64::from(plan.queries + plan.warm_up);
    connections * questions * (plan.request_bytes + plan.response_bytes)
}

/// Bytes of all answers of waves.
fn waved(plan: &WavePlan) -> u64 {
    let answers = plan.hosts.div_ceil(plan.rack) * plan.workers * plan.waves;
    u64::from(answers) * plan.bytes
}

/// Draws two to twelve hosts, and a word for the kind of their network.
fn topology(draw: &mut Draw) -> (&'static str, Topology) {
    let rate = |draw: &mut Draw| BitRate::from_gbps(draw.one(&[1, 10, 10, 25]));
    let delay = Nanos(draw.one(&[0, 5, 500, 1_000, 2_500]));
    match draw.below(3) {
        0 => {
            let hosts = 2 + draw.below(11);
            // Two hosts run nothing full unless their rates differ.
            let same = draw.chance(70);
            let one = rate(draw);
            let slow = BitRate::from_mbps(500);
            let cable =
                |host: u32, rate| Cable { a: Node::Host(host), b: Node::Switch(0), rate, delay };
            let cables = (0..hosts)
                .map(|host| match host {
                    0 if hosts == 2 => cable(host, slow),
                    _ if same => cable(host, one),
                    _ => cable(host, rate(draw)),
                })
                .collect();
            ("star", Topology { hosts, switches: 1, cables })
        }
        1 => {
            let leaf_spine = LeafSpine {
                leaves: 2 + draw.below(2),
                hosts_per_leaf: 2 + draw.below(3),
                spines: 1 + draw.below(2),
                host_rate: rate(draw),
                switch_rate: rate(draw),
                delay,
            };
            ("spine", leaf_spine.build())
        }
        _ => {
            let fat_tree = FatTree {
                pods: 2,
                edges_per_pod: 1 + draw.below(2),
                hosts_per_edge: 2 + draw.below(2),
                middles_per_pod: 1 + draw.below(2),
                cores_per_middle: 1,
                rate: rate(draw),
                delay,
            };
            ("tree", fat_tree.build())
        }
    }
}

fn net(draw: &mut Draw, topology: &Topology, overlay: bool) -> NetConfig {
    let frame_max: u16 = 1_514;
    let frame = u64::from(frame_max);
    let lossless = match draw.below(10) {
        0..5 => PriorityMask::ALL,
        // Some priorities only: virtual switches pause all or none.
        5..7 if !overlay => PriorityMask(0b1010_1010),
        _ => PriorityMask::NONE,
    };
    let xoff = frame * draw.between(1, 8) + draw.between(0, 100);
    let xon = draw.between(0, xoff - 1);
    let mut net = NetConfig {
        lossless,
        buffer: ByteCount(0),
        buffering: draw.one(&[Buffering::Input, Buffering::Output]),
        xoff: ByteCount(xoff),
        xon: ByteCount(xon),
        mark: None,
        latency: Nanos(draw.one(&[0, 0, 300, 1_000])),
        pause_response: Nanos(draw.one(&[0, 0, 500])),
        overhead: draw.one(&[0, 24]),
        frame_max,
    };
    // Lossless buffers have no byte more than they need in half of the cases.
    net.buffer = ByteCount(if lossless.is_empty() {
        frame * draw.between(1, 12)
    } else {
        let headroom = topology.cables.iter().map(|c| net.headroom(c.rate, c.delay).0).max();
        xoff + headroom.unwrap_or(0) + draw.one(&[0, 0, 10_000, 1_000_000])
    });
    net
}

/// Limit of so many bytes, and of frames of 64 bytes that fill them.
fn bytes(bytes: u64) -> Limit {
    Limit { frames: u32::try_from(bytes / 64).unwrap(), bytes: ByteCount(bytes) }
}

fn frames(frames: u64) -> Limit {
    Limit { frames: u32::try_from(frames).unwrap(), bytes: ByteCount(frames * 1_600) }
}

fn virtual_network(draw: &mut Draw, topology: &Topology, net: &NetConfig) -> OverlayConfig {
    let pfc = !net.lossless.is_empty();
    let xoff = 1_564 * draw.between(1, 8);
    let xon = draw.between(0, xoff - 1);
    let headroom = topology.cables.iter().map(|c| net.headroom(c.rate, c.delay).0).max().unwrap();
    OverlayConfig {
        vms_per_host: 1 + draw.below(3),
        lossless: if draw.chance(50) { PriorityMask::ALL } else { PriorityMask::NONE },
        service: SAME_WEIGHT,
        // From what is drawn already, so that each seed keeps the rest of its world.
        own_queues: PriorityMask(if xon.is_multiple_of(2) {
            (xon / 2).to_le_bytes()[0]
        } else {
            0
        }),
        mtu: 1_450,
        vm_in: frames(draw.between(1, 32)),
        vm_out: frames(draw.between(1, 32)),
        vm_rate: draw.chance(50).then(|| BitRate::from_mbps(draw.one(&[300, 1_000, 4_000]))),
        card_in: bytes(xoff + headroom + 3_000),
        card_out: frames(draw.between(1, 64)),
        pool: frames(draw.between(4, 128)),
        card_pause: pfc.then_some((ByteCount(xoff), ByteCount(xon))),
        card_priorities: PriorityMask::ALL,
    }
}

fn tcp(draw: &mut Draw, mss_max: u32) -> Config {
    let algorithm = draw.one(&[Algorithm::NewReno, Algorithm::Cubic, Algorithm::Vegas]);
    let mut tcp =
        if draw.chance(50) { Config::freebsd9(algorithm) } else { Config::linux_2013(algorithm) };
    tcp.mss = if draw.chance(80) { mss_max } else { 100 + draw.below(mss_max - 100) };
    tcp.ack_every = draw.one(&[1, 2]);
    tcp.sack = draw.chance(70);
    tcp.limited_transmit = draw.chance(70);
    tcp.nagle = draw.chance(20);
    if draw.chance(20) {
        tcp.send_buffer = 8_000;
    }
    if draw.chance(20) {
        tcp.receive_buffer = 8_000;
    }
    tcp
}

fn priority(draw: &mut Draw) -> Priority {
    Priority::from_low_bits(u8::try_from(draw.below(8)).unwrap())
}

/// Draws another station than this one.
fn other(draw: &mut Draw, station: u32, stations: u32) -> u32 {
    (station + 1 + draw.below(stations - 1)) % stations
}

/// Draws an incast, a permutation and single flows, mixed.
fn flows(draw: &mut Draw, tcps: &[Arc<Config>; 2], hosts: u32, stations: u32) -> Vec<Flow> {
    let mut pairs = Vec::new();
    let aggregator = if hosts == 2 { 0 } else { draw.below(stations) };
    for sender in 0..u32::try_from(draw.between(8, 16)).unwrap() {
        let from = (aggregator + 1 + sender % (stations - 1)) % stations;
        let at = Nanos(draw.between(0, 3_000));
        pairs.push((at, from, aggregator, draw.between(30_000, 80_000)));
    }
    if draw.chance(50) {
        let shift = 1 + draw.below(stations - 1);
        let bytes = draw.between(1, 60_000);
        pairs.extend((0..stations).map(|from| (Nanos(0), from, (from + shift) % stations, bytes)));
    }
    for _ in 0..draw.between(0, 20) {
        let from = draw.below(stations);
        let to = other(draw, from, stations);
        pairs.push((Nanos(draw.between(0, 400_000)), from, to, draw.between(1, 20_000)));
    }
    let one_priority = draw.chance(70).then(|| priority(draw));
    let flow = |(at, from, to, bytes)| Flow {
        at,
        from,
        to,
        bytes,
        priority: one_priority.unwrap_or_else(|| priority(draw)),
        path: draw.0.next_u64(),
        handshake: draw.chance(50),
        closes: draw.chance(60),
        tcp: Arc::clone(&tcps[draw.below(2) as usize]),
    };
    pairs.into_iter().map(flow).collect()
}

fn aggregate(draw: &mut Draw, tcps: &[Arc<Config>; 2], stations: u32) -> Aggregate {
    let aggregator = draw.below(stations);
    Aggregate {
        tcp: Arc::clone(&tcps[0]),
        aggregator,
        workers: (0..stations).filter(|station| *station != aggregator).collect(),
        request_bytes: draw.between(1, 2_000),
        response_bytes: draw.between(1, 20_000),
        queries: 2,
        warm_up: draw.below(2),
        gap: Nanos(draw.between(0, 100_000)),
        priority: priority(draw),
        seed: draw.0.next_u64(),
    }
}

fn waves(draw: &mut Draw, tcps: &[Arc<Config>; 2], stations: u32) -> WavePlan {
    WavePlan {
        tcp: Arc::clone(&tcps[1]),
        hosts: stations,
        rack: 1,
        workers: 1 + draw.below(3),
        bytes: draw.between(1, 10_000),
        waves: 1 + draw.below(3),
        gap: Nanos(draw.between(1_000, 300_000)),
        seed: draw.0.next_u64(),
    }
}

fn background(draw: &mut Draw, tcps: &[Arc<Config>; 2], stations: u32) -> Background {
    let carrier = if draw.chance(50) {
        Carrier::Tcp(Arc::clone(&tcps[0]))
    } else {
        Carrier::Udp { bytes: 1_000, rate: BitRate::from_gbps(2), full: Full::Wait }
    };
    Background {
        carrier,
        sizes: SMALL,
        stations: (0..stations).collect(),
        gap: Nanos::from_micros(draw.between(200, 2_000)),
        priority: priority(draw),
        seed: draw.0.next_u64(),
    }
}
