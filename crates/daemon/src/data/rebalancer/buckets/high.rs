//! Flows of high priority. The matches that select them may change while frames arrive.
//!
//! Another selection puts flows into other buckets. So first the buckets of each group are brought
//! to one worker, by ordinary rounds. Then the selection is changed, by which no flow changes its
//! worker (`sluice_ports::buckets` explains why that keeps the order). Then placement continues: it
//! moves the low buckets back where they were, and high ones apart.
//!
//! A bucket whose receiver does not read cannot go, so the others of its group come to its worker.
//! If two buckets of a group cannot go, on two workers, the old selection stays until one can, and
//! placement continues meanwhile.

use std::cmp::Reverse;

use sluice_api::show::PlacementRow;
use sluice_base::Priority;
use sluice_placement::{Config, CoreIndex, EntryId, Mode};
use sluice_ports::buckets::{
    BUCKETS, BucketTable, GROUPS, HIGH_BUCKETS, LOW_BUCKETS, group_of, is_high,
};
use sluice_ports::udp::{SelectError, Selector};

use super::{Change, End, MovableBuckets, is_due, refuse};
use crate::data::rebalancer::{Decisions, Movable as _};

/// Periods without a frame after which a high bucket no longer claims a worker.
const QUIET_PERIODS: u32 = 100;

/// Returns the priority of a bucket for the placement: high or low.
fn priority_of(bucket: u16) -> Priority {
    if is_high(bucket) { Priority::from_low_bits(7) } else { Priority::ZERO }
}

/// Returns the placement's settings for buckets. `reserved` is the worker for high priority in a
/// mode that has one.
pub(super) fn config(mode: Mode, reserved: Option<CoreIndex>) -> Config {
    let mut config = Config::new(mode, BUCKETS.into());
    // A bucket is read and delivered by one worker.
    config.split_at = None;
    let high = priority_of(LOW_BUCKETS);
    config.high_from = Some(high);
    config.reserved = reserved.map(|core| (high, core)).into_iter().collect();
    config
}

/// Progress of a change of selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// The wanted selection holds.
    #[default]
    Done,
    /// Buckets are on their way.
    Gathers,
    /// Two buckets of a group cannot go.
    Waits,
}

/// Returns the moves that must come before another selection: to the worker that has most of a
/// group, or that has the bucket of the group that may not leave. `None`: two workers have such
/// buckets of a group.
///
/// Executed moves do not change the rest of the result, so the process terminates.
pub(in crate::data) fn gathering(
    table: &BucketTable,
    may_leave: impl Fn(u16) -> bool,
) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    let mut groups = [0_u16; 1 << u8::BITS];
    for group in 0..GROUPS {
        let all: Vec<(u16, u8)> = (0..BUCKETS)
            .filter(|bucket| group_of(*bucket) == group)
            .map(|bucket| (bucket, table[usize::from(bucket)]))
            .collect();
        let mut stay = all.iter().filter(|(bucket, _)| !may_leave(*bucket)).map(|has| has.1);
        let to = match stay.next() {
            Some(to) if stay.any(|other| other != to) => return None,
            Some(to) => to,
            None => most_of(&all, &groups),
        };
        groups[usize::from(to)] += 1;
        let others = all.into_iter().filter(|(_, from)| *from != to);
        changes.extend(others.map(|(bucket, from)| Change { bucket, from, to }));
    }
    Some(changes)
}

/// Returns the worker that has most of these buckets; if several have as many, one with the fewest
/// groups so far.
fn most_of(all: &[(u16, u8)], groups: &[u16]) -> u8 {
    let count = |of: u8| all.iter().filter(|(_, worker)| *worker == of).count();
    let key = |of: u8| (count(of), Reverse((groups[usize::from(of)], of)));
    let workers = all.iter().map(|(_, worker)| *worker);
    workers.max_by_key(|of| key(*of)).expect("a group has buckets")
}

impl MovableBuckets {
    /// Returns the moves that must come before the wanted selection; if there are none, applies it.
    /// `None`: placement continues.
    pub(super) fn gather(&mut self, decisions: &mut Decisions) -> Result<Option<Vec<Change>>, End> {
        if self.wanted_high == self.mover.high {
            self.progress = Progress::Done;
            self.settled = decisions.stamp;
            self.refused_high = None;
            return Ok(None);
        }
        if self.progress != Progress::Gathers && !self.kernel_takes_high() {
            return Ok(None);
        }
        let changes = gathering(&self.mover.table, |bucket| self.may_leave(bucket));
        if changes.as_ref().is_some_and(Vec::is_empty) {
            self.progress = Progress::Done;
            match self.mover.set_high(self.wanted_high.clone()) {
                Ok(()) => {
                    self.forget_high(decisions);
                    self.settled = decisions.stamp;
                }
                // Placement continues, and buckets move apart again.
                Err(End::Kernel(refused)) => self.refuse_high(&refused),
                Err(end) => return Err(end),
            }
            return Ok(None);
        }
        self.progress = if changes.is_some() { Progress::Gathers } else { Progress::Waits };
        Ok(changes)
    }

