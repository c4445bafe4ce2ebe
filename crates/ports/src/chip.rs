//! A chip: what forwards frames of known addresses by itself, in the place of the switch.
//!
//! A switch of hardware has tables of limited size, written by its CPU, and learns nothing by
//! itself. What it cannot forward it hands to the CPU, and the CPU can send by it (Netvisor,
//! section 3.1). [`Chip`] is that boundary: networks, ports, addresses, decap flows, hits, and what
//! others changed. The switch of this process is the CPU: it gets each frame that the chip does not
//! forward, decides as without a chip, and sends by the same devices.
//!
//! ```text
//!   device ─▶ filter: known? ── no ──▶ ring ──▶ switch ──▶ device
//!               └────────────── yes ─▶ chip ──────────────▶ device
//! ```
//!
//! [`KernelChip`] is the Linux kernel's data plane: a bridge and a VXLAN device for each network
//! (`links.rs`), their FDB written here, with learning and flooding off, and a filter in BPF that
//! tells what goes which way (`programs.rs`). Between ports of a switch whose driver offloads
//! bridges its device forwards (`switchdev.rs`). [`Cache`] keeps a chip within its capacity.
//!
//! **One decision a frame.** The filter of the ring decides, and notes its verdict for the program
//! at the device's ingress hook, which runs next on the same CPU for the same frame. So no frame
//! goes both ways and none goes nowhere, also while a table changes.
//!
//! **A chip loses frames** when a queue is full, as a bridge does: ports of a chip are not
//! lossless, and say so.

mod batch;
mod cache;
mod card;
mod fdb;
mod kernel;
mod links;
mod maps;
mod programs;
mod switchdev;
mod watch;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_base::{Mac, PortId, TunnelId, VnetId, Vni};

pub use cache::{Cache, Figures};
pub use card::{CardConfig, KernelCard};
pub use kernel::{KernelChip, KernelConfig, Way, Ways};
pub use switchdev::switch_of;

/// Room of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Addresses.
    pub macs: usize,
    /// Addresses among them that lead to other hosts.
    pub flows: usize,
}

/// A network of the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Number at the switch.
    pub vnet: VnetId,
    /// Number on the wire.
    pub vni: Vni,
    /// The layer-3 MTU.
    pub mtu: u16,
}

/// Where frames for an address go, in the chip's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A port of the chip.
    Port(PortId),
    /// The VTEP of another host.
    Tunnel(TunnelId, Ipv4Addr),
}

impl Place {
    /// True if it is behind a tunnel.
    #[must_use]
    pub const fn is_flow(self) -> bool {
        matches!(self, Self::Tunnel(..))
    }
}

/// Whose source addresses a chip may forward by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Frames with this source MAC, whatever they carry.
    #[default]
    Any,
    /// IPv4 and IPv6 from these addresses; the switch judges everything else.
    Only(Option<Ipv4Addr>, Option<Ipv6Addr>),
}

impl Senders {
    /// None: the switch judges each frame.
    pub const NONE: Self = Self::Only(None, None);
}

/// An address of the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its frames go.
    pub to: Place,
    /// Frames that it may send past the switch.
    pub senders: Senders,
}

/// A use of an address since it was last asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// A frame went to it.
    pub to: bool,
    /// A frame came from it.
    pub from: bool,
}

/// Error: a chip did not take something.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It has no place left.
    #[error("its table is full")]
    Full,
    /// It cannot now; later it may.
    #[error("it is busy: {0}")]
    Busy(io::Error),
    /// It has no such network or port, and the switch goes on without it.
    #[error("it has no such network or port")]
    Unknown,
    /// It does not work.
    #[error("{0}")]
    Broken(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::E2BIG) => Self::Full,
            Some(libc::EBUSY | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                Self::Busy(error)
            }
            _ => Self::Broken(error),
        }
    }
}

/// The boundary. Nothing here learns, ages or evicts: the caller does ([`Cache`]).
pub trait Chip {
    /// Returns what it can hold.
    fn capacity(&self) -> Capacity;

    /// Adds a network, or changes its MTU.
    ///
    /// # Errors
    /// [`Refused`].
    fn add_network(&mut self, network: Network) -> Result<(), Refused>;

    /// Removes a network with its addresses and decap flows.
    ///
    /// # Errors
    /// [`Refused`].
    fn remove_network(&mut self, vnet: VnetId) -> Result<(), Refused>;

    /// True if it has this network.
    fn has_network(&self, vnet: VnetId) -> bool;

    /// Adds a port: a device that belongs to a network.
    ///
    /// # Errors
    /// [`Refused`].
    fn add_port(&mut self, port: PortId, vnet: VnetId, device: &str) -> Result<(), Refused>;

    /// Removes a port with its addresses; its device may be gone.
    ///
    /// # Errors
    /// [`Refused`].
    fn remove_port(&mut self, port: PortId) -> Result<(), Refused>;

    /// Writes an address, or moves it.
    ///
    /// # Errors
    /// [`Refused`].
    fn put(&mut self, vnet: VnetId, mac: Mac, entry: Entry) -> Result<(), Refused>;

    /// Writes addresses, or moves them; none comes twice. Returns those that it did not take, by
    /// their place in `entries`, in that order.
    fn put_all(&mut self, entries: &[(VnetId, Mac, Entry)]) -> Vec<(usize, Refused)> {
        let put = |(at, &(vnet, mac, entry)): (usize, &(VnetId, Mac, Entry))| {
            self.put(vnet, mac, entry).err().map(|refused| (at, refused))
        };
        entries.iter().enumerate().filter_map(put).collect()
    }

    /// Removes an address, which may be gone.
    ///
    /// # Errors
    /// [`Refused`].
    fn remove(&mut self, vnet: VnetId, mac: Mac) -> Result<(), Refused>;

    /// Takes frames of a network from another host from now on, or no more.
    ///
    /// # Errors
    /// [`Refused`].
    fn set_decap(
        &mut self,
        vnet: VnetId,
        tunnel: (TunnelId, Ipv4Addr),
        is_on: bool,
    ) -> Result<(), Refused>;

    /// Reports the addresses that were used since the last call.
    ///
    /// # Errors
    /// [`Refused`].
    fn hits(&mut self, each: &mut dyn FnMut(VnetId, Mac, Hits)) -> Result<(), Refused>;

    /// Returns addresses that it learned by itself since the last call, where it saw them. Whether
    /// they are to stay is the caller's decision: what is not written in time goes.
    fn heard(&mut self) -> Vec<(VnetId, Mac, PortId)> {
        Vec::new()
    }

    /// Addresses that its device says it forwards; `None` if it has no device.
    fn offloaded(&self) -> Option<u64> {
        None
    }

    /// Puts right what others changed, and returns how much that was.
    ///
    /// # Errors
    /// [`Refused`].
    fn mend(&mut self) -> Result<u64, Refused>;

    /// Frames that it forwarded, since it was made.
    ///
    /// # Errors
    /// [`Refused`].
    fn forwarded(&self) -> Result<u64, Refused>;
}
