//! Buckets of a shared underlay's flows, which move between workers.
//!
//! ```text
//!   worker: Meter, Gauges ──▶ loads ──▶ Placement ──▶ wanted
//!                                                       │ which of them may go now
//!                      round: hold, set, leave, release ▼
//! ```
//!
//! `sluice_ports::buckets` explains the four steps. They need no more than that each waits for the
//! one before.
//!
//! **A bucket with a standing queue does not move.** A bucket may go when its frames under way
//! leave within a short time, judged by the frames that came in the last period. Otherwise a round
//! would wait for a flow whose receiver has stopped reading, and other flows with it.
//!
//! **A worker either gives or takes in a round**, never both, so that no two wait for each other.
//!
//! Flows of high priority have buckets of their own (`high.rs`).

pub(in crate::data) mod high;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use sluice_api::placement::{PlaceStatus, PolicyVersion};
use sluice_api::show::{BucketsRow, PlacementRow};
use sluice_base::Nanos;
use sluice_placement::{Config, CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Share};
use sluice_ports::buckets::{BUCKETS, BucketSet, BucketTable, HighFlows, LOW_BUCKETS, is_high};
use sluice_ports::udp::{SelectError, Selector};

use self::high::{Progress, Quiet};
use super::{Decisions, Movable, Rebalancer, Sample, Showing, Stopped, growth};
use crate::data::WorkerHandles;
use crate::data::attach::SharedSelector;
use crate::data::cpus::{Cpus, core_of};
use crate::data::policy::{HostPolicy, PolicyWatch};
use crate::data::worker::{Part, Step, WorkerRequest};
use crate::sys::clock;
use crate::sys::log::say;

/// Most buckets that move in a round.
const ROUND_MAX: usize = 32;
/// Part of a period within which the frames under way of a bucket must leave for the bucket to
/// move: about as long as the kernel takes for its part of a round.
const LEAVES_WITHIN: u32 = 3;

/// The state for `show placement`.
pub(in crate::data) type Shown = super::Shown<Vec<PlacementRow>>;

/// A bucket that moves: from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct Change {
    pub(in crate::data) bucket: u16,
    pub(in crate::data) from: u8,
    pub(in crate::data) to: u8,
}

/// Note for a kernel that cannot tell when a program is out of use.
const FIXED: &str = "flows stay with their workers: this kernel has no `membarrier` for all CPUs";
/// Time before a request that the kernel refused is repeated.
const REFUSED_FOR: Nanos = Nanos::from_millis(5_000);

/// Reason why a round ends early.
#[derive(Debug, thiserror::Error)]
pub(in crate::data) enum End {
    /// A worker is being stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The kernel refused the change; forwarding continues as before.
    #[error("{0}")]
    Kernel(#[from] SelectError),
}

/// Carries out moves.
pub(in crate::data) struct Mover {
    askers: WorkerHandles,
    selector: Selector,
    pub(in crate::data) table: BucketTable,
    /// Matches of the flows of high priority.
    pub(in crate::data) high: HighFlows,
}

impl Mover {
    pub(in crate::data) fn new(askers: WorkerHandles, (selector, table): SharedSelector) -> Self {
        *askers.settled() = table.to_vec();
        Self { askers, selector, table, high: HighFlows::default() }
    }

    #[cfg(test)]
    pub(in crate::data) fn into_selector(self) -> SharedSelector {
        (self.selector, self.table)
    }

    /// Sends a step to each of the workers, and waits for each answer; `after` runs after each
    /// answer.
    fn steps(
        &self,
        steps: impl Iterator<Item = (u8, Step)>,
        mut after: impl FnMut(u8) -> Result<(), End>,
    ) -> Result<(), End> {
        let asked: Vec<_> = steps
            .map(|(worker, step)| {
                let asker = &self.askers.0[usize::from(worker)];
                (worker, asker.request(|reply| WorkerRequest::Move(step, reply)))
            })
            .collect();
        for (worker, answer) in asked {
            answer.recv().map_err(Stopped::from)?;
            after(worker)?;
        }
        Ok(())
    }

