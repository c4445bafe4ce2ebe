//! Scenarios that only the simulator can run, as TOML.
//!
//! A scenario of the lab has a table `[lab]`. A scenario of the simulator has `[sim]` in its place,
//! and beside it `[topology]`, `[overlay]`, `[switch]`, `[tcp]`, `[workload]`, `[background]`,
//! `[classes]` and `[trace]`. Every other key is an error, and so is a value that cannot work: the
//! message names the key and the value to write instead. Names end in their unit; a KB is 1,000
//! bytes.

mod check;
mod classes;
mod link;
mod sources;
mod trace;

use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sluice_api::config::Policy;

pub(crate) use self::classes::Classes;
use crate::scenario::{SHIPPED as LAB, Scenario};
pub(crate) use link::HostLink;
pub(crate) use sources::{SourceLoad, SourceNoise};
pub(crate) use trace::TracePlan;

/// The simulator's own scenarios that ship with the program: name and text.
pub(crate) const SHIPPED: [(&str, &str); 4] = [
    ("incast", include_str!("../../../../scenarios/sim/incast.toml")),
    ("search-small", include_str!("../../../../scenarios/sim/search-small.toml")),
    ("search-clients", include_str!("../../../../scenarios/sim/search-clients.toml")),
    ("leaf-spine", include_str!("../../../../scenarios/sim/leaf-spine.toml")),
];

/// A scenario of the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimScenario {
    pub(crate) sim: Sim,
    pub(crate) topology: Shape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overlay: Option<Overlay>,
    #[serde(default)]
    pub(crate) switch: Switch,
    #[serde(default)]
    pub(crate) tcp: Tcp,
    pub(crate) workload: Load,
    #[serde(default)]
    pub(crate) background: Noise,
    #[serde(default, skip_serializing_if = "Classes::is_default")]
    pub(crate) classes: Classes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TracePlan>,
}

/// Values that apply to the whole simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sim {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) about: String,
    #[serde(default = "default_seed")]
    pub(crate) seed: u64,
    #[serde(default = "all_policies")]
    pub(crate) policies: Vec<Policy>,
    /// Time from a machine's TCP to its ring.
    #[serde(default = "default_send_ns")]
    pub(crate) send_latency_ns: u64,
    /// Time from the ring to the machine's TCP.
    #[serde(default = "default_receive_ns")]
    pub(crate) receive_latency_ns: u64,
    /// Simulated time limit of a cell; a cell that takes longer is an error.
    #[serde(default = "default_seconds_max")]
    pub(crate) seconds_max: u64,
}

/// Hosts, physical switches and cables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Shape {
    Star {
        hosts: u32,
        link_mbps: u64,
        #[serde(default = "default_delay_ns")]
        delay_ns: u64,
        /// Hosts whose links differ.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        link: Vec<HostLink>,
    },
    LeafSpine {
        leaves: u32,
        hosts_per_leaf: u32,
        spines: u32,
        link_mbps: u64,
        /// Rate of a cable between switches.
        spine_mbps: u64,
        #[serde(default = "default_delay_ns")]
        delay_ns: u64,
        /// Hosts whose links differ.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        link: Vec<HostLink>,
    },
    FatTree {
        pods: u32,
        edges_per_pod: u32,
        hosts_per_edge: u32,
        middles_per_pod: u32,
        cores_per_middle: u32,
        link_mbps: u64,
        #[serde(default = "default_delay_ns")]
        delay_ns: u64,
        /// Hosts whose links differ.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        link: Vec<HostLink>,
    },
}

/// The virtual networks of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Overlay {
    pub(crate) vms_per_host: u32,
    /// Layer-3 MTU of the machines; the underlay's is 50 more.
    pub(crate) mtu: u16,
    /// Service rate of a machine; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vm_mbps: Option<u64>,
    /// Frames at a machine's input and at its output.
    pub(crate) vm_frames: u32,
    /// The limit of `vm_frames` in bytes instead of frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vm_kb: Option<u64>,
    /// Frames in a host's receive queue.
    pub(crate) card_frames: u32,
    /// The limit of `card_frames` in bytes instead of frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) card_kb: Option<u64>,
    /// Frames per tunnel that wait for the link.
    pub(crate) tunnel_frames: u32,
    /// Frames in each half of the host's pool.
    pub(crate) pool_frames: u32,
}

impl Default for Overlay {
    fn default() -> Self {
        Self {
            vms_per_host: 1,
            mtu: 1450,
            vm_mbps: None,
            vm_frames: 64,
            vm_kb: None,
            card_frames: 256,
            card_kb: None,
            tunnel_frames: 256,
            pool_frames: 256,
        }
    }
}

