//! The placement policy that holds, for the threads that follow it.

use std::sync::{Arc, Mutex, PoisonError};

use sluice_api::placement::{EffectivePolicy, PolicyVersion, Stamped};
use sluice_placement::Mode;

use crate::config::Plan;

/// Placement that is to hold on this host: the policy, or the configuration where the policy says
/// nothing.
#[derive(Clone, Debug)]
pub(super) struct PolicyWatch {
    host: Arc<str>,
    own_mode: Mode,
    stamped: Arc<Mutex<Stamped>>,
}

/// Placement that holds from now on.
#[derive(Debug)]
pub(super) struct HostPolicy {
    pub(super) stamp: PolicyVersion,
    pub(super) mode: Mode,
    pub(super) in_force: EffectivePolicy,
}

impl PolicyWatch {
    /// Takes the host of a plan, without a policy.
    pub(super) fn new(plan: &Plan) -> Self {
        let host = &plan.config.host;
        Self::of(&host.name, host.placement)
    }

    /// Takes a host with a rule of its own, without a policy.
    pub(super) fn of(host: &str, own_mode: Mode) -> Self {
        Self { host: host.into(), own_mode, stamped: Arc::default() }
    }

    /// Returns the rule that holds if no policy names one.
    pub(super) const fn own_mode(&self) -> Mode {
        self.own_mode
    }

    /// Sets the policy that is to hold.
    pub(super) fn set(&self, stamped: Stamped) {
        *self.stamped.lock().unwrap_or_else(PoisonError::into_inner) = stamped;
    }

    /// Returns the placement that is to hold, if its stamp is another one.
    pub(super) fn changed_since(&self, stamp: PolicyVersion) -> Option<HostPolicy> {
        let stamped = self.stamped.lock().unwrap_or_else(PoisonError::into_inner);
        if stamped.stamp == stamp {
            return None;
        }
        let in_force = stamped.policy.on(&self.host);
        let mode = in_force.mode.unwrap_or(self.own_mode);
        Some(HostPolicy { stamp: stamped.stamp, mode, in_force })
    }
}