    /// Returns true if the kernel accepts the wanted matches: checked before anything moves for
    /// them.
    fn kernel_takes_high(&mut self) -> bool {
        if !is_due(&self.refused_high) {
            return false;
        }
        let taken = Selector::would_take(&self.wanted_high);
        if let Err(refused) = &taken {
            self.refuse_high(refused);
        }
        taken.is_ok()
    }

    fn refuse_high(&mut self, refused: &SelectError) {
        let why = format!("flows of high priority are those of before: {refused}");
        refuse(&mut self.refused_high, why);
    }

    /// Forgets the high buckets: their flows have changed, and so has the meaning of their counters
    /// since the last reading.
    fn forget_high(&mut self, decisions: &mut Decisions) {
        decisions.begin_period();
        self.sample(decisions);
        if decisions.mode == Mode::Predetermined {
            // All buckets get their places anew, by number.
            decisions.renew(self.settings(decisions.mode, &decisions.cpus));
        }
        for bucket in LOW_BUCKETS..BUCKETS {
            decisions.placement.remove(EntryId(bucket.into()));
        }
    }

    /// Places buckets that had frames for the first time: where they are, or where the mode assigns
    /// them by number. A high bucket that is quiet has no place.
    pub(super) fn place_new_buckets(&mut self, decisions: &mut Decisions) {
        let is_used = |bucket: &u16| !(is_high(*bucket) && self.mover.high.is_empty());
        for (bucket, came) in (0..BUCKETS).zip(self.came).filter(|(bucket, _)| is_used(bucket)) {
            let (entry, priority) = (EntryId(bucket.into()), priority_of(bucket));
            if came > 0 && decisions.is_by_number() {
                decisions.placement.place(entry, priority);
            } else if came > 0 {
                let core = CoreIndex(self.mover.table[usize::from(bucket)].into());
                decisions.placement.adopt(entry, priority, core);
            }
            if let Some(high) = bucket.checked_sub(LOW_BUCKETS) {
                let quiet = &mut self.quiet[usize::from(high)];
                *quiet = if came > 0 { 0 } else { quiet.saturating_add(1) };
                if *quiet == QUIET_PERIODS {
                    decisions.placement.remove(entry);
                }
            }
        }
    }

    /// Returns rows for the kernel's refusals.
    pub(super) fn show_refused(&self, port: &str) -> impl Iterator<Item = PlacementRow> {
        self.refused.iter().chain(&self.refused_high).map(move |(why, _)| {
            let (port, why) = (port.to_owned(), why.clone());
            PlacementRow { port, worker: None, cpu: None, why, buckets: None }
        })
    }

    /// Returns a row with the number of matches for high priority, if there are any, and with the
    /// number that waits.
    pub(super) fn show_high(&self, port: &str) -> Option<PlacementRow> {
        let wanted = self.wanted_high.len();
        let holds = self.mover.high.len();
        let why = match self.progress {
            Progress::Done if holds == 0 => return None,
            Progress::Done => format!("of high priority is what {holds} matches mean"),
            Progress::Gathers => {
                format!("of high priority is what {holds} matches mean, and soon {wanted} others")
            }
            Progress::Waits => format!(
                "of high priority is what {holds} matches mean; {wanted} others wait until \
                 receivers read"
            ),
        };
        Some(PlacementRow { port: port.to_owned(), worker: None, cpu: None, why, buckets: None })
    }

    /// Returns notes on parts of the policy that do not hold.
    pub(super) fn notes(&self, decisions: &Decisions) -> Vec<String> {
        let mut notes = decisions.cpus.notes();
        if self.progress == Progress::Waits {
            notes.push("other flows of high priority wait until receivers read".to_owned());
        }
        notes.extend(self.show_refused("").map(|row| row.why));
        notes
    }
}

/// Number of periods for which each high bucket had no frame.
pub(super) type Quiet = [u32; HIGH_BUCKETS as usize];

#[cfg(test)]
mod tests;
