//! Scenarios: the machines and the workload of a lab, as TOML.
//!
//! The shipped scenarios are files of the folder `scenarios/`, compiled into the program. Any other
//! file of the same form can be given by its path. A scenario names a *variant* (see
//! [`crate::settings`]); single numbers of it can be overridden in `[settings]`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use sluice_api::config::{ChipKind, Policy};

use crate::settings::{Override, Variant};
use crate::today::Today;

/// The scenarios that ship with the program: name and text.
pub(crate) const SHIPPED: [(&str, &str); 12] = [
    ("demo", include_str!("../../../scenarios/demo.toml")),
    ("smoke", include_str!("../../../scenarios/smoke.toml")),
    ("two-subnets", include_str!("../../../scenarios/two-subnets.toml")),
    ("netvisor-walk", include_str!("../../../scenarios/netvisor-walk.toml")),
    ("pa-full", include_str!("../../../scenarios/pa-full.toml")),
    ("pa-wire-bound", include_str!("../../../scenarios/pa-wire-bound.toml")),
    ("pa-now", include_str!("../../../scenarios/pa-now.toml")),
    ("pa-5ms", include_str!("../../../scenarios/pa-5ms.toml")),
    ("pa-buffers", include_str!("../../../scenarios/pa-buffers.toml")),
    ("pa-total", include_str!("../../../scenarios/pa-total.toml")),
    ("pa-vms", include_str!("../../../scenarios/pa-vms.toml")),
    ("linux-bridge", include_str!("../../../scenarios/linux-bridge.toml")),
];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The machines.
    pub lab: Lab,
    /// Numbers that differ from the variant's.
    #[serde(default)]
    pub settings: Override,
    /// The TCP of the containers.
    #[serde(default)]
    pub tcp: Tcp,
    /// Partition-Aggregate, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pa: Option<Pa>,
    /// Comparison with a Linux of today, after the cells, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub today: Option<Today>,
    /// Checks of plain connectivity, in order.
    #[serde(default, rename = "check", skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

/// The machines of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// The name: part of the names of all namespaces and of the run directory.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub about: String,
    /// Number of hosts.
    pub hosts: u8,
    /// Number of containers of each host.
    #[serde(default)]
    pub containers_per_host: u8,
    /// Number of virtual machines of each host, beside its containers.
    #[serde(default)]
    pub vms_per_host: u8,
    /// True if host 0 has one more container, the aggregator.
    #[serde(default)]
    pub aggregator: bool,
    /// Number of IP subnets over which the hosts are spread; above one, a router joins them.
    #[serde(default = "one")]
    pub subnets: u8,
    /// Kind of switches that join the containers.
    #[serde(default)]
    pub fabric: Fabric,
    /// Place of the bottleneck.
    #[serde(default)]
    pub variant: Variant,
    /// The policy of `lab up` and of the checks.
    #[serde(default)]
    pub policy: Policy,
    /// The layer-3 MTU of the containers.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// True if neighbour entries are written beforehand, so that ARP plays no part.
    #[serde(default = "yes")]
    pub static_neighbours: bool,
    /// Number of networks of the containers: container C of a host is in network C mod this number.
    #[serde(default = "one")]
    pub vnets: u8,
    /// True if no container is configured beforehand: hosts learn them from their frames.
    #[serde(default)]
    pub learned: bool,
    /// True if the hosts are a fabric made by command: the first host creates it, the others join,
    /// one command at the first host makes each network, and containers get their ports by command.
    #[serde(default)]
    pub by_command: bool,
    /// Chip of the hosts, which forwards frames of known addresses.
    #[serde(default)]
    pub chip: ChipKind,
    /// The card of virtual machines.
    #[serde(default)]
    pub vnic: Vnic,
    /// Kernel setup of the virtual machines.
    #[serde(default)]
    pub guests: GuestKind,
}

/// The card of a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vnic {
    /// The paravirtual one.
    #[default]
    Virtio,
    /// An Intel card emulated by QEMU; for the kernel's bridge and Open vSwitch.
    E1000,
}

impl Vnic {
    /// Returns the name used in files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
        }
    }
}

/// Kernel setup of virtual machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// Set up by `scripts/guest-lossless.sh`; behind Sluice with the agent of `sluice guest`.
    #[default]
    Lossless,
    /// The defaults of Debian's kernel.
    Plain,
}

/// Kind of switches that join the containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// One `sluice` per host and per physical switch.
    #[default]
    Sluice,
    /// The kernel's bridge in one namespace, with a token bucket (`tbf`) towards each container: a
    /// peer to compare with, and a way to try the workload alone. Virtual machines are at TAPs.
    LinuxBridge,
    /// A bridge and a VXLAN device of the kernel in each host, over the physical switches and
    /// cables of the lab: a peer to compare with.
    LinuxVxlan,
    /// Open vSwitch with its userspace data path in one namespace, for virtual machines at TAPs.
    Ovs,
}

