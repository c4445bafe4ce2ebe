//! Runs one cell and checks its promises.
//!
//! A broken promise is reported with the seed, the final state and the command that repeats the
//! run. A simulation is a function of its scenario and its seed, so that the command gives the same
//! result.

use sluice_base::{DropReason, Nanos};
use sluice_sim::workload::{
    Aggregating, BackgroundTraffic, Exchanging, Permutation, Searching, SourceCounts, Sources,
};
use sluice_sim::world::{ConnectionId, End, Notice, Place, Summary, Workload, World};

use super::experiment::{Case, Load};
use super::trace::TraceFile;
use crate::losses::Losses;

/// Result of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Completion times of queries, or of the echoes or the transfer of a check.
    pub(crate) fct_ns: Vec<u64>,
    /// Bytes delivered by each endless flow, or by each UDP source that is the workload.
    pub(crate) delivered: Vec<u64>,
    /// Datagrams of all UDP sources of the workload, and of all beside it.
    pub(crate) datagrams: [Option<SourceCounts>; 2],
    pub(crate) end: End,
    pub(crate) summary: Summary,
    pub(crate) losses: Losses,
    /// Number of background flows that started.
    pub(crate) flows: u64,
    /// Number of background datagrams that their senders dropped.
    pub(crate) refused: u64,
    /// Promises that were not kept, in words.
    pub(crate) broken: Vec<String>,
}

/// A workload with a callback that gets the number of queries done.
struct Watched<'a> {
    workload: Running,
    told: usize,
    tell: &'a mut dyn FnMut(u32),
}

#[derive(Debug)]
enum Running {
    Aggregate(Aggregating),
    Search(Searching),
    Permutation(Permutation),
    Exchange(Exchanging),
    Sources(Sources),
}

impl Running {
    fn workload(&mut self) -> &mut dyn Workload {
        match self {
            Self::Aggregate(workload) => workload,
            Self::Search(workload) => workload,
            Self::Permutation(workload) => workload,
            Self::Exchange(workload) => workload,
            Self::Sources(workload) => workload,
        }
    }

    fn times(&self) -> &[Nanos] {
        match self {
            Self::Aggregate(workload) => workload.completion_times(),
            Self::Search(workload) => workload.completion_times(),
            Self::Permutation(_) | Self::Sources(_) => &[],
            Self::Exchange(workload) => workload.completion_times(),
        }
    }
}

impl std::fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.workload.fmt(f)
    }
}

impl Workload for Watched<'_> {
    fn start(&mut self, world: &mut World) {
        self.workload.workload().start(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        self.workload.workload().happened(world, notice);
        let done = self.workload.times().len();
        if done != self.told {
            self.told = done;
            (self.tell)(u32::try_from(done).unwrap_or(u32::MAX));
        }
    }

    fn is_done(&self) -> bool {
        match &self.workload {
            Running::Aggregate(workload) => workload.is_done(),
            Running::Search(workload) => workload.is_done(),
            Running::Permutation(workload) => workload.is_done(),
            Running::Exchange(workload) => workload.is_done(),
            Running::Sources(workload) => workload.is_done(),
        }
    }
}

/// Simulates a cell. `tell` gets the number of queries done.
///
/// # Errors
///
/// The data centre cannot be built.
pub(crate) fn simulate(case: &Case, tell: &mut dyn FnMut(u32)) -> anyhow::Result<Measured> {
    simulate_traced(case, tell, None)
}

/// Simulates a cell, and writes samples of it to a file.
///
/// # Errors
///
/// The data centre cannot be built, or the file cannot be written.
pub(super) fn simulate_traced(
    case: &Case,
    tell: &mut dyn FnMut(u32),
    trace: Option<&mut TraceFile>,
) -> anyhow::Result<Measured> {
    let mut world = World::new(&case.world)?;
    let mut watched = Watched { workload: workload(case), told: 0, tell };
    let mut background = case.background.clone().map(BackgroundTraffic::new);
    let beside = (!case.sources.is_empty()).then(|| case.sources.clone());
    let mut beside = beside.map(|sources| Sources::new(sources, !case.world.seed));
    let mut workloads: Vec<&mut dyn Workload> = vec![&mut watched];
    workloads.extend(background.as_mut().map(|traffic| traffic as &mut dyn Workload));
    workloads.extend(beside.as_mut().map(|sources| sources as &mut dyn Workload));
    let end = match trace {
        Some(file) => file.run(&mut world, &mut workloads, case)?,
        None => world.run_all(&mut workloads, case.end),
    };
    let delivered = match &watched.workload {
        // The workload connects before anything else, so its connections have the first numbers.
        Running::Permutation(plan) => {
            (0..plan.hosts).map(|at| world.delivered(ConnectionId(at).server())).collect()
        }
        Running::Sources(sources) => sources.bytes_arrived(&world),
        _ => Vec::new(),
    };
    let own = match &watched.workload {
        Running::Sources(sources) => Some(sources.total(&world)),
        _ => None,
    };
    let summary = world.summary();
    let losses = losses(case, &summary);
    let mut measured = Measured {
        fct_ns: watched.workload.times().iter().map(|time| time.0).collect(),
        delivered,
        datagrams: [own, beside.map(|sources| sources.total(&world))],
        end,
        summary,
        losses,
        flows: background.as_ref().map_or(0, BackgroundTraffic::flows),
        refused: background.as_ref().map_or(0, BackgroundTraffic::refused),
        broken: Vec::new(),
    };
    measured.broken = broken(case, &measured);
    Ok(measured)
}

