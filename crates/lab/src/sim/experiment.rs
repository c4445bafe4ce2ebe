//! A scenario of either kind as cells to simulate. Each cell is one size under one policy in a data
//! centre of its own, so that no cell depends on another and any one can be repeated alone.
//!
//! The policy has two letters: the first tells whether the virtual switches use backpressure, the
//! second whether the physical network pauses. Everything else is the same under all policies, the
//! seed included.

mod topology;

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use sluice_api::config::Policy;
use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{Limit, OverlayConfig};
use sluice_sim::tcp;
use sluice_sim::topology::Topology;
use sluice_sim::workload::draw::Sizes;
use sluice_sim::workload::{Aggregate, Background, Carrier, Exchange, Full, Search, Source};
use sluice_sim::world::WorldConfig;

use super::scenario::{self, Any, Noise, Place, SimScenario, TracePlan};
use super::sources;
pub(super) use topology::star;
use topology::topology;

/// Bytes of the outer headers of VXLAN over IPv4.
pub(super) const OUTER: u16 = 50;
const ETHERNET: u16 = 14;
/// Bytes sent before a sender applies a pause frame: 60 quanta of 512 bits (802.3 clause 31B.3.7).
const PAUSE_RESPONSE: ByteCount = ByteCount(60 * 512 / 8);
/// The largest frame that a buffer given in frames must hold.
const FRAME_BYTES: u64 = 1_600;
/// The smallest frame. A lossless input must hold this many frames, or its frame limit would bind
/// before XOFF.
const FRAME_BYTES_MIN: u64 = 60;

/// The cells of a scenario, with the settings that they share.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Kind of the switches that the lab's rows have for their subject.
    pub(crate) subject: &'static str,
    pub(crate) seed: u64,
    pub(crate) profile: &'static str,
    pub(crate) congestion: &'static str,
    pub(crate) rto_min: Nanos,
    pub(crate) background: bool,
    /// The settings of each variant, for people.
    pub(crate) settings: Vec<(String, Map<String, Value>)>,
    pub(crate) cases: Vec<Case>,
    /// Settings that work and that hardly anybody means.
    pub(crate) warnings: Vec<String>,
    /// Samples to be written beside the results.
    pub(crate) trace: Option<TracePlan>,
}

/// One cell: one size under one policy.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) policy: Policy,
    pub(crate) variant: String,
    /// Full segments of an answer; 0 if there are no answers.
    pub(crate) size: u32,
    pub(crate) world: WorldConfig,
    pub(crate) load: Load,
    pub(crate) background: Option<Background>,
    /// Priorities of the frames.
    pub(crate) used: PriorityMask,
    /// UDP sources beside the workload.
    pub(crate) sources: Vec<Source>,
    /// Time limit of the cell.
    pub(crate) end: Nanos,
}

/// Workload of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Aggregate(Aggregate),
    Search(Search),
    Permutation {
        tcp: Arc<tcp::Config>,
        stations: u32,
        shift: u32,
        priority: Priority,
        seed: u64,
    },
    Sources(Vec<Source>),
    /// A check of the lab.
    Exchange(Exchange, Probe),
}

/// A check of connectivity between two containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// True for echoes, false for a transfer.
    pub(crate) is_echo: bool,
    /// The container that sends the echoes, or the bytes.
    pub(crate) from: String,
    /// The container that answers, or receives.
    pub(crate) to: String,
}

impl Case {
    /// Returns true if no frame may be dropped for congestion.
    pub(crate) fn is_lossless(&self) -> bool {
        let holds_all = |lossless: PriorityMask| self.used.without(lossless).is_empty();
        let holds_back = self.world.overlay.as_ref().is_none_or(|own| holds_all(own.lossless));
        holds_back && holds_all(self.world.net.lossless)
    }

    /// Returns the check that the cell is, if it is one.
    pub(crate) const fn probe(&self) -> Option<&Probe> {
        match &self.load {
            Load::Exchange(_, probe) => Some(probe),
            Load::Aggregate(_) | Load::Search(_) | Load::Permutation { .. } | Load::Sources(_) => {
                None
            }
        }
    }

    /// Returns the number of queries, those before the first that counts included; 0 for endless
    /// flows.
    pub(crate) const fn asked(&self) -> u32 {
        match &self.load {
            Load::Aggregate(plan) => plan.queries + plan.warm_up,
            Load::Search(plan) => plan.queries + plan.warm_up,
            Load::Exchange(plan, _) => plan.rounds,
            Load::Permutation { .. } | Load::Sources(_) => 0,
        }
    }