impl Fabric {
    /// Returns true if containers are at hosts, with cables to physical switches.
    pub(crate) const fn has_hosts(self) -> bool {
        matches!(self, Self::Sluice | Self::LinuxVxlan)
    }
}

/// The TCP of the containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Loss recovery and timers.
    pub profile: Profile,
    /// The congestion control, set per socket. `congestions` takes precedence.
    pub congestion: String,
}

impl Default for Tcp {
    fn default() -> Self {
        Self { profile: Profile::default(), congestion: "cubic".to_owned() }
    }
}

/// Loss recovery and timers of the kernel's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// No tail loss probe, no RACK, smallest retransmission time-out 200 ms.
    #[default]
    #[serde(rename = "linux-2013")]
    Linux2013,
    /// The defaults of the running kernel.
    LinuxNow,
    /// As `LinuxNow`, with a smallest retransmission time-out of 5 ms on the route.
    #[serde(rename = "linux-now-5ms")]
    LinuxNow5ms,
}

impl Profile {
    /// Returns the name used in files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux2013 => "linux-2013",
            Self::LinuxNow => "linux-now",
            Self::LinuxNow5ms => "linux-now-5ms",
        }
    }

    /// Returns the smallest retransmission time-out in milliseconds.
    #[must_use]
    pub const fn rto_min_ms(self) -> u32 {
        match self {
            Self::Linux2013 | Self::LinuxNow => 200,
            Self::LinuxNow5ms => 5,
        }
    }
}

/// Partition-Aggregate: container 0 sends a request to all others at once and waits for all
/// answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pa {
    /// Sizes of an answer, in full segments.
    pub sizes: Vec<u32>,
    /// The policies, in the order in which they run.
    pub policies: Vec<Policy>,
    /// Variants; empty: the lab's. Of `vm-bound-total` only `LL` runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Congestion controls, each of which runs all sizes; empty: [`Tcp::congestion`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub congestions: Vec<String>,
    /// Buffer of the physical switch per port in KB (a sweep); empty: the variant's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switch_kb: Vec<u64>,
    /// A cell (one size under one policy) ends after this many queries.
    pub queries: u32,
    /// It also ends after [`Self::seconds_per_cell`], but not before this many queries.
    #[serde(default = "default_queries_min")]
    pub queries_min: u32,
    /// The time of a cell; a cell always ends after three times this.
    pub seconds_per_cell: f64,
    /// Queries before the first that counts.
    #[serde(default = "default_warm_up")]
    pub warm_up: u32,
    /// Pause between queries in microseconds.
    #[serde(default = "default_gap_us")]
    pub gap_us: u32,
    /// Priority of the queries and of their answers, 0 to 7.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
}

impl Pa {
    /// Returns the congestion controls, in the order in which they run.
    pub(crate) fn congestions(&self, tcp: &Tcp) -> Vec<String> {
        match self.congestions[..] {
            [] => vec![tcp.congestion.clone()],
            _ => self.congestions.clone(),
        }
    }

    /// Replaces values for one run.
    pub(crate) fn change(
        &mut self,
        queries: Option<u32>,
        sizes: Option<&[u32]>,
        policies: Option<&[Policy]>,
    ) {
        if let Some(queries) = queries {
            self.queries = queries;
            self.queries_min = self.queries_min.min(queries);
        }
        if let Some(sizes) = sizes {
            self.sizes = sizes.to_vec();
        }
        if let Some(policies) = policies {
            self.policies = policies.to_vec();
        }
    }
}

/// A check of plain connectivity between two containers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Check {
    /// ICMP echo.
    Ping {
        /// The container that sends the requests, such as `h0c0`.
        from: String,
        /// The container that answers.
        to: String,
        /// Number of echo requests.
        count: u32,
        /// A container that must not receive an ARP request of the sender meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unheard_at: Option<String>,
    },
    /// Datagrams as fast as possible, from virtual machines to another, counted at six points.
    Flood {
        /// The virtual machines that send.
        from: Vec<String>,
        /// The virtual machine that receives.
        to: String,
        /// Duration of a run.
        seconds: u32,
        /// Number of runs.
        #[serde(default = "one_run")]
        runs: u32,
    },
    /// A transfer over one TCP connection.
    Transfer {
        /// The container that sends.
        from: String,
        /// The container that receives.
        to: String,
        /// Size in megabytes.
        megabytes: u32,
    },
    /// Endpoints and forwarding tables (FDBs) that every host must have by now.
    Tables {
        /// The preceding event, in words.
        says: String,
        /// Expected tables by host.
        hosts: BTreeMap<String, Tables>,
    },
}

