//! Placement of tunnel work on cores, for all hosts of a fabric: the policy, and its state on each
//! host.

pub(crate) mod mode;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sluice_base::FlowMatch;
/// Rule by which flows go to workers.
pub use sluice_placement::Mode;

use crate::foreign::{LIST_MAX, clean};

/// Most matches of a policy: every frame is compared with each.
pub const HIGH_MAX: usize = 32;
/// Most hosts that may differ from the others.
pub const HOSTS_MAX: usize = 64;
/// Highest number of a CPU.
pub const CPU_MAX: u16 = 4095;
/// Most bytes of a policy as JSON, so that it fits into the members' messages.
pub const POLICY_SIZE_MAX: usize = 8 << 10;
/// Highest load that is accepted, in hundredths of a CPU.
pub const LOAD_PERCENT_MAX: f64 = 9_999.0;
/// Highest version: more than any host sets, and far enough from the end of the numbers that one
/// more is always a version, too.
pub const VERSION_MAX: u64 = 1 << 48;

/// Placement for all hosts. Empty: each host's own configuration holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlacementPolicy))]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Rule; absent: that of each host's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "mode::option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mode: Option<Mode>,
    /// CPUs that get no tunnel work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_cpus: BTreeSet<u16>,
    /// Flows of high priority: `vni=5000`, `vni=5000,mac=02:00:00:00:00:01`,
    /// `vni=5000,ip=10.0.0.0/24,proto=tcp,port=443` ([`FlowMatch`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Match>,
    /// Exceptions for hosts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostOverride>,
}

/// A match as text in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Match(pub FlowMatch);

impl TryFrom<String> for Match {
    type Error = sluice_base::ParseMatchError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<Match> for String {
    fn from(of: Match) -> Self {
        of.0.to_string()
    }
}

/// Placement of one host in place of the general one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostOverride {
    /// Rule for the host.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "mode::option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mode: Option<Mode>,
    /// CPUs that get no tunnel work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_cpus: Option<BTreeSet<u16>>,
}

/// Placement that holds on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectivePolicy {
    /// Rule; absent: that of its configuration.
    pub mode: Option<Mode>,
    /// CPUs that get no tunnel work.
    pub excluded_cpus: BTreeSet<u16>,
    /// Flows of high priority.
    pub high: Vec<FlowMatch>,
}

impl Policy {
    /// Returns the placement that holds on a host.
    #[must_use]
    pub fn on(&self, host: &str) -> EffectivePolicy {
        let own = self.hosts.get(host);
        let excluded = own.and_then(|own| own.excluded_cpus.as_ref());
        EffectivePolicy {
            mode: own.and_then(|own| own.mode).or(self.mode),
            excluded_cpus: excluded.unwrap_or(&self.excluded_cpus).clone(),
            high: self.high.iter().map(|one| one.0).collect(),
        }
    }

    /// Checks that its numbers are within bounds.
    ///
    /// # Errors
    /// The number that is too large, and its limit.
    pub fn check(&self) -> Result<(), String> {
        if self.high.len() > HIGH_MAX {
            let count = self.high.len();
            return Err(format!(
                "{count} matches of high priority, {HIGH_MAX} are the most; name networks instead \
                 of single flows"
            ));
        }
        if self.hosts.len() > HOSTS_MAX {
            let count = self.hosts.len();
            return Err(format!(
                "{count} hosts with a rule of their own, {HOSTS_MAX} are the most; let what is \
                 special for each stand in its own configuration"
            ));
        }
        let own = self.hosts.values().filter_map(|own| own.excluded_cpus.as_ref());
        for cpu in self.excluded_cpus.iter().chain(own.flatten()) {
            if *cpu > CPU_MAX {
                return Err(format!("CPU {cpu} cannot be excluded: {CPU_MAX} is the highest"));
            }
        }
        let size = serde_json::to_vec(self).map_err(|error| error.to_string())?.len();
        if size > POLICY_SIZE_MAX {
            return Err(format!(
                "the policy has {size} bytes as JSON, {POLICY_SIZE_MAX} are the most; name fewer \
                 hosts and matches"
            ));
        }
        Ok(())
    }
}

