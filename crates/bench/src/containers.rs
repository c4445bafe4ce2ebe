//! `make bench PART=containers`: cost of a container's port, beside a Linux bridge.
//!
//! ```text
//!   c1 ─ TAP or veth ─┤ h1 ├ ═══ cable, for two hosts ═══ ┤ h2 ├─ TAP or veth ─ c2
//! ```
//!
//! The figures are pings of an idle container, pings beside the container's own TCP flow, and that
//! flow, with the processor time of all parties; and a flood of datagrams, with what of it is lost.
//! Between two hosts Sluice uses its `l2` and its `udp` underlay, and the bridges the kernel's
//! VXLAN. Subjects take turns in each round; other programs on the machine affect all, so that a
//! ratio within a round is worth more than a figure.

mod ping;
mod rig;

use std::time::Duration;

use sluice_api::results::{Row, median};

use self::ping::Pinger;
use self::rig::{Flows, Pair, Stream, Streamed};
use crate::fabric::net::{is_installed, obstacle, sweep};
use crate::report;

/// Extent of the measurements.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds: in each, every subject once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Pings of each figure.
    #[arg(long, default_value_t = 1000)]
    pings: usize,
    /// Seconds of a TCP flow.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Only with this number of hosts.
    #[arg(long)]
    hosts: Option<usize>,
    /// Only with the offloads of containers, or only without.
    #[arg(long)]
    offload: Option<bool>,
    /// A line for `[host]` of the daemon's configuration, such as `pace_us = 0`.
    #[arg(long, default_value = "")]
    setting: String,
}

/// The switch that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Sluice,
    Bridge,
}

impl Subject {
    const fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::Bridge => "linux-bridge",
        }
    }
}

const PERCENTILES: [(f64, &str); 2] = [(0.5, "50"), (0.99, "99")];
/// Pause between two pings of an idle container: longer than any sleep of a busy worker.
const PING_PAUSE: Duration = Duration::from_millis(2);
const MTU: u16 = 1450;

/// Returns a percentile of some times, in nanoseconds.
fn percentile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let at = (times.len() - 1) as f64 * part;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = at.round() as usize;
    times[at].as_secs_f64() * 1e9
}

/// A container's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    Tap,
    /// One end of a veth pair: with the other one Sluice holds its senders, and takes no offloads.
    Veth,
    /// One end of a veth pair, whose frames the kernel forwards as the chip of its host.
    Kernel,
}

impl Card {
    const fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Veth => "veth",
            Self::Kernel => "kernel",
        }
    }
}

/// The link between two hosts, as a subject uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Underlay {
    /// There is one host.
    None,
    /// Sluice's underlay of raw frames, and that of sockets.
    L2,
    Udp,
    /// The kernel's own VXLAN.
    Vxlan,
}

impl Underlay {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::L2 => "l2",
            Self::Udp => "udp",
            Self::Vxlan => "vxlan",
        }
    }

    /// Policy of Sluice's hosts: a socket can pause no wire.
    const fn policy(self) -> &'static str {
        match self {
            Self::None | Self::L2 => "ZZ",
            Self::Udp => "ZL",
            Self::Vxlan => "LL",
        }
    }

    /// Subjects on this number of hosts, with the containers' cards and their links.
    const fn of(hosts: usize) -> &'static [(Subject, Card, Self)] {
        match hosts {
            1 => &[
                (Subject::Sluice, Card::Tap, Self::None),
                (Subject::Sluice, Card::Veth, Self::None),
                (Subject::Bridge, Card::Veth, Self::None),
            ],
            _ => &[
                (Subject::Sluice, Card::Tap, Self::L2),
                (Subject::Sluice, Card::Veth, Self::L2),
                (Subject::Sluice, Card::Tap, Self::Udp),
                (Subject::Sluice, Card::Kernel, Self::L2),
                (Subject::Bridge, Card::Veth, Self::Vxlan),
            ],
        }
    }
}

/// Subject and conditions of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    subject: Subject,
    card: Card,
    hosts: usize,
    underlay: Underlay,
    /// True if containers leave checksums and segmentation to their card.
    offload: bool,
}

/// Numbers of TCP flows at a time.
const STREAMS: [usize; 2] = [1, 8];

/// Values of one setup, one per round.
struct Figures {
    setup: Setup,
    idle: [Vec<f64>; 2],
    beside: [Vec<f64>; 2],
    /// By number of flows.
    rate: [Vec<f64>; 2],
    cores_per_gbit: [Vec<f64>; 2],
    /// Datagrams as fast as they are taken: what came, and the percentage that did not.
    flood: Vec<f64>,
    flood_lost: Vec<f64>,
}

impl Figures {
    fn new(setup: Setup) -> Self {
        let (idle, beside) = Default::default();
        let (rate, cores_per_gbit) = Default::default();
        let (flood, flood_lost) = Default::default();
        Self { setup, idle, beside, rate, cores_per_gbit, flood, flood_lost }
    }

