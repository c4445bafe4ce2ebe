//! One run of the simulator: its network, its workload, and its checks.
//!
//! The network and the workloads are those of `docs/simulator-speed.md`. Only the time of the run
//! counts, not the time to make the network.

use std::sync::Arc;

use anyhow::{Context, ensure};
use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{OverlayConfig, SAME_WEIGHT};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::topology::FatTree;
use sluice_sim::workload::{Permutation, Waves};
use sluice_sim::world::{ConnectionId, End, Notice, Summary, Workload, World, WorldConfig};
use sluice_switch::Limit;

use super::check;

/// Rate of every cable.
pub(super) const LINK: BitRate = BitRate::from_gbps(10);
/// Size of an answer of PA.
pub(super) const ANSWER_BYTES: u64 = 20_000;
/// Time between two waves of PA.
pub(super) const WAVE_GAP: Nanos = Nanos::from_millis(1);
/// Headers of Ethernet, IPv4 and TCP with time stamps.
pub(super) const HEADERS: u64 = 14 + 20 + 20 + 12;
/// Outer headers of VXLAN: Ethernet, IPv4, UDP and its own header.
pub(super) const OUTER_HEADERS: u64 = 14 + 20 + 8 + 8;
const FRAME: u64 = 1514;
const SEED: u64 = 1;

/// Workload of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Waves of answers.
    Pa { waves: u32 },
    /// Endless flows, for a number of milliseconds.
    Perm { millis: u64 },
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) pfc: bool,
    pub(crate) overlay: bool,
    pub(crate) tree: FatTree,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) summary: Summary,
    /// Processor time.
    pub(super) seconds: f64,
    /// Completion times of the answers, in the order of their completion.
    pub(super) fct: Vec<Nanos>,
    /// Processor time and hops so far, at the beginning of each wave and at the end.
    pub(super) marks: Vec<(f64, u64)>,
    /// Segments that have reached the endpoints of PERM.
    pub(super) received: u64,
}

impl Outcome {
    /// Returns the hops per second.
    pub(super) fn rate(&self) -> f64 {
        rate(self.summary.hops, self.seconds)
    }

    /// Returns the rate of the last tenth of the waves over that of the first tenth.
    pub(super) fn last_over_first(&self) -> f64 {
        let last = self.marks.len() - 1;
        let tenth = (last / 10).max(1);
        let between = |a: usize, b: usize| {
            rate(self.marks[b].1 - self.marks[a].1, self.marks[b].0 - self.marks[a].0)
        };
        between(last - tenth, last) / between(0, tenth)
    }
}

pub(super) fn rate(hops: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let hops = hops as f64;
    hops / seconds
}

/// The clock of a run, in seconds.
pub(super) type Clock = fn() -> f64;

/// A wrapper of a workload that records the start of each wave.
#[derive(Debug)]
struct Marked {
    waves: Waves,
    clock: Clock,
    marks: Vec<(f64, u64)>,
}

impl Marked {
    fn mark(&mut self, world: &World) {
        self.marks.push(((self.clock)(), world.hops()));
    }
}

impl Workload for Marked {
    fn start(&mut self, world: &mut World) {
        self.mark(world);
        self.waves.start(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        if matches!(notice, Notice::Time(_)) {
            self.mark(world);
        }
        self.waves.happened(world, notice);
    }

    fn is_done(&self) -> bool {
        self.waves.is_done()
    }
}

impl Case {
    /// Returns PA or PERM on 256 hosts.
    pub(crate) const fn of_256(work: Work, pfc: bool, overlay: bool) -> Self {
        let tree = FatTree::racks_256(LINK, Nanos::from_micros(1));
        Self { work, pfc, overlay, tree }
    }

    /// Returns PA with PFC on 4,096 hosts: 16 pods of 16 racks, and as many ways up as before.
    pub(crate) const fn of_4096(waves: u32) -> Self {
        let tree = FatTree {
            pods: 16,
            edges_per_pod: 16,
            cores_per_middle: 16,
            ..FatTree::racks_256(LINK, Nanos::from_micros(1))
        };
        Self { work: Work::Pa { waves }, pfc: true, overlay: false, tree }
    }

    /// Returns the workload's name in results.
    pub(super) const fn workload(&self) -> &'static str {
        match self.work {
            Work::Pa { .. } => "PA",
            Work::Perm { .. } => "PERM",
        }
    }

    /// Returns the payload of a full segment: it fills an MTU of 1500, or the part of it that VXLAN
    /// leaves.
    pub(super) const fn mss(&self) -> u32 {
        if self.overlay { 1_398 } else { 1_448 }
    }