/// The physical switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Switch {
    /// The buffer of a port.
    pub(crate) buffer_kb: u64,
    /// Side that a lossy frame's buffer belongs to.
    pub(crate) buffering: Place,
    /// XOFF threshold; absent: 60 % of the buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) xoff_kb: Option<u64>,
    /// XON threshold; absent: 40 % of the buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) xon_kb: Option<u64>,
    /// Time from a frame's last bit to the earliest moment at which it leaves.
    pub(crate) latency_ns: u64,
    /// Time from a pause frame's arrival to its effect; absent: 60 quanta of 512 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause_response_ns: Option<u64>,
    /// Overhead of a frame on a wire, in bytes.
    pub(crate) overhead_bytes: u16,
}

impl Default for Switch {
    fn default() -> Self {
        Self {
            buffer_kb: 200,
            buffering: Place::Output,
            xoff_kb: None,
            xon_kb: None,
            latency_ns: 0,
            pause_response_ns: None,
            overhead_bytes: 24,
        }
    }
}

/// The side of a switch that buffers lossy frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    Input,
    Output,
}

/// The TCP of all machines: a profile, and values that replace the profile's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tcp {
    pub(crate) profile: Profile,
    #[serde(alias = "algorithm")]
    pub(crate) congestion: Congestion,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rto_initial_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rto_min_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rto_slop_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tick_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initial_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) send_buffer_kb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receive_buffer_kb: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ack_every: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ack_delay_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quick_acks: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_restart: Option<bool>,
}

/// Profile of a real stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Profile {
    #[default]
    #[serde(rename = "linux-2013")]
    Linux2013,
    #[serde(rename = "linux-now")]
    LinuxNow,
    #[serde(rename = "freebsd9")]
    Freebsd9,
}

impl Profile {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Linux2013 => "linux-2013",
            Self::LinuxNow => "linux-now",
            Self::Freebsd9 => "freebsd9",
        }
    }
}

/// A congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Congestion {
    #[default]
    Cubic,
    #[serde(alias = "reno")]
    Newreno,
    Vegas,
}

impl Congestion {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Newreno => "newreno",
            Self::Vegas => "vegas",
        }
    }
}

/// Workload that is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Load {
    /// Machine 0 asks all others at once and waits for all answers.
    Pa {
        /// Sizes of an answer in full segments.
        sizes: Vec<u32>,
        queries: u32,
        #[serde(default = "default_warm_up")]
        warm_up: u32,
        #[serde(default = "default_gap_us")]
        gap_us: u64,
    },
    /// The first machine of host 0 asks `senders` machines of other hosts.
    Incast {
        senders: u32,
        sizes: Vec<u32>,
        queries: u32,
        #[serde(default = "default_warm_up")]
        warm_up: u32,
        #[serde(default = "default_gap_us")]
        gap_us: u64,
    },
    /// Three tiers; `gap_us` is the mean of the random gaps between the starts of two queries.
    Search {
        sizes: Vec<u32>,
        /// Clients at the cores, which send the queries; 0: queries begin at their aggregator.
        #[serde(default, skip_serializing_if = "is_zero")]
        clients: u32,
        /// Size of every message in bytes instead of full segments; then there is one size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_bytes: Option<u64>,
        queries: u32,
        #[serde(default = "default_warm_up")]
        warm_up: u32,
        gap_us: u64,
    },
    /// Every machine sends without end to the machine `shift` places further on.
    Permutation { shift: u32, duration_ms: u64 },
    /// Machines of other hosts send datagrams to the first machine of host 0.
    UdpSources(SourceLoad),
}

/// Background traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Noise {
    /// None.
    #[default]
    None,
    /// Flows of TCP.
    Tcp {
        /// The distribution of sizes, by name.
        sizes: String,
        /// Offered load of each machine, in percent of its host's link.
        load_percent: u32,
        /// Only this machine of each host; absent: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<u32>,
    },
    /// Flows of datagrams at a steady rate.
    Udp {
        sizes: String,
        load_percent: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<u32>,
        #[serde(default = "default_datagram")]
        datagram_bytes: u32,
        flow_mbps: u64,
        /// Fate of a datagram that finds its machine's ring full.
        #[serde(default)]
        full: Full,
    },
    /// A steady source of datagrams in each machine.
    UdpSources(SourceNoise),
}

/// Fate of a datagram that finds its machine's ring full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Full {
    /// Its socket waits.
    #[default]
    Wait,
    /// The sender drops it.
    Drop,
}

/// A scenario that the simulator can run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Any {
    /// A scenario of the lab.
    Lab(Box<Scenario>),
    /// A scenario of the simulator.
    Sim(Box<SimScenario>),
}

