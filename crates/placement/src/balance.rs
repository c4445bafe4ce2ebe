//! Rebalance: moves from the busiest core to the least busy one.
//!
//! A move is made only if the two cores' loads differ by more than the hysteresis before, and by
//! less after, so that with constant loads moves end: the sum of the squares of all loads becomes
//! smaller with every move. An entry that has moved stays for some periods.

use alloc::vec::Vec;

use crate::mode::Mode;
use crate::placement::Placement;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

/// Entries that may leave a core, with their loads. Kept while that core stays the busiest one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    of: Option<CoreIndex>,
    entries: Vec<(EntryId, Share)>,
}

impl Placement {
    pub(crate) fn balance(&mut self, most: usize, moves: &mut Vec<Move>) {
        self.candidates.of = None;
        let mut stuck = 0;
        while moves.len() < most && stuck < self.cores.len() {
            let Some(hot) = self.hottest(stuck) else { return };
            let Some(coldest) = self.coldest(|_| true) else { return };
            if self.gap(hot, coldest) <= self.config.hysteresis {
                return;
            }
            // An entry that can stay on its node does.
            let near = self.coldest_near(hot).filter(|near| *near != coldest);
            let made = near.and_then(|near| self.move_one(hot, near));
            match made.or_else(|| self.move_one(hot, coldest)) {
                Some(made) => {
                    moves.push(made);
                    stuck = 0;
                }
                // No entry there can move; perhaps one of the next core can.
                None => stuck += 1,
            }
        }
    }

    fn gap(&self, hot: CoreIndex, cold: CoreIndex) -> Share {
        self.cores.total(hot).minus(self.cores.total(cold))
    }

    fn move_one(&mut self, hot: CoreIndex, cold: CoreIndex) -> Option<Move> {
        let gap = self.gap(hot, cold);
        // A vCPU's core gets only entries of a core that is full.
        let needed = !self.cores.get(cold).runs_vcpu || self.config.mode != Mode::Adaptive;
        let is_full = self.cores.total(hot) > self.config.full_at;
        if gap <= self.config.hysteresis || !(needed || is_full) {
            return None;
        }
        self.gather(hot);
        let entry = self.pick(gap, hot, cold)?;
        Some(self.put(entry, cold, None, Why::Balance(gap)))
    }

    /// Returns true if balance may put entries there: not if a rule would take them away again.
    fn may_gain(&self, core: CoreIndex) -> bool {
        let is = self.cores.get(core);
        match self.config.mode {
            Mode::Adaptive => {
                !is.excluded
                    && (!is.runs_vcpu || self.may_share())
                    && (!self.cores.is_beside(core) || !self.is_any_apart())
                    && self.cores.high(core) == 0
                    && !self.hides_load(core)
            }
            _ => !is.excluded,
        }
    }

    /// Returns true if there is a core that shares nothing with vCPUs and high priority.
    fn is_any_apart(&self) -> bool {
        self.cores.all().any(|core| {
            let is = self.cores.get(core);
            let is_free = !is.excluded && !is.runs_vcpu && self.cores.high(core) == 0;
            is_free && !self.cores.is_beside(core)
        })
    }

    /// Returns true if every core that may do work runs a vCPU, and no vCPU starves.
    fn may_share(&self) -> bool {
        if self.overflow_core.is_some() || self.cores.all().any(|core| self.cores.starved(core) > 0)
        {
            return false;
        }
        let mut all = self.cores.all().map(|core| self.cores.get(core));
        all.all(|core| core.runs_vcpu || core.excluded)
    }

    fn coldest(&self, may: impl Fn(CoreIndex) -> bool) -> Option<CoreIndex> {
        let all = self.cores.all().filter(|core| may(*core) && self.may_gain(*core));
        let cores = &self.cores;
        if self.config.mode == Mode::Adaptive {
            all.min_by_key(|core| (cores.pressure(*core), *core))
        } else {
            all.min_by_key(|core| (cores.total(*core), *core))
        }
    }

    fn coldest_near(&self, hot: CoreIndex) -> Option<CoreIndex> {
        if self.config.mode != Mode::Adaptive {
            return None;
        }
        let node = self.cores.get(hot).node;
        self.coldest(|core| self.cores.get(core).node == node)
    }

    /// The busiest core, after `skipped` others.
    fn hottest(&self, skipped: usize) -> Option<CoreIndex> {
        let key = |core: CoreIndex| (core::cmp::Reverse(self.cores.total(core)), core);
        let mut last = None;
        for _ in 0..=skipped {
            let rest = self.cores.all().map(key).filter(|key| last.is_none_or(|last| *key > last));
            last = Some(rest.min()?);
        }
        last.map(|(_, core)| core)
    }

    /// Collects the entries that may leave a core.
    fn gather(&mut self, hot: CoreIndex) {
        if self.candidates.of == Some(hot) {
            return;
        }
        let mut entries = core::mem::take(&mut self.candidates.entries);
        entries.clear();
        let rested = |since: u32| self.period.wrapping_sub(since) > self.config.rest_periods;
        // An entry that came to a machine's core for balance stays: vCPUs take now the time that
        // they lacked before, so that the gap in the other direction looks the same.
        let shares = self.config.mode == Mode::Adaptive && self.cores.get(hot).runs_vcpu;
        let stays = |why: Why| shares && matches!(why, Why::Balance(_));
        entries.extend(self.entries.iter().filter_map(|(entry, state)| {
            let may = state.core == hot
                && !stays(state.why)
                && state.delivery.is_none()
                && rested(state.since)
                && !self.is_high(state.priority)
                && state.load.sum() > Share::ZERO;
            may.then(|| (entry, state.load.sum()))
        }));
        self.candidates = Candidates { of: Some(hot), entries };
    }

    /// Takes the entry whose move helps most: the largest that is not above half of the gap, or
    /// else the smallest, if the gap shrinks by the hysteresis with it. No entry leaves its node
    /// for balance alone.
    fn pick(&mut self, gap: Share, hot: CoreIndex, cold: CoreIndex) -> Option<EntryId> {
        let half = Share(gap.0 / 2);
        let most = gap.minus(Share(self.config.hysteresis.0 / 2));
        let stays = |entry: EntryId| {
            let receiver = self.entries.receiver(entry);
            let is_far = |core| self.is_far(core, receiver);
            self.config.mode == Mode::Adaptive && is_far(cold) && !is_far(hot)
        };
        let all = self.candidates.entries.iter().enumerate();
        let all = all.filter(|(_, (entry, _))| !stays(*entry));
        let below = all.clone().filter(|(_, (_, load))| *load <= half);
        let best = below.max_by_key(|(_, (entry, load))| (*load, core::cmp::Reverse(*entry)));
        let best = best.or_else(|| {
            let above = all.filter(|(_, (_, load))| *load <= most);
            above.min_by_key(|(_, (entry, load))| (*load, *entry))
        });
        let (at, _) = best?;
        Some(self.candidates.entries.swap_remove(at).0)
    }
}
