//! A chain of switches with hosts at both ends, and endless flows over it.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::{Cable, Node, Topology};
use sluice_sim::world::{Connect, EndpointId, Notice, Workload, World, WorldConfig};

/// Bytes of a full frame with Ethernet's check sequence, preamble and gap.
pub(crate) const FULL_WIRE: u64 = 1_538;

/// Bytes of an acknowledgement with time stamps on a wire.
pub(crate) const ACK_WIRE: u64 = 90;

/// Returns the settings of Linux of 2013, for frames of 1,514 bytes.
pub(crate) fn tcp(algorithm: Algorithm) -> Arc<Config> {
    Arc::new(Config { mss: 1_448, ..Config::linux_2013(algorithm) })
}

/// More than a run can send.
const ENDLESS: u64 = 1 << 50;

/// A chain: hosts `0..pairs` at its left end, as many at its right end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// Pairs of hosts.
    pub(crate) pairs: u32,
    /// Links from a host to its other host; at least 2.
    pub(crate) links: u32,
    /// The rate of all links.
    pub(crate) rate: BitRate,
    /// The delay of each link.
    pub(crate) delay: Nanos,
    /// The buffer of a port, for lossy frames.
    pub(crate) buffer: ByteCount,
}

impl Chain {
    /// Returns the part of a link's rate that payload of full segments has when a flow fills it.
    pub(crate) fn goodput(&self) -> f64 {
        self.rate.0 as f64 / 8.0 * 1_448.0 / FULL_WIRE as f64
    }

    /// Returns the least round trip of a full segment and its acknowledgement, in full frames of
    /// one link: segments that are on their way without a queue.
    pub(crate) fn path_segments(&self) -> f64 {
        let byte_ns = 8e9 / self.rate.0 as f64;
        let both = (FULL_WIRE + ACK_WIRE) as f64 * byte_ns + 2.0 * self.delay.0 as f64;
        f64::from(self.links) * both / (FULL_WIRE as f64 * byte_ns)
    }

    /// Returns the configuration of a world of this chain.
    pub(crate) fn config(&self) -> WorldConfig {
        let switches = self.links - 1;
        let cable = |a, b| Cable { a, b, rate: self.rate, delay: self.delay };
        let left = (0..self.pairs).map(|h| cable(Node::Host(h), Node::Switch(0)));
        let right =
            (self.pairs..2 * self.pairs).map(|h| cable(Node::Host(h), Node::Switch(switches - 1)));
        let between = (1..switches).map(|s| cable(Node::Switch(s - 1), Node::Switch(s)));
        WorldConfig {
            topology: Topology {
                hosts: 2 * self.pairs,
                switches,
                cables: left.chain(right).chain(between).collect(),
            },
            net: NetConfig {
                lossless: PriorityMask::NONE,
                buffer: self.buffer,
                buffering: Buffering::Output,
                xoff: ByteCount(100_000),
                xon: ByteCount(80_000),
                mark: None,
                latency: Nanos::ZERO,
                pause_response: Nanos::ZERO,
                overhead: 24,
                frame_max: 1_514,
            },
            overlay: None,
            send_latency: Nanos::ZERO,
            receive_latency: Nanos::ZERO,
            seed: 1,
            ties: Ties::Fifo,
        }
    }
}

/// Endless flows, observed at steady steps of time.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(crate) tcp: Arc<Config>,
    /// The two hosts of each flow.
    pub(crate) ends: Vec<(u32, u32)>,
    /// Bytes of a message that goes ahead; zero: none.
    pub(crate) first: u64,
    /// Time between two observations.
    pub(crate) step: Nanos,
    pub(crate) senders: Vec<EndpointId>,
    /// Per observation and flow: the bytes delivered, and the congestion window.
    pub(crate) seen: Vec<Vec<(u64, u64)>>,
}

impl Flows {
    pub(crate) fn new(tcp: Arc<Config>, ends: Vec<(u32, u32)>, step: Nanos) -> Self {
        Self { tcp, ends, first: 0, step, senders: Vec::new(), seen: Vec::new() }
    }

    /// Runs the flows on a chain for `steps` steps.
    pub(crate) fn run(&mut self, chain: &Chain, steps: u64) -> World {
        let mut world = World::new(&chain.config()).expect("a chain that works");
        let end = Nanos(self.step.0 * steps);
        world.run(self, end);
        world
    }

    /// Returns the bytes a second of all flows between two observations.
    pub(crate) fn rate(&self, from: usize, to: usize) -> f64 {
        let sum = |at: usize| self.seen[at].iter().map(|(bytes, _)| bytes).sum::<u64>();
        let seconds = (to - from) as f64 * self.step.0 as f64 / 1e9;
        (sum(to) - sum(from)) as f64 / seconds
    }
}

impl Workload for Flows {
    fn start(&mut self, world: &mut World) {
        for (at, &(from, to)) in (0_u64..).zip(&self.ends) {
            let with = Connect { from, to, priority: Priority::ZERO, flow: at, handshake: true };
            let id = world.connect(&self.tcp, &with).expect("a path");
            world.write(id.client(), if self.first > 0 { self.first } else { ENDLESS });
            self.senders.push(id.client());
        }
        world.at(self.step, 0);
    }

    fn happened(&mut self, world: &mut World, _notice: Notice) {
        let of = |id: &EndpointId| (world.delivered(id.peer()), world.congestion_window(*id));
        self.seen.push(self.senders.iter().map(of).collect());
        if self.first > 0 && self.seen.len() == 1 {
            for id in &self.senders {
                world.write(*id, ENDLESS);
            }
        }
        world.at(world.now().after(self.step), 0);
    }

    fn is_done(&self) -> bool {
        false
    }
}