    /// Moves buckets. No worker both receives and gives buckets. The steps are those of
    /// `sluice_ports::buckets`. If the kernel refuses, nothing has moved, and nothing is held.
    pub(in crate::data) fn round(&mut self, changes: &[Change]) -> Result<(), End> {
        let askers = self.askers.clone();
        let mut settled = askers.settled();
        let by = |of: fn(&Change) -> u8, only: Option<u8>| {
            let mut sets: BTreeMap<u8, BucketSet> = BTreeMap::new();
            for change in changes.iter().filter(|c| only.is_none_or(|from| c.from == from)) {
                sets.entry(of(change)).or_default().insert(change.bucket);
            }
            sets
        };
        let held = by(|c| c.to, None);
        let hold = held.iter().map(|(to, set)| (*to, Step::Hold(*set)));
        self.steps(hold, |_| Ok(()))?;
        let mut table = self.table;
        for change in changes {
            table[usize::from(change.bucket)] = change.to;
        }
        if let Err(refused) = self.selector.set(&table, &self.high) {
            let release = held.iter().map(|(to, set)| (*to, Step::Release(*set)));
            self.steps(release, |_| Ok(()))?;
            return Err(refused.into());
        }
        self.table = table;
        *settled = table.to_vec();
        let leave = by(|c| c.from, None).into_iter().map(|(from, set)| (from, Step::Leave(set)));
        self.steps(leave, |from| {
            let release = by(|c| c.to, Some(from)).into_iter();
            self.steps(release.map(|(to, set)| (to, Step::Release(set))), |_| Ok(()))
        })
    }

    /// Sets the flows of high priority. The flows of a group of buckets must be at one worker. If
    /// the kernel refuses, the previous matches remain.
    pub(in crate::data) fn set_high(&mut self, high: HighFlows) -> Result<(), End> {
        let askers = self.askers.clone();
        let _settled = askers.settled();
        self.tell_high(&high)?;
        if let Err(refused) = self.selector.set(&self.table, &high) {
            self.tell_high(&self.high)?;
            return Err(refused.into());
        }
        self.high = high;
        Ok(())
    }

    /// Makes all workers use these matches from now on.
    fn tell_high(&self, high: &HighFlows) -> Result<(), End> {
        let all = (0_u8..).take(self.askers.0.len());
        self.steps(all.map(|worker| (worker, Step::High(high.clone()))), |_| Ok(()))
    }
}

/// Counters of the workers at the last reading.
struct Last {
    busy_ns: Vec<u64>,
    frames: Vec<u64>,
    seen: Vec<[u32; BUCKETS as usize]>,
}

impl Last {
    fn new(workers: usize) -> Self {
        let seen = vec![[0; BUCKETS as usize]; workers];
        Self { busy_ns: vec![0; workers], frames: vec![0; workers], seen }
    }
}

/// The buckets of a shared underlay.
struct MovableBuckets {
    /// Name of the underlay.
    port: String,
    parts: Vec<Part>,
    mover: Mover,
    last: Last,
    /// Frames of each bucket in the last period.
    came: [u32; BUCKETS as usize],
    /// Matches of the flows that are to be of high priority.
    wanted_high: HighFlows,
    progress: Progress,
    quiet: Quiet,
    /// The last policy that holds completely.
    settled: PolicyVersion,
    /// Refusals of the kernel, and the time of the next attempt: for moves, and for other flows of
    /// high priority.
    refused: Refused,
    refused_high: Refused,
}

type Refused = Option<(String, Nanos)>;

/// Returns true if the request may be tried.
fn is_due(refused: &Refused) -> bool {
    refused.as_ref().is_none_or(|(_, until)| clock::now() >= *until)
}

/// Notes a refusal of the kernel. It is logged once, and shown as long as it holds.
fn refuse(refused: &mut Refused, why: String) {
    if refused.as_ref().is_none_or(|(before, _)| *before != why) {
        say!("{why}");
    }
    *refused = Some((why, clock::now().after(REFUSED_FOR)));
}

/// Starts the thread that follows the placement, if there is a shared underlay: `port` is its name.
pub(in crate::data) fn follow(
    port: &str,
    wanted: PolicyWatch,
    cpus: Cpus,
    (selector, parts): (Option<SharedSelector>, Vec<Part>),
    askers: &WorkerHandles,
) -> anyhow::Result<Shown> {
    let Some(selector) = selector else { return Ok(Shown::default()) };
    let movable = MovableBuckets::new(port, parts, Mover::new(askers.clone(), selector));
    let rebalancer = Rebalancer::new(movable, wanted, cpus)?;
    let shown = Arc::clone(&rebalancer.shown);
    if !Selector::can_change() {
        say!("{port}: {FIXED}");
        shown.lock().unwrap_or_else(PoisonError::into_inner).notes.push(FIXED.to_owned());
        return Ok(shown);
    }
    rebalancer.start("placement")?;
    Ok(shown)
}

impl Movable for MovableBuckets {
    const KEEPS_DECISIONS: bool = true;
    type Rows = Vec<PlacementRow>;