    /// Runs the case and checks the outcome.
    ///
    /// # Errors
    /// The run has lost frames that must not be lost, or its figures cannot be right.
    pub(super) fn run(&self, clock: Clock) -> anyhow::Result<Outcome> {
        let mut world = World::new(&self.world()).context("the network cannot be made")?;
        let tcp = Arc::new(Config {
            ack_every: 1,
            mss: self.mss(),
            ..Config::linux_2013(Algorithm::NewReno)
        });
        let outcome = match self.work {
            Work::Pa { waves } => self.run_pa(&mut world, clock, tcp, waves)?,
            Work::Perm { millis } => self.run_perm(&mut world, clock, tcp, millis)?,
        };
        check::all(self, &outcome)
            .with_context(|| format!("no figure: {} cannot be right", self.workload()))?;
        Ok(outcome)
    }

    fn run_pa(
        &self,
        world: &mut World,
        clock: Clock,
        tcp: Arc<Config>,
        waves: u32,
    ) -> anyhow::Result<Outcome> {
        let mut waves = Waves::new(tcp, self.hosts(), waves, SEED);
        waves.bytes = ANSWER_BYTES;
        waves.gap = WAVE_GAP;
        let mut marked = Marked { waves, clock, marks: Vec::new() };
        let start = clock();
        let end = world.run(&mut marked, Nanos::MAX);
        marked.mark(world);
        let seconds = clock() - start;
        ensure!(end == End::Done, "PA has not come to its end: {end:?}");
        let summary = world.summary();
        Ok(Outcome { summary, seconds, fct: marked.waves.fct, marks: marked.marks, received: 0 })
    }

    fn run_perm(
        &self,
        world: &mut World,
        clock: Clock,
        tcp: Arc<Config>,
        millis: u64,
    ) -> anyhow::Result<Outcome> {
        let hosts = self.hosts();
        // Five racks further: always another pod.
        let mut perm = Permutation { tcp, hosts, shift: 80, priority: Priority::ZERO, seed: SEED };
        let start = clock();
        let end = world.run(&mut perm, Nanos::from_millis(millis));
        let seconds = clock() - start;
        ensure!(end == End::Time, "PERM has come to an end: {end:?}");
        let segments = |at: u32| {
            let id = ConnectionId(at);
            [id.client(), id.server()].map(|end| world.tcp_stats(end).segments_received)
        };
        let received = (0..hosts).flat_map(segments).sum();
        let summary = world.summary();
        Ok(Outcome { summary, seconds, fct: Vec::new(), marks: Vec::new(), received })
    }

    pub(super) const fn hosts(&self) -> u32 {
        self.tree.host_count()
    }

    fn world(&self) -> WorldConfig {
        WorldConfig {
            topology: self.tree.build(),
            net: self.net(),
            overlay: self.overlay.then(|| self.virtual_switches()),
            send_latency: Nanos::ZERO,
            receive_latency: Nanos::ZERO,
            seed: SEED,
            ties: Ties::Fifo,
        }
    }

    fn net(&self) -> NetConfig {
        let mut net = NetConfig {
            lossless: PriorityMask::NONE,
            buffer: ByteCount(match self.work {
                Work::Pa { .. } => 1000 * FRAME,
                Work::Perm { .. } => 100 * FRAME,
            }),
            buffering: Buffering::Output,
            xoff: ByteCount(15 * FRAME),
            xon: ByteCount(12 * FRAME),
            mark: None,
            latency: Nanos::ZERO,
            pause_response: Nanos::ZERO,
            overhead: 0,
            frame_max: 1514,
        };
        if self.pfc {
            net.lossless = PriorityMask::ALL;
            net.buffer = ByteCount(net.xoff.0 + net.headroom(LINK, self.tree.delay).0);
        }
        net
    }

    fn virtual_switches(&self) -> OverlayConfig {
        let limit = |frames: u32| Limit { frames, bytes: ByteCount(u64::from(frames) * 1600) };
        OverlayConfig {
            vms_per_host: 1,
            lossless: PriorityMask::ALL,
            service: SAME_WEIGHT,
            own_queues: PriorityMask::NONE,
            mtu: 1450,
            vm_in: limit(64),
            vm_out: limit(256),
            vm_rate: None,
            card_in: limit(512),
            card_out: limit(256),
            pool: limit(256),
            card_pause: self.pfc.then_some((ByteCount(400_000), ByteCount(200_000))),
            card_priorities: PriorityMask::ALL,
        }
    }
}
