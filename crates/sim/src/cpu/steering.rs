//! The product's placement and its table, fed with the measurements of the simulated cores.

use sluice_base::{Nanos, Priority};
use sluice_placement::{
    Config, ConfigError, Core, CoreIndex, CoreLoad, Dispatch, EntryId, EntryLoad, Move, Order,
    Placement, Share, Table,
};

/// Period of decisions, as in `sluice steer`.
pub(crate) const PERIOD_NS: u64 = 100_000_000;
/// Longest time that an entry waits for its move before it is held back.
const PATIENCE: Nanos = Nanos(1_000_000);

/// The placement, which decides, and the table, which dispatches.
#[derive(Debug)]
pub(crate) struct Steering {
    placement: Placement,
    table: Table,
    /// Work of each entry in this period, in nanoseconds: receiving, delivery.
    work: Vec<(u64, u64)>,
    /// Time of vCPUs on each core in this period.
    user: Vec<u64>,
    /// Time that vCPUs that are pinned to each core waited for it.
    wait: Vec<u64>,
    moves: Vec<Move>,
    moved: u64,
}

impl Steering {
    pub(crate) fn new(config: &Config, cores: &[Core]) -> Result<Self, ConfigError> {
        Ok(Self {
            placement: Placement::new(config.clone(), cores)?,
            table: Table::new(config.entries, Order::Counted { patience: PATIENCE }),
            work: vec![(0, 0); config.entries as usize],
            user: vec![0; cores.len()],
            wait: vec![0; cores.len()],
            moves: Vec::new(),
            moved: 0,
        })
    }

    /// Returns the cores of a segment: receiving, delivery. `None`: it has to wait for the segments
    /// before it.
    pub(crate) fn dispatch(
        &mut self,
        now: u64,
        entry: u32,
        priority: Priority,
    ) -> Option<(usize, Option<usize>)> {
        let (now, entry) = (Nanos(now), EntryId(entry));
        let found = match self.table.dispatch(now, entry) {
            Dispatch::Unplaced => {
                let first = self.placement.place(entry, priority);
                self.table.set(now, &first);
                self.table.dispatch(now, entry)
            }
            other => other,
        };
        match found {
            Dispatch::To(core, delivery) => Some((core.index(), delivery.map(|d| d.index()))),
            Dispatch::Hold | Dispatch::Unplaced => None,
        }
    }

    /// Notes that a segment that was dispatched is done, or was not taken.
    pub(crate) fn done(&mut self, entry: u32) {
        self.table.done(EntryId(entry), 1);
    }

    pub(crate) fn worked(&mut self, entry: u32, receive_ns: u64, deliver_ns: u64) {
        let work = &mut self.work[entry as usize];
        work.0 += receive_ns;
        work.1 += deliver_ns;
    }

    pub(crate) fn ran(&mut self, core: usize, ns: u64) {
        self.user[core] += ns;
    }

    /// Notes that the machine that receives an entry is pinned to a core.
    pub(crate) fn received_on(&mut self, entry: u32, core: u16) {
        self.placement.set_receiver(EntryId(entry), Some(CoreIndex(core)));
    }

    /// Notes that a vCPU that is pinned to a core had to wait for it.
    pub(crate) fn waited(&mut self, core: usize, ns: u64) {
        self.wait[core] += ns;
    }

    /// Returns the time of vCPUs on a core, and their wait for it, in this period until now.
    #[cfg(test)]
    pub(crate) fn of_vcpus(&self, core: usize) -> (u64, u64) {
        (self.user[core], self.wait[core])
    }

    /// Ends a period.
    pub(crate) fn period(&mut self, now: u64) {
        let share = |ns: u64| Share::of_period(ns, PERIOD_NS);
        let core = |(&user, &wait): (&u64, &u64)| CoreLoad {
            user: share(user),
            softirq: Share::ZERO,
            wait: share(wait),
        };
        let cores: Vec<CoreLoad> = self.user.iter().zip(&self.wait).map(core).collect();
        let loads: Vec<EntryLoad> = (self.work.iter())
            .map(|&(receive, deliver)| EntryLoad { decap: share(receive), deliver: share(deliver) })
            .collect();
        self.placement.period(&cores, &loads, &mut self.moves);
        self.moved += self.moves.len() as u64;
        for change in self.moves.drain(..) {
            self.table.set(Nanos(now), &change);
        }
        self.work.fill((0, 0));
        self.user.fill(0);
        self.wait.fill(0);
    }

    /// Number of entries that have moved.
    pub(crate) const fn moved(&self) -> u64 {
        self.moved
    }
}
