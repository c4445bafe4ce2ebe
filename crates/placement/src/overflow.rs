//! Overflow: work beyond the capacity of all cores goes to one of them, so that machines starve on
//! no other.
//!
//! Tunnel work comes before vCPUs. On a core with more of it than there is time, they get next to
//! nothing, even for a small excess. Spread evenly, a small overflow starves every machine; on one
//! core, only the machines that are pinned there.
//!
//! ```text
//!   starves, and no core has room          fits again
//!   core ───────────────────────> overflow ──────────> core
//! ```
//!
//! The load of an entry on a core on which machines starve tells little about its load elsewhere,
//! so there its load may rise and does not fall. Thus it goes back only to a core on which it fits,
//! after a trial or two.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::cores::CoreLoad;
use crate::entries::{EntryLoad, EntryState};
use crate::mode::Mode;
use crate::placement::Placement;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

/// Number of periods in which vCPUs starve before an entry moves.
pub(crate) const PERIODS: u32 = 3;

impl Placement {
    /// Returns true if the measured loads of entries there are less than elsewhere.
    pub(crate) fn hides_load(&self, core: CoreIndex) -> bool {
        self.config.mode == Mode::Adaptive
            && (self.overflow_core == Some(core) || self.cores.starved(core) > 0)
    }

    /// Ends the overflow when its core has room in a period, or no vCPU starves there.
    pub(crate) fn end_overflow(&mut self, cores: &[CoreLoad], loads: &[EntryLoad]) {
        let Some(core) = self.overflow_core else { return };
        let took = |entry: EntryId, state: &EntryState| {
            let load = loads.get(entry.index()).copied().unwrap_or_default();
            EntryState { load, ..*state }.on(core)
        };
        let placed: Share = self.entries.iter().filter_map(|(id, state)| took(id, state)).sum();
        let beside = cores.get(core.index()).copied().unwrap_or_default();
        let is_full = placed.plus(beside.user).plus(beside.softirq) > self.config.full_at;
        let starves = !self.cores.get(core).runs_vcpu || self.cores.starved(core) > 0;
        self.calm = if starves { 0 } else { self.calm + 1 };
        if !is_full || self.calm > PERIODS || self.cores.get(core).excluded {
            (self.overflow_core, self.calm) = (None, 0);
            self.entries.forget_starved();
        }
    }

    /// Returns true if there is an overflow, and work goes on for machines that starve: packets for
    /// them are dropped. With senders held back, the work would have stopped.
    pub(crate) fn wastes(&self, loads: &[EntryLoad]) -> bool {
        let is_wasted = |(entry, state): (EntryId, &EntryState)| {
            let took = loads.get(entry.index()).copied().unwrap_or_default().sum();
            let starves = state.receiver.is_some_and(|core| self.cores.starved(core) > 0);
            starves && took >= self.config.hysteresis
        };
        self.overflow_core.is_some() && self.entries.iter().any(is_wasted)
    }

    /// Moves work off cores on which vCPUs starve, one entry from each, until no more starve.
    pub(crate) fn move_off_starved(&mut self, most: usize, moves: &mut Vec<Move>) {
        for core in self.cores.all() {
            if moves.len() >= most {
                return;
            }
            if self.cores.starved(core) < PERIODS {
                continue;
            }
            moves.extend(self.move_off_core(core));
        }
    }

    fn move_off_core(&mut self, core: CoreIndex) -> Option<Move> {
        let (entry, is_high) = self.largest(core)?;
        let receiver = self.entries.receiver(entry);
        let to = if is_high {
            self.for_high(core)?
        } else {
            self.target_core(entry, core).unwrap_or_else(|| self.choose_overflow_core())
        };
        if to == core {
            return None;
        }
        let state = self.entries.get_mut(entry).expect("it is placed");
        state.starved_own |= receiver == Some(core);
        self.cores.see_anew(core);
        self.cores.see_anew(to);
        Some(self.put(entry, to, None, Why::Starves))
    }

    /// Core to which an entry may go: that of its own machine, or one on which it just fits.
    fn target_core(&self, entry: EntryId, from: CoreIndex) -> Option<CoreIndex> {
        let state = self.entries.get(entry)?;
        let receiver =
            state.receiver.filter(|core| *core != from && self.may_go_to_receiver(entry, *core));
        receiver.or_else(|| {
            let may = |core: &CoreIndex| {
                let fits = self.cores.total(*core).plus(state.load.sum()) <= Share::WHOLE;
                *core != from && fits && self.takes_more(*core) && !self.hides_load(*core)
            };
            self.cores.all().filter(may).min_by_key(|core| (self.cores.total(*core), *core))
        })
    }

    /// Returns true if a core may be given overflow work, as far as priority goes.
    fn takes_more(&self, core: CoreIndex) -> bool {
        let is_high = self.cores.high(core) > 0 || self.cores.received(core).1 > 0;
        !is_high && !self.cores.get(core).excluded
    }

    /// Returns true if an entry may go to the core of its own machine, where its excess harms only
    /// that machine, and stops with it if its sender is held back.
    fn may_go_to_receiver(&self, entry: EntryId, receiver: CoreIndex) -> bool {
        let is_tried = self.entries.get(entry).is_none_or(|state| state.starved_own);
        !is_tried && self.takes_more(receiver)
    }

    /// Entry to leave a core: the largest of those that other machines receive, or else of all. One
    /// of high priority only if it starves a machine of high priority. From the core that takes the
    /// overflow, only an entry that has a place elsewhere.
    fn largest(&self, core: CoreIndex) -> Option<(EntryId, bool)> {
        let is_overflow = self.overflow_core == Some(core);
        let may = |&(entry, state): &(EntryId, &EntryState)| {
            state.core == core && (!is_overflow || self.target_core(entry, core).is_some())
        };
        let key = |(entry, state): (EntryId, &EntryState)| {
            let is_low = !self.is_high(state.priority);
            (is_low, state.receiver != Some(core), state.load.sum(), Reverse(entry))
        };
        let (is_low, _, _, Reverse(entry)) = self.entries.iter().filter(may).map(key).max()?;
        (is_low || self.cores.received(core).1 > 0).then_some((entry, !is_low))
    }

    /// A core for an entry of high priority that starves a machine of its kind: the core at which
    /// the fewest machines pay for it.
    fn for_high(&self, from: CoreIndex) -> Option<CoreIndex> {
        let may = |core: &CoreIndex| {
            let is_other = *core != from && Some(*core) != self.overflow_core;
            is_other && !self.cores.get(*core).excluded && self.cores.received(*core).1 == 0
        };
        let cost = |core: &CoreIndex| {
            let (received, _) = self.cores.received(*core);
            (self.cores.high(*core), self.cores.get(*core).runs_vcpu, received, *core)
        };
        self.cores.all().filter(may).min_by_key(cost)
    }

    /// The core that takes the overflow; it stays the same one as long as there is any. If all
    /// cores have a vCPU, one on which few machines starve, and starve already.
    fn choose_overflow_core(&mut self) -> CoreIndex {
        let usable = self.cores.all().filter(|core| !self.cores.get(*core).excluded);
        let cost = |core: CoreIndex| {
            let (received, high) = self.cores.received(core);
            let is_high = (self.cores.high(core) > 0, high > 0);
            let starves = self.cores.starved(core) >= PERIODS;
            let placed = Reverse(self.cores.placed(core));
            (is_high, self.cores.get(core).runs_vcpu, Reverse(starves), received, placed, core)
        };
        let core = self.overflow_core.or_else(|| usable.min_by_key(|core| cost(*core)));
        self.overflow_core = core;
        core.expect("not all are excluded")
    }
}
