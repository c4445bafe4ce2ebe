//! Elephant entries, which are too much for one core: their two stages go to two cores.

use alloc::vec::Vec;

use crate::entries::EntryState;
use crate::placement::Placement;
use crate::rank::{Rank, Work};
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

impl Placement {
    /// Splits entries that are too much for their core, and joins entries that are not any more.
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
        let is_overflow = self.overflow_core == Some(state.core);
        if !two_stages || is_overflow || self.cores.total(state.core) <= self.config.full_at {
            return None;
        }
        let core = self.for_delivery(entry, state)?;
        Some(self.put(entry, state.core, Some(core), Why::Split))
    }

    /// A core with room for an entry's delivery, other than its own. A core with a vCPU may do it
    /// if it leaves room, that of its own machine first: delivery is the smaller part. A sibling of
    /// its own core has little capacity left.
    fn for_delivery(&mut self, entry: EntryId, state: &EntryState) -> Option<CoreIndex> {
        let work = Work { load: state.load.deliver, ..self.whole(state) };
        let margin = self.config.hysteresis;
        let has_room = |best: &(CoreIndex, Rank)| best.1 < Rank::Full;
        let best = self.without(entry, |p| {
            let elsewhere = |core| core != state.core && !p.cores.are_siblings(core, state.core);
            let apart = p.best_of(work, margin, elsewhere).filter(has_room);
            apart.or_else(|| p.best(work, margin, Some(state.core)).filter(has_room))
        });
        best.map(|(core, _)| core)
    }

    /// Joins an entry if one core is enough again, with some room; moves a stage off a core that is
    /// not fit any more.
    fn join(
        &mut self,
        entry: EntryId,
        state: &EntryState,
        delivery: CoreIndex,
        split_at: Share,
    ) -> Option<Move> {
        let whole = self.whole(state);
        let is_small = whole.load.0 <= split_at.0 / 2;
        let margin = self.config.hysteresis;
        let fits = self.without(entry, |p| p.rank(state.core, whole, margin));
        if is_small && fits.is_some_and(|rank| rank < Rank::Full) {
            return Some(self.put(entry, state.core, None, Why::Joined));
        }
        if self.cores.starved(delivery) >= crate::overflow::PERIODS {
            return Some(self.put(entry, state.core, None, Why::Starves));
        }
        if self.period.wrapping_sub(state.since) <= self.config.rest_periods {
            return None;
        }
        // Each stage goes to a better core, if there is one that stays better.
        for (here, load) in [(state.core, state.load.decap), (delivery, state.load.deliver)] {
            let work = Work { load, ..whole };
            let may = |core| core != state.core && core != delivery;
            let (now, best) = self.without(entry, |p| {
                let now = p.rank(here, work, Share::ZERO).unwrap_or(Rank::FullHigh);
                (now, p.best_of(work, margin, may))
            });
            if let Some((core, _)) = best.filter(|(_, rank)| *rank < now && *rank < Rank::Full) {
                let is_decap = here == state.core;
                let (core, delivery) = if is_decap { (core, delivery) } else { (state.core, core) };
                let why = now.why_left(whole.is_high);
                return Some(self.put(entry, core, Some(delivery), why));
            }
        }
        None
    }
}
