//! Port migration: ports that move between workers.
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
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use sluice_base::{Nanos, PortId, Priority};
use sluice_placement::{Config, CoreLoad, EntryId, EntryLoad, Mode, Share, Why};

use super::{Decisions, Movable, Rebalancer, Sample, Showing, Stopped, growth};
use crate::config::Workers;
use crate::data::WorkerHandles;
use crate::data::cpus::{Cpus, core_of};
use crate::data::policy::PolicyWatch;
use crate::data::worker::{Meter, MigrationStep, WorkerRequest};

/// Longest wait for a quiesced port to drain.
const LEAVE_MAX: Duration = Duration::from_millis(50);
/// Time for which a port stays after it came, or could not go.
const REST: Nanos = Nanos::from_millis(2_000);
/// A worker that is busy for a smaller share of its time keeps its ports.
const BUSY_FROM: Share = Share::percent(50);

/// Worker of a port, and the reason; only of ports that moved.
pub(in crate::data) type Moved = BTreeMap<PortId, (usize, String)>;

/// The state for `show placement`.
pub(in crate::data) type Shown = super::Shown<Moved>;

/// Carries out moves.
pub(in crate::data) struct Mover {
    askers: WorkerHandles,
    leave_max: Duration,
}

impl Mover {
    pub(in crate::data) fn new(askers: WorkerHandles, leave_max: Duration) -> Self {
        Self { askers, leave_max }
    }

    fn ask<T>(
        &self,
        worker: usize,
        step: impl FnOnce(SyncSender<T>) -> MigrationStep,
    ) -> Receiver<T> {
        self.askers.0[worker].request(|reply| WorkerRequest::Migrate(step(reply)))
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
                answer.recv()?;
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            match answer.recv_timeout(left) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => return Err(Stopped),
            }
        }
        Ok(true)
    }

    /// Moves a port from one worker to another. Returns false if the port could not leave in time,
    /// or not at all; it is then where it was.
    pub(in crate::data) fn go(
        &self,
        port: PortId,
        from: usize,
        to: usize,
    ) -> Result<bool, Stopped> {
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
        let Some(moving) = given.recv()? else { return Ok(false) };
        let taken = self.ask(to, |reply| MigrationStep::Import(moving, reply));
        let Some(moving) = taken.recv()? else { return Ok(true) };
        let back = self.ask(from, |reply| MigrationStep::Rollback(moving, reply));
        back.recv()?;
        Ok(false)
    }
}

/// Counters of a worker at the last reading.
struct Last {
    meter: Arc<Meter>,
    busy_ns: u64,
    moved: Vec<u64>,
}

impl Last {
    fn new(meter: Arc<Meter>, ports: usize) -> Self {
        Self { meter, busy_ns: 0, moved: vec![0; ports] }
    }

