//! Assignment of a shared underlay's flows to workers: [`sluice_placement`] decides ten times a
//! second from the workers' measurements, and this module carries out the decisions.
//!
//! ```text
//!   worker: Meter, Gauges ──▶ period: loads ──▶ Placement ──▶ wanted
//!                                                               │ which of them may go now
//!                              round: hold, set, leave, release ▼
//! ```
//!
//! A thread of its own does this, since a round waits for the kernel (tens of milliseconds), and no
//! worker may wait for it. The thread sends questions to the workers, as `show` does. The channel
//! orders a worker's actions before its answer, so the four steps of `sluice_ports::udp` only need
//! each step to wait for the one before.
//!
//! **A bucket with a standing queue does not move.** A bucket may go when its frames under way
//! leave within a short time, judged by the frames that came in the last period. Otherwise a round
//! would wait for a flow whose receiver has stopped reading, and other flows with it.
//!
//! **A worker either gives or takes in a round**, never both, so that no two wait for each other.
//!
//! Flows of high priority have buckets of their own (`high.rs`).

pub(super) mod high;
mod order;

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sluice_api::placement::{PlaceStatus, PolicyVersion};
use sluice_api::show::{BucketsRow, PlacementRow};
use sluice_base::Nanos;
use sluice_placement::{CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Placement, Share};
use sluice_ports::udp::{
    BUCKETS, BucketSet, BucketTable, HighFlows, LOW_BUCKETS, SelectError, Selector, is_high,
};

use self::high::{Progress, Quiet};
use super::cpus::{Cpus, core_of};
use super::policy::PolicyWatch;
use super::worker::{Part, Step, WorkerRequest};
use super::{WorkerHandles, spawn};
use crate::sys::clock;
use crate::sys::log::say;

/// Time between two decisions.
const PERIOD: Duration = Duration::from_millis(100);
/// Most buckets that move in a round.
const ROUND_MAX: usize = 32;
/// Part of a period within which the frames under way of a bucket must leave for the bucket to
/// move: about as long as the kernel takes for its part of a round.
const LEAVES_WITHIN: u32 = 3;

/// State for `show placement`.
#[derive(Debug, Default)]
pub(super) struct Showing {
    /// The buckets, by worker and reason.
    pub(super) rows: Vec<PlacementRow>,
    /// State of the policy.
    pub(super) place: Option<PlaceStatus>,
    pub(super) notes: Vec<String>,
}

/// The state, shared by several threads.
pub(super) type Shown = Arc<Mutex<Showing>>;

/// A bucket that moves: from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) bucket: u16,
    pub(super) from: u8,
    pub(super) to: u8,
}

/// Note for a kernel that cannot tell when a program is out of use.
const FIXED: &str = "flows stay with their workers: this kernel has no `membarrier` for all CPUs";
/// Time before a request that the kernel refused is repeated.
const REFUSED_FOR: Nanos = Nanos::from_millis(5_000);

