//! How good a core is for an entry.
//!
//! The rules, in the order in which they count:
//!
//! 1. An excluded core gets nothing.
//! 2. A core without room is the last choice; if none has room, it is the one with the least to do
//!    of those without a pinned vCPU.
//! 3. A core to which a running vCPU is pinned gets nothing while another one has room.
//! 4. Two entries of high priority do not share a core while one is free of them, and others keep
//!    away from them while they have room elsewhere.

use sluice_base::Priority;

use crate::CoreIndex;
use crate::placement::Placement;
use crate::share::Share;

/// Lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// As it should be.
    Good,
    /// With an entry of high priority.
    Shared,
    /// With a pinned vCPU.
    Vcpu,
    /// Without room.
    Full,
}

impl Placement {
    pub(crate) fn is_high(&self, priority: Priority) -> bool {
        self.config.mode.has_rules() && self.config.high_from.is_some_and(|from| priority >= from)
    }

    /// How good a core is for work that is not counted on any core, with `margin` to spare. `None`:
    /// it may not be used.
    pub(crate) fn rank(
        &self,
        core: CoreIndex,
        load: Share,
        is_high: bool,
        margin: Share,
    ) -> Option<Rank> {
        let Self { cores, config, .. } = self;
        if cores.get(core).excluded {
            return None;
        }
        let there = if is_high { cores.total_for_high(core) } else { cores.total(core) };
        Some(if there.plus(load).plus(margin) > config.full_at {
            Rank::Full
        } else if cores.get(core).runs_vcpu {
            Rank::Vcpu
        } else if cores.high(core) > 0 {
            Rank::Shared
        } else {
            Rank::Good
        })
    }

    /// The best core for work that is not counted on any, and how good it is.
    pub(crate) fn best(
        &self,
        load: Share,
        is_high: bool,
        margin: Share,
        but: Option<CoreIndex>,
    ) -> Option<(CoreIndex, Rank)> {
        let candidates = self.cores.all().filter(|core| Some(*core) != but);
        let ranked = candidates.filter_map(|core| {
            let rank = self.rank(core, load, is_high, margin)?;
            Some((rank, self.cores.get(core).runs_vcpu, self.cores.total(core), core))
        });
        ranked.min().map(|(rank, _, _, core)| (core, rank))
    }
}