/// Identity of a policy. Of two policies, the one with the greater stamp holds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyVersion {
    /// One more than the version of the policy that it replaced, as far as its host knew.
    pub version: u64,
    /// Host where it was set: its number in the fabric, 0 outside of one.
    pub by: u16,
    /// Time of setting, in milliseconds since 1970 by the clock of that host. It matters only if a
    /// host has forgotten an earlier policy.
    pub at_ms: u64,
}

/// A policy with its stamp. The stamp before any policy is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stamped {
    /// Stamp of the policy.
    pub stamp: PolicyVersion,
    /// The policy.
    pub policy: Policy,
}

/// The file `placement.json` in the directory of a host: the policy that holds there, also for
/// processes that steer the kernel's work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// Name of the host.
    pub host: String,
    /// The policy.
    pub stamped: Stamped,
    /// Policy that members hold among themselves, while that of the fabric's configuration is in
    /// force; absent: the policy above is that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Stamped>,
}

/// State of a policy on a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlacementStatus))]
pub struct Status {
    /// Name of the host.
    pub host: String,
    /// Stamp of its policy; absent: the host could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<PolicyVersion>,
    /// True if all places follow the policy of the answer.
    #[serde(default)]
    pub follows: bool,
    /// The workers of its own data plane that share an underlay, and other processes that steer
    /// there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    /// Parts of the policy that do not hold, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Status {
    /// Limits texts of another host to a bounded length, and removes terminal control codes.
    pub fn clean(&mut self) {
        self.places.truncate(LIST_MAX);
        self.notes.truncate(LIST_MAX);
        let places = self.places.iter_mut();
        let names = places.flat_map(|place| [&mut place.name, &mut place.kind, &mut place.mode]);
        names.chain([&mut self.host]).chain(&mut self.notes).for_each(clean);
        for place in &mut self.places {
            place.cpus.truncate(LIST_MAX);
            for cpu in &mut place.cpus {
                cpu.load_percent = cpu.load_percent.clamp(0.0, LOAD_PERCENT_MAX);
            }
        }
    }
}

/// A part of a host that follows the policy: a shared underlay, the ports of its workers, or a
/// device with `sluice steer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlaceStatus {
    /// The port or the device; `ports`: those that may migrate between workers.
    pub name: String,
    /// `workers`, `xdp` or `rps`.
    pub kind: String,
    /// Stamp of the policy that it follows now.
    pub stamp: PolicyVersion,
    /// Rule in force.
    pub mode: String,
    /// Number of matches of high priority in force.
    pub high: u32,
    /// Number of buckets, or ports, that have moved so far.
    pub moves: u64,
    /// CPUs of the place.
    pub cpus: Vec<CpuStatus>,
}

/// The file `steer-DEV.json` beside `placement.json`: state of the policy at a steered device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Steered {
    /// State of the device.
    #[serde(flatten)]
    pub place: PlaceStatus,
    /// Parts of the policy that do not hold, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A CPU, or a worker that is not pinned to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CpuStatus {
    /// Number of the CPU; absent: a worker that is not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// Number of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// True if the policy excludes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub excluded: bool,
    /// True if a vCPU is pinned to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub runs_vcpu: bool,
    /// Buckets, or ports, that are there.
    pub buckets: u32,
    /// Number of these that are of high priority.
    pub high: u32,
    /// Load of these on the CPU, in hundredths.
    pub load_percent: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// State of a policy at a data process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The underlay that its workers share, and the ports that may migrate between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    /// Parts of the policy that do not hold, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Show the policy that holds, and its state on each host.
    Show,
    /// Set this policy everywhere.
    Set(Box<Policy>),
}

/// The policy that holds, and its state on each host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlacementAnswer))]
pub struct Answer {
    /// Policy that this host knows.
    pub stamped: Stamped,
    /// True if the configuration of the fabric has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub committed: bool,
    /// Hosts, this one first.
    pub hosts: Vec<Status>,
}

#[cfg(test)]
mod tests;
