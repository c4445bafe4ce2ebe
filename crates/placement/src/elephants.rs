//! An entry that is too much for one core: its two stages go to two cores.

use alloc::vec::Vec;

use crate::entries::EntryState;
use crate::placement::Placement;
use crate::rank::Rank;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

impl Placement {
    /// Splits what is too much for its core, and joins what is not any more.
    pub(crate) fn elephants(&mut self, most: usize, moves: &mut Vec<Move>) {
        let Some(split_at) = self.config.split_at else { return };
        for at in 0..self.entries.placed().len() {
            if moves.len() >= most {
                return;
            }
            let entry = self.entries.placed()[at];
            let state = *self.entries.get(entry).expect("it is placed");
            let change = match state.delivery {
                None if state.load.sum() >= split_at => self.split(entry, &state),
                None => None,
                Some(delivery) => self.join(entry, &state, delivery, split_at),
            };
            moves.extend(change);
        }
    }

    fn split(&mut self, entry: EntryId, state: &EntryState) -> Option<Move> {
        let two_stages = state.load.decap > Share::ZERO && state.load.deliver > Share::ZERO;
        if !two_stages || self.cores.total(state.core) <= self.config.full_at {
            return None;
        }
        let core = self.for_delivery(entry, state)?;
        Some(self.put(entry, state.core, Some(core), Why::Split))
    }

    /// A core with room for an entry's delivery, other than its own, and no worse than that.
    fn for_delivery(&mut self, entry: EntryId, state: &EntryState) -> Option<CoreIndex> {
        let is_high = self.is_high(state.priority);
        let (load, margin) = (state.load.deliver, self.config.hysteresis);
        let best = self.without(entry, |p| p.best(load, is_high, margin, Some(state.core)));
        best.filter(|(_, rank)| *rank <= Rank::Shared).map(|(core, _)| core)
    }

    /// One core is enough again, with some room, or the second one is not fit any more.
    fn join(
        &mut self,
        entry: EntryId,
        state: &EntryState,
        delivery: CoreIndex,
        split_at: Share,
    ) -> Option<Move> {
        let is_high = self.is_high(state.priority);
        let is_small = state.load.sum().0 <= split_at.0 / 2;
        let (whole, margin) = (state.load.sum(), self.config.hysteresis);
        let deliver = state.load.deliver;
        let (fits, here, there) = self.without(entry, |p| {
            let fits = p.rank(state.core, whole, is_high, margin).is_some_and(|r| r < Rank::Full);
            let here = p.rank(state.core, state.load.decap, is_high, Share::ZERO);
            (fits, here, p.rank(delivery, deliver, is_high, Share::ZERO))
        });
        if is_small && fits {
            return Some(self.put(entry, state.core, None, Why::Joined));
        }
        let bad = |rank: Option<Rank>| rank.is_none_or(|rank| rank == Rank::Vcpu);
        if bad(there) || bad(here) {
            // As one it is placed by the rules, and split again if it must be.
            let best = self.without(entry, |p| p.best(whole, is_high, Share::ZERO, None));
            let (core, _) = best.expect("not all are excluded");
            return Some(self.put(entry, core, None, Why::LeavesVcpu));
        }
        None
    }
}