/// Reason why a round ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// A worker is being stopped.
    #[error("a worker has ended")]
    Stopped(#[from] RecvError),
    /// The kernel refused the change; forwarding continues as before.
    #[error("{0}")]
    Kernel(#[from] SelectError),
}

/// Carries out moves.
pub(super) struct Mover {
    askers: WorkerHandles,
    selector: Selector,
    pub(super) table: BucketTable,
    /// Matches of the flows of high priority.
    pub(super) high: HighFlows,
}

impl Mover {
    pub(super) fn new(askers: WorkerHandles, (selector, table): (Selector, BucketTable)) -> Self {
        *askers.settled() = table.to_vec();
        Self { askers, selector, table, high: HighFlows::default() }
    }

    #[cfg(test)]
    pub(super) fn into_selector(self) -> (Selector, BucketTable) {
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
                let (reply, answer) = sync_channel(1);
                self.askers.0[usize::from(worker)].ask(WorkerRequest::Move(step, reply));
                (worker, answer)
            })
            .collect();
        for (worker, answer) in asked {
            answer.recv()?;
            after(worker)?;
        }
        Ok(())
    }

    /// Moves buckets. No worker both receives and gives buckets. The steps are those of
    /// `sluice_ports::udp`. If the kernel refuses, nothing has moved, and nothing is held.
    pub(super) fn round(&mut self, changes: &[Change]) -> Result<(), End> {
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
    pub(super) fn set_high(&mut self, high: HighFlows) -> Result<(), End> {
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
    at: Nanos,
    busy_ns: Vec<u64>,
    frames: Vec<u64>,
    seen: Vec<[u32; BUCKETS as usize]>,
}

struct Placing {
    parts: Vec<Part>,
    mover: Mover,
    placement: Placement,
    cpus: Cpus,
    last: Last,
    /// Frames of each bucket in the last period.
    came: [u32; BUCKETS as usize],
    /// Matches of the flows that are to be of high priority.
    wanted_high: HighFlows,
    progress: Progress,
    quiet: Quiet,
    shown: Shown,
    /// Policy that is to hold, and the one that does.
    wanted: PolicyWatch,
    mode: Mode,
    stamp: PolicyVersion,
    /// The last policy that holds completely.
    settled: PolicyVersion,
    /// Buckets that have moved.
    moves: u64,
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

/// Starts the thread that follows the placement. `port` is the name of the shared underlay.
pub(super) fn follow(
    port: &str,
    wanted: PolicyWatch,
    cpus: Cpus,
    parts: Vec<Part>,
    askers: &WorkerHandles,
) -> anyhow::Result<Shown> {
    let shown = Shown::default();
    let placing = Placing::new(wanted, cpus, parts, askers, &shown)?;
    let Some(mut placing) = placing else { return Ok(shown) };
    placing.show(port);
    if !Selector::can_change() {
        say!("{port}: {FIXED}");
        shown.lock().unwrap_or_else(PoisonError::into_inner).notes.push(FIXED.to_owned());
        return Ok(shown);
    }
    let port = port.to_owned();
    spawn("placement", move || {
        loop {
            std::thread::sleep(PERIOD);
            match placing.period() {
                Ok(()) => {}
                Err(End::Stopped(_)) => break,
                Err(end) => {
                    refuse(&mut placing.refused, format!("flows stay where they are: {end}"));
                }
            }
            placing.show(&port);
        }
    })?;
    Ok(shown)
}

impl Placing {
    /// Prepares the placement. `None`: there is no shared underlay.
    fn new(
        wanted: PolicyWatch,
        cpus: Cpus,
        mut parts: Vec<Part>,
        askers: &WorkerHandles,
        shown: &Shown,
    ) -> anyhow::Result<Option<Self>> {
        let selector = parts.first_mut().and_then(|part| part.selector.take());
        parts.iter_mut().for_each(|part| part.selector = None);
        let Some(selector) = selector else { return Ok(None) };
        let (count, mode) = (parts.len(), wanted.own_mode());
        let placement = Placement::new(high::config(mode, None), &cpus.cores());
        let placement = placement.context("the workers cannot be placed on")?;
        let last = Last {
            at: clock::now(),
            busy_ns: vec![0; count],
            frames: vec![0; count],
            seen: vec![[0; BUCKETS as usize]; count],
        };
        Ok(Some(Self {
            parts,
            mover: Mover::new(askers.clone(), selector),
            placement,
            cpus,
            last,
            came: [0; BUCKETS as usize],
            wanted_high: HighFlows::default(),
            progress: Progress::default(),
            quiet: [0; _],
            shown: Arc::clone(shown),
            wanted,
            mode,
            stamp: PolicyVersion::default(),
            settled: PolicyVersion::default(),
            moves: 0,
            refused: None,
            refused_high: None,
        }))
    }

    /// Decides, and makes a round of moves if there is anything to move.
    fn period(&mut self) -> Result<(), End> {
        self.apply_policy();
        self.look_at_cpus();
        let (cores, loads) = self.measure();
        self.place_new_buckets();
        self.placement.period(&cores, &loads, &mut Vec::new());
        if !is_due(&self.refused) {
            return Ok(());
        }
        self.apply_moves()?;
        self.refused = None;
        Ok(())
    }

    fn apply_moves(&mut self) -> Result<(), End> {
        let wanted = match self.gather()? {
            Some(changes) => changes,
            None => self.wanted().collect(),
        };
        let may_go = |change: &Change| self.may_leave(change.bucket);
        let changes = one_round(wanted.into_iter().filter(may_go));
        if changes.is_empty() {
            return Ok(());
        }
        self.mover.round(&changes)?;
        self.moves += changes.len() as u64;
        Ok(())
    }

    /// Returns each worker's load apart from buckets since the last call, and the load of each
    /// bucket.
    fn measure(&mut self) -> (Vec<CoreLoad>, Vec<EntryLoad>) {
        let now = clock::now();
        let period_ns = now.since(self.last.at).0;
        self.last.at = now;
        self.came = [0; BUCKETS as usize];
        let mut loads = vec![EntryLoad::default(); self.came.len()];
        let mut cores = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            let (busy_ns, frames) = (part.meter.busy_ns(), part.meter.frames());
            let busy = busy_ns - std::mem::replace(&mut self.last.busy_ns[at], busy_ns);
            let read = frames - std::mem::replace(&mut self.last.frames[at], frames);
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
            let (placed, _) = self.placement.load_of(core_of(at));
            let foreign = Share::of_period(busy, period_ns).minus(placed);
            // A worker is a thread like a vCPU: the scheduler keeps both from starving.
            cores.push(CoreLoad { softirq: foreign, ..CoreLoad::default() });
        }
        (cores, loads)
    }

    /// Returns the buckets that are not where they should be.
    fn wanted(&self) -> impl Iterator<Item = Change> {
        self.placement.entries().filter_map(|(entry, state)| {
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

    /// Shows which worker has which buckets, and why.
    fn show(&self, port: &str) {
        let mut rows: BTreeMap<(u8, bool, String), (Vec<u16>, Share)> = BTreeMap::new();
        let count = if self.mover.high.is_empty() { LOW_BUCKETS } else { BUCKETS };
        for (bucket, worker) in (0..count).zip(self.mover.table) {
            let state = self.placement.entry(EntryId(bucket.into()));
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
            port: port.to_owned(),
            worker: Some(worker.into()),
            cpu: self.cpus.of(worker.into()),
            why,
            buckets: Some(buckets_row(list, high, load)),
        };
        let remarks = self.show_refused(port).chain(self.show_high(port));
        let rows = remarks.chain(rows.into_iter().map(row)).collect();
        let (place, notes) = (Some(self.place_status(port)), self.notes());
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        (shown.rows, shown.place, shown.notes) = (rows, place, notes);
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
