//! The decision, period by period.

use alloc::vec::Vec;

use sluice_base::Priority;

use crate::balance::Candidates;
use crate::config::{self, Config, ConfigError};
use crate::cores::{Core, CoreLoad, Cores};
use crate::entries::{Entries, EntryLoad, EntryState};
use crate::mode::Mode;
use crate::rank::Work;
use crate::share::Share;
use crate::why::{Move, Why};
use crate::{CoreIndex, EntryId};

/// Load assumed for a first packet before any entry was measured.
const GUESS_LEAST: Share = Share(1_000);

/// Assignment of work to cores.
#[derive(Clone, Debug)]
pub struct Placement {
    pub(crate) config: Config,
    pub(crate) cores: Cores,
    pub(crate) entries: Entries,
    /// Number of periods so far.
    pub(crate) period: u32,
    /// Position at which the search for entries that break a rule continues.
    pub(crate) cursor: usize,
    pub(crate) candidates: Candidates,
    /// The core that takes the overflow, while there is more work than all cores can do.
    pub(crate) overflow_core: Option<CoreIndex>,
    /// Number of periods in which no vCPU starved there.
    pub(crate) calm: u32,
}

impl Placement {
    /// Makes a placement without placed entries.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: Config, cores: &[Core]) -> Result<Self, ConfigError> {
        config::check(&config, cores)?;
        let entries = Entries::new(config.entries);
        let (cores, candidates) = (Cores::new(cores), Candidates::default());
        let (period, cursor, overflow_core) = (0, 0, None);
        Ok(Self { config, cores, entries, period, cursor, candidates, overflow_core, calm: 0 })
    }

    /// Places an entry whose first packet has come. An entry that is placed stays.
    ///
    /// # Panics
    /// If there is no entry of that number.
    pub fn place(&mut self, entry: EntryId, priority: Priority) -> Move {
        if let Some(state) = self.entries.get(entry) {
            let (core, delivery, why) = (state.core, state.delivery, state.why);
            return Move { entry, core, delivery, why };
        }
        let guess = self.guess();
        let (core, why) = self.first_core(entry, priority, guess);
        self.insert_entry(entry, priority, guess, core, why);
        Move { entry, core, delivery: None, why }
    }

    /// Takes over an entry that is on a core already, because of its hash: measurements and the
    /// rules move it on from there. An entry that is placed stays.
    ///
    /// # Panics
    /// If there is no entry of that number, or no such core.
    pub fn adopt(&mut self, entry: EntryId, priority: Priority, core: CoreIndex) {
        if self.entries.get(entry).is_some() {
            return;
        }
        let guess = self.guess();
        self.insert_entry(entry, priority, guess, core, Why::Hash);
    }

    fn insert_entry(
        &mut self,
        entry: EntryId,
        priority: Priority,
        guess: Share,
        core: CoreIndex,
        why: Why,
    ) {
        let is_high = self.is_high(priority);
        let state = EntryState {
            core,
            delivery: None,
            load: EntryLoad { decap: guess, deliver: Share::ZERO },
            priority,
            why,
            since: self.period,
            receiver: self.entries.receiver(entry),
            starved_own: false,
            is_guess: true,
        };
        self.cores.add(core, guess, is_high);
        if let Some(receiver) = state.receiver {
            self.cores.receives(receiver, is_high);
        }
        self.entries.put(entry, state);
    }

    /// Sets the core to which the machine that receives an entry is pinned, also for an entry that
    /// is not placed. It is unknown at first.
    ///
    /// # Panics
    /// If there is no entry of that number.
    pub fn set_receiver(&mut self, entry: EntryId, receiver: Option<CoreIndex>) {
        let receiver = receiver.filter(|core| core.index() < self.cores.len());
        self.entries.set_receiver(entry, receiver);
        if self.entries.get(entry).is_some() {
            self.count();
        }
    }

    /// The core that takes the overflow, while vCPUs would starve elsewhere.
    #[must_use]
    pub const fn overflow_core(&self) -> Option<CoreIndex> {
        self.overflow_core
    }

    /// Forgets an entry.
    pub fn remove(&mut self, entry: EntryId) {
        if self.entries.take(entry).is_some() {
            self.count();
        }
    }

    /// State of an entry, if it is placed.
    #[must_use]
    pub fn entry(&self, entry: EntryId) -> Option<&EntryState> {
        self.entries.get(entry)
    }

    /// All placed entries.
    pub fn entries(&self) -> impl Iterator<Item = (EntryId, &EntryState)> {
        self.entries.iter()
    }

    /// Load of a core, by placed work and by the rest.
    #[must_use]
    pub fn load_of(&self, core: CoreIndex) -> (Share, Share) {
        let (placed, total) = (self.cores.placed(core), self.cores.total(core));
        (placed, total.minus(placed))
    }

    /// Sets a core's pinning and policy; entries leave it with the next period. Returns false, and
    /// changes nothing, if no core would be left for the work.
    pub fn set_core(&mut self, core: CoreIndex, runs_vcpu: bool, excluded: bool) -> bool {
        let mut others = self.cores.all().filter(|other| *other != core);
        if excluded && others.all(|other| self.cores.get(other).excluded) {
            return false;
        }
        self.cores.set(core, runs_vcpu, excluded);
        true
    }

    /// Ends a period: `cores` has the load of each core beside placed work, and `loads` the load of
    /// each entry, by number (entries beyond the end had none). Moves are appended to `moves`.
    pub fn period(&mut self, cores: &[CoreLoad], loads: &[EntryLoad], moves: &mut Vec<Move>) {
        self.period += 1;
        let wastes = self.wastes(loads);
        self.cores.observe(cores, &self.config, wastes);
        self.end_overflow(cores, loads);
        self.measure(loads);
        self.count();
        let before = moves.len();
        let most = before + self.config.moves_max as usize;
        self.repair(most, moves);
        if self.config.mode == Mode::Adaptive {
            self.move_off_starved(most, moves);
            self.elephants(most, moves);
        }
        if self.config.mode.balances() {
            self.balance(most, moves);
        }
    }

    fn measure(&mut self, loads: &[EntryLoad]) {
        for at in 0..self.entries.placed().len() {
            let entry = self.entries.placed()[at];
            let new = loads.get(entry.index()).copied().unwrap_or_default();
            let at_least = self.hides_load(self.entries.get(entry).expect("it is placed").core);
            let state = self.entries.get_mut(entry).expect("it is placed");
            if at_least {
                // At once: its load must be known before it moves.
                if new.sum() > state.load.sum() {
                    state.load = new;
                }
                state.is_guess = false;
            } else if core::mem::take(&mut state.is_guess) {
                state.load = new;
            } else {
                state.load.decap = state.load.decap.towards(new.decap);
                state.load.deliver = state.load.deliver.towards(new.deliver);
            }
        }
    }

    /// Recomputes the sums of placed work.
    fn count(&mut self) {
        self.cores.clear();
        for at in 0..self.entries.placed().len() {
            let entry = self.entries.placed()[at];
            let state = self.entries.get(entry).expect("it is placed");
            let is_high = self.is_high(state.priority);
            for (core, load) in state.parts() {
                self.cores.add(core, load, is_high);
            }
            if let Some(receiver) = state.receiver {
                self.cores.receives(receiver, is_high);
            }
        }
    }

    /// Guess for an entry without a measurement: the average of the others, so that many that come
    /// within a period do not all choose one core.
    fn guess(&self) -> Share {
        let placed: u64 = self.cores.all().map(|core| u64::from(self.cores.placed(core).0)).sum();
        let count = self.entries.placed().len().max(1) as u64;
        Share(u32::try_from(placed / count).unwrap_or(u32::MAX)).max(GUESS_LEAST)
    }

    fn first_core(&self, entry: EntryId, priority: Priority, load: Share) -> (CoreIndex, Why) {
        match self.config.mode {
            Mode::Rss | Mode::RssPlusPlus => (self.by_hash(entry, |_| true), Why::Hash),
            Mode::Predetermined => self.assigned(entry, priority),
            Mode::OnTheFly | Mode::Adaptive => {
                let (is_high, receiver) = (self.is_high(priority), self.entries.receiver(entry));
                let best = self.best(Work { load, is_high, receiver }, Share::ZERO, None);
                let (core, _) = best.expect("not all are excluded");
                let own = is_high && self.cores.high(core) == 0;
                (core, if own { Why::OwnCore } else { Why::LeastLoaded })
            }
        }
    }

    /// The core for an entry's number, among the cores that are not excluded and `may`; among all
    /// that are not excluded if there is none.
    pub(crate) fn by_hash(&self, entry: EntryId, may: impl Fn(CoreIndex) -> bool) -> CoreIndex {
        let usable = || self.cores.all().filter(|core| !self.cores.get(*core).excluded);
        let nth = |cores: &mut dyn Iterator<Item = CoreIndex>, count: usize| {
            if count == 0 { None } else { cores.nth(entry.index() % count) }
        };
        let wanted = || usable().filter(|core| may(*core));
        nth(&mut wanted(), wanted().count())
            .or_else(|| nth(&mut usable(), usable().count()))
            .expect("not all are excluded")
    }

    /// The core that was assigned to a priority in advance. Priorities without one share the cores
    /// that are not reserved and run no vCPU.
    pub(crate) fn assigned(&self, entry: EntryId, priority: Priority) -> (CoreIndex, Why) {
        let reserved = &self.config.reserved;
        let is_of = |core| reserved.contains(&(priority, core));
        if self.cores.all().any(|core| is_of(core) && !self.cores.get(core).excluded) {
            return (self.by_hash(entry, is_of), Why::Reserved);
        }
        let is_reserved = |core| reserved.iter().any(|r| r.1 == core);
        let free = |core| !is_reserved(core) && !self.cores.get(core).runs_vcpu;
        (self.by_hash(entry, free), Why::Hash)
    }

    /// Moves an entry, and its work in the sums.
    pub(crate) fn put(
        &mut self,
        entry: EntryId,
        core: CoreIndex,
        delivery: Option<CoreIndex>,
        why: Why,
    ) -> Move {
        let period = self.period;
        let state = self.entries.get_mut(entry).expect("it is placed");
        let before = *state;
        (state.core, state.delivery, state.why, state.since) = (core, delivery, why, period);
        let after = *state;
        let is_high = self.is_high(before.priority);
        before.parts().for_each(|(core, load)| self.cores.remove(core, load, is_high));
        after.parts().for_each(|(core, load)| self.cores.add(core, load, is_high));
        Move { entry, core, delivery, why }
    }

    /// Runs `look`, which searches a better place for an entry, without the entry's work in the
    /// sums.
    pub(crate) fn without<T>(&mut self, entry: EntryId, look: impl FnOnce(&Self) -> T) -> T {
        let state = *self.entries.get(entry).expect("it is placed");
        let is_high = self.is_high(state.priority);
        state.parts().for_each(|(core, load)| self.cores.remove(core, load, is_high));
        let found = look(self);
        state.parts().for_each(|(core, load)| self.cores.add(core, load, is_high));
        found
    }
}
