//! Devices for the VLANs of a trunk.
//!
//! ```text
//!   trunk ── VLAN 20 ──▶ as if received, without the tag ──▶ slv7.14 ─┐
//!         ◀── with the tag ──────────────────── what it sends ◀───────┴─ slb100, the bridge of the
//!                                                                        VLAN's network
//! ```
//!
//! Not every kernel has devices of VLANs, and a bridge may not know VLANs. So each VLAN of a trunk
//! that a chip forwards has a veth end as its port of the bridge, and BPF takes the tag away and
//! puts it on. Frames of other VLANs, and untagged ones, are the switch's.
//!
//! The programs go with the process. So these devices are made anew by the next one: while there
//! is none, frames of a trunk are lost.

use std::io;
use std::os::fd::OwnedFd;

use sluice_base::{PortId, VnetId};

use super::kernel::PortDevice;
use super::links::{self, Manner};
use super::{Chip as _, KernelChip, Place, Refused, programs};
use crate::device::device;
use crate::ebpf::{self, Hook};
use crate::netlink::Netlink;
use crate::veth::requests::{self, End};

/// Beginning of the names of their ends.
pub(super) const PREFIX: &str = "slv";

/// A VLAN of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    /// Index of the trunk.
    pub(super) trunk: u32,
    pub(super) vlan: u16,
}

impl Of {
    /// Returns the name of its port of a bridge. In hexadecimal digits both numbers fit into the 15
    /// bytes of a name.
    pub(super) fn name(self) -> String {
        format!("{PREFIX}{:x}.{:x}", self.trunk, self.vlan)
    }

    /// Name of the other end.
    fn other_name(self) -> String {
        format!("slw{:x}.{:x}", self.trunk, self.vlan)
    }
}

/// The device of a VLAN. Its owner deletes it.
#[derive(Debug)]
pub(super) struct VlanDevice {
    of: Of,
    index: u32,
    _tag: OwnedFd,
}

impl VlanDevice {
    /// Makes the device of a VLAN.
    fn make(netlink: &mut Netlink, host: &str, of: Of, mtu: u16) -> io::Result<Self> {
        let names = [of.name(), of.other_name()];
        for name in &names {
            delete_rest(netlink, host, name)?;
        }
        let ends = [End { name: &names[0], mac: None }, End { name: &names[1], mac: None }];
        requests::add_pair(netlink, ends, mtu)?;
        let made = Self::settle(netlink, host, (of, mtu), &names);
        if made.is_err() {
            delete_rest(netlink, host, &names[0])?;
        }
        made
    }

    fn settle(
        netlink: &mut Netlink,
        host: &str,
        (of, mtu): (Of, u16),
        names: &[String; 2],
    ) -> io::Result<Self> {
        let [index, other] = [device(&names[0])?.index, device(&names[1])?.index];
        netlink.set_alias(index, &links::alias(host))?;
        // Nothing ever comes to the other end: it gives the first one its carrier.
        for index in [index, other] {
            requests::without_own_address(netlink, index)?;
            links::set_mtu_and_up(netlink, index, mtu)?;
        }
        let tag = ebpf::load(&programs::tag(of), "sluice_tag", Hook::Egress)?;
        Ok(Self { of, index, _tag: ebpf::attach(&tag, index, Hook::Egress)? })
    }

    /// Index of the port of a bridge.
    pub(super) const fn index(&self) -> u32 {
        self.index
    }

    pub(super) const fn of(&self) -> Of {
        self.of
    }
}

/// Deletes what is left of a device that was begun, or that an earlier process made.
fn delete_rest(netlink: &mut Netlink, host: &str, name: &str) -> io::Result<()> {
    let found = match device(name) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
        found => found?.index,
    };
    let (_, alias) = netlink.name_and_alias(found)?;
    if alias.is_empty() || alias == links::alias(host) {
        return links::delete_one(netlink, found);
    }
    Err(io::Error::other(format!("device {name} is there, and not this host's: delete it")))
}

impl KernelChip {
    /// Adds a VLAN of a trunk as a port.
    pub(super) fn add_vlan(&mut self, id: PortId, vnet: VnetId, of: Of) -> Result<(), Refused> {
        let (network, devices) = *self.networks.get(&vnet).ok_or(Refused::Unknown)?;
        let made = VlanDevice::make(&mut self.netlink, &self.config.host, of, network.mtu)?;
        let index = made.index();
        let done = links::enslave(&mut self.netlink, index, devices.bridge, Manner::Quiet)
            .and_then(|_| self.maps.add_vlan(of, vnet, index));
        if let Err(error) = done {
            links::delete_one(&mut self.netlink, index)?;
            return Err(error.into());
        }
        self.of_device.insert(index, vnet);
        self.ports.insert(id, PortDevice::of_vlan(vnet, made));
        Ok(())
    }

    /// Makes the device of a VLAN anew if it is not as it was made. Returns true if it was not. The
    /// switch has its frames until it is.
    pub(super) fn mend_vlan(&mut self, id: PortId, of: Of) -> Result<bool, Refused> {
        let Some((index, vnet)) = self.ports.get(&id).map(|port| (port.index, port.vnet)) else {
            return Ok(false);
        };
        let (network, devices) = *self.networks.get(&vnet).ok_or(Refused::Unknown)?;
        if links::is_right(&mut self.netlink, index, devices.bridge, Manner::Quiet)?
            && links::carries(&mut self.netlink, index, network.mtu)?
        {
            return Ok(false);
        }
        self.maps.remove_vlan(of)?;
        let there = self.entries.iter().filter(|(_, entry)| entry.to == Place::Port(id));
        let there: Vec<_> = there.map(|(key, entry)| (*key, *entry)).collect();
        for ((vnet, mac), _) in &there {
            self.maps.remove(*vnet, *mac)?;
        }
        links::delete_one(&mut self.netlink, index)?;
        self.of_device.remove(&index);
        self.add_vlan(id, vnet, of)?;
        for ((vnet, mac), entry) in there {
            self.put(vnet, mac, entry)?;
        }
        Ok(true)
    }
}
