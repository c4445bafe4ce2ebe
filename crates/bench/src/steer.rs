//! `make bench PART=steer`: benefit of doing the kernel's tunnel work on the right core.
//!
//! Two network namespaces stand for two hosts with VXLAN between them. On the second one a guest,
//! busy and pinned to a core, takes numbered datagrams of several flows and works on each. The
//! sender is pinned to the other core. The guest's core alternates between rounds, so that a core's
//! number does not matter.
//!
//! | subject | tunnel work |
//! |---|---|
//! | `none` | the core on which packets come in, the sender's: nothing steers |
//! | `free-core`, `guest-core` | `sluice steer` by hash over one core: the two fixed choices |
//! | `rps` | the kernel's receive packet steering by the hash of outer headers, over both cores |
//! | `rss` | `sluice steer` by the hash of the inner flow, over both cores |
//! | `adaptive` | `sluice steer` in adaptive mode, over both cores |
//! | `sluice-free`, `sluice-guest` | Sluice's own data worker on that core, no kernel's VXLAN |
//! | `sluice-rss`, `sluice-adaptive` | two data workers, one on each core, by that rule |
//!
//! | file | content |
//! |---|---|
//! | `rig` | namespaces, processes |
//! | `guest`, `sender` | the two processes |
//! | `frames` | datagrams of the sender |
//! | `cores` | usage of the cores |
//! | `sizing` | size of the load |

mod cores;
mod frames;
mod guest;
mod rig;
mod sender;
mod sizing;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use sluice_api::results::{Row, median};
use sluice_base::Mac;

pub(crate) use self::guest::{Guest, run as run_guest};
use self::rig::{Daemon, Rig, Steer, Talker};
pub(crate) use self::sender::{Sender, run as run_sender};
use self::sizing::Load;
use crate::fabric::net::{obstacle, sweep};
use crate::report;

/// Inner address of the sender, behind its tunnel.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SENDER_MAC: Mac = Mac([2, 0, 0, 0, 0x77, 1]);
const GUEST_MAC: Mac = Mac([2, 0, 0, 0, 0x77, 0x99]);
/// VNI of the network.
const VNI: u32 = 77;
/// Port of the guest, for every flow.
const PORT: u16 = 7000;
/// Source port of the first flow; the next ones follow.
const FIRST_PORT: u16 = 9000;
/// Time for which the cores must be idle before a measurement.
const QUIET: Duration = Duration::from_millis(200);
/// Number of cores that take part.
const CORES: usize = 2;

/// Returns the guest's address of a flow. Each flow has its own: fragments have no ports, and the
/// hash of a packet must not lead all flows to one core.
fn guest_address(flow: u16) -> Ipv4Addr {
    let [high, low] = (100 + flow).to_be_bytes();
    Ipv4Addr::new(10, 9, high, low)
}

fn pin(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("pinning to core {core}"))
}

fn numbers(all: &[u64]) -> String {
    all.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Extent of the measurements.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds: in each, every subject once with every size.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Milliseconds before each window.
    #[arg(long, default_value_t = 1900)]
    settle_ms: u64,
    /// Milliseconds of each window.
    #[arg(long, default_value_t = 300)]
    window_ms: u64,
    /// Flows.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=28))]
    flows: u16,
    /// Usage of other programs, in cores, up to which a window counts.
    #[arg(long, default_value_t = 0.2)]
    quiet: f64,
    /// Seconds after which busy windows count as well.
    #[arg(long, default_value_t = 1800)]
    patience_s: u64,
    /// Only these subjects.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A load instead of two that are sized for this machine: bytes of a datagram, datagrams a
    /// second, nanoseconds of the guest's work on each.
    #[arg(long, value_parser = sizing::load)]
    load: Vec<Load>,
}

/// The party that does the tunnel work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    None,
    FreeCore,
    GuestCore,
    Rps,
    Rss,
    Adaptive,
    SluiceFree,
    SluiceGuest,
    SluiceRss,
    SluiceAdaptive,
}

