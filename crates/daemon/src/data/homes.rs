//! Which worker has which port: [`sluice_placement`] decides it, ten times a second, by what the
//! workers have counted; this carries it out.
//!
//! ```text
//!   all workers:   Hold     it is not read, and nothing more is lent to it
//!   all workers:   Leave    what came from it has gone; what was lent to it is back
//!   the old one:   Give     its driver, its books, its rate, who is bound to it
//!   the new one:   Take
//!   all workers:   Release  frames for it go to the new one
//! ```
//!
//! Each step waits for the one before. Why nothing is lost and nothing overtaken stands in
//! `home.rs` of `sluice_switch`.
//!
//! **Leaving has a limit.** Frames whose receiver has stopped reading do not leave. Then the port
//! is released where it was, everything goes on as before, and it rests a while.
//!
//! **What moves.** A TAP or a virtual machine's port that the configuration gives no worker. What
//! crosses costs more than what stays, so a worker with time left keeps its ports, unless its CPU
//! runs a virtual machine.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_api::placement::{CpuStatus, PlaceStatus, Stamp};
use sluice_base::{Nanos, PortId, Priority};
use sluice_placement::{Config, CoreLoad, EntryId, EntryLoad, Mode, Placement, Share, Why};

use super::cpus::{Cpus, core_of};
use super::policy::Wanted;
use super::worker::{Ask, HomeStep, Load};
use super::{Askers, spawn};
use crate::clock;
use crate::config::Workers;

/// How often it is decided.
const PERIOD: Duration = Duration::from_millis(100);
/// How long is waited at most for a port that is held to have left.
const LEAVE_MAX: Duration = Duration::from_millis(50);
/// How long a port stays that came, or that could not go.
const REST: Nanos = Nanos::from_millis(2_000);
/// A worker that is busy for less of its time keeps its ports.
const BUSY_FROM: Share = Share::percent(50);

/// What others may know.
#[derive(Debug, Default)]
pub(super) struct Showing {
    /// A port's worker, and why it is there; only of those that moved.
    pub(super) moved: BTreeMap<PortId, (usize, String)>,
    /// What was made of the policy.
    pub(super) place: Option<PlaceStatus>,
    pub(super) notes: Vec<String>,
}

/// The same for several threads.
pub(super) type Shown = Arc<Mutex<Showing>>;

/// A worker has ended.
#[derive(Debug)]
pub(super) struct Stopped;

/// Carries moves out.
pub(super) struct Mover {
    askers: Askers,
    leave_max: Duration,
}

impl Mover {
    pub(super) fn new(askers: Askers, leave_max: Duration) -> Self {
        Self { askers, leave_max }
    }

    fn ask<T>(&self, worker: usize, step: impl FnOnce(SyncSender<T>) -> HomeStep) -> Receiver<T> {
        let (reply, answer) = sync_channel(1);
        self.askers.0[worker].ask(Ask::Home(step(reply)));
        answer
    }

    /// Puts a step in front of all workers, and waits for all until a moment. False if that came.
    fn all(
        &self,
        step: impl Fn(SyncSender<()>) -> HomeStep,
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

    /// Moves a port from one worker to another. False if it could not leave in time, or not at all,
    /// and is where it was.
    pub(super) fn go(&self, port: PortId, from: usize, to: usize) -> Result<bool, Stopped> {
        self.all(|reply| HomeStep::Hold(port, reply), None)?;
        let until = Instant::now() + self.leave_max;
        let has_left = self.all(|reply| HomeStep::Leave(port, reply), Some(until))?;
        let went = has_left && self.hand_over(port, from, to)?;
        let owner = if went { to } else { from };
        self.all(|reply| HomeStep::Release(port, owner, reply), None)?;
        Ok(went)
    }

    /// Nobody is shown the host while a port is at no worker, or its counts at two. Whoever is
    /// shown it just now may wait for a worker that is stuck; the port does not, and stays.
    fn hand_over(&self, port: PortId, from: usize, to: usize) -> Result<bool, Stopped> {
        let Some(_steady) = self.askers.steady_now() else { return Ok(false) };
        let given = self.ask(from, |reply| HomeStep::Give(port, to, reply));
        let Some(moving) = given.recv().map_err(|_| Stopped)? else { return Ok(false) };
        let taken = self.ask(to, |reply| HomeStep::Take(moving, reply));
        let Some(moving) = taken.recv().map_err(|_| Stopped)? else { return Ok(true) };
        let back = self.ask(from, |reply| HomeStep::TakeBack(moving, reply));
        back.recv().map_err(|_| Stopped)?;
        Ok(false)
    }
}

/// What was read of a worker last.
struct Last {
    load: Arc<Load>,
    busy_ns: u64,
    moved: Vec<u64>,
}

impl Last {
    fn new(load: Arc<Load>, ports: usize) -> Self {
        Self { load, busy_ns: 0, moved: vec![0; ports] }
    }

