//! The configuration file of one host (`host.toml`).
//!
//! A *host* has one underlay, networks, ports of containers and peers. A *switch* (`role =
//! "switch"`) is a physical switch made of the same code: links instead of containers, no underlay.
//! The types are the ones that the fabric fills; here they come from a file.

mod buffers;
mod chip;
mod evpn;
mod fabric;
mod http;
mod local;
mod pauses;
mod peer;
mod policy;
mod port_kind;
mod spare;
mod vnet;

use serde::{Deserialize, Serialize};

use crate::placement::{Mode, mode};
use crate::port::AllowedIp;

pub use self::buffers::{Buffers, Size};
pub use self::chip::{Chip, ChipKind};
pub use self::evpn::{Evpn, EvpnNeighbor};
pub use self::fabric::{Fabric, MobilityPolicy};
pub use self::http::{
    CLIENTS_MAX, CollectorAddress, HttpApi, HttpClient, HttpTls, HttpTraces, Refusal,
};
pub use self::local::{Foreign, KEYS_OF_FABRIC, LocalConfig, LocalUnderlay, TABLES_OF_FILE, Trunk};
pub use self::peer::Peer;
pub use self::policy::{ALLOWED_MAX, PortPolicies, PortPolicy, RATE_MBPS_MAX};
pub use self::port_kind::PortKind;
pub use self::vnet::Vnet;
pub use crate::hold::HoldTime;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The host itself.
    pub host: Host,
    /// Underlay of the host; absent on a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<Underlay>,
    /// The fabric of the host; absent: all endpoints are listed here, and none is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// EVPN; absent: the host speaks to members of its fabric only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evpn: Option<Evpn>,
    /// HTTP interface of the host.
    #[serde(default, skip_serializing_if = "HttpApi::is_default")]
    pub api: HttpApi,
    /// The chip, which forwards frames of known addresses.
    #[serde(default, skip_serializing_if = "Chip::is_default")]
    pub chip: Chip,
    /// Buffers of the host; each has a default.
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
    /// Endpoints: the place of each address.
    #[serde(default, rename = "vport", skip_serializing_if = "Vec::is_empty")]
    pub vports: Vec<Vport>,
    /// Policies of single vports, above what their ports say: the fabric's, by network and port.
    #[serde(default, rename = "vport_policy", skip_serializing_if = "PortPolicies::is_empty")]
    pub vport_policies: PortPolicies,
}

/// Role of the program.
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
/// when full, `Z` holds back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FlowControl))]
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

    /// Returns true if the virtual network holds frames instead of dropping them.
    #[must_use]
    pub const fn virtual_lossless(self) -> bool {
        matches!(self, Self::ZL | Self::ZZ)
    }

    /// Returns true if the physical network is paused instead of dropping.
    #[must_use]
    pub const fn physical_lossless(self) -> bool {
        matches!(self, Self::LZ | Self::ZZ)
    }

    /// Returns the name of the policy.
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

/// Level of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something does not work, and needs help.
    Error,
    /// Something is not as it should be.
    Warn,
    /// Starts, ends and changes.
    #[default]
    Info,
    /// Events of endpoints and flows.
    Debug,
}

impl LogLevel {
    /// All levels, the gravest first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Returns the word used in the log and in every setting.
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
    /// No filter.
    Off,
    /// The kernel logs them to its audit log, and executes them.
    Log,
    /// The kernel refuses them (`EPERM`).
    #[default]
    On,
}

impl Seccomp {
    /// Returns the word used in every setting.
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
    /// Name of the host.
    pub name: String,
    /// Role of the host.
    #[serde(default)]
    pub role: Role,
    /// Flow-control policy.
    #[serde(default)]
    pub policy: Policy,
    /// Directory of its sockets and state; default `/run/sluice/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<String>,
    /// Directory of state that must survive a restart of the machine; default
    /// `/var/lib/sluice/NAME`, or `run_dir` if that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// Group whose members may use `sluice show` without being root; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// User as whom both processes continue when root has started them; absent: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Treatment of system calls that neither process makes.
    #[serde(default, skip_serializing_if = "Seccomp::is_default")]
    pub seccomp: Seccomp,
    /// Milliseconds without an answer after which a data process counts as hung and is replaced; 0:
    /// never.
    #[serde(default = "default_data_hung_ms")]
    pub data_hung_ms: u32,
    /// Lowest level of the log. `SLUICE_LOG` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogLevel>,
    /// CPU to which the data worker is pinned; absent: not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_cpu: Option<u32>,
    /// Number of data workers.
    #[serde(default = "default_workers", skip_serializing_if = "is_one")]
    pub workers: u16,
    /// CPU of each of several workers; empty: none is pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_cpus: Vec<u32>,
    /// Rule by which several workers share an underlay of sockets.
    #[serde(default, skip_serializing_if = "mode::is_default", with = "mode")]
    pub placement: Mode,
    /// CPUs to which vCPUs are pinned; absent: those of QEMU's threads are searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu_cpus: Option<Vec<u16>>,
    /// Shortest sleep of a busy worker in microseconds: longer makes larger batches.
    #[serde(default = "default_pace_us")]
    pub pace_us: u32,
    /// Longest time for which the worker polls the queues of virtual machines after work with them,
    /// before it sleeps, in microseconds; 0: not at all.
    #[serde(default = "default_spin_us")]
    pub spin_us: u32,
    /// Seed of the switch (hashing); absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Entries of the MAC table.
    #[serde(default = "default_chip_macs")]
    pub chip_macs: u32,
    /// Entries of the MAC table that may lead to other hosts (flows).
    #[serde(default = "default_chip_flows")]
    pub chip_flows: u32,
    /// Number of ports that may be added at run time, at a time; default: 64 on a member of a
    /// fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_ports: Option<u16>,
    /// Number of networks that may come while the host runs, beside those at its start; default:
    /// 1024 on a member of a fabric, else 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_vnets: Option<u16>,
    /// Number of peers that may come while the host runs, beside those at its start; default: 256
    /// on a member of a fabric, else 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_tunnels: Option<u16>,
    /// Time for which a frame waits for an unknown destination, in milliseconds.
    #[serde(default = "default_unresolved_timeout_ms")]
    pub unresolved_timeout_ms: u32,
    /// Time for which a receiver may use more than its share of shared buffers, in milliseconds;
    /// then it is isolated. 0: never.
    #[serde(default = "default_isolate_after_ms")]
    pub isolate_after_ms: u32,
    /// Broadcasts that a port, and a network through tunnels, may send per second; 0: any number.
    #[serde(default = "default_broadcasts_per_second")]
    pub broadcasts_per_second: u32,
    /// Hold contract of every port and priority without one of its own.
    #[serde(default)]
    pub hold: HoldTime,
}

