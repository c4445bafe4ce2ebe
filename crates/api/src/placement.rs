//! Which core does whose tunnel work, said once for all hosts of a fabric: the policy, and what
//! each of them has made of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sluice_base::FlowMatch;

use crate::foreign::{LIST_MAX, clean};

/// How many matches a policy may have: each is looked at for every frame.
pub const HIGH_MAX: usize = 32;
/// How many hosts may differ from the others.
pub const HOSTS_MAX: usize = 64;
/// The highest number of a CPU.
pub const CPU_MAX: u16 = 4095;
/// The most bytes of a policy as JSON, so that it fits where members ask each other.
pub const POLICY_SIZE_MAX: usize = 8 << 10;
/// The highest load that is believed, in hundredths of a CPU.
pub const LOAD_PERCENT_MAX: f64 = 9_999.0;
/// The highest version: more than anybody sets, and far enough from the end of the numbers that
/// one more is always a version, too.
pub const VERSION_MAX: u64 = 1 << 48;

/// By which rule flows go to workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementMode {
    /// By hash alone: nothing moves.
    #[serde(rename = "rss")]
    Rss,
    /// By hash, and from the worker that has most to the one that has least.
    #[serde(rename = "rss++")]
    RssPlusPlus,
    /// One worker is for what is of high priority, the others for the rest, each by hash.
    #[serde(rename = "predetermined")]
    Predetermined,
    /// Off CPUs with pinned vCPUs and off workers without room.
    #[serde(rename = "on-the-fly")]
    OnTheFly,
    /// Both.
    #[default]
    #[serde(rename = "adaptive")]
    Adaptive,
}

impl PlacementMode {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::RssPlusPlus => "rss++",
            Self::Predetermined => "predetermined",
            Self::OnTheFly => "on-the-fly",
            Self::Adaptive => "adaptive",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all =
            [Self::Rss, Self::RssPlusPlus, Self::Predetermined, Self::OnTheFly, Self::Adaptive];
        all.into_iter().find(|mode| mode.name() == name)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is wanted everywhere. Empty: each host's own configuration holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The rule; absent: that of each host's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PlacementMode>,
    /// CPUs that get no tunnel work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded_cpus: BTreeSet<u16>,
    /// Flows of high priority: `vni=5000`, `vni=5000,mac=02:00:00:00:00:01`,
    /// `vni=5000,ip=10.0.0.0/24,proto=tcp,port=443` ([`FlowMatch`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Match>,
    /// Hosts for which something else holds, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, OfHost>,
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

/// What holds for one host instead of what holds for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfHost {
    /// The rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PlacementMode>,
    /// CPUs that get no tunnel work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_cpus: Option<BTreeSet<u16>>,
}

/// What holds on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The rule; absent: that of its configuration.
    pub mode: Option<PlacementMode>,
    /// CPUs that get no tunnel work.
    pub excluded_cpus: BTreeSet<u16>,
    /// Flows of high priority.
    pub high: Vec<FlowMatch>,
}

impl Policy {
    /// What of it holds on a host.
    #[must_use]
    pub fn on(&self, host: &str) -> InForce {
        let own = self.hosts.get(host);
        let excluded = own.and_then(|own| own.excluded_cpus.as_ref());
        InForce {
            mode: own.and_then(|own| own.mode).or(self.mode),
            excluded_cpus: excluded.unwrap_or(&self.excluded_cpus).clone(),
            high: self.high.iter().map(|one| one.0).collect(),
        }
    }

    /// Whether its numbers are within bounds.
    ///
    /// # Errors
    /// What is too much, and how much may be.
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

/// Which policy it is. Of two, the greater one holds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// One more than that of the policy that it replaced, as far as its host knew.
    pub version: u64,
    /// The host where it was set: its number in the fabric, 0 outside of one.
    pub by: u16,
    /// When, in milliseconds since 1970 by the clock of that host. It matters only if a host has
    /// forgotten what it set before.
    pub at_ms: u64,
}

/// A policy with its stamp. The stamp of nothing ever set is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// Which one it is.
    pub stamp: Stamp,
    /// What it says.
    pub policy: Policy,
}

/// The file `placement.json` in the directory of a host: what holds there, also for those who steer
/// the kernel's work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The name of the host.
    pub host: String,
    /// The policy.
    pub stamped: Stamped,
}

/// What a host has made of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The host.
    pub host: String,
    /// Which policy it knows; absent: it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    /// All of it does what the policy of the answer says.
    #[serde(default)]
    pub follows: bool,
    /// The workers of its own data plane that share an underlay, and others who steer there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    /// What is not as the policy says, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Status {
    /// What another host sent, with no more of it than a screen takes and nothing that would
    /// control one.
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

/// What follows the policy on a host: a shared underlay, the ports of its workers, or a device with
/// `sluice steer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// The port or the device; `ports`: those that may move from worker to worker.
    pub name: String,
    /// `workers`, `xdp` or `rps`.
    pub kind: String,
    /// The policy that it follows now.
    pub stamp: Stamp,
    /// The rule in force.
    pub mode: String,
    /// How many matches of high priority it knows.
    pub high: u32,
    /// How many buckets, or ports, have moved so far.
    pub moves: u64,
    /// Its CPUs.
    pub cpus: Vec<CpuStatus>,
}

/// The file `steer-DEV.json` beside `placement.json`: what steers a device has made of the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steered {
    /// The device.
    #[serde(flatten)]
    pub place: PlaceStatus,
    /// What is not as the policy says, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A CPU, or a worker that is not pinned to one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Its number; absent: a worker that is not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// The number of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The policy keeps work away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub excluded: bool,
    /// A vCPU is pinned to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub runs_vcpu: bool,
    /// Buckets, or ports, that are there.
    pub buckets: u32,
    /// Of these, of high priority.
    pub high: u32,
    /// What they take of it, in hundredths.
    pub load_percent: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What a data process has made of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The underlay that its workers share, and the ports that may move between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    /// What is not as the policy says, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// What holds, and what each host has made of it.
    Show,
    /// This policy is to hold everywhere.
    Set(Box<Policy>),
}

/// What holds, and what each host has made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The policy that this host knows.
    pub stamped: Stamped,
    /// Each host, this one first.
    pub hosts: Vec<Status>,
}

#[cfg(test)]
mod tests;