    /// How long it was busy since it was asked last, and how many frames each port moved.
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
    /// The worker that it had at the start, where it belongs if nothing is known of load.
    first: usize,
    home: usize,
    /// Until when it stays.
    rests: Nanos,
}

struct Homes {
    entries: Vec<Entry>,
    workers: Vec<Last>,
    at: Nanos,
    placement: Placement,
    cpus: Cpus,
    mover: Mover,
    shown: Shown,
    /// What is to hold, and what does.
    wanted: Wanted,
    mode: Mode,
    stamp: Stamp,
    /// Ports that have moved.
    moves: u64,
}

/// How it is placed by a rule.
fn settings(mode: Mode, entries: usize) -> anyhow::Result<Config> {
    let mut config = Config::new(mode, u32::try_from(entries)?);
    // A port is read and written by one worker, and moves alone.
    (config.split_at, config.moves_max) = (None, 1);
    Ok(config)
}

/// Has ports follow the placement, in a thread of its own, if some may.
pub(super) fn follow(
    placed: &Workers,
    wanted: Wanted,
    cpus: Cpus,
    loads: Vec<Arc<Load>>,
    askers: &Askers,
) -> anyhow::Result<Shown> {
    let shown = Shown::default();
    let Some(mut homes) = Homes::new(placed, wanted, cpus, loads, askers, &shown)? else {
        return Ok(shown);
    };
    homes.show();
    spawn("homes", move || {
        loop {
            std::thread::sleep(PERIOD);
            if homes.period().is_err() {
                break;
            }
        }
    })?;
    Ok(shown)
}

impl Homes {
    fn new(
        placed: &Workers,
        wanted: Wanted,
        cpus: Cpus,
        loads: Vec<Arc<Load>>,
        askers: &Askers,
        shown: &Shown,
    ) -> anyhow::Result<Option<Self>> {
        let entry = |port: PortId| {
            let home = placed.ports[port.index()].worker?;
            Some(Entry { port, first: home, home, rests: Nanos::ZERO })
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
        let (stamp, moves) = (Stamp::default(), 0);
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
        self.obey();
        self.cpus.look_at(&mut self.placement, now);
        for (at, entry) in self.entries.iter().enumerate() {
            self.placement.adopt(id(at), Priority::ZERO, core_of(self.belongs(entry)));
        }
        let (cores, loads, busy) = self.measure(now);
        self.placement.period(&cores, &loads, &mut Vec::new());
        for at in 0..self.entries.len() {
            self.see_to(now, at, &busy)?;
        }
        self.show();
        Ok(())
    }

    /// Does what the policy says, if it is another one than before. What was decided by another one
    /// is forgotten.
    fn obey(&mut self) {
        let Some(order) = self.wanted.other_than(self.stamp) else { return };
        let new = settings(order.mode, self.entries.len())
            .and_then(|config| Ok(Placement::new(config, &self.cpus.cores())?));
        // As at start, where the same was possible.
        if let Ok(new) = new {
            (self.placement, self.mode) = (new, order.mode);
        }
        self.cpus.exclude(order.in_force.excluded_cpus);
        self.stamp = order.stamp;
    }

    /// The worker of which a port is, as long as no rule says another one.
    const fn belongs(&self, entry: &Entry) -> usize {
        match self.mode {
            Mode::Rss | Mode::Predetermined => entry.first,
            Mode::RssPlusPlus | Mode::OnTheFly | Mode::Adaptive => entry.home,
        }
    }

    /// Tells what was made of the policy.
    fn show(&self) {
        let cpus = self.cpus.status().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let ports = self.entries.iter().filter(|entry| entry.home == worker).count();
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

    /// What each worker did beside ports that may move, what each of those took, and how busy each
    /// worker was.
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
                if entry.home == worker {
                    // Its part of the worker's time is its part of the worker's frames.
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

    /// Moves a port that should be elsewhere, if it may go now.
    fn see_to(&mut self, now: Nanos, at: usize, busy: &[Share]) -> Result<(), Stopped> {
        let Some(state) = self.placement.entry(id(at)) else { return Ok(()) };
        let (to, why, entry) = (state.core.index(), state.why, &mut self.entries[at]);
        if to == entry.home {
            return Ok(());
        }
        // To cross costs more than a busy sibling does.
        let is_mild = matches!(why, Why::Balance(_) | Why::LeavesSibling | Why::LeavesNode);
        let has_time = is_mild && busy[entry.home] < BUSY_FROM;
        if now >= entry.rests && !has_time {
            entry.rests = now.after(REST);
            if self.mover.go(entry.port, entry.home, to)? {
                entry.home = to;
                self.moves += 1;
                let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.moved.insert(entry.port, (to, why.to_string()));
                return Ok(());
            }
        }
        // What does not go is placed where it is.
        self.placement.remove(id(at));
        let belongs = self.belongs(&self.entries[at]);
        self.placement.adopt(id(at), Priority::ZERO, core_of(belongs));
        Ok(())
    }
}

fn id(entry: usize) -> EntryId {
    EntryId(u32::try_from(entry).unwrap_or(u32::MAX))
}