/// Returns the workload of a cell, ready to begin.
fn workload(case: &Case) -> Running {
    match &case.load {
        Load::Aggregate(plan) => Running::Aggregate(Aggregating::new(plan.clone())),
        Load::Search(plan) => Running::Search(Searching::new(plan.clone())),
        Load::Exchange(plan, _) => Running::Exchange(Exchanging::new(plan.clone())),
        Load::Permutation { tcp, stations, shift, priority, seed } => {
            Running::Permutation(Permutation {
                tcp: std::sync::Arc::clone(tcp),
                hosts: *stations,
                shift: *shift,
                priority: *priority,
                seed: *seed,
            })
        }
        Load::Sources(sources) => Running::Sources(Sources::new(sources.clone(), case.world.seed)),
    }
}

/// Returns drops under the lab's names: the class of a place and the reason.
fn losses(case: &Case, summary: &Summary) -> Losses {
    let mut losses = Losses { congestion: summary.drops_congestion, ..Losses::default() };
    for ((place, reason), frames) in &summary.drops {
        let is_full = *reason == DropReason::InputFull.name();
        let class = match place {
            Place::Physical => "tor",
            Place::VirtualFromWire if is_full => "nic",
            _ => "vswitch",
        };
        *losses.drops.entry(format!("{class} {reason}")).or_default() += frames;
    }
    let (closed, all) = summary.audits_closed;
    losses.audit_closed = case.world.overlay.is_some().then_some(closed == all);
    losses
}

pub(super) fn broken(case: &Case, measured: &Measured) -> Vec<String> {
    let mut broken = Vec::new();
    let is_endless = case.queries() == 0;
    match measured.end {
        End::Done => {}
        End::Time if is_endless => {}
        End::Time => broken.push(format!(
            "{} of {} queries are done after {} s of simulated time",
            measured.fct_ns.len(),
            case.queries(),
            case.end.0 / 1_000_000_000
        )),
        End::Stalled => broken.push(format!(
            "nothing is left to happen, and {} of {} queries are done",
            measured.fct_ns.len(),
            case.queries()
        )),
        End::Broken(overflow) => {
            broken.push(format!("a lossless buffer overflowed: {overflow:?}"));
        }
    }
    if case.is_lossless() && measured.losses.congestion > 0 {
        let frames = measured.losses.congestion;
        broken.push(format!("{frames} congestion drops where nothing may be lost"));
    }
    let (closed, all) = measured.summary.audits_closed;
    if closed != all {
        broken.push(format!("the audit of {} of {all} virtual switches is open", all - closed));
    }
    broken
}

/// Describes a broken promise for people; `command` repeats the cell.
pub(crate) fn report(case: &Case, measured: &Measured, seed: u64, command: &str) -> String {
    let summary = &measured.summary;
    let drops: Vec<String> =
        measured.losses.drops.iter().map(|(place, frames)| format!("{place} {frames}")).collect();
    format!(
        "{} {} packets: {}\n  seed {seed}, ended at {} after {} events, {} of {} queries done\n  \
         drops: {}; XOFF sent by switches {}, by hosts {}; time-outs {}\n  repeat it: {command}",
        case.policy.name(),
        case.size,
        measured.broken.join("; "),
        summary.time,
        summary.events,
        measured.fct_ns.len(),
        case.queries(),
        if drops.is_empty() { "none".to_owned() } else { drops.join(", ") },
        summary.pauses[0].0,
        summary.pauses[1].0,
        summary.tcp.timeouts,
    )
}
