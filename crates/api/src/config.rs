//! The configuration file of one host (`host.toml`).
//!
//! A *host* has one underlay, networks, ports of containers and peers. A *switch* (`role =
//! "switch"`) is a physical switch made of the same code: cables instead of containers, no
//! underlay. The types are the ones that the fabric fills; here they come from a file.

mod buffers;
mod fabric;

use serde::{Deserialize, Serialize};

use crate::port::AllowedIp;

pub use self::buffers::{Buffers, Size};
pub use self::fabric::{Fabric, OnMoves};
pub use crate::hold::HoldTime;
pub use crate::placement::PlacementMode;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The host itself.
    pub host: Host,
    /// Its underlay; absent on a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<Underlay>,
    /// The fabric that it is a member of; absent: endpoints are listed here and nowhere learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Buffers of the host; every place has a default.
    #[serde(default)]
    pub buffers: Buffers,
    /// Priorities that differ from "weighted 1, lossless".
    #[serde(default, rename = "class", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<Class>,
    /// The networks.
    #[serde(default, rename = "vnet", skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<Vnet>,
    /// The local ports.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// The other hosts.
    #[serde(default, rename = "peer", skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
    /// Endpoints: where each address is.
    #[serde(default, rename = "vport", skip_serializing_if = "Vec::is_empty")]
    pub vports: Vec<Vport>,
}

/// Ports that may be added to a member of a fabric while it runs, unless it says otherwise.
const SPARE_PORTS_DEFAULT: u16 = 64;

impl HostConfig {
    /// How many ports may be added while it runs, at a time.
    #[must_use]
    pub fn spare_ports(&self) -> u16 {
        // They are one worker's.
        let has_some = self.fabric.is_some() && self.host.workers <= 1;
        let default = if has_some { SPARE_PORTS_DEFAULT } else { 0 };
        self.host.spare_ports.unwrap_or(default)
    }
}

/// What the program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A virtual switch with an underlay.
    #[default]
    Host,
    /// A physical switch.
    Switch,
}

/// A flow-control policy. First letter: the virtual network, second: the physical one; `L` drops
/// when it is full, `Z` holds back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Policy {
    /// Lossy, lossy.
    LL,
    /// Lossy, PFC.
    LZ,
    /// Lossless, lossy.
    ZL,
    /// Lossless, PFC.
    #[default]
    ZZ,
}

impl Policy {
    /// All four, in the order of their table.
    pub const ALL: [Self; 4] = [Self::LL, Self::LZ, Self::ZL, Self::ZZ];

    /// Whether the virtual network holds frames instead of dropping them.
    #[must_use]
    pub const fn virtual_lossless(self) -> bool {
        matches!(self, Self::ZL | Self::ZZ)
    }

    /// Whether the physical network is paused instead of dropping.
    #[must_use]
    pub const fn physical_lossless(self) -> bool {
        matches!(self, Self::LZ | Self::ZZ)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LL => "LL",
            Self::LZ => "LZ",
            Self::ZL => "ZL",
            Self::ZZ => "ZZ",
        }
    }
}

/// The weight of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something does not work, and will not by itself.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What comes, goes and begins.
    #[default]
    Info,
    /// What endpoints and flows do.
    Debug,
}

impl LogLevel {
    /// All of them, the gravest first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The word used in the log and in every setting.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Treatment of system calls that neither process of a host makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seccomp {
    /// Nothing.
    Off,
    /// It writes them to its audit log, and does them.
    Log,
    /// It refuses them (`EPERM`).
    #[default]
    On,
}