    /// Returns the number of queries that count.
    pub(crate) const fn queries(&self) -> u32 {
        match &self.load {
            Load::Aggregate(plan) => plan.queries,
            Load::Search(plan) => plan.queries,
            Load::Exchange(plan, _) => plan.rounds,
            Load::Permutation { .. } | Load::Sources(_) => 0,
        }
    }
}

/// Values that replace a scenario's for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The seed.
    pub seed: Option<u64>,
    /// Queries per cell.
    pub queries: Option<u32>,
    /// Sizes of an answer in full segments.
    pub sizes: Option<Vec<u32>>,
    /// The policies.
    pub policies: Option<Vec<Policy>>,
}

impl Experiment {
    /// Returns the cells of a scenario.
    ///
    /// # Errors
    ///
    /// The simulator does not support a part of the scenario, or the buffers cannot keep the
    /// promise of a policy.
    pub(crate) fn new(scenario: Any, overrides: &Overrides) -> anyhow::Result<Self> {
        match scenario {
            Any::Lab(scenario) => super::from_lab::experiment(*scenario, overrides),
            Any::Sim(scenario) => from_sim(*scenario, overrides),
        }
    }
}

fn change(scenario: &mut SimScenario, overrides: &Overrides) -> anyhow::Result<()> {
    if let Some(seed) = overrides.seed {
        scenario.sim.seed = seed;
    }
    if let Some(policies) = &overrides.policies {
        scenario.sim.policies.clone_from(policies);
    }
    match &mut scenario.workload {
        scenario::Load::Pa { sizes, queries, .. }
        | scenario::Load::Incast { sizes, queries, .. }
        | scenario::Load::Search { sizes, queries, .. } => {
            if let Some(other) = &overrides.sizes {
                sizes.clone_from(other);
            }
            if let Some(other) = overrides.queries {
                *queries = other;
            }
        }
        scenario::Load::Permutation { .. } | scenario::Load::UdpSources(_) => {
            let any = overrides.queries.is_some() || overrides.sizes.is_some();
            ensure!(!any, "the workload has no queries: leave --queries, --sizes out");
        }
    }
    // The changed scenario is checked as if it had been written so.
    if let Any::Sim(checked) = Any::parse(&toml::to_string(scenario)?)? {
        *scenario = *checked;
    }
    Ok(())
}

fn from_sim(mut scenario: SimScenario, overrides: &Overrides) -> anyhow::Result<Experiment> {
    change(&mut scenario, overrides)?;
    let tcp = tcp_of(&scenario);
    let mut cases = Vec::new();
    for &policy in &scenario.sim.policies {
        let world = Parts::of_sim(&scenario).world(policy, scenario.sim.seed)?;
        for (size, load) in loads(&scenario, &tcp) {
            let variant = scenario.sim.name.clone();
            let background = background(&scenario, &tcp)?;
            let sources = sources::background(&scenario);
            let end = Nanos::from_millis(match &scenario.workload {
                scenario::Load::Permutation { duration_ms, .. } => *duration_ms,
                scenario::Load::UdpSources(load) => load.duration_ms,
                _ => scenario.sim.seconds_max * 1000,
            });
            let world = world.clone();
            let used = scenario.classes.used(scenario.background != Noise::None);
            cases.push(Case { policy, variant, size, world, load, background, sources, used, end });
        }
    }
    let mut settings = Map::new();
    flatten("", &serde_json::to_value(&scenario)?, &mut settings);
    Ok(Experiment {
        name: scenario.sim.name.clone(),
        about: scenario.sim.about.clone(),
        subject: "sluice",
        seed: scenario.sim.seed,
        profile: scenario.tcp.profile.name(),
        congestion: scenario.tcp.congestion.name(),
        rto_min: tcp.rto_min,
        background: scenario.background != Noise::None,
        settings: vec![(scenario.sim.name.clone(), settings)],
        cases,
        warnings: warnings(&tcp),
        trace: scenario.trace.clone(),
    })
}

/// Flattens a scenario's keys to `table_key`; lists stay whole.
fn flatten(prefix: &str, value: &Value, into: &mut Map<String, Value>) {
    let Value::Object(table) = value else {
        into.insert(prefix.to_owned(), value.clone());
        return;
    };
    for (key, value) in table {
        let under = if prefix.is_empty() { key.clone() } else { format!("{prefix}_{key}") };
        flatten(&under, value, into);
    }
}