    /// If a mode reserves a worker for flows of high priority, it is the first one that may do the
    /// work.
    fn settings(&self, mode: Mode, cpus: &Cpus) -> Config {
        let reserves = mode == Mode::Predetermined && !self.mover.high.is_empty();
        high::config(mode, reserves.then(|| core_of(cpus.first_free())))
    }

    fn adopt_policy(&mut self, policy: &HostPolicy) {
        // A policy with too many matches was refused when it was received.
        self.wanted_high = HighFlows::new(&policy.in_force.high).unwrap_or_default();
        // Buckets were gathered for another selection: the kernel may not accept this one.
        self.progress = Progress::Done;
        // The refused moves may not be wanted any more.
        for refused in [&mut self.refused, &mut self.refused_high] {
            *refused = refused.take().map(|(why, _)| (why, Nanos::ZERO));
        }
    }

    fn sample(&mut self, decisions: &Decisions) -> Sample {
        let period_ns = decisions.period_ns;
        self.came = [0; BUCKETS as usize];
        let mut loads = vec![EntryLoad::default(); self.came.len()];
        let mut cores = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            let busy = growth(&mut self.last.busy_ns[at], part.meter.busy_ns());
            let read = growth(&mut self.last.frames[at], part.meter.frames());
            for bucket in 0..BUCKETS {
                let seen = part.gauges.seen(bucket);
                let last = &mut self.last.seen[at][usize::from(bucket)];
                let came = seen.wrapping_sub(std::mem::replace(last, seen));
                self.came[usize::from(bucket)] += came;
                // The bucket's share of the worker's time is its share of the worker's frames.
                let used = u128::from(busy) * u128::from(came) / u128::from(read.max(1));
                let used = u64::try_from(used).unwrap_or(u64::MAX).min(busy);
                let decap = &mut loads[usize::from(bucket)].decap;
                *decap = decap.plus(Share::of_period(used, period_ns));
            }
            let (placed, _) = decisions.placement.load_of(core_of(at));
            let foreign = Share::of_period(busy, period_ns).minus(placed);
            // A worker is a thread like a vCPU: the scheduler keeps both from starving.
            cores.push(CoreLoad { softirq: foreign, ..CoreLoad::default() });
        }
        (cores, loads)
    }

    fn place(&mut self, decisions: &mut Decisions) {
        self.place_new_buckets(decisions);
    }

    fn execute(&mut self, decisions: &mut Decisions) -> Result<(), Stopped> {
        if !is_due(&self.refused) {
            return Ok(());
        }
        match self.apply_moves(decisions) {
            Ok(()) => self.refused = None,
            Err(End::Stopped(stopped)) => return Err(stopped),
            Err(end) => refuse(&mut self.refused, format!("flows stay where they are: {end}")),
        }
        Ok(())
    }

    fn report(&self, decisions: &Decisions) -> Showing<Vec<PlacementRow>> {
        let (rows, place) = (self.rows(decisions), Some(self.status(decisions)));
        Showing { rows, place, notes: self.notes(decisions) }
    }
}

impl MovableBuckets {
    /// Takes the parts of all workers.
    fn new(port: &str, parts: Vec<Part>, mover: Mover) -> Self {
        Self {
            port: port.to_owned(),
            mover,
            last: Last::new(parts.len()),
            parts,
            came: [0; BUCKETS as usize],
            wanted_high: HighFlows::default(),
            progress: Progress::default(),
            quiet: [0; _],
            settled: PolicyVersion::default(),
            refused: None,
            refused_high: None,
        }
    }

