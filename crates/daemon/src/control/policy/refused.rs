//! Newer policies of members that this host cannot apply: the reason is shown as long as it holds,
//! and logged once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use sluice_api::placement::{PolicyVersion, VERSION_MAX};
use sluice_base::HostId;

use super::Held;
use crate::sys::log::say;

/// A member's policy that this host cannot apply.
#[derive(Debug)]
pub(super) struct Refused {
    stamp: PolicyVersion,
    why: String,
}

impl Held {
    fn refusals(&self) -> MutexGuard<'_, BTreeMap<HostId, Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a member's policy cannot hold here. Many members hold the same one: it is logged
    /// once.
    pub(super) fn refuse(&self, member: HostId, stamp: PolicyVersion, why: String) {
        let mut refused = self.refusals();
        if refused.values().all(|known| known.why != why) {
            say!(warn: "told by host {}: {why}", member.0);
        }
        refused.insert(member, Refused { stamp, why });
    }

    /// Notes that a member's policy can hold here.
    pub(super) fn agree(&self, member: HostId) {
        self.refusals().remove(&member);
    }

    /// Forgets the policies of hosts that are no members any more.
    pub(super) fn forget_others(&self, members: &[HostId]) {
        self.refusals().retain(|host, _| members.contains(host));
    }

    /// Forgets refusals of policies that are not above `stamp`.
    pub(super) fn forget_up_to(&self, stamp: PolicyVersion) {
        self.refusals().retain(|_, refused| refused.stamp > stamp);
    }

    /// Returns the reason why a policy set here would not hold: members hold one above it. A policy
    /// with a version beyond the limit is no obstacle, since no host follows it.
    pub(super) fn refusal(&self) -> Option<String> {
        let own = self.now().stamp;
        let refused = self.refusals();
        let newest = refused.values().filter(|refused| refused.stamp.version <= VERSION_MAX);
        let newest = newest.max_by_key(|refused| refused.stamp)?;
        let Refused { stamp: PolicyVersion { version, by, .. }, why } = newest;
        (newest.stamp > own).then(|| {
            format!("version {version} of host {by} holds, which this host does not follow: {why}")
        })
    }

    /// Returns the messages to show.
    pub(super) fn troubles(&self) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let refused: BTreeSet<String> =
            self.refusals().values().map(|refused| refused.why.clone()).collect();
        lost.into_iter().chain(refused).collect()
    }
}