const SUBJECTS: [(Subject, &str); 10] = [
    (Subject::None, "none"),
    (Subject::FreeCore, "free-core"),
    (Subject::GuestCore, "guest-core"),
    (Subject::Rps, "rps"),
    (Subject::Rss, "rss"),
    (Subject::Adaptive, "adaptive"),
    (Subject::SluiceFree, "sluice-free"),
    (Subject::SluiceGuest, "sluice-guest"),
    (Subject::SluiceRss, "sluice-rss"),
    (Subject::SluiceAdaptive, "sluice-adaptive"),
];

/// Pairs of subjects that are compared, the first with the second, round by round.
const PAIRS: [(Subject, Subject); 9] = [
    (Subject::Adaptive, Subject::FreeCore),
    (Subject::Adaptive, Subject::GuestCore),
    (Subject::Adaptive, Subject::None),
    (Subject::Adaptive, Subject::Rps),
    (Subject::Adaptive, Subject::Rss),
    (Subject::SluiceFree, Subject::SluiceGuest),
    (Subject::SluiceAdaptive, Subject::SluiceFree),
    (Subject::SluiceAdaptive, Subject::SluiceGuest),
    (Subject::SluiceAdaptive, Subject::SluiceRss),
];

impl Subject {
    fn name(self) -> &'static str {
        SUBJECTS[self as usize].1
    }

    /// Returns the arguments of `sluice steer`; `None` if it does not run.
    fn words(self, guest_core: usize) -> Option<String> {
        let words = match self {
            Self::None => return None,
            Self::SluiceFree | Self::SluiceGuest | Self::SluiceRss | Self::SluiceAdaptive => {
                return None;
            }
            Self::FreeCore => format!("--mode rss --cores {}", 1 - guest_core),
            Self::GuestCore => format!("--mode rss --cores {guest_core}"),
            Self::Rps => "--mode rss --xdp rps --cores 0,1".to_owned(),
            Self::Rss => "--mode rss --cores 0,1".to_owned(),
            Self::Adaptive => "--mode adaptive --cores 0,1".to_owned(),
        };
        Some(words + " --patience-ms 200")
    }

    /// Returns the configuration of Sluice's own data workers, if they do the work.
    fn workers(self, guest_core: usize) -> Option<String> {
        let one = |core: usize| Some(format!("worker_cpu = {core}"));
        let two =
            |rule: &str| Some(format!("workers = 2\nworker_cpus = [0, 1]\nplacement = \"{rule}\""));
        match self {
            Self::SluiceFree => one(1 - guest_core),
            Self::SluiceGuest => one(guest_core),
            Self::SluiceRss => two("rss"),
            Self::SluiceAdaptive => two("adaptive"),
            _ => None,
        }
    }
}

/// Every value of every round, by load, measure, subject and core.
type Values = BTreeMap<(usize, &'static str, &'static str, &'static str), Vec<f64>>;

/// Figures of a window.
struct Seen {
    throughput: f64,
    /// Datagrams sent per second.
    sent: f64,
    loss: f64,
    late: f64,
    pieces: f64,
    /// Usage of other programs, in cores.
    others: f64,
    cores: [cores::Shares; CORES],
}

/// Runs the part.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    if let Some(obstacle) = obstacle() {
        eprintln!("SKIPPED steer: {obstacle}");
        return Ok(());
    }
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(there >= CORES, "a core for the guest and another one are needed, there is {there}");
    sweep();
    let known: Vec<&str> = SUBJECTS.iter().map(|(_, name)| *name).collect();
    for name in &plan.only {
        ensure!(known.contains(&name.as_str()), "no subject `{name}`; there are {known:?}");
    }
    let wanted = |name: &str| plan.only.is_empty() || plan.only.iter().any(|only| only == name);
    let subjects: Vec<Subject> =
        SUBJECTS.iter().filter(|(_, name)| wanted(name)).map(|(subject, _)| *subject).collect();
    let rigs = [Rig::kernel()?, Rig::sluice()?];
    let until = Instant::now() + Duration::from_secs(plan.patience_s);
    let mut quiet = Quiet { most: plan.quiet, until, again: 0 };
    let loads = if plan.load.is_empty() {
        sizing::loads(&rigs, plan, &mut quiet)?
    } else {
        plan.load.clone()
    };
    let mut values = Values::new();
    for round in 0..plan.rounds {
        eprintln!("round {} of {}, {} windows repeated", round + 1, plan.rounds, quiet.again);
        for (nth, load) in loads.iter().enumerate() {
            let guest_core = (round + nth) % CORES;
            for at in 0..subjects.len() {
                let subject = subjects[(at + round) % subjects.len()];
                let seen = quiet
                    .window(|| Bench::start(&rigs, plan, load, subject, guest_core)?.measure())?;
                keep(&mut values, (nth, subject, guest_core), &seen);
            }
        }
    }
    drop(rigs);
    println!("{} windows were repeated, for other programs used the cores", quiet.again);
    report::finish("steer", rows(&values, &loads, &subjects))
}

