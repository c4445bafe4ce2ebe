//! The placement that follows from what holds, and the way from one to the next.

use sluice_base::Priority;
use sluice_placement::{Config, Core, CoreIndex, Mode, Move, Placement};

use crate::force::Force;

/// Of high priority are these buckets: a quarter, where flows may be of high priority.
pub(crate) const HIGH: Priority = Priority::new(7).unwrap();

/// What cannot be done as it is wanted.
pub(crate) const NONE_FREE: &str =
    "predetermined: every core runs a machine, so that none is reserved for high priority";

/// A placement in which nothing is placed, and what is not as wanted. `node` is that of the
/// device.
pub(crate) fn new(
    force: &Force,
    (buckets, node): (u32, Option<u16>),
    cores: &[Core],
) -> anyhow::Result<(Placement, Option<&'static str>)> {
    let mut config = Config::new(force.mode, buckets);
    config.high_from = Some(HIGH);
    config.node = node;
    // The kernel's path has no second stage that could be placed apart.
    config.split_at = None;
    let mut note = None;
    if force.mode == Mode::Predetermined && force.has_high() {
        // The first core without a machine is for the flows of high priority.
        let all = (0..).map(CoreIndex).zip(cores);
        match all.filter(|(_, core)| !core.runs_vcpu && !core.excluded).map(|(at, _)| at).next() {
            Some(first) => config.reserved = vec![(HIGH, first)],
            None => note = Some(NONE_FREE),
        }
    }
    let placement = Placement::new(config, cores).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((placement, note))
}

/// Places all that is placed in `old`. Where a rule says each bucket's core at once they go there;
/// where it goes by what is measured they stay for the time being.
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
