//! What a checked configuration comes to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use sluice_api::config::HostConfig;
use sluice_api::port::AllowedIp;
use sluice_base::{Mac, PriorityMask, VnetId};
use sluice_ports::l2::Vlan;
use sluice_ports::tap::TapRoute;
use sluice_switch::{Destination, SwitchConfig};

use super::fabric::FabricPlan;
use super::workers::Workers;

/// Everything that the two processes need to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The configuration as it was written.
    pub config: HostConfig,
    /// Its text.
    pub text: String,
    /// What its relative paths are relative to; `None` if it lies in no directory.
    pub dir: Option<PathBuf>,
    /// Tells configurations apart that mean different things.
    pub fingerprint: Fingerprint,
    /// Where sockets and state lie.
    pub run_dir: PathBuf,
    /// Where lies what must survive a restart of the machine.
    pub state_dir: PathBuf,
    /// The switch.
    pub switch: SwitchConfig,
    /// Its seed.
    pub seed: u64,
    /// The ports to open; a position is a `PortId`. Those that come later have the numbers behind.
    pub ports: Vec<PortPlan>,
    /// Which worker serves each port.
    pub workers: Workers,
    /// The fabric, if the host is a member of one.
    pub fabric: Option<FabricPlan>,
    /// The largest layer-3 packet of any port.
    pub mtu_max: u16,
    /// The addresses that are known.
    pub addresses: Vec<(VnetId, Mac, Destination)>,
    /// What the operator should know, said at the start.
    pub notes: Vec<String>,
}

/// A port to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    /// Addresses that its endpoint may speak as beside its own.
    pub allowed: Vec<AllowedIp>,
    /// Its name.
    pub name: String,
    /// The name of its network; `underlay` for the underlay.
    pub vnet: String,
    /// How to open it.
    pub attachment: Attachment,
    /// What the policy lacks for this port to be lossless; `None` if it is up to the port.
    pub policy_lacks: Option<&'static str>,
}

/// How a port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A TAP device.
    Tap {
        /// The device.
        device: String,
        /// The network namespace that it lies in.
        netns: Option<PathBuf>,
        /// The MAC of the endpoint.
        mac: Option<Mac>,
        /// The IP addresses that the device gets, with the lengths of their prefixes.
        addresses: Vec<(IpAddr, u8)>,
        /// The routes that the device gets.
        routes: Vec<TapRoute>,
        /// The ring, if the default is not wanted.
        ring_frames: Option<u32>,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// A virtual machine's network card.
    VhostUser {
        /// Where it meets the front end.
        socket: PathBuf,
        /// Whether it connects there instead of listening.
        client: bool,
        /// Whether frames are completed in the order in which they were sent.
        in_order: bool,
        /// The priorities of each queue; none: it has one queue for all.
        queues: Vec<PriorityMask>,
        /// Whether checksums and segmentation may be left to each other.
        offload: bool,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// Whole frames on a device.
    L2 {
        /// The device.
        device: String,
        /// What the kernel's receive ring must hold.
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
        /// Which of its frames.
        vlan: Vlan,
        /// What the kernel's receive ring must hold; the same for all ports of the device.
        ring_bytes: u64,
        /// The largest layer-3 MTU of its ports.
        mtu: u16,
        /// The priorities that its neighbour may be told to pause.
        pausable: PriorityMask,
    },
    /// The kernel's UDP sockets.
    Udp {
        /// The address of the VTEP.
        local: Ipv4Addr,
        /// The device that VXLAN is taken from.
        device: String,
        /// The MAC that received frames are addressed to.
        mac: Mac,
        /// The kernel's receive buffer.
        receive_bytes: u64,
        /// How many workers share what comes.
        sharers: usize,
        /// The layer-3 MTU.
        mtu: u16,
    },
}

/// 64 bits that tell configurations apart. Comments and order of keys do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Of a configuration: FNV-1a over its canonical JSON.
    #[must_use]
    pub fn of(config: &HostConfig) -> Self {
        // What is said of it changes nothing of what is done.
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
