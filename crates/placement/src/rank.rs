//! Rank of a core for an entry.
//!
//! The rules, in the order in which they count:
//!
//! 1. An excluded core gets nothing.
//! 2. A core without room is the last choice; if none has room, it is the one with the least load
//!    of those without a pinned vCPU.
//! 3. A core to which a running vCPU is pinned gets nothing while another one has room.
//! 4. Two entries of high priority do not share a core while one is free of them, and others keep
//!    away from them while they have room elsewhere.
//! 5. A core whose sibling, another thread of the same physical core, runs a vCPU or has work of
//!    high priority is taken after cores without such a sibling.
//! 6. A core on another NUMA node than the packets' memory is taken after cores on that node.
//!
//! In the adaptive mode also, if the receivers of entries and their cores are known:
//!
//! 7. An entry that has to share with a vCPU takes that of its own machine, so that the overflow
//!    harms the machine that causes it.
//! 8. The core of a machine that receives work of high priority is shared after all others.

use sluice_base::Priority;

use crate::CoreIndex;
use crate::entries::EntryState;
use crate::mode::Mode;
use crate::placement::Placement;
use crate::share::Share;

/// Rank of a core; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// No rule is broken.
    Good,
    /// On another NUMA node.
    Far,
    /// Beside a thread that runs a vCPU, or that has work of high priority.
    Beside,
    /// With an entry of high priority.
    Shared,
    /// With the pinned vCPU of the machine that receives it.
    Own,
    /// With another machine's pinned vCPU.
    Vcpu,
    /// With the pinned vCPU of a machine that receives work of high priority.
    HighVcpu,
    /// Without room.
    Full,
    /// Without room, and with work or a vCPU of high priority.
    FullHigh,
}

/// Work that looks for a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) load: Share,
    pub(crate) is_high: bool,
    /// Core to which the machine that receives it is pinned.
    pub(crate) receiver: Option<CoreIndex>,
}

impl Placement {
    pub(crate) fn is_high(&self, priority: Priority) -> bool {
        self.config.mode.has_rules() && self.config.high_from.is_some_and(|from| priority >= from)
    }

    /// The whole work of an entry.
    pub(crate) fn whole(&self, state: &EntryState) -> Work {
        let is_high = self.is_high(state.priority);
        Work { load: state.load.sum(), is_high, receiver: state.receiver }
    }

    /// Rank of a core for work that is not counted on any core, with `margin` to spare. `None` if
    /// the core may not be used.
    pub(crate) fn rank(&self, core: CoreIndex, work: Work, margin: Share) -> Option<Rank> {
        let Self { cores, config, .. } = self;
        let Work { load, is_high, .. } = work;
        if cores.get(core).excluded {
            return None;
        }
        let there = if is_high { cores.total_for_high(core) } else { cores.total(core) };
        let knows = !is_high && self.knows_receivers();
        let of_high = knows && cores.received(core).1 > 0;
        let makes_way = of_high || (knows && cores.high(core) > 0);
        let is_full = there.plus(load).plus(margin) > config.full_at || self.hides_load(core);
        Some(if is_full {
            if makes_way { Rank::FullHigh } else { Rank::Full }
        } else if cores.get(core).runs_vcpu {
            match () {
                () if of_high => Rank::HighVcpu,
                () if self.is_own(core, work) => Rank::Own,
                () => Rank::Vcpu,
            }
        } else {
            match () {
                () if cores.high(core) > 0 => Rank::Shared,
                () if cores.is_beside(core) => Rank::Beside,
                () if self.is_far(core, work.receiver) => Rank::Far,
                () => Rank::Good,
            }
        })
    }

    /// Returns true if a core is on another NUMA node than the packets: on that of the machine that
    /// receives them, if it is known, or else on that of the card.
    pub(crate) fn is_far(&self, core: CoreIndex, receiver: Option<CoreIndex>) -> bool {
        let receiver = receiver.filter(|_| self.knows_receivers());
        let node_of = |core| self.cores.get(core).node;
        let local = receiver.and_then(node_of).or(self.config.node);
        local.zip(node_of(core)).is_some_and(|(local, there)| local != there)
    }

    /// The best core for work that is not counted on any, and its rank.
    pub(crate) fn best(
        &self,
        work: Work,
        margin: Share,
        but: Option<CoreIndex>,
    ) -> Option<(CoreIndex, Rank)> {
        self.best_of(work, margin, |core| Some(core) != but)
    }

    /// The best of the cores that `may` be taken.
    pub(crate) fn best_of(
        &self,
        work: Work,
        margin: Share,
        may: impl Fn(CoreIndex) -> bool,
    ) -> Option<(CoreIndex, Rank)> {
        let candidates = self.cores.all().filter(|core| may(*core));
        let ranked = candidates.filter_map(|core| {
            let rank = self.rank(core, work, margin)?;
            let runs_vcpu = self.cores.get(core).runs_vcpu;
            // Without room: the core of the overflow, or else the core of the work's own machine.
            let apart = (self.overflow_core != Some(core), !self.is_own(core, work));
            let apart = if rank < Rank::Full { (false, false) } else { apart };
            let is_far = self.is_far(core, work.receiver);
            Some((rank, runs_vcpu, apart, is_far, self.cores.pressure(core), core))
        });
        ranked.min().map(|(rank, .., core)| (core, rank))
    }

    fn knows_receivers(&self) -> bool {
        self.config.mode == Mode::Adaptive
    }

    fn is_own(&self, core: CoreIndex, work: Work) -> bool {
        self.knows_receivers() && work.receiver == Some(core)
    }
}
