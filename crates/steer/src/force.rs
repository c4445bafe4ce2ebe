//! Settings in force: the followed policy, and the arguments where it has no value.

use std::collections::BTreeSet;

use sluice_api::placement::{PolicyFile, PolicyVersion};
use sluice_placement::Mode;

use crate::cli::Arguments;
use crate::rules::Rules;

/// Settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EffectivePolicy {
    /// Stamp of the policy, or zero.
    pub(crate) stamp: PolicyVersion,
    pub(crate) mode: Mode,
    /// Usable cores that get no work.
    pub(crate) excluded: BTreeSet<u16>,
    pub(crate) rules: Rules,
    /// Deviations from the policy, with reasons.
    pub(crate) notes: Vec<String>,
}

impl EffectivePolicy {
    /// Computes the settings for these cores.
    pub(crate) fn new(arguments: &Arguments, kept: Option<&PolicyFile>, usable: &[u16]) -> Self {
        let own =
            Rules { networks: !arguments.high.is_empty(), matches: arguments.high_flow.clone() };
        let Some(PolicyFile { host, stamped, .. }) = kept else {
            let (stamp, mode) = (PolicyVersion::default(), arguments.mode);
            return Self { stamp, mode, excluded: BTreeSet::new(), rules: own, notes: Vec::new() };
        };
        let policy = stamped.policy.on(host);
        let rules = match policy.high {
            high if high.is_empty() => own,
            high => Rules { networks: false, matches: high },
        };
        let mut notes = Vec::new();
        let is_usable = |core: &u16| usable.contains(core);
        let mut excluded: BTreeSet<u16> =
            policy.excluded_cpus.into_iter().filter(is_usable).collect();
        if excluded.len() == usable.len() {
            excluded.clear();
            notes.push(format!(
                "the policy excludes every core that may do the work ({usable:?}): none is \
                 excluded; leave one of them out of `excluded_cpus`, or name more with --cores"
            ));
        }
        let mode = policy.mode.unwrap_or(arguments.mode);
        Self { stamp: stamped.stamp, mode, excluded, rules, notes }
    }

    /// Returns true if any flow may be of high priority.
    pub(crate) fn has_high(&self) -> bool {
        self.rules.networks || !self.rules.matches.is_empty()
    }
}

#[cfg(test)]
mod tests;
