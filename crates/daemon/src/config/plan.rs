//! The result of a checked configuration.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use sluice_api::config::HostConfig;
use sluice_api::port::AllowedIp;
use sluice_base::{Mac, PortId, PriorityMask, VnetId};
use sluice_ports::l2::Vlan;
use sluice_ports::tap::TapRoute;
use sluice_switch::{Destination, SwitchConfig};

use super::added::BoundTo;
use super::fabric::{Bound, FabricPlan};
use super::numbers::Numbers;
use super::workers::Workers;

/// Data that the two processes need.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration as it was written.
    pub config: HostConfig,
    /// Text of the configuration.
    pub text: String,
    /// Base directory of its relative paths; `None` if it lies in no directory.
    pub dir: Option<PathBuf>,
    /// Numbers of its networks and peers.
    pub numbers: Numbers,
    /// Hash that differs between configurations with different meanings.
    pub fingerprint: Fingerprint,
    /// Directory of sockets and state.
    pub run_dir: PathBuf,
    /// Directory of the state that must survive a restart of the machine.
    pub state_dir: PathBuf,
    /// The switch.
    pub switch: SwitchConfig,
    /// Seed of the switch.
    pub seed: u64,
    /// Ports to open; a position is a `PortId`. Ports that are added later have the next numbers.
    pub ports: Vec<PortPlan>,
    /// Worker of each port.
    pub workers: Workers,
    /// The fabric, if the host is a member of one.
    pub fabric: Option<FabricPlan>,
    /// Largest layer-3 packet of any port.
    pub mtu_max: u16,
    /// Addresses that are known.
    pub addresses: Vec<(VnetId, Mac, Destination)>,
    /// Notes for the operator, logged at the start.
    pub notes: Vec<String>,
}

/// A port to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Addresses that its endpoint may use beside its own.
    pub allowed: Vec<AllowedIp>,
    /// Name of the port.
    pub name: String,
    /// Name of its network; `underlay` for the underlay.
    pub vnet: String,
    /// Way to open it.
    pub attachment: Attachment,
    /// Missing part of the policy for this port to be lossless; `None` if it depends on the port.
    pub policy_lacks: Option<&'static str>,
}

/// Way to open a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A TAP device.
    Tap {
        /// The device.
        device: String,
        /// Network namespace of the device.
        netns: Option<PathBuf>,
        /// The MAC of the endpoint.
        mac: Option<Mac>,
        /// IP addresses for the device, with prefix lengths.
        addresses: Vec<(IpAddr, u8)>,
        /// Routes for the device.
        routes: Vec<TapRoute>,
        /// Size of the ring, if not the default.
        ring_frames: Option<u32>,
        /// True if checksums and segmentation may be left to the port.
        offload: bool,
        /// True if a container's runtime moves the device away, and sets it up there.
        is_given_away: bool,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// A container's card that holds its senders.
    Veth {
        /// The device.
        device: String,
        /// Network namespace of the device.
        netns: Option<PathBuf>,
        /// The MAC of the endpoint.
        mac: Option<Mac>,
        /// IP addresses for the device, with prefix lengths.
        addresses: Vec<(IpAddr, u8)>,
        /// Routes for the device.
        routes: Vec<TapRoute>,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// A container's card whose frames the kernel forwards.
    Kernel {
        /// The device.
        device: String,
        /// Network namespace of the device.
        netns: Option<PathBuf>,
        /// The MAC of the endpoint.
        mac: Option<Mac>,
        /// IP addresses for the device, with prefix lengths.
        addresses: Vec<(IpAddr, u8)>,
        /// Routes for the device.
        routes: Vec<TapRoute>,
        /// Its network.
        vnet: VnetId,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// A virtual machine's network card.
    VhostUser {
        /// Socket on which it meets the front end.
        socket: PathBuf,
        /// True if it connects there instead of listening.
        client: bool,
        /// True if frames are completed in the order in which they were sent.
        in_order: bool,
        /// Priorities of each queue; none: it has one queue for all.
        queues: Vec<PriorityMask>,
        /// True if checksums and segmentation may be left to the peer.
        offload: bool,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// Whole frames on a device.
    L2 {
        /// The device.
        device: String,
        /// Bytes that the kernel's receive ring must hold.
        ring_bytes: u64,
        /// The layer-3 MTU.
        mtu: u16,
        /// The VTEP whose VXLAN the kernel must not answer; `None` for a cable.
        vtep: Option<Ipv4Addr>,
    },
    /// Plain machines behind a device, which several ports may share.
    BareMetal {
        /// The device.
        device: String,
        /// Selection of the device's frames.
        vlan: Vlan,
        /// Bytes that the kernel's receive ring must hold; the same for all ports of the device.
        ring_bytes: u64,
        /// Network of its untagged frames, if it has no VLANs.
        vnet: VnetId,
        /// The largest layer-3 MTU of its ports.
        mtu: u16,
        /// Priorities that its neighbour may be told to pause.
        pausable: PriorityMask,
    },
    /// The kernel's UDP sockets.
    Udp {
        /// Address of the VTEP.
        local: Ipv4Addr,
        /// Device from which VXLAN is accepted.
        device: String,
        /// Destination MAC of received frames.
        mac: Mac,
        /// Size of the kernel's receive buffer.
        receive_bytes: u64,
        /// Number of workers that share the received frames.
        sharers: usize,
        /// The layer-3 MTU.
        mtu: u16,
    },
}

impl Plan {
    /// Returns the endpoint to which a port of the file is bound.
    pub(crate) fn bound_at(&self, port: PortId) -> Option<BoundTo> {
        let fabric = self.fabric.as_ref()?;
        let local = fabric.ports.get(&port).filter(|local| local.is_bound)?;
        let bound = fabric.bound.iter().find(|bound| bound.port == port)?.clone();
        let allowed = local.allowed.clone();
        let Bound { vni, mac, ips, taken, .. } = bound;
        Some(BoundTo { vni, mac, ips, taken, allowed, routes: false })
    }
}

/// 64 bits that identify a configuration. Comments and the order of keys do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Computes the fingerprint of a configuration: FNV-1a over its canonical JSON.
    #[must_use]
    pub fn of(config: &HostConfig) -> Self {
        // The log level changes no behaviour.
        let mut config = config.clone();
        config.host.log = None;
        let json = serde_json::to_vec(&config).expect("a configuration is plain data");
        Self(json.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
