//! Assignment of ports to workers: [`sluice_placement`] decides ten times a second from the
//! workers' counters, and this module carries out the decisions.
//!
//! ```text
//!   all workers:   Quiesce  the port is not read, and no more frames are sent to it
//!   all workers:   Drain    frames from the port have gone; remote references for it are back
//!   old worker:    Export   driver, counters, rate limiter, bindings
//!   new worker:    Import
//!   all workers:   Resume   frames for the port go to the new worker
//! ```
//!
//! Each step waits for the one before. `migrate.rs` of `sluice_switch` explains why no frame is
//! lost or reordered.
//!
//! **Draining has a limit.** Frames whose receiver has stopped reading do not leave. Then the port
//! resumes at its old worker, forwarding continues as before, and the port does not move for a
//! while.
//!
//! **Ports that move.** A TAP or a virtual machine's port to which the configuration assigns no
//! worker. A frame that is handed off costs more than one that stays, so a worker with time left
//! keeps its ports, unless its CPU runs a virtual machine.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_api::placement::{CpuStatus, PlaceStatus, PolicyVersion};
use sluice_base::{Nanos, PortId, Priority};
use sluice_placement::{Config, CoreLoad, EntryId, EntryLoad, Mode, Placement, Share, Why};

use super::cpus::{Cpus, core_of};
use super::policy::PolicyWatch;
use super::worker::{Load, MigrationStep, WorkerRequest};
use super::{WorkerHandles, spawn};
use crate::config::Workers;
use crate::sys::clock;

/// Time between two decisions.
const PERIOD: Duration = Duration::from_millis(100);
/// Longest wait for a quiesced port to drain.
const LEAVE_MAX: Duration = Duration::from_millis(50);
/// Time for which a port stays after it came, or could not go.
const REST: Nanos = Nanos::from_millis(2_000);
/// A worker that is busy for a smaller share of its time keeps its ports.
const BUSY_FROM: Share = Share::percent(50);

/// State for `show placement`.
#[derive(Debug, Default)]
pub(super) struct Showing {
    /// Worker of a port, and the reason; only of ports that moved.
    pub(super) moved: BTreeMap<PortId, (usize, String)>,
    /// State of the policy.
    pub(super) place: Option<PlaceStatus>,
    pub(super) notes: Vec<String>,
}

/// The state, shared by several threads.
pub(super) type Shown = Arc<Mutex<Showing>>;

/// Error: a worker has ended.
#[derive(Debug)]
pub(super) struct Stopped;

/// Carries out moves.
pub(super) struct Mover {
    askers: WorkerHandles,
    leave_max: Duration,
}

impl Mover {
    pub(super) fn new(askers: WorkerHandles, leave_max: Duration) -> Self {
        Self { askers, leave_max }
    }

    fn ask<T>(
        &self,
        worker: usize,
        step: impl FnOnce(SyncSender<T>) -> MigrationStep,
    ) -> Receiver<T> {
        let (reply, answer) = sync_channel(1);
        self.askers.0[worker].ask(WorkerRequest::Migrate(step(reply)));
        answer
    }

    /// Sends a step to all workers, and waits for all answers until a deadline. Returns false if
    /// the deadline passed first.
    fn all(
        &self,
        step: impl Fn(SyncSender<()>) -> MigrationStep,
        until: Option<Instant>,
    ) -> Result<bool, Stopped> {
        let asked: Vec<_> = (0..self.askers.0.len()).map(|at| self.ask(at, &step)).collect();
        for answer in asked {
            let Some(until) = until else {
                answer.recv().map_err(|_| Stopped)?;
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left) {
                Ok(()) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return Ok(false),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Err(Stopped),
            }
        }
        Ok(true)
    }

    /// Moves a port from one worker to another. Returns false if the port could not leave in time,
    /// or not at all; it is then where it was.
    pub(super) fn go(&self, port: PortId, from: usize, to: usize) -> Result<bool, Stopped> {
        self.all(|reply| MigrationStep::Quiesce(port, reply), None)?;
        let until = Instant::now() + self.leave_max;
        let has_left = self.all(|reply| MigrationStep::Drain(port, reply), Some(until))?;
        let went = has_left && self.hand_over(port, from, to)?;
        let owner = if went { to } else { from };
        self.all(|reply| MigrationStep::Resume(port, owner, reply), None)?;
        Ok(went)
    }