/// Kind of path of frames to and from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnderlayKind {
    /// Whole frames on a device: PFC works.
    L2,
    /// UDP sockets of the kernel: any IP network, policies `LL` and `ZL` only.
    Udp,
    /// A vhost-user port, for a machine that owns the network cards: rings in shared memory.
    #[serde(rename = "vhost-user")]
    VhostUser,
}

/// The underlay of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Underlay {
    /// Kind of the attachment.
    pub kind: UnderlayKind,
    /// Device (`l2`), or device of the address (`udp`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Path of the socket on which it meets the front end (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// True if it connects to that socket instead of listening on it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
    /// MAC of the underlay (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Address of this host's VTEP. It is an address of the kernel, except for vhost-user.
    pub address: std::net::Ipv4Addr,
    /// Layer-3 MTU; default: the device's, or 1500 (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Worker that serves it, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The link.
    #[serde(default)]
    pub link: Link,
}

/// A link: its rate, and inputs of the headroom's computation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of the link in Mbit/s; absent: not limited (and 10 Gbit/s for pause quanta).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbps: Option<u64>,
    /// Unused time that the shaper may use later, in microseconds; default 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_us: Option<u32>,
    /// One-way delay in nanoseconds; default 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u32>,
    /// Longest time for which the reader may be descheduled, in milliseconds; default 50.
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

/// Service of a priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// The priority, 0 to 7.
    pub priority: u8,
    /// True if it is served before all weighted ones.
    #[serde(default)]
    pub strict: bool,
    /// Weight, 1 to 255; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// True if the lossless policies apply to it; default true.
    #[serde(default = "yes")]
    pub lossless: bool,
    /// Hold contract; absent: the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// DSCPs with this priority, instead of DSCP / 8 (RFC 2474 section 4.2.2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dscp: Vec<u8>,
}

impl Class {
    /// Returns the class of a priority without an entry.
    #[must_use]
    pub const fn new(priority: u8) -> Self {
        Self { priority, strict: false, weight: None, lossless: true, hold: None, dscp: Vec::new() }
    }
}

/// A local port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Name of the port.
    pub name: String,
    /// Kind of the port.
    pub kind: PortKind,
    /// Network of the port.
    pub vnet: String,
    /// Device (tap, veth, l2).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Worker that serves it, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// Path of the socket on which it meets the front end, such as QEMU (vhost-user).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// True if it connects to that socket instead of listening on it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
    /// True if the guest's frames are completed in the order in which it sent them, so that a held
    /// frame holds the descriptors of those behind it (vhost-user).
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_order: bool,
    /// Priorities of each of its queues (vhost-user); none: it has one queue for all. Frames of a
    /// queue after the first have its priorities only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Vec<u8>>,
    /// True if the guest or container may leave checksums and segmentation to the port (vhost-user,
    /// tap), and accepts super-frames; default true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub offload: bool,
    /// VLAN on that device (l2), 1 to 4094: the port takes frames with this 802.1Q tag, and adds it
    /// to frames that leave. Several ports may share a device then. Absent: untagged frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// True if the untagged frames of the device are of this VLAN too; its own leave untagged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub native: bool,
    /// Network namespace of the TAP: a path such as `/run/netns/c1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// MAC of the endpoint behind it (tap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Addresses or prefixes that the endpoint may use beside its own, and that other ports may
    /// have as well: the port that announced one last has it.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// Service rate of the vNIC in Mbit/s: the rate at which its machine takes frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Ring of the TAP in frames (`txqueuelen`); default 20000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_frames: Option<u32>,
    /// Priority of frames without one.
    #[serde(default)]
    pub priority: u8,
    /// True if PCP and DSCP of received frames are trusted; default true.
    #[serde(default = "yes")]
    pub trust: bool,
    /// Hold contract of frames sent to it, in all priorities; absent: those of the priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
    /// Link of the port (l2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

impl Port {
    /// Makes a port with defaults.
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

    /// Returns true if a switch's device forwards for it, which is the chip: an access port.
    #[must_use]
    pub fn is_of_switch(&self, chip: ChipKind) -> bool {
        chip == ChipKind::Switchdev && self.kind == PortKind::L2 && self.vlan.is_none()
    }
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vport {
    /// Network of the endpoint.
    pub vnet: String,
    /// MAC of the endpoint.
    pub mac: String,
    /// IP address, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<std::net::Ipv4Addr>,
    /// Peer that has it; absent if a local port has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Local port that has it; absent if a peer has it.
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
