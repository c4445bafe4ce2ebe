//! Entries on cores that a rule forbids or disfavours.

use alloc::vec::Vec;

use crate::entries::EntryState;
use crate::mode::Mode;
use crate::placement::Placement;
use crate::rank::Rank;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

impl Rank {
    /// Reason of a move from a core of this rank to a better one.
    pub(crate) const fn why_left(self, is_high: bool) -> Why {
        match self {
            Self::Shared if is_high => Why::OwnCore,
            Self::Good | Self::Shared | Self::HighVcpu | Self::FullHigh => Why::Displaced,
            Self::Far => Why::LeavesNode,
            Self::Beside => Why::LeavesSibling,
            Self::Own | Self::Vcpu => Why::LeavesVcpu,
            Self::Full => Why::Full,
        }
    }
}

/// Number of entries, per allowed move, for which another core is searched in a period: most
/// searches fail if every core is full, and each takes time in the number of cores.
const LOOKS_PER_MOVE: u32 = 8;

impl Placement {
    /// Moves entries off cores that they may not use, or should not use while there are better
    /// ones: entries of high priority first, because others make way for them.
    pub(crate) fn repair(&mut self, most: usize, moves: &mut Vec<Move>) {
        self.leave_excluded(most, moves);
        if !self.config.mode.has_rules() {
            return;
        }
        let mut looks = self.config.moves_max.saturating_mul(LOOKS_PER_MOVE);
        for wants_high in [true, false] {
            let count = self.entries.placed().len();
            let first = if wants_high { 0 } else { self.cursor };
            for nth in 0..count {
                if looks == 0 || moves.len() >= most {
                    break;
                }
                let at = (first + nth) % count;
                let entry = self.entries.placed()[at];
                let state = *self.entries.get(entry).expect("it is placed");
                if self.is_high(state.priority) != wants_high || state.delivery.is_some() {
                    continue;
                }
                let now = self.without(entry, |p| p.rank_now(&state, state.core));
                if now == Rank::Good {
                    continue;
                }
                looks -= 1;
                moves.extend(self.better(entry, &state, now));
                self.cursor = if wants_high { self.cursor } else { (at + 1) % count };
            }
        }
    }

    /// Rank of an entry's core, while the entry is taken out of the sums.
    fn rank_now(&self, state: &EntryState, core: CoreIndex) -> Rank {
        self.rank(core, self.whole(state), Share::ZERO).unwrap_or(Rank::FullHigh)
    }

    /// Moves an entry to a better core, if there is one that stays better when loads change a
    /// little.
    fn better(&mut self, entry: EntryId, state: &EntryState, now: Rank) -> Option<Move> {
        let (work, margin) = (self.whole(state), self.config.hysteresis);
        let best = self.without(entry, |p| p.best(work, margin, Some(state.core)));
        let (core, rank) = best?;
        if rank >= now {
            return None;
        }
        Some(self.put(entry, core, None, now.why_left(work.is_high)))
    }

    /// Moves entries off excluded cores, in every mode.
    fn leave_excluded(&mut self, most: usize, moves: &mut Vec<Move>) {
        let excluded = |p: &Self, core| p.cores.get(core).excluded;
        if !self.cores.all().any(|core| excluded(self, core) && self.has_work(core)) {
            return;
        }
        for at in 0..self.entries.placed().len() {
            if moves.len() >= most {
                return;
            }
            let entry = self.entries.placed()[at];
            let state = *self.entries.get(entry).expect("it is placed");
            if !state.parts().any(|(core, _)| excluded(self, core)) {
                continue;
            }
            let core = match self.config.mode {
                Mode::Rss | Mode::RssPlusPlus => self.by_hash(entry, |_| true),
                Mode::Predetermined => self.assigned(entry, state.priority).0,
                Mode::OnTheFly | Mode::Adaptive => {
                    let work = self.whole(&state);
                    let best = self.without(entry, |p| p.best(work, Share::ZERO, None));
                    best.expect("not all are excluded").0
                }
            };
            moves.push(self.put(entry, core, None, Why::Excluded));
        }
    }

    /// Returns true if an entry is placed on a core, even without load.
    fn has_work(&self, core: CoreIndex) -> bool {
        self.entries.iter().any(|(_, state)| state.on(core).is_some())
    }
}