    /// Hands the port over while no snapshot is taken: a snapshot would find the port at no worker,
    /// or its counters at two. A snapshot under way may wait for a worker that is stuck; the port
    /// does not wait, and stays.
    fn hand_over(&self, port: PortId, from: usize, to: usize) -> Result<bool, Stopped> {
        let Some(_steady) = self.askers.steady_now() else { return Ok(false) };
        let given = self.ask(from, |reply| MigrationStep::Export(port, to, reply));
        let Some(moving) = given.recv().map_err(|_| Stopped)? else { return Ok(false) };
        let taken = self.ask(to, |reply| MigrationStep::Import(moving, reply));
        let Some(moving) = taken.recv().map_err(|_| Stopped)? else { return Ok(true) };
        let back = self.ask(from, |reply| MigrationStep::Rollback(moving, reply));
        back.recv().map_err(|_| Stopped)?;
        Ok(false)
    }
}

/// Counters of a worker at the last reading.
struct Last {
    load: Arc<Load>,
    busy_ns: u64,
    moved: Vec<u64>,
}

impl Last {
    fn new(load: Arc<Load>, ports: usize) -> Self {
        Self { load, busy_ns: 0, moved: vec![0; ports] }
    }

    /// Returns the worker's busy time since the last call, and the frames that each port moved.
    fn take(&mut self) -> (u64, Vec<u64>) {
        let busy_ns = self.load.busy_ns();
        let busy = busy_ns - std::mem::replace(&mut self.busy_ns, busy_ns);
        let ports = self.moved.iter_mut().enumerate().map(|(port, last)| {
            let moved = self.load.moved(PortId::from_index(port));
            moved - std::mem::replace(last, moved)
        });
        (busy, ports.collect())
    }
}

/// A port that may move.
struct Entry {
    port: PortId,
    /// Worker of the port at the start. The port belongs there if nothing is known of load.
    first: usize,
    /// Worker of the port now.
    worker: usize,
    /// End of the time for which the port stays.
    rests: Nanos,
}

struct PortBalancer {
    entries: Vec<Entry>,
    workers: Vec<Last>,
    at: Nanos,
    placement: Placement,
    cpus: Cpus,
    mover: Mover,
    shown: Shown,
    /// Policy that is to hold, and the one that does.
    wanted: PolicyWatch,
    mode: Mode,
    stamp: PolicyVersion,
    /// Ports that have moved.
    moves: u64,
}

/// Returns the placement's settings for a mode.
fn settings(mode: Mode, entries: usize) -> anyhow::Result<Config> {
    let mut config = Config::new(mode, u32::try_from(entries)?);
    // A port is read and written by one worker, and moves as a whole.
    (config.split_at, config.moves_max) = (None, 1);
    Ok(config)
}

/// Starts a thread that moves ports as the placement decides, if some may move.
pub(super) fn follow(
    placed: &Workers,
    wanted: PolicyWatch,
    cpus: Cpus,
    loads: Vec<Arc<Load>>,
    askers: &WorkerHandles,
) -> anyhow::Result<Shown> {
    let shown = Shown::default();
    let Some(mut balancer) = PortBalancer::new(placed, wanted, cpus, loads, askers, &shown)? else {
        return Ok(shown);
    };
    balancer.show();
    spawn("port-balancer", move || {
        loop {
            std::thread::sleep(PERIOD);
            if balancer.period().is_err() {
                break;
            }
        }
    })?;
    Ok(shown)
}

impl PortBalancer {
    fn new(
        placed: &Workers,
        wanted: PolicyWatch,
        cpus: Cpus,
        loads: Vec<Arc<Load>>,
        askers: &WorkerHandles,
        shown: &Shown,
    ) -> anyhow::Result<Option<Self>> {
        let entry = |port: PortId| {
            let worker = placed.ports[port.index()].worker?;
            Some(Entry { port, first: worker, worker, rests: Nanos::ZERO })
        };
        let entries: Vec<Entry> = placed.movable().filter_map(entry).collect();
        if entries.is_empty() {
            return Ok(None);
        }
        let mode = wanted.own_mode();
        let placement = Placement::new(settings(mode, entries.len())?, &cpus.cores());
        let placement = placement.context("the workers cannot be placed on")?;
        let ports = placed.ports.len();
        let workers = loads.into_iter().map(|load| Last::new(load, ports)).collect();
        let mover = Mover::new(askers.clone(), LEAVE_MAX);
        let shown = Arc::clone(shown);
        let at = clock::now();
        let (stamp, moves) = (PolicyVersion::default(), 0);
        Ok(Some(Self {
            entries,
            workers,
            at,
            placement,
            cpus,
            mover,
            shown,
            wanted,
            mode,
            stamp,
            moves,
        }))
    }