/// The tables of a host. Containers, hosts and networks have the names of the lab.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Known endpoints: `h1c0 at h1`.
    pub vports: Vec<String>,
    /// The MAC table: `h1c0 to h1`, and for a local one `h0c0 to h0c0`.
    pub macs: Vec<String>,
    /// Tunnels, by the other host: `h1`.
    pub tunnels: Vec<String>,
    /// Encap flows: `h1c0 to h1`.
    pub encap: Vec<String>,
    /// Decap flows: `lab from h1`.
    pub decap: Vec<String>,
}

impl Check {
    /// Describes the check, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Ping { from, to, count, unheard_at } => {
                let unheard = unheard_at.as_ref().map(|at| format!(", unheard at {at}"));
                format!("ping {from} to {to}, {count} times{}", unheard.unwrap_or_default())
            }
            Self::Flood { from, to, seconds, runs } => {
                format!("flood {} to {to}, {runs} times {seconds} s", from.join(" and "))
            }
            Self::Transfer { from, to, megabytes } => {
                format!("transfer {from} to {to}, {megabytes} MB")
            }
            Self::Tables { says, .. } => format!("tables: {says}"),
        }
    }

    /// Returns the containers that the check names.
    fn containers(&self) -> Vec<&str> {
        match self {
            Self::Ping { from, to, unheard_at, .. } => {
                [from, to].into_iter().chain(unheard_at).map(String::as_str).collect()
            }
            Self::Transfer { from, to, .. } => vec![from, to],
            Self::Flood { from, to, .. } => {
                std::iter::once(to).chain(from).map(String::as_str).collect()
            }
            Self::Tables { .. } => Vec::new(),
        }
    }
}

impl Scenario {
    /// Loads a shipped scenario by its name, or one from a file.
    ///
    /// # Errors
    ///
    /// There is no scenario of that name and no such file, or its text is wrong.
    pub fn load(name: &str) -> anyhow::Result<Self> {
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name);
        if let Some((_, text)) = shipped {
            return Self::parse(text).with_context(|| format!("scenario {name}"));
        }
        let path = Path::new(name);
        if !path.exists() {
            let names = SHIPPED.map(|(known, _)| known).join(", ");
            bail!("no scenario and no file is named {name}; there are: {names}");
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
        Self::parse(&text).with_context(|| format!("scenario file {name}"))
    }