    /// Makes a round of moves if there is anything to move.
    fn apply_moves(&mut self, decisions: &mut Decisions) -> Result<(), End> {
        let wanted = match self.gather(decisions)? {
            Some(changes) => changes,
            None => self.wanted(decisions).collect(),
        };
        let may_go = |change: &Change| self.may_leave(change.bucket);
        let changes = one_round(wanted.into_iter().filter(may_go));
        if changes.is_empty() {
            return Ok(());
        }
        self.mover.round(&changes)?;
        decisions.moves += changes.len() as u64;
        Ok(())
    }

    /// Returns the buckets that are not where they should be.
    fn wanted(&self, decisions: &Decisions) -> impl Iterator<Item = Change> {
        decisions.placement.entries().filter_map(|(entry, state)| {
            let bucket = u16::try_from(entry.0).ok()?;
            let from = self.mover.table[usize::from(bucket)];
            let to = u8::try_from(state.core.0).ok()?;
            (from != to).then_some(Change { bucket, from, to })
        })
    }

    fn may_leave(&self, bucket: u16) -> bool {
        let from = self.mover.table[usize::from(bucket)];
        let under_way = self.parts[usize::from(from)].gauges.under_way(bucket);
        under_way.saturating_mul(LEAVES_WITHIN) <= self.came[usize::from(bucket)]
    }

    /// Returns which worker has which buckets, and why.
    fn rows(&self, decisions: &Decisions) -> Vec<PlacementRow> {
        let mut rows: BTreeMap<(u8, bool, String), (Vec<u16>, Share)> = BTreeMap::new();
        let count = if self.mover.high.is_empty() { LOW_BUCKETS } else { BUCKETS };
        for (bucket, worker) in (0..count).zip(self.mover.table) {
            let state = decisions.placement.entry(EntryId(bucket.into()));
            let why = match state {
                None => "by hash".to_owned(),
                Some(state) if state.core == CoreIndex(worker.into()) => state.why.to_string(),
                Some(state) => format!("it waits to go to worker {}", state.core.0),
            };
            let (buckets, load) = rows.entry((worker, is_high(bucket), why)).or_default();
            buckets.push(bucket);
            *load = load.plus(state.map_or(Share::ZERO, |state| state.load.sum()));
        }
        let row = |((worker, high, why), (list, load)): ((u8, bool, String), _)| PlacementRow {
            port: self.port.clone(),
            worker: Some(worker.into()),
            cpu: decisions.cpus.of(worker.into()),
            why,
            buckets: Some(buckets_row(list, high, load)),
        };
        let remarks = self.show_refused(&self.port).chain(self.show_high(&self.port));
        remarks.chain(rows.into_iter().map(row)).collect()
    }

    /// Returns the state of the policy.
    fn status(&self, decisions: &Decisions) -> PlaceStatus {
        let (low, high) = self.mover.table.split_at(LOW_BUCKETS.into());
        let status = decisions.status(&self.port, self.settled, |worker| {
            let of_it = |part: &[u8]| {
                let count = part.iter().filter(|of| usize::from(**of) == worker).count();
                u32::try_from(count).unwrap_or(u32::MAX)
            };
            // Without flows of high priority their buckets do not count.
            let high = if self.mover.high.is_empty() { 0 } else { of_it(high) };
            (of_it(low) + high, high)
        });
        let high = u32::try_from(self.mover.high.len()).unwrap_or(u32::MAX);
        PlaceStatus { high, ..status }
    }
}

fn buckets_row(list: Vec<u16>, high: bool, load: Share) -> BucketsRow {
    BucketsRow { list, high, load_percent: f64::from(load.0) / 10_000.0 }
}

/// Returns as many changes, from the first on, as fit in one round.
fn one_round(wanted: impl Iterator<Item = Change>) -> Vec<Change> {
    let mut round: Vec<Change> = Vec::new();
    for change in wanted {
        let crosses = |other: &Change| other.to == change.from || other.from == change.to;
        if !round.iter().any(crosses) && round.len() < ROUND_MAX {
            round.push(change);
        }
    }
    round
}

#[cfg(test)]
mod tests;