/// Returns the workload of each size.
fn loads(scenario: &SimScenario, tcp: &Arc<tcp::Config>) -> Vec<(u32, Load)> {
    let seed = scenario.sim.seed;
    let priority = Priority::from_low_bits(scenario.classes.workload);
    let mss = u64::from(tcp.mss);
    let stations = scenario.stations();
    let first_other = stations / scenario.topology.hosts();
    let aggregate = |workers: Vec<u32>, size: u32, (queries, warm_up, gap_us): (u32, u32, u64)| {
        Load::Aggregate(Aggregate {
            tcp: Arc::clone(tcp),
            aggregator: 0,
            workers,
            request_bytes: crate::pa::REQUEST_BYTES as u64,
            response_bytes: u64::from(size) * mss,
            queries,
            warm_up,
            gap: Nanos::from_micros(gap_us),
            priority,
            seed,
        })
    };
    match &scenario.workload {
        scenario::Load::Pa { sizes, queries, warm_up, gap_us } => {
            let how = (*queries, *warm_up, *gap_us);
            sizes.iter().map(|&s| (s, aggregate((1..stations).collect(), s, how))).collect()
        }
        scenario::Load::Incast { senders, sizes, queries, warm_up, gap_us } => {
            let how = (*queries, *warm_up, *gap_us);
            let senders: Vec<u32> = (first_other..first_other + senders).collect();
            sizes.iter().map(|&s| (s, aggregate(senders.clone(), s, how))).collect()
        }
        scenario::Load::Search { sizes, clients, message_bytes, queries, warm_up, gap_us } => {
            let search = |&size: &u32| {
                let search = Search {
                    tcp: Arc::clone(tcp),
                    hosts: scenario.topology.hosts(),
                    clients: *clients,
                    rack: scenario.topology.rack(),
                    bytes: message_bytes.unwrap_or(u64::from(size) * mss),
                    gap: Nanos::from_micros(*gap_us),
                    queries: *queries,
                    warm_up: *warm_up,
                    priority,
                    seed,
                };
                (size, Load::Search(search))
            };
            sizes.iter().map(search).collect()
        }
        scenario::Load::Permutation { shift, .. } => {
            let shift = shift % stations;
            vec![(0, Load::Permutation { tcp: Arc::clone(tcp), stations, shift, priority, seed })]
        }
        scenario::Load::UdpSources(load) => {
            vec![(0, Load::Sources(sources::workload(scenario, load)))]
        }
    }
}

fn tcp_of(scenario: &SimScenario) -> Arc<tcp::Config> {
    let own = &scenario.tcp;
    let algorithm = match own.congestion {
        scenario::Congestion::Cubic => tcp::Algorithm::Cubic,
        scenario::Congestion::Newreno => tcp::Algorithm::NewReno,
        scenario::Congestion::Vegas => tcp::Algorithm::Vegas,
    };
    let mut config = match own.profile {
        scenario::Profile::Linux2013 => tcp::Config::linux_2013(algorithm),
        scenario::Profile::LinuxNow => tcp::Config::linux_now(algorithm),
        scenario::Profile::Freebsd9 => tcp::Config::freebsd9(algorithm),
    };
    config.mss = mss(&config, scenario.mtu());
    let nanos = |us: Option<u64>, profile: Nanos| us.map_or(profile, Nanos::from_micros);
    config.rto_initial = nanos(own.rto_initial_us, config.rto_initial);
    config.rto_min = nanos(own.rto_min_us, config.rto_min);
    config.rto_slop = nanos(own.rto_slop_us, config.rto_slop);
    config.tick = nanos(own.tick_us, config.tick);
    config.initial_window = own.initial_window.unwrap_or(config.initial_window);
    config.send_buffer = own.send_buffer_kb.map_or(config.send_buffer, |kb| kb * 1000);
    config.receive_buffer = own.receive_buffer_kb.map_or(config.receive_buffer, |kb| kb * 1000);
    config.ack_every = own.ack_every.unwrap_or(config.ack_every);
    config.ack_delay = nanos(own.ack_delay_us, config.ack_delay);
    config.quick_acks = own.quick_acks.unwrap_or(config.quick_acks);
    config.idle_restart = own.idle_restart.unwrap_or(config.idle_restart);
    Arc::new(config)
}