    /// Parses a scenario.
    ///
    /// # Errors
    ///
    /// The text is no TOML of this form, or describes a lab that cannot be built.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> anyhow::Result<()> {
        let lab = &self.lab;
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            !lab.name.is_empty() && lab.name.len() <= 15 && lab.name.chars().all(word),
            "lab.name: 1 to 15 of a-z, 0-9 and '-'"
        );
        ensure!((1..=200).contains(&lab.hosts), "lab.hosts: 1 to 200");
        let machines = u16::from(lab.containers_per_host) + u16::from(lab.vms_per_host);
        ensure!(
            (1..=200).contains(&machines),
            "lab.containers_per_host and lab.vms_per_host: 1 to 200 together"
        );
        ensure!(
            (1..=lab.hosts).contains(&lab.subnets) && lab.subnets <= 8,
            "lab.subnets: 1 to 8, and no more than hosts"
        );
        ensure!((576..=9000).contains(&lab.mtu), "lab.mtu: 576 to 9000");
        if let Some(pa) = &self.pa {
            self.check_pa(pa)?;
        }
        if let Some(today) = &self.today {
            let can_run = !today.sizes.is_empty() && today.queries > 0;
            ensure!(
                can_run && today.seconds_per_cell > 0.0,
                "today: sizes, queries and time needed"
            );
            let is_plain =
                lab.fabric == Fabric::Sluice && lab.vms_per_host == 0 && lab.subnets == 1;
            ensure!(is_plain && self.pa.is_some(), "today: containers of one subnet, with a [pa]");
        }
        self.check_command()?;
        if lab.fabric != Fabric::Sluice {
            ensure!(lab.subnets == 1, "a bridge joins one subnet");
        }
        if lab.fabric == Fabric::LinuxVxlan {
            let is_plain = lab.vms_per_host == 0 && lab.vnets == 1 && lab.static_neighbours;
            ensure!(
                is_plain,
                "lab.fabric linux-vxlan: containers of one network, known beforehand"
            );
        }
        if lab.fabric == Fabric::Ovs {
            let own = lab.containers_per_host == 0 && !lab.aggregator && self.pa.is_none();
            ensure!(own, "lab.fabric ovs: virtual machines and checks only");
        }
        if lab.vnic == Vnic::E1000 {
            ensure!(lab.fabric != Fabric::Sluice, "lab.vnic e1000: a vhost-user port needs virtio");
        }
        ensure!(
            lab.vnets >= 1 && u16::from(lab.vnets) <= machines,
            "lab.vnets: 1 at least, and no more than machines of a host"
        );
        self.checks.iter().try_for_each(|check| self.check_check(check))
    }

    /// Checks that a check can be made.
    fn check_check(&self, check: &Check) -> anyhow::Result<()> {
        let containers = check.containers();
        for container in &containers {
            ensure!(self.has_container(container), "check: no container {container}");
        }
        if let [from, to, ..] = containers[..] {
            ensure!(from != to, "check: {from} cannot talk to itself");
        }
        if let Check::Flood { seconds, runs, .. } = check {
            let vms = containers.iter().all(|name| name.contains('v'));
            ensure!(vms && containers.len() >= 2, "check: a flood goes between virtual machines");
            ensure!((1..=60).contains(seconds), "check: a flood of 1 to 60 seconds");
            ensure!((1..=100).contains(runs), "check: 1 to 100 runs");
        }
        if let Check::Ping { unheard_at: Some(at), .. } = check {
            ensure!(!at.contains('v'), "check: only a container can listen, {at} is none");
        }
        if let Check::Tables { hosts, .. } = check {
            let names: Vec<String> = (0..self.lab.hosts).map(|host| format!("h{host}")).collect();
            for host in hosts.keys() {
                ensure!(names.contains(host), "check: no host {host}");
            }
        }
        Ok(())
    }

    /// Checks that a fabric made by command can be what the scenario wants.
    fn check_command(&self) -> anyhow::Result<()> {
        let lab = &self.lab;
        ensure!(
            lab.by_command || lab.chip == ChipKind::Software,
            "lab.chip: `kernel` is for a fabric made by command (`by_command`)"
        );
        ensure!(
            lab.chip != ChipKind::Switchdev,
            "lab.chip: a lab has no switch whose driver offloads bridges: use `kernel`"
        );
        if !lab.by_command {
            return Ok(());
        }
        let is_plain = lab.fabric == Fabric::Sluice && lab.vms_per_host == 0 && lab.learned;
        ensure!(
            is_plain && self.pa.is_none() && lab.policy == Policy::default(),
            "lab.by_command: learned containers and checks only, on sluice hosts, with the \
             policy {}",
            Policy::default().name()
        );
        Ok(())
    }

    fn check_pa(&self, pa: &Pa) -> anyhow::Result<()> {
        ensure!(!pa.sizes.is_empty() && !pa.policies.is_empty(), "pa: sizes and policies needed");
        ensure!(pa.priority < 8, "pa.priority: 0 to 7");
        ensure!(pa.sizes.iter().all(|&size| (1..=1024).contains(&size)), "pa.sizes: 1 to 1024");
        ensure!(pa.queries >= 1 && pa.queries_min <= pa.queries, "pa.queries_min above queries");
        ensure!(
            pa.seconds_per_cell > 0.0 && pa.seconds_per_cell <= 3600.0,
            "pa.seconds_per_cell: above 0, at most 3600"
        );
        let each = u32::from(self.lab.containers_per_host) + u32::from(self.lab.vms_per_host);
        let machines = u32::from(self.lab.hosts) * each + u32::from(self.lab.aggregator);
        ensure!(machines >= 2, "pa: one worker at least");
        for (at, name) in pa.congestions.iter().enumerate() {
            ensure!(!pa.congestions[..at].contains(name), "pa.congestions: {name} stands twice");
        }
        if [Fabric::LinuxBridge, Fabric::LinuxVxlan].contains(&self.lab.fabric) {
            ensure!(pa.policies == [Policy::LL], "a bridge is LL: it drops when a queue is full");
        }
        Ok(())
    }

    fn has_container(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix('h') else { return false };
        let Some(at) = rest.find(['c', 'v']) else { return false };
        let (Ok(host), Ok(number)) = (rest[..at].parse::<u8>(), rest[at + 1..].parse::<u8>())
        else {
            return false;
        };
        let more = u8::from(self.lab.aggregator && host == 0);
        let count = match rest.as_bytes()[at] {
            b'v' => self.lab.vms_per_host,
            _ => self.lab.containers_per_host + more,
        };
        host < self.lab.hosts && number < count
    }
}

const fn yes() -> bool {
    true
}

const fn one_run() -> u32 {
    1
}

const fn one() -> u8 {
    1
}

const fn default_mtu() -> u16 {
    1450
}

const fn default_queries_min() -> u32 {
    25
}

const fn default_warm_up() -> u32 {
    2
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(value: &u8) -> bool {
    *value == 0
}

const fn default_gap_us() -> u32 {
    1000
}

#[cfg(test)]
mod tests;