impl Seccomp {
    /// The word used in every setting.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Log => "log",
            Self::On => "on",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The host itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub role: Role,
    /// The flow-control policy.
    #[serde(default)]
    pub policy: Policy,
    /// Where its sockets and state lie; default `/run/sluice/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<String>,
    /// Where what must survive a restart of the machine lies; default `/var/lib/sluice/NAME`, or
    /// `run_dir` if that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// The group whose members may look (`sluice show`) without being root; absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The user as whom both processes go on when root has started them; absent: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Treatment of system calls that neither process makes.
    #[serde(default, skip_serializing_if = "Seccomp::is_default")]
    pub seccomp: Seccomp,
    /// After how many milliseconds without an answer a data process is taken to hang and is
    /// replaced; 0: never.
    #[serde(default = "default_data_hung_ms")]
    pub data_hung_ms: u32,
    /// What the log says: this level and those above it. `SLUICE_LOG` goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogLevel>,
    /// The CPU that the data worker is pinned to; absent: not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_cpu: Option<u32>,
    /// How many data workers there are.
    #[serde(default = "default_workers", skip_serializing_if = "is_one")]
    pub workers: u16,
    /// The CPU of each of several workers; empty: none is pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_cpus: Vec<u32>,
    /// By which rule several workers share an underlay of sockets.
    #[serde(default, skip_serializing_if = "PlacementMode::is_default")]
    pub placement: PlacementMode,
    /// CPUs to which vCPUs are pinned; absent: those of QEMU's threads are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_cpus: Option<Vec<u16>>,
    /// The shortest sleep of a busy worker in microseconds: longer makes larger batches.
    #[serde(default = "default_pace_us")]
    pub pace_us: u32,
    /// How long at most, after work with virtual machines, the worker looks on at their queues
    /// before it sleeps, in microseconds; 0: not at all.
    #[serde(default = "default_spin_us")]
    pub spin_us: u32,
    /// Seed of the switch (hashing); absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Entries of the chip's MAC table.
    #[serde(default = "default_chip_macs")]
    pub chip_macs: u32,
    /// How many of them may lead to other hosts (flows).
    #[serde(default = "default_chip_flows")]
    pub chip_flows: u32,
    /// How many ports may be added while it runs, at a time; default: 64 on a member of a fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_ports: Option<u16>,
    /// How long a frame waits for an unknown destination, in milliseconds.
    #[serde(default = "default_unresolved_timeout_ms")]
    pub unresolved_timeout_ms: u32,
    /// The time for which a receiver may hold more than its share of what others need too, in
    /// milliseconds; then it is isolated. 0: never.
    #[serde(default = "default_isolate_after_ms")]
    pub isolate_after_ms: u32,
    /// Broadcasts that a port, and a network through tunnels, may send in a second; 0: any number.
    #[serde(default = "default_broadcasts_per_second")]
    pub broadcasts_per_second: u32,
    /// The hold contract of every port and priority of which nothing else is said.
    #[serde(default)]
    pub hold: HoldTime,
}

/// How frames leave and reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnderlayKind {
    /// Whole frames on a device: PFC works.
    L2,
    /// UDP sockets of the kernel: any IP network, policies `LL` and `ZL` only.
    Udp,
    /// A vhost-user port, as of a machine that has the network cards: rings in shared memory.
    #[serde(rename = "vhost-user")]
    VhostUser,
}

/// The underlay of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Underlay {
    /// How it is attached.
    pub kind: UnderlayKind,
    /// The device (`l2`), or the device the address is on (`udp`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The socket at which it meets the front end (vhost-user): a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Whether it connects to that socket instead of listening at it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
    /// Its own MAC (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The address of this host's VTEP. The kernel keeps it, except for vhost-user.
    pub address: std::net::Ipv4Addr,
    /// The layer-3 MTU; default: the device's, or 1500 (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The worker that serves it, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The link.
    #[serde(default)]
    pub link: Link,
}

/// A cable: its rate, and what the computation of headroom needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of the link in Mbit/s; absent: not limited (and 10 Gbit/s for pause quanta).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u64>,
    /// How far back the shaper may use unused time, in microseconds; default 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_us: Option<u32>,
    /// One-way delay in nanoseconds; default 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u32>,
    /// The longest time the reader may be descheduled, in milliseconds; default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u32>,
    /// Size of the kernel's receive ring in bytes; default: the computed headroom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_bytes: Option<u64>,
    /// PFC: bytes at which XOFF is sent; default 60 % of the input buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xoff_bytes: Option<u64>,
    /// PFC: bytes at which XON is sent; default 40 % of the input buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xon_bytes: Option<u64>,
    /// Input buffer of this port; default: `buffers.underlay_in`, or `buffers.cable` on a switch.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub input: Option<Size>,
    /// Output buffer of this port; default: `buffers.underlay_out` or `buffers.cable`.
    #[serde(default, rename = "out", skip_serializing_if = "Option::is_none")]
    pub output: Option<Size>,
}

