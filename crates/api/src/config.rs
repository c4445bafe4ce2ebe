//! The configuration file of one host (`host.toml`).
//!
//! A *host* has one underlay, networks, ports of containers and peers. A *switch* (`role =
//! "switch"`) is a physical switch made of the same code: cables instead of containers, no
//! underlay. The types are the ones that the fabric fills; here they come from a file.

use serde::{Deserialize, Serialize};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The host itself.
    pub host: Host,
    /// Its underlay; absent on a switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<Underlay>,
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
    /// The CPU that the data worker is pinned to; absent: not pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_cpu: Option<u32>,
    /// The shortest sleep of a busy worker in microseconds: longer makes larger batches.
    #[serde(default = "default_pace_us")]
    pub pace_us: u32,
    /// How long an idle worker polls before it sleeps, in microseconds.
    #[serde(default)]
    pub spin_us: u32,
    /// Seed of the switch (hashing); absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Entries of the chip's MAC table.
    #[serde(default = "default_chip_macs")]
    pub chip_macs: u32,
    /// How long a frame waits for an unknown destination, in milliseconds.
    #[serde(default = "default_unresolved_timeout_ms")]
    pub unresolved_timeout_ms: u32,
}

/// How frames leave and reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnderlayKind {
    /// Whole frames on a device: PFC works.
    L2,
    /// UDP sockets of the kernel: any IP network, policies `LL` and `ZL` only.
    Udp,
}

/// The underlay of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Underlay {
    /// How it is attached.
    pub kind: UnderlayKind,
    /// The device (`l2`), or the device the address is on (`udp`).
    pub device: String,
    /// The address of this host's VTEP. The kernel keeps it.
    pub address: std::net::Ipv4Addr,
    /// The layer-3 MTU; default: the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
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

/// What a place may hold: both numbers bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Frames.
    pub frames: u32,
    /// Bytes.
    pub bytes: u64,
}

impl Size {
    /// So many frames of at most 1,600 bytes.
    #[must_use]
    pub const fn frames(frames: u32) -> Self {
        Self { frames, bytes: frames as u64 * 1600 }
    }

    /// So many bytes, however small the frames (down to 64 bytes).
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        let frames = bytes / 64;
        #[expect(clippy::cast_possible_truncation, reason = "saturated just before")]
        let frames = if frames > 65536 { 65536 } else { frames as u32 };
        Self { frames, bytes }
    }
}

/// The buffers of a host, the same whatever the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Buffers {
    /// What waits at one container's input (lossless: its own frames; lossy: unused).
    pub vport_in: Size,
    /// What waits for one container (lossy: beyond it frames drop).
    pub vport_out: Size,
    /// What waits at the input from the underlay (the NIC's receive queue).
    pub underlay_in: Size,
    /// What waits for the underlay, per tunnel.
    pub underlay_out: Size,
    /// What waits at each end of a cable of a physical switch.
    pub cable: Size,
    /// Host pool for frames that came from the underlay.
    pub pool_from_underlay: Size,
    /// Host pool for frames that came from local ports.
    pub pool_from_local: Size,
    /// How much of an input one destination may fill before it spills, in percent.
    pub pair_share_percent: u8,
    /// Frames under replication.
    pub replicated_frames: u32,
    /// Copies one output may hold.
    pub copies_per_output: u32,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            vport_in: Size::frames(64),
            vport_out: Size::frames(64),
            underlay_in: Size::frames(256),
            underlay_out: Size::frames(256),
            cable: Size::bytes(200_000),
            pool_from_underlay: Size::frames(256),
            pool_from_local: Size::frames(256),
            pair_share_percent: 50,
            replicated_frames: 64,
            copies_per_output: 64,
        }
    }
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
    /// A cable: whole frames on a device.
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
    /// The device.
    pub device: String,
    /// The network namespace that the TAP lies in: a path such as `/run/netns/c1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The MAC of the endpoint behind it (tap).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
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
    /// The cable (l2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
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

const fn yes() -> bool {
    true
}

const fn default_pace_us() -> u32 {
    100
}

const fn default_chip_macs() -> u32 {
    288 * 1024
}

const fn default_unresolved_timeout_ms() -> u32 {
    1000
}
