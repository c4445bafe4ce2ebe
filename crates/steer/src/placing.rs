//! The placement for the settings in force, and the transition to the next one.

use sluice_base::Priority;
use sluice_placement::{Config, Core, CoreIndex, Mode, Move, Placement};

/// Priority of the high buckets: a quarter of all, if flows may be of high priority.
pub(crate) const HIGH: Priority = Priority::new(7).unwrap();

/// Note: no core can be reserved.
pub(crate) const NONE_FREE: &str =
    "predetermined: every core runs a machine, so that none is reserved for high priority";

/// Properties of a placement that need a new one when they change; changes of the cores that run
/// machines or are excluded do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    mode: Mode,
    /// Core for flows of high priority.
    reserved: Option<CoreIndex>,
    /// With `predetermined`, cores that get nothing: it assigns the others in advance.
    excluded: Vec<bool>,
    /// Deviation from the settings.
    pub(crate) note: Option<&'static str>,
}

impl Plan {
    pub(crate) fn new(mode: Mode, has_high: bool, cores: &[Core]) -> Self {
        let mut new = Self { mode, reserved: None, excluded: Vec::new(), note: None };
        if mode != Mode::Predetermined {
            return new;
        }
        new.excluded = cores.iter().map(|core| core.excluded).collect();
        if has_high {
            // The first core without a machine.
            let mut all = (0..).map(CoreIndex).zip(cores);
            let free = all.find(|(_, core)| !core.runs_vcpu && !core.excluded);
            new.reserved = free.map(|(at, _)| at);
            new.note = new.reserved.is_none().then_some(NONE_FREE);
        }
        new
    }

    /// Makes an empty placement. `node` is that of the device.
    pub(crate) fn placement(
        &self,
        (buckets, node): (u32, Option<u16>),
        cores: &[Core],
    ) -> anyhow::Result<Placement> {
        let mut config = Config::new(self.mode, buckets);
        config.high_from = Some(HIGH);
        config.node = node;
        // The kernel's path has no second stage that could be placed apart.
        config.split_at = None;
        config.reserved = self.reserved.map(|core| (HIGH, core)).into_iter().collect();
        Placement::new(config, cores).map_err(|error| anyhow::anyhow!("{error}"))
    }
}

/// Places all entries of `old`. If a rule gives each bucket's core at once, they go there; if
/// measurements decide, they stay for the time being.
pub(crate) fn carry_over(old: &Placement, new: &mut Placement, mode: Mode) -> Vec<Move> {
    let mut moves = Vec::new();
    for (entry, state) in old.entries() {
        match mode {
            Mode::Rss | Mode::Predetermined => moves.push(new.place(entry, state.priority)),
            Mode::RssPlusPlus | Mode::OnTheFly | Mode::Adaptive => {
                new.adopt(entry, state.priority, state.core);
            }
        }
    }
    moves.retain(|one| old.entry(one.entry).is_none_or(|state| state.core != one.core));
    moves
}

#[cfg(test)]
mod tests;
