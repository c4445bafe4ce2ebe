//! Rebalancing: ports (port migration) and buckets of flows move between workers, as
//! [`sluice_placement`] decides ten times a second.
//!
//! ```text
//!               sample               decide              execute             report
//!   workers: Meter, Gauges ──▶ Decisions::placement ──▶ Mover: steps ──▶ `show placement`
//!                                ▲                      of workers
//!                    PolicyWatch, Cpus
//! ```
//!
//! A [`Movable`] stands for all things of one kind: `ports.rs` and `buckets.rs`. It knows what was
//! measured, how a thing moves without loss and in order, and how it comes back if it cannot move.
//! The rest is the same for both, and is here.
//!
//! Each kind has a thread of its own, since a move waits for workers, and one of buckets for the
//! kernel (tens of milliseconds), which no worker may wait for. The thread sends questions to the
//! workers, as `show` does. The channel orders a worker's actions before its answer, so the steps
//! of a move only need each one to wait for the one before.

pub(super) mod buckets;
pub(super) mod ports;

use std::fmt::Debug;
use std::sync::mpsc::RecvError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sluice_api::placement::{CpuStatus, PlaceStatus, PolicyVersion};
use sluice_base::Nanos;
use sluice_placement::{Config, CoreLoad, EntryLoad, Mode, Placement};

use super::cpus::{Cpus, core_of};
use super::policy::{HostPolicy, PolicyWatch};
use super::spawn;
use crate::sys::clock;

/// Time between two decisions.
const PERIOD: Duration = Duration::from_millis(100);

/// Error: a worker has ended.
#[derive(Debug, thiserror::Error)]
#[error("a worker has ended")]
pub(super) struct Stopped;

impl From<RecvError> for Stopped {
    fn from(_: RecvError) -> Self {
        Self
    }
}

/// State for `show placement`.
#[derive(Debug, Default)]
pub(super) struct Showing<R> {
    /// The things, by worker and reason.
    pub(super) rows: R,
    /// State of the policy.
    pub(super) place: Option<PlaceStatus>,
    pub(super) notes: Vec<String>,
}

/// The state, shared by several threads.
pub(super) type Shown<R> = Arc<Mutex<Showing<R>>>;

/// The load of each worker apart from things that move, and of each of those.
type Sample = (Vec<CoreLoad>, Vec<EntryLoad>);

/// Things of one kind that move between workers.
trait Movable: Send + 'static {
    /// True if decisions stay under a policy that does not change the mode.
    const KEEPS_DECISIONS: bool;
    /// Rows about the things themselves, as they are shown.
    type Rows: Debug + Default + Send;

    /// Returns the placement's settings.
    fn settings(&self, mode: Mode, cpus: &Cpus) -> Config;

    /// Notes a policy that holds from now on.
    fn adopt_policy(&mut self, policy: &HostPolicy) {
        let _ = policy;
    }

    /// Returns the loads since the last sample.
    fn sample(&mut self, decisions: &Decisions) -> Sample;

    /// Gives a place to things that have none and need one.
    fn place(&mut self, decisions: &mut Decisions);

    /// Moves things that are not where they should be and that may go now.
    fn execute(&mut self, decisions: &mut Decisions) -> Result<(), Stopped>;

    /// Returns the state to show.
    fn report(&self, decisions: &Decisions) -> Showing<Self::Rows>;
}

/// Decisions, and all that they depend on but the loads.
struct Decisions {
    placement: Placement,
    settings: Config,
    cpus: Cpus,
    /// Policy that is to hold, and the one that does.
    wanted: PolicyWatch,
    mode: Mode,
    stamp: PolicyVersion,
    /// Time of the last sample, and the time from the one before it.
    at: Nanos,
    period_ns: u64,
    /// Things that have moved.
    moves: u64,
}

impl Decisions {
    fn new(movable: &impl Movable, wanted: PolicyWatch, cpus: Cpus) -> anyhow::Result<Self> {
        let mode = wanted.own_mode();
        let settings = movable.settings(mode, &cpus);
        let placement = Placement::new(settings.clone(), &cpus.cores());
        let placement = placement.context("the workers cannot be placed on")?;
        let (stamp, at) = (PolicyVersion::default(), clock::now());
        Ok(Self { placement, settings, cpus, wanted, mode, stamp, at, period_ns: 0, moves: 0 })
    }

