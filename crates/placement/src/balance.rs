//! From the core that has most to the one that has least.
//!
//! A move is made only if the two cores' loads differ by more than the hysteresis before, and by
//! less after, so that with loads that stay nothing moves for ever: the sum of the squares of all
//! loads becomes smaller with every move. What has moved rests for some periods.

use alloc::vec::Vec;

use crate::config::Mode;
use crate::placement::Placement;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

/// What may leave a core: entries with their loads. Kept while that core stays the one with most.
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
            let Some(cold) = self.coldest() else { return };
            let Some(hot) = self.hottest(stuck) else { return };
            let gap = self.cores.total(hot).minus(self.cores.total(cold));
            // A vCPU's core gains only what is too much elsewhere.
            let needed = !self.cores.get(cold).runs_vcpu || self.config.mode != Mode::Adaptive;
            let is_full = self.cores.total(hot) > self.config.full_at;
            if gap <= self.config.hysteresis || !(needed || is_full) {
                return;
            }
            self.gather(hot);
            match self.pick(gap) {
                Some(entry) => {
                    moves.push(self.put(entry, cold, None, Why::Balance(gap)));
                    stuck = 0;
                }
                // Nothing there can move; perhaps from the next one.
                None => stuck += 1,
            }
        }
    }

    /// Whether balance may put entries there.
    fn may_gain(&self, core: CoreIndex) -> bool {
        let is = self.cores.get(core);
        match self.config.mode {
            Mode::Adaptive => {
                !is.excluded
                    && (!is.runs_vcpu || self.may_share())
                    && self.cores.high(core) == 0
                    && !self.hides_load(core)
            }
            _ => !is.excluded,
        }
    }

    /// Whether there is no core without a vCPU that may do work, and no vCPU starves.
    fn may_share(&self) -> bool {
        if self.surplus.is_some() || self.cores.all().any(|core| self.cores.starved(core) > 0) {
            return false;
        }
        let mut all = self.cores.all().map(|core| self.cores.get(core));
        all.all(|core| core.runs_vcpu || core.excluded)
    }

    fn coldest(&self) -> Option<CoreIndex> {
        let all = self.cores.all().filter(|core| self.may_gain(*core));
        all.min_by_key(|core| (self.cores.total(*core), *core))
    }

    /// The core with most, after so many others.
    fn hottest(&self, skipped: usize) -> Option<CoreIndex> {
        let key = |core: CoreIndex| (core::cmp::Reverse(self.cores.total(core)), core);
        let mut last = None;
        for _ in 0..=skipped {
            let rest = self.cores.all().map(key).filter(|key| last.is_none_or(|last| *key > last));
            last = Some(rest.min()?);
        }
        last.map(|(_, core)| core)
    }

    /// Finds out what may leave a core.
    fn gather(&mut self, hot: CoreIndex) {
        if self.candidates.of == Some(hot) {
            return;
        }
        let mut entries = core::mem::take(&mut self.candidates.entries);
        entries.clear();
        let rested = |since: u32| self.period.wrapping_sub(since) > self.config.rest_periods;
        // What came to a machine's core for balance stays: vCPUs take now what they lacked before,
        // so that from there it looks as it did here.
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
    /// else the smallest, if the gap becomes smaller by the hysteresis with it.
    fn pick(&mut self, gap: Share) -> Option<EntryId> {
        let half = Share(gap.0 / 2);
        let most = gap.minus(Share(self.config.hysteresis.0 / 2));
        let all = self.candidates.entries.iter().enumerate();
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