/// Returns the warning of a TCP that sends again what was not lost.
pub(super) fn warnings(config: &tcp::Config) -> Vec<String> {
    let early = config.ack_delay_outlasts_rto();
    let text = || {
        format!(
            "tcp.ack_delay_us: an acknowledgement may be delayed for {} us, and a sender waits for \
             {} us at least (rto_min and rto_slop): segments that are not lost time out. Make it \
             less, or set tcp.ack_every = 1",
            config.ack_delay.0 / 1000,
            config.least_rto().0 / 1000
        )
    };
    early.then(text).into_iter().collect()
}

/// Returns the payload of a full segment: the MTU without the headers of IPv4 and of TCP.
pub(crate) fn mss(config: &tcp::Config, mtu: u16) -> u32 {
    u32::from(mtu) - if config.stamps() { 52 } else { 40 }
}

fn background(
    scenario: &SimScenario,
    tcp: &Arc<tcp::Config>,
) -> anyhow::Result<Option<Background>> {
    let (carrier, sizes, load_percent, vm) = match &scenario.background {
        Noise::None | Noise::UdpSources(_) => return Ok(None),
        Noise::Tcp { sizes, load_percent, vm } => {
            (Carrier::Tcp(Arc::clone(tcp)), sizes, *load_percent, *vm)
        }
        Noise::Udp { sizes, load_percent, vm, datagram_bytes, flow_mbps, full } => {
            let rate = BitRate::from_mbps(*flow_mbps);
            let full = match full {
                scenario::Full::Wait => Full::Wait,
                scenario::Full::Drop => Full::Drop,
            };
            (Carrier::Udp { bytes: *datagram_bytes, rate, full }, sizes, *load_percent, *vm)
        }
    };
    let sizes = Sizes::by_name(sizes).context("background.sizes: no such distribution")?;
    let vms = scenario.overlay.as_ref().map_or(1, |overlay| overlay.vms_per_host);
    let stations: Vec<u32> =
        (0..scenario.stations()).filter(|at| vm.is_none_or(|vm| at % vms == vm)).collect();
    ensure!(stations.len() >= 2, "background: it needs two machines at least");
    let link = BitRate::from_mbps(scenario.topology.link().0);
    Ok(Some(Background {
        carrier,
        sizes,
        stations,
        gap: Background::gap_for(&sizes, link, load_percent),
        priority: Priority::from_low_bits(scenario.classes.background),
        seed: scenario.sim.seed,
    }))
}

/// A data centre without a policy.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) topology: Topology,
    pub(crate) net: NetConfig,
    pub(crate) overlay: Option<OverlayConfig>,
    pub(crate) send_latency: Nanos,
    pub(crate) receive_latency: Nanos,
    /// The priorities of which a lossless network drops nothing.
    pub(crate) lossless: PriorityMask,
    /// True if missing headroom behind XOFF is added to a buffer, as the daemon adds it; false if
    /// missing headroom is an error.
    pub(crate) adds_headroom: bool,
}

impl Parts {
    fn of_sim(scenario: &SimScenario) -> Self {
        let own = &scenario.switch;
        let clients = match &scenario.workload {
            scenario::Load::Search { clients, .. } => *clients,
            scenario::Load::Pa { .. }
            | scenario::Load::Incast { .. }
            | scenario::Load::Permutation { .. }
            | scenario::Load::UdpSources(_) => 0,
        };
        let topology = topology(&scenario.topology, clients);
        let rate = topology.cables.iter().map(|cable| cable.rate.0).max().unwrap_or(0);
        let response = own.pause_response_ns.map(Nanos);
        let kb =
            |kb: Option<u64>, tenths: u64| kb.map_or(own.buffer_kb * 100 * tenths, |kb| kb * 1000);
        let underlay = scenario.overlay.as_ref().map_or(1500, |overlay| overlay.mtu + OUTER);
        let net = NetConfig {
            lossless: PriorityMask::NONE,
            buffer: ByteCount(own.buffer_kb * 1000),
            buffering: match own.buffering {
                Place::Input => Buffering::Input,
                Place::Output => Buffering::Output,
            },
            xoff: ByteCount(kb(own.xoff_kb, 6)),
            xon: ByteCount(kb(own.xon_kb, 4)),
            mark: None,
            latency: Nanos(own.latency_ns),
            pause_response: response.unwrap_or_else(|| pause_response(BitRate(rate))),
            overhead: own.overhead_bytes,
            frame_max: underlay + ETHERNET,
        };
        Self {
            topology,
            net,
            overlay: scenario.overlay.as_ref().map(|own| overlay(own, &scenario.classes)),
            send_latency: Nanos(scenario.sim.send_latency_ns),
            receive_latency: Nanos(scenario.sim.receive_latency_ns),
            lossless: scenario.classes.lossless(),
            adds_headroom: false,
        }
    }

