//! Devices for the VLANs of a trunk.
//!
//! ```text
//!   trunk ── VLAN 20 ──▶ as if received, without the tag ──▶ slv7.20 ─┐
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

use super::{links, programs};
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
    /// Returns the name of its port of a bridge.
    pub(super) fn name(self) -> String {
        format!("{PREFIX}{}.{}", self.trunk, self.vlan)
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
    pub(super) fn make(netlink: &mut Netlink, host: &str, of: Of, mtu: u16) -> io::Result<Self> {
        let (name, end) = (of.name(), format!("slw{}.{}", of.trunk, of.vlan));
        let ends = [End { name: &name, mac: None }, End { name: &end, mac: None }];
        requests::add_pair(netlink, ends, mtu)?;
        let made = Self::settle(netlink, host, (of, mtu), [&name, &end]);
        if made.is_err()
            && let Ok(left) = device(&name)
        {
            links::delete_one(netlink, left.index)?;
        }
        made
    }

    fn settle(
        netlink: &mut Netlink,
        host: &str,
        (of, mtu): (Of, u16),
        ends: [&str; 2],
    ) -> io::Result<Self> {
        let [index, other] = [device(ends[0])?.index, device(ends[1])?.index];
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