    fn period(&mut self) -> Result<(), Stopped> {
        let now = clock::now();
        self.apply_policy();
        self.cpus.look_at(&mut self.placement, now);
        for (at, entry) in self.entries.iter().enumerate() {
            self.placement.adopt(id(at), Priority::ZERO, core_of(self.belongs(entry)));
        }
        let (cores, loads, busy) = self.measure(now);
        self.placement.period(&cores, &loads, &mut Vec::new());
        for at in 0..self.entries.len() {
            self.move_if_due(now, at, &busy)?;
        }
        self.show();
        Ok(())
    }

    /// Applies the policy if it has changed. Decisions of the previous one are forgotten.
    fn apply_policy(&mut self) {
        let Some(policy) = self.wanted.changed_since(self.stamp) else { return };
        let new = settings(policy.mode, self.entries.len())
            .and_then(|config| Ok(Placement::new(config, &self.cpus.cores())?));
        // This cannot fail: the same call succeeded at the start.
        if let Ok(new) = new {
            (self.placement, self.mode) = (new, policy.mode);
        }
        self.cpus.exclude(policy.in_force.excluded_cpus);
        self.stamp = policy.stamp;
    }

    /// Returns the worker of a port as long as no rule names another one.
    const fn belongs(&self, entry: &Entry) -> usize {
        match self.mode {
            Mode::Rss | Mode::Predetermined => entry.first,
            Mode::RssPlusPlus | Mode::OnTheFly | Mode::Adaptive => entry.worker,
        }
    }

    /// Shows the state of the policy.
    fn show(&self) {
        let cpus = self.cpus.status().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let ports = self.entries.iter().filter(|entry| entry.worker == worker).count();
            let load_percent = f64::from(load.0) / 10_000.0;
            CpuStatus { buckets: u32::try_from(ports).unwrap_or(u32::MAX), load_percent, ..cpu }
        });
        let place = PlaceStatus {
            name: "ports".to_owned(),
            kind: "workers".to_owned(),
            stamp: self.stamp,
            mode: self.mode.name().to_owned(),
            high: 0,
            moves: self.moves,
            cpus: cpus.collect(),
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        (shown.place, shown.notes) = (Some(place), self.cpus.notes());
    }

    /// Returns each worker's load apart from movable ports, the load of each of those ports, and
    /// how busy each worker was.
    fn measure(&mut self, now: Nanos) -> (Vec<CoreLoad>, Vec<EntryLoad>, Vec<Share>) {
        let period_ns = now.since(self.at).0;
        self.at = now;
        let mut loads = vec![EntryLoad::default(); self.entries.len()];
        let (mut cores, mut all) = (Vec::new(), Vec::new());
        for (worker, last) in self.workers.iter_mut().enumerate() {
            let (busy_ns, moved) = last.take();
            let frames = moved.iter().sum::<u64>().max(1);
            let busy = Share::of_period(busy_ns, period_ns);
            let mut foreign = busy;
            for (entry, load) in self.entries.iter().zip(&mut loads) {
                if entry.worker == worker {
                    // The port's share of the worker's time is its share of the worker's frames.
                    let of = u128::from(busy_ns) * u128::from(moved[entry.port.index()]);
                    let used = u64::try_from(of / u128::from(frames)).unwrap_or(u64::MAX);
                    load.decap = Share::of_period(used, period_ns);
                    foreign = foreign.minus(load.decap);
                }
            }
            cores.push(CoreLoad { softirq: foreign, ..CoreLoad::default() });
            all.push(busy);
        }
        (cores, loads, all)
    }

    /// Moves a port that should be at another worker, if it may go now.
    fn move_if_due(&mut self, now: Nanos, at: usize, busy: &[Share]) -> Result<(), Stopped> {
        let Some(state) = self.placement.entry(id(at)) else { return Ok(()) };
        let (to, why, entry) = (state.core.index(), state.why, &mut self.entries[at]);
        if to == entry.worker {
            return Ok(());
        }
        // A handoff costs more than a busy sibling does.
        let is_mild = matches!(why, Why::Balance(_) | Why::LeavesSibling | Why::LeavesNode);
        let has_time = is_mild && busy[entry.worker] < BUSY_FROM;
        if now >= entry.rests && !has_time {
            entry.rests = now.after(REST);
            if self.mover.go(entry.port, entry.worker, to)? {
                entry.worker = to;
                self.moves += 1;
                let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.moved.insert(entry.port, (to, why.to_string()));
                return Ok(());
            }
        }
        // A port that does not go is placed where it is.
        self.placement.remove(id(at));
        let belongs = self.belongs(&self.entries[at]);
        self.placement.adopt(id(at), Priority::ZERO, core_of(belongs));
        Ok(())
    }
}

fn id(entry: usize) -> EntryId {
    EntryId(u32::try_from(entry).unwrap_or(u32::MAX))
}