    fn round(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let pair = Pair::new(self.setup, &plan.setting)?;
        let mut pinger = Pinger::new(&pair.containers[0], Pair::ADDRESSES[1])?;
        // ARP and learning are done after these.
        for _ in 0..10 {
            pinger.ping()?;
        }
        let mut keep = |into: &mut [Vec<f64>; 2], count: usize, pause| -> anyhow::Result<()> {
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                std::thread::sleep(pause);
                times.push(pinger.ping()?);
            }
            for (values, (part, _)) in into.iter_mut().zip(PERCENTILES) {
                values.push(percentile(&mut times, part));
            }
            Ok(())
        };
        keep(&mut self.idle, plan.pings, PING_PAUSE)?;
        let stream = Stream::start(&pair, Flows::Tcp(STREAMS[0]), plan.seconds)?;
        std::thread::sleep(Duration::from_secs(1));
        let pings = usize::try_from(plan.seconds)?.saturating_sub(2).max(1) * 10;
        keep(&mut self.beside, pings, Duration::from_millis(50))?;
        self.streamed(0, &stream.end(&pair)?);
        let streams = Stream::start(&pair, Flows::Tcp(STREAMS[1]), plan.seconds)?;
        self.streamed(1, &streams.end(&pair)?);
        let flood = Stream::start(&pair, Flows::Udp, plan.seconds)?.end(&pair)?;
        self.flood.push(flood.bits_per_s);
        self.flood_lost.push(flood.lost_percent);
        Ok(())
    }

    fn streamed(&mut self, at: usize, streamed: &Streamed) {
        self.rate[at].push(streamed.bits_per_s);
        self.cores_per_gbit[at].push(streamed.cores / (streamed.bits_per_s / 1e9));
    }

    fn rows(&self) -> Vec<Row> {
        let Setup { subject, card, hosts, underlay, offload } = self.setup;
        let kind = card.name();
        let policy = if subject == Subject::Sluice { underlay.policy() } else { "none" };
        let underlay = underlay.name();
        let mut rows = Vec::new();
        for (load, values) in [("none", &self.idle), ("own-tcp", &self.beside)] {
            for (values, (_, name)) in values.iter().zip(PERCENTILES) {
                let row = Row::new("ping", subject.name(), "ns", values.clone());
                let row = row.with("hosts", hosts).with("underlay", underlay);
                let row = row.with("percentile", name).with("kind", kind);
                rows.push(row.with("load", load).with("offload", offload));
            }
        }
        for (at, streams) in STREAMS.into_iter().enumerate() {
            let row = Row::new("tcp_stream", subject.name(), "bit/s", self.rate[at].clone());
            let row = row.with("hosts", hosts).with("underlay", underlay);
            let row = row.with("streams", streams).with("offload", offload);
            let row = row.with("mtu", MTU).with("kind", kind).with("port_kind", kind);
            let row = row.with("policy", policy);
            rows.push(row.with("cores_per_gbit", median(&self.cores_per_gbit[at])));
        }
        let row = Row::new("udp_flood", subject.name(), "bit/s", self.flood.clone());
        let row = row.with("hosts", hosts).with("underlay", underlay).with("offload", offload);
        let row = row.with("mtu", MTU).with("kind", kind).with("policy", policy);
        rows.push(row.with("lost_percent", median(&self.flood_lost)));
        rows
    }
}

/// Measures and reports.
///
/// # Errors
/// If something is missing, or a daemon does not start.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let missing = || (!is_installed("iperf3")).then(|| "`iperf3` is not installed".to_owned());
    if let Some(why) = obstacle().or_else(missing) {
        anyhow::bail!("nothing can be measured: {why}");
    }
    sweep();
    let all = [false, true].into_iter().filter(|on| plan.offload.is_none_or(|only| only == *on));
    let all = all.flat_map(|offload| [1, 2].map(|hosts| (offload, hosts)));
    let all = all.filter(|(_, hosts)| plan.hosts.is_none_or(|only| only == *hosts));
    let setups = all.flat_map(|(offload, hosts)| {
        let setup = move |&(subject, card, underlay): &(Subject, Card, Underlay)| {
            // A veth pair that holds its senders has none, and the kernel's
            // is as the kernel has it.
            let fits = match (subject, card) {
                (Subject::Sluice, Card::Veth) => !offload,
                (Subject::Sluice, Card::Kernel) => offload,
                _ => true,
            };
            fits.then(|| Figures::new(Setup { subject, card, hosts, underlay, offload }))
        };
        Underlay::of(hosts).iter().filter_map(setup)
    });
    let mut all: Vec<Figures> = setups.collect();
    for round in 1..=plan.rounds {
        for figures in &mut all {
            figures.round(plan)?;
        }
        eprintln!("round {round} of {}", plan.rounds);
    }
    report::finish("containers", all.iter().flat_map(Figures::rows).collect())
}