/// Returns the text of the scenario of that name, or of that file.
///
/// # Errors
///
/// There is no such scenario and no such file.
pub(crate) fn text_of(name: &str) -> anyhow::Result<String> {
    let shipped = || SHIPPED.into_iter().chain(LAB);
    if let Some((_, text)) = shipped().find(|(known, _)| *known == name) {
        return Ok(text.to_owned());
    }
    if !Path::new(name).exists() {
        let names: Vec<&str> = shipped().map(|(known, _)| known).collect();
        bail!("no scenario and no file is named {name}; there are: {}", names.join(", "));
    }
    std::fs::read_to_string(name).with_context(|| format!("reading {name}"))
}

impl Any {
    /// Parses a scenario.
    ///
    /// # Errors
    ///
    /// The text is no TOML of either form, or describes something that cannot be simulated.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        match (table.contains_key("lab"), table.contains_key("sim")) {
            (true, false) => Ok(Self::Lab(Box::new(Scenario::parse(text)?))),
            (false, true) => {
                let scenario: SimScenario = toml::from_str(text)?;
                scenario.check()?;
                Ok(Self::Sim(Box::new(scenario)))
            }
            (true, true) => bail!("[lab] and [sim] exclude each other: keep one of them"),
            (false, false) => bail!(
                "a scenario has a table [lab] (it runs in the lab, too) or [sim] (only simulated): \
                 add one of them"
            ),
        }
    }
}

impl SimScenario {
    /// Returns the number of machines: VMs, or hosts without a virtual network.
    pub(crate) fn stations(&self) -> u32 {
        self.topology.hosts() * self.overlay.as_ref().map_or(1, |overlay| overlay.vms_per_host)
    }

    /// Returns the layer-3 MTU of the machines.
    pub(crate) fn mtu(&self) -> u16 {
        self.overlay.as_ref().map_or(1500, |overlay| overlay.mtu)
    }
}

impl Shape {
    /// Returns the number of hosts.
    pub(crate) fn hosts(&self) -> u32 {
        let product = |numbers: &[u32]| {
            numbers.iter().fold(1_u32, |product, number| product.saturating_mul(*number))
        };
        match self {
            Self::Star { hosts, .. } => *hosts,
            Self::LeafSpine { leaves, hosts_per_leaf, .. } => product(&[*leaves, *hosts_per_leaf]),
            Self::FatTree { pods, edges_per_pod, hosts_per_edge, .. } => {
                product(&[*pods, *edges_per_pod, *hosts_per_edge])
            }
        }
    }

    /// Returns the number of hosts in one rack.
    pub(crate) const fn rack(&self) -> u32 {
        match self {
            Self::Star { hosts, .. } => *hosts,
            Self::LeafSpine { hosts_per_leaf, .. } => *hosts_per_leaf,
            Self::FatTree { hosts_per_edge, .. } => *hosts_per_edge,
        }
    }

    /// Returns the links of hosts that differ from the others.
    pub(crate) fn links(&self) -> &[HostLink] {
        match self {
            Self::Star { link, .. } | Self::LeafSpine { link, .. } | Self::FatTree { link, .. } => {
                link
            }
        }
    }

    /// Returns the rate of a host's cable in Mbit/s, and the delay of a cable in ns that no
    /// `[[topology.link]]` names.
    pub(crate) const fn link(&self) -> (u64, u64) {
        match self {
            Self::Star { link_mbps, delay_ns, .. }
            | Self::LeafSpine { link_mbps, delay_ns, .. }
            | Self::FatTree { link_mbps, delay_ns, .. } => (*link_mbps, *delay_ns),
        }
    }
}

const fn is_zero(count: &u32) -> bool {
    *count == 0
}

const fn default_seed() -> u64 {
    1
}

fn all_policies() -> Vec<Policy> {
    Policy::ALL.to_vec()
}

/// Crisan et al., "Short and Fat: TCP Performance in CEE Datacenter Networks", Hot Interconnects
/// 2011: time that a host needs to send and to receive.
pub(crate) const fn default_send_ns() -> u64 {
    9_500
}

/// See [`default_send_ns`].
pub(crate) const fn default_receive_ns() -> u64 {
    24_000
}

const fn default_seconds_max() -> u64 {
    600
}

pub(crate) const fn default_delay_ns() -> u64 {
    1_000
}

const fn default_warm_up() -> u32 {
    2
}

const fn default_gap_us() -> u64 {
    1_000
}

const fn default_datagram() -> u32 {
    1_400
}

#[cfg(test)]
mod tests;