    /// Returns the data centre under a policy.
    ///
    /// # Errors
    ///
    /// A buffer has no headroom for the frames that arrive after XOFF.
    pub(crate) fn world(mut self, policy: Policy, seed: u64) -> anyhow::Result<WorldConfig> {
        let pauses = policy.physical_lossless();
        if pauses {
            self.net.lossless = self.lossless;
            self.headroom()?;
        }
        if let Some(overlay) = &mut self.overlay {
            if policy.virtual_lossless() {
                overlay.lossless = self.lossless;
            }
            overlay.card_priorities = self.lossless;
            if pauses {
                let bytes = overlay.card_in.bytes.0;
                let smallest = u32::try_from(bytes / FRAME_BYTES_MIN).unwrap_or(u32::MAX);
                overlay.card_in.frames = overlay.card_in.frames.max(smallest.min(1 << 16));
                overlay.card_pause = Some((ByteCount(bytes / 10 * 6), ByteCount(bytes / 10 * 4)));
            }
        }
        Ok(WorldConfig {
            topology: self.topology,
            net: self.net,
            overlay: self.overlay,
            send_latency: self.send_latency,
            receive_latency: self.receive_latency,
            seed,
            ties: Ties::Fifo,
        })
    }

    fn headroom(&mut self) -> anyhow::Result<()> {
        for cable in &self.topology.cables {
            let needed = self.net.headroom(cable.rate, cable.delay);
            if self.adds_headroom {
                self.net.buffer = self.net.buffer.max(self.net.xoff + needed);
            }
            self.net.check(cable.rate, cable.delay).map_err(|error| {
                anyhow::anyhow!("switch.buffer_kb, switch.xoff_kb, switch.xon_kb: {error}")
            })?;
            if let Some(overlay) = &self.overlay {
                let there = overlay.card_in.bytes.0 * 4 / 10;
                ensure!(
                    there >= needed.0,
                    "overlay.card_kb: {} bytes may still come after XOFF at 60 % of the card's \
                     buffer, and there is room for {there}: make it {} KB at least",
                    needed.0,
                    (needed.0 * 10 / 4).div_ceil(1000)
                );
            }
        }
        Ok(())
    }
}

/// Returns the duration of [`PAUSE_RESPONSE`] at this rate.
pub(crate) fn pause_response(rate: BitRate) -> Nanos {
    rate.time_for(PAUSE_RESPONSE)
}

/// Returns a limit in frames.
pub(crate) fn frames(frames: u32) -> Limit {
    Limit { frames, bytes: ByteCount(u64::from(frames) * FRAME_BYTES) }
}

/// Returns a limit in frames, or, with `kb`, in bytes however small the frames.
fn frames_or_kb(count: u32, kb: Option<u64>) -> Limit {
    let Some(kb) = kb else { return frames(count) };
    let most = u32::try_from(kb * 1000 / FRAME_BYTES_MIN).unwrap_or(u32::MAX).min(1 << 16);
    Limit { frames: most, bytes: ByteCount(kb * 1000) }
}

fn overlay(own: &scenario::Overlay, classes: &scenario::Classes) -> OverlayConfig {
    OverlayConfig {
        vms_per_host: own.vms_per_host,
        lossless: PriorityMask::NONE,
        service: classes.service(),
        own_queues: classes.own_queues(),
        mtu: own.mtu,
        vm_in: frames_or_kb(own.vm_frames, own.vm_kb),
        vm_out: frames_or_kb(own.vm_frames, own.vm_kb),
        vm_rate: own.vm_mbps.map(BitRate::from_mbps),
        card_in: frames_or_kb(own.card_frames, own.card_kb),
        card_out: frames(own.tunnel_frames),
        pool: frames(own.pool_frames),
        card_pause: None,
        card_priorities: PriorityMask::ALL,
    }
}

/// Returns settings in the form of the results.
pub(crate) fn listed(pairs: &[(&str, Value)]) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

#[cfg(test)]
mod tests;
