//! `[classes]`: which load goes in which priority, and how switches treat the priorities.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sluice_base::{Priority, PriorityMask};
use sluice_sim::overlay::{SAME_WEIGHT, Service};

/// Priorities of the loads. Physical switches serve the highest priority first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Classes {
    /// Priority of the workload that is measured.
    pub(crate) workload: u8,
    /// Priority of the background traffic.
    pub(crate) background: u8,
    /// The priorities of which a lossless network drops nothing; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lossless: Option<Vec<u8>>,
    /// The priorities that virtual switches serve before all others, the highest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) strict: Vec<u8>,
    /// Shares of the others at a port of a virtual switch, by priority: 1 to 255; absent: 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) weights: BTreeMap<String, u8>,
    /// The priorities that have a transmit queue of their own in a machine's card, so that their
    /// frames wait behind nobody else's: what `mqprio` is to a guest. All others share one queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) own_queues: Vec<u8>,
}

impl Classes {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the names are priorities, and the weights shares.
    ///
    /// # Errors
    ///
    /// Names the key with the wrong value, and what to write instead.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_one = |name: &u8| *name < 8;
        ensure!(is_one(&self.workload), "classes.workload: a priority, 0 to 7");
        ensure!(is_one(&self.background), "classes.background: a priority, 0 to 7");
        ensure!(self.strict.iter().all(is_one), "classes.strict: priorities, 0 to 7");
        ensure!(self.own_queues.iter().all(is_one), "classes.own_queues: priorities, 0 to 7");
        let mut lossless = self.lossless.iter().flatten();
        ensure!(lossless.all(is_one), "classes.lossless: priorities, 0 to 7");
        ensure!(
            self.lossless.as_ref().is_none_or(|names| !names.is_empty()),
            "classes.lossless: one priority at least; for a network that drops set sim.policies"
        );
        for (name, weight) in &self.weights {
            let own = name.parse().ok().filter(is_one).with_context(|| {
                format!("classes.weights.{name}: the name is a priority, 0 to 7")
            })?;
            ensure!(*weight > 0, "classes.weights.{name}: 1 to 255");
            ensure!(
                !self.strict.contains(&own),
                "classes.weights.{name}: classes.strict has this priority, which needs no share: \
                 leave one of them out"
            );
        }
        Ok(())
    }

    /// Returns the priorities of which a lossless network drops nothing.
    pub(crate) fn lossless(&self) -> PriorityMask {
        self.lossless.as_ref().map_or(PriorityMask::ALL, |names| mask(names.iter().copied()))
    }

    /// Returns the priorities that have a transmit queue of their own in a machine's card.
    pub(crate) fn own_queues(&self) -> PriorityMask {
        mask(self.own_queues.iter().copied())
    }

    /// Returns the priorities that frames have, with background traffic or without.
    pub(crate) fn used(&self, with_background: bool) -> PriorityMask {
        mask(std::iter::once(self.workload).chain(with_background.then_some(self.background)))
    }

    /// Returns the order among the priorities at a port of a virtual switch.
    pub(crate) fn service(&self) -> [Service; Priority::COUNT] {
        let mut service = SAME_WEIGHT;
        for (at, own) in service.iter_mut().enumerate() {
            if self.strict.iter().any(|name| usize::from(*name) == at) {
                *own = Service::Strict;
            } else if let Some(weight) = self.weights.get(&at.to_string()) {
                *own = Service::Weighted(*weight);
            }
        }
        service
    }
}

fn mask(names: impl Iterator<Item = u8>) -> PriorityMask {
    let mut mask = PriorityMask::NONE;
    names.for_each(|name| mask.insert(Priority::from_low_bits(name)));
    mask
}

#[cfg(test)]
mod tests;