    /// Returns true if things are assigned by their number alone.
    const fn is_by_number(&self) -> bool {
        matches!(self.mode, Mode::Rss | Mode::Predetermined)
    }

    /// Forgets all decisions.
    fn renew(&mut self, settings: Config) {
        // This cannot fail: the same call succeeded at the start.
        if let Ok(placement) = Placement::new(settings.clone(), &self.cpus.cores()) {
            (self.placement, self.settings) = (placement, settings);
        }
        self.cpus.tell_again();
    }

    /// Begins another sample.
    fn begin_period(&mut self) {
        let now = clock::now();
        self.period_ns = now.since(self.at).0;
        self.at = now;
    }

    /// Returns the state of the policy that `stamp` names; `count` has the number of things at a
    /// worker, and of those of high priority among them.
    fn status(
        &self,
        name: &str,
        stamp: PolicyVersion,
        count: impl Fn(usize) -> (u32, u32),
    ) -> PlaceStatus {
        let cpus = self.cpus.status().enumerate().map(|(worker, cpu)| {
            let (load, _) = self.placement.load_of(core_of(worker));
            let (buckets, high) = count(worker);
            let load_percent = f64::from(load.0) / 10_000.0;
            CpuStatus { buckets, high, load_percent, ..cpu }
        });
        PlaceStatus {
            name: name.to_owned(),
            kind: "workers".to_owned(),
            stamp,
            mode: self.mode.name().to_owned(),
            high: 0,
            moves: self.moves,
            cpus: cpus.collect(),
        }
    }
}

/// Moves things of one kind as the placement decides.
struct Rebalancer<M: Movable> {
    movable: M,
    decisions: Decisions,
    shown: Shown<M::Rows>,
}

impl<M: Movable> Rebalancer<M> {
    fn new(movable: M, wanted: PolicyWatch, cpus: Cpus) -> anyhow::Result<Self> {
        let decisions = Decisions::new(&movable, wanted, cpus)?;
        let shown = Arc::new(Mutex::new(movable.report(&decisions)));
        Ok(Self { movable, decisions, shown })
    }

    /// Starts the thread, which ends with the workers.
    fn start(mut self, thread: &str) -> anyhow::Result<()> {
        spawn(thread, move || {
            loop {
                std::thread::sleep(PERIOD);
                if self.period().is_err() {
                    break;
                }
            }
        })
    }

    fn period(&mut self) -> Result<(), Stopped> {
        let Self { movable, decisions, shown } = self;
        apply_policy(movable, decisions);
        look_at_cpus(movable, decisions);
        decisions.begin_period();
        let (cores, loads) = movable.sample(decisions);
        movable.place(decisions);
        decisions.placement.period(&cores, &loads, &mut Vec::new());
        movable.execute(decisions)?;
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = movable.report(decisions);
        Ok(())
    }
}

/// Applies the policy if it has changed. The old rule's decisions are forgotten, and things stay
/// where they are until the new one moves them. A rule that goes by number alone assigns each thing
/// anew, also if it was the same before: those that had left an excluded CPU come back.
fn apply_policy<M: Movable>(movable: &mut M, decisions: &mut Decisions) {
    let Some(policy) = decisions.wanted.changed_since(decisions.stamp) else { return };
    movable.adopt_policy(&policy);
    let is_same = policy.mode == decisions.mode;
    (decisions.stamp, decisions.mode) = (policy.stamp, policy.mode);
    decisions.cpus.exclude(policy.in_force.excluded_cpus);
    if is_same && M::KEEPS_DECISIONS && !decisions.is_by_number() {
        return;
    }
    decisions.renew(movable.settings(decisions.mode, &decisions.cpus));
}

/// Searches for CPUs that run vCPUs. The settings may depend on them.
fn look_at_cpus(movable: &impl Movable, decisions: &mut Decisions) {
    decisions.cpus.look_at(&mut decisions.placement, clock::now());
    let settings = movable.settings(decisions.mode, &decisions.cpus);
    if settings != decisions.settings {
        decisions.renew(settings);
        decisions.cpus.look_at(&mut decisions.placement, clock::now());
    }
}

/// Returns the growth of a counter since the last call.
fn growth(last: &mut u64, now: u64) -> u64 {
    now - std::mem::replace(last, now)
}