/// Repeats measurements until other programs leave the cores alone, up to a deadline.
struct Quiet {
    /// Largest usage of other programs, in cores.
    most: f64,
    until: Instant,
    /// Number of windows that were measured again.
    again: u32,
}

impl Quiet {
    /// Repeats a measurement until the cores were quiet meanwhile.
    fn window(&mut self, measure: impl Fn() -> anyhow::Result<Seen>) -> anyhow::Result<Seen> {
        loop {
            self.wait()?;
            let seen = measure()?;
            if self.is_enough(seen.others) {
                return Ok(seen);
            }
            self.again += 1;
        }
    }

    /// Waits until other programs leave the cores alone for a moment.
    fn wait(&self) -> anyhow::Result<()> {
        loop {
            let before = cores::look::<CORES>()?;
            std::thread::sleep(QUIET);
            let others = cores::of_others(&before, &cores::look::<CORES>()?, 0);
            if self.is_enough(others) {
                return Ok(());
            }
        }
    }

    fn is_enough(&self, others: f64) -> bool {
        others <= self.most || Instant::now() >= self.until
    }
}

/// The processes that run while one subject is measured.
struct Bench<'a> {
    plan: &'a Plan,
    load: &'a Load,
    subject: Subject,
    guest: Talker,
    sender: Talker,
    steer: Option<Steer>,
    daemon: Option<Daemon>,
}

impl<'a> Bench<'a> {
    fn start(
        [kernel, sluice]: &[Rig; 2],
        plan: &'a Plan,
        load: &'a Load,
        subject: Subject,
        guest_core: usize,
    ) -> anyhow::Result<Self> {
        let workers = subject.workers(guest_core);
        let rig = if workers.is_some() { sluice } else { kernel };
        let Plan { flows, .. } = plan;
        let Load { bytes, rate, work_ns } = load;
        let line = format!("steer-guest --core {guest_core} --flows {flows} --work-ns {work_ns}");
        let mut guest = Talker::start(&rig.guest, &line)?;
        guest.ask::<3>()?;
        // The guest must run before `sluice` looks for it.
        let daemon = workers.map(|workers| rig.daemon(&workers)).transpose()?;
        let core = 1 - guest_core;
        let line =
            format!("steer-sender --core {core} --flows {flows} --bytes {bytes} --rate {rate}");
        let sender = Talker::start(&rig.a, &line)?;
        let words = subject.words(guest_core);
        let steer = words.map(|words| Steer::start(&rig.b, &words)).transpose()?;
        Ok(Self { plan, load, subject, guest, sender, steer, daemon })
    }

    fn measure(mut self) -> anyhow::Result<Seen> {
        std::thread::sleep(Duration::from_millis(self.plan.settle_ms));
        let before = self.look()?;
        std::thread::sleep(Duration::from_millis(self.plan.window_ms));
        let after = self.look()?;
        let said = self.steer.take().map(Steer::end).transpose()?;
        if let Some(forced) = said.as_ref().and_then(|said| said["forced"].as_u64()) {
            let steered = said.as_ref().and_then(|said| said["steered"].as_u64());
            ensure!(steered > Some(0), "{} steered nothing ({forced} forced)", self.subject.name());
        }
        Ok(self.seen(&before, &after))
    }