/// How a priority is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The priority, 0 to 7.
    pub priority: u8,
    /// Before all weighted ones.
    #[serde(default)]
    pub strict: bool,
    /// Weight, 1 to 255; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Whether the lossless policies apply to it; default true.
    #[serde(default = "yes")]
    pub lossless: bool,
    /// Its hold contract; absent: the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// The DSCPs that mean this priority, instead of the one that is the DSCP / 8 (RFC 2474 section
    /// 4.2.2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<u8>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vnet {
    /// Its name.
    pub name: String,
    /// Its VNI; absent on a physical switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// The MTU of its members; default: what the underlay leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// A TAP device, in a network namespace if one is named.
    Tap,
    /// A virtual machine's network card, by vhost-user.
    #[serde(rename = "vhost-user")]
    VhostUser,
    /// Whole frames on a device: a cable of a switch; on a host, plain machines behind it.
    L2,
}

/// A local port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: PortKind,
    /// The network it belongs to.
    pub vnet: String,
    /// The device (tap, l2).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The worker that serves it, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The socket at which it meets the front end, such as QEMU (vhost-user): a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Whether it connects to that socket instead of listening at it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
    /// Whether the guest's frames are completed in the order in which it sent them, so that one
    /// that is held back holds the descriptors of those behind it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_order: bool,
    /// The priorities of each of its queues (vhost-user); none: it has one queue for all. Frames of
    /// a queue behind the first have its priorities only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Vec<u8>>,
    /// Whether the guest may leave checksums and segmentation to the port (vhost-user), and takes
    /// super-frames; default true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub offload: bool,
    /// Its VLAN on that device (l2), 1 to 4094: it takes frames with this 802.1Q tag, and puts it
    /// on what leaves. Several ports may share a device then. Absent: untagged frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Whether the untagged frames of the device are of this VLAN too; its own leave untagged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub native: bool,
    /// The network namespace that the TAP lies in: a path such as `/run/netns/c1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The MAC of the endpoint behind it (tap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Addresses or prefixes that the endpoint may speak as beside its own, and that other ports
    /// may have as well: whoever announced one last has it.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// The service rate of the vNIC in Mbit/s: how fast its machine takes frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// The TAP's ring in frames (`txqueuelen`); default 20000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_frames: Option<u32>,
    /// Priority of frames that say none.
    #[serde(default)]
    pub priority: u8,
    /// Whether PCP and DSCP of received frames are believed; default true.
    #[serde(default = "yes")]
    pub trust: bool,
    /// The hold contract of what is sent to it, in all priorities; absent: those of the priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// The cable (l2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

impl Port {
    /// A port of which nothing else is said.
    #[must_use]
    pub fn new(name: &str, kind: PortKind, vnet: &str, device: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            vnet: vnet.to_owned(),
            device: device.to_owned(),
            worker: None,
            socket: None,
            client: false,
            in_order: false,
            queues: Vec::new(),
            offload: yes(),
            netns: None,
            mac: None,
            allowed: Vec::new(),
            service_mbps: None,
            ring_frames: None,
            priority: 0,
            trust: yes(),
            vlan: None,
            native: false,
            hold: None,
            link: None,
        }
    }
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The address of its VTEP.
    pub vtep: std::net::Ipv4Addr,
    /// The networks it has.
    pub vnets: Vec<String>,
    /// The MAC of the next hop to its VTEP (over vhost-user, where no kernel knows it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// Its number in the fabric; absent: it is no member, and its endpoints are learned from its
    /// frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u16>,
    /// Where it listens for members of the fabric; default: its VTEP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::Ipv4Addr>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vport {
    /// Its network.
    pub vnet: String,
    /// Its MAC.
    pub mac: String,
    /// Its IP, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<std::net::Ipv4Addr>,
    /// The peer it is on; or
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// the local port it is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_yes(value: &bool) -> bool {
    *value
}

const fn yes() -> bool {
    true
}

const fn default_spin_us() -> u32 {
    50
}

const fn default_pace_us() -> u32 {
    100
}

const fn default_data_hung_ms() -> u32 {
    5_000
}

const fn default_workers() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(value: &u16) -> bool {
    *value == 1
}

const fn default_chip_macs() -> u32 {
    288 * 1024
}

const fn default_chip_flows() -> u32 {
    56 * 1024
}

const fn default_broadcasts_per_second() -> u32 {
    10_000
}

const fn default_isolate_after_ms() -> u32 {
    10
}

const fn default_unresolved_timeout_ms() -> u32 {
    1000
}