    /// Returns the worker's busy time since the last call, and the frames that each port moved.
    fn take(&mut self) -> (u64, Vec<u64>) {
        let busy = growth(&mut self.busy_ns, self.meter.busy_ns());
        let meter = &self.meter;
        let ports = self.moved.iter_mut().enumerate();
        let moved = ports.map(|(at, last)| growth(last, meter.moved(PortId::from_index(at))));
        (busy, moved.collect())
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

/// The ports that may move.
struct MovablePorts {
    entries: Vec<Entry>,
    workers: Vec<Last>,
    /// Load of each worker in the last period.
    busy: Vec<Share>,
    mover: Mover,
    moved: Moved,
}

/// Starts a thread that moves ports as the placement decides, if some may move.
pub(in crate::data) fn follow(
    placed: &Workers,
    wanted: PolicyWatch,
    cpus: Cpus,
    meters: Vec<Arc<Meter>>,
    askers: &WorkerHandles,
) -> anyhow::Result<Shown> {
    let entry = |port: PortId| {
        let worker = placed.ports[port.index()].worker?;
        Some(Entry { port, first: worker, worker, rests: Nanos::ZERO })
    };
    let entries: Vec<Entry> = placed.movable().filter_map(entry).collect();
    if entries.is_empty() {
        return Ok(Shown::default());
    }
    let ports = placed.ports.len();
    let movable = MovablePorts {
        entries,
        workers: meters.into_iter().map(|meter| Last::new(meter, ports)).collect(),
        busy: Vec::new(),
        mover: Mover::new(askers.clone(), LEAVE_MAX),
        moved: Moved::new(),
    };
    let rebalancer = Rebalancer::new(movable, wanted, cpus)?;
    let shown = Arc::clone(&rebalancer.shown);
    rebalancer.start("port-balancer")?;
    Ok(shown)
}

impl Movable for MovablePorts {
    const KEEPS_DECISIONS: bool = false;
    type Rows = Moved;

    fn settings(&self, mode: Mode, _: &Cpus) -> Config {
        let mut config = Config::new(mode, id(self.entries.len()).0);
        // A port is read and written by one worker, and moves as a whole.
        (config.split_at, config.moves_max) = (None, 1);
        config
    }

    fn sample(&mut self, decisions: &Decisions) -> Sample {
        let period_ns = decisions.period_ns;
        let mut loads = vec![EntryLoad::default(); self.entries.len()];
        let mut cores = Vec::new();
        self.busy.clear();
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
            self.busy.push(busy);
        }
        (cores, loads)
    }

    fn place(&mut self, decisions: &mut Decisions) {
        for (at, entry) in self.entries.iter().enumerate() {
            let core = core_of(belongs(entry, decisions.mode));
            decisions.placement.adopt(id(at), Priority::ZERO, core);
        }
    }

    fn execute(&mut self, decisions: &mut Decisions) -> Result<(), Stopped> {
        (0..self.entries.len()).try_for_each(|at| self.move_if_due(at, decisions))
    }

    fn report(&self, decisions: &Decisions) -> Showing<Moved> {
        let count = |worker: usize| {
            let ports = self.entries.iter().filter(|entry| entry.worker == worker).count();
            (u32::try_from(ports).unwrap_or(u32::MAX), 0)
        };
        let place = Some(decisions.status("ports", decisions.stamp, count));
        Showing { rows: self.moved.clone(), place, notes: decisions.cpus.notes() }
    }
}

impl MovablePorts {
    /// Moves a port that should be at another worker, if it may go now.
    fn move_if_due(&mut self, at: usize, decisions: &mut Decisions) -> Result<(), Stopped> {
        let Some(state) = decisions.placement.entry(id(at)) else { return Ok(()) };
        let (to, why, entry) = (state.core.index(), state.why, &mut self.entries[at]);
        if to == entry.worker {
            return Ok(());
        }
        // A handoff costs more than a busy sibling does.
        let is_mild = matches!(why, Why::Balance(_) | Why::LeavesSibling | Why::LeavesNode);
        let has_time = is_mild && self.busy[entry.worker] < BUSY_FROM;
        if decisions.at >= entry.rests && !has_time {
            entry.rests = decisions.at.after(REST);
            if self.mover.go(entry.port, entry.worker, to)? {
                entry.worker = to;
                decisions.moves += 1;
                self.moved.insert(entry.port, (to, why.to_string()));
                return Ok(());
            }
        }
        // A port that does not go is placed where it is.
        decisions.placement.remove(id(at));
        let core = core_of(belongs(&self.entries[at], decisions.mode));
        decisions.placement.adopt(id(at), Priority::ZERO, core);
        Ok(())
    }
}

/// Returns the worker of a port as long as no rule names another one.
const fn belongs(entry: &Entry, mode: Mode) -> usize {
    match mode {
        Mode::Rss | Mode::Predetermined => entry.first,
        Mode::RssPlusPlus | Mode::OnTheFly | Mode::Adaptive => entry.worker,
    }
}

fn id(entry: usize) -> EntryId {
    EntryId(u32::try_from(entry).unwrap_or(u32::MAX))
}