    fn look(&mut self) -> anyhow::Result<Look> {
        let [came, late, pieces] = self.guest.ask()?;
        let [sent] = self.sender.ask()?;
        let at = Instant::now();
        // The data process is the daemon's child; every other process is a child of this one.
        let daemon = self.daemon.as_ref().map(Daemon::pid);
        let own = cores::of_family(std::process::id()) + daemon.map_or(0, cores::of_family);
        Ok(Look { at, came, late, pieces, sent, own, cores: cores::look()? })
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a second")]
    fn seen(&self, before: &Look, after: &Look) -> Seen {
        let seconds = (after.at - before.at).as_secs_f64();
        let came = (after.came - before.came) as f64;
        let sent = (after.sent - before.sent).max(1) as f64;
        let cores = [0, 1].map(|core| after.cores[core].since(before.cores[core]));
        Seen {
            throughput: came * self.load.bytes as f64 * 8.0 / seconds,
            sent: sent / seconds,
            // The datagrams in flight differ between the two samples.
            loss: (1.0 - came / sent).max(0.0),
            late: (after.late - before.late) as f64 / came.max(1.0),
            pieces: (after.pieces - before.pieces) as f64 / seconds,
            others: cores::of_others(
                &before.cores,
                &after.cores,
                after.own.saturating_sub(before.own),
            ),
            cores,
        }
    }
}

/// A sample of all counters.
struct Look {
    at: Instant,
    came: u64,
    late: u64,
    pieces: u64,
    sent: u64,
    /// Ticks of the processes of this measurement.
    own: u64,
    cores: [cores::Times; CORES],
}

fn keep(values: &mut Values, (load, subject, guest_core): (usize, Subject, usize), seen: &Seen) {
    let mut add = |measure, core, value| {
        values.entry((load, measure, subject.name(), core)).or_default().push(value);
    };
    add("steer.throughput", "", seen.throughput);
    add("steer.sent", "", seen.sent);
    add("steer.loss", "", seen.loss);
    add("steer.late", "", seen.late);
    add("steer.guest_rest", "", seen.pieces);
    add("steer.others", "", seen.others);
    for (name, core) in [("guest", guest_core), ("free", 1 - guest_core)] {
        add("steer.softirq", name, seen.cores[core].softirq);
        add("steer.kernel", name, seen.cores[core].kernel);
        add("steer.user", name, seen.cores[core].user);
    }
}

/// Returns the rows of the results.
fn rows(values: &Values, loads: &[Load], subjects: &[Subject]) -> Vec<Row> {
    let unit = |measure| match measure {
        "steer.throughput" => "bit/s",
        "steer.guest_rest" | "steer.sent" => "1/s",
        "steer.others" => "cores",
        _ => "ratio",
    };
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let average: Vec<&str> = average.split(' ').take(3).collect();
    let mut rows = Vec::new();
    for (&(nth, measure, subject, core), all) in values {
        let mut row = Row::new(measure, subject, unit(measure), all.clone())
            .with("frame_bytes", loads[nth].bytes)
            .with("offered", loads[nth].rate)
            .with("work_ns", loads[nth].work_ns)
            .with("load_average", average.join(" "));
        if !core.is_empty() {
            row = row.with("core", core);
        }
        rows.push(row);
    }
    for (nth, load) in loads.iter().enumerate() {
        let compared = PAIRS.iter().filter(|(a, b)| subjects.contains(a) && subjects.contains(b));
        rows.extend(compared.map(|pair| ratio(values, nth, load, *pair)));
    }
    rows
}

/// Returns the throughput of one subject over that of another, round by round.
fn ratio(values: &Values, nth: usize, load: &Load, (ours, theirs): (Subject, Subject)) -> Row {
    let of = |subject: Subject| &values[&(nth, "steer.throughput", subject.name(), "")];
    let pairs = of(ours).iter().zip(of(theirs));
    let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs.max(1.0)).collect();
    let (low, high) = report::interval_of_median(&ratios);
    println!(
        "{} bytes, {} over {}, {} pairs: median {:.3}, 95 % interval {low:.3} to {high:.3}",
        load.bytes,
        ours.name(),
        theirs.name(),
        ratios.len(),
        median(&ratios)
    );
    Row::new("steer.ratio", ours.name(), "ratio", ratios)
        .with("frame_bytes", load.bytes)
        .with("over", theirs.name())
        .with("ci95_low", low)
        .with("ci95_high", high)
}
