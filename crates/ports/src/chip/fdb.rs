//! Entries of the kernel's forwarding databases: of a bridge, and of a VXLAN device.
//!
//! An address behind a tunnel has two: the bridge leads it to the VXLAN device, and that to a VTEP.
//! All are marked as learned elsewhere (`extern_learn`), so that the kernel neither ages nor
//! overwrites them, and so that a device that offloads a bridge takes them over.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sluice_base::Mac;

use crate::netlink::Netlink;

/// Flags of a write: it is made, or takes the place of another one.
const WRITE: u16 = NLM_F_CREATE | NLM_F_REPLACE;
/// Entries of all bridges that one answer may have.
const ROWS_MAX: usize = 4 << 20;
/// Unit of an entry's times (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) mac: Mac,
    /// The port of the bridge, or the VXLAN device.
    pub(super) device: u32,
    /// The VTEP: an entry of the VXLAN device; `None`: of the bridge.
    pub(super) vtep: Option<Ipv4Addr>,
}

impl Row {
    fn message(self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = self.device;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(self.mac.0.to_vec())];
        match self.vtep {
            None => {
                message.header.flags = NeighbourFlags::Controller | NeighbourFlags::ExtLearned;
                message.header.state = NeighbourState::Reachable;
            }
            Some(vtep) => {
                message.header.flags = NeighbourFlags::Own | NeighbourFlags::ExtLearned;
                message.header.state = NeighbourState::Permanent;
                let to = NeighbourAddress::Inet(vtep);
                message.attributes.push(NeighbourAttribute::Destination(to));
            }
        }
        message
    }

    /// Writes it, in the place of another one of its address.
    pub(super) fn write(self, netlink: &mut Netlink) -> io::Result<()> {
        netlink.ask(RouteNetlinkMessage::NewNeighbour(self.message()), WRITE).map(drop)
    }

    /// Writes rows in their order. Returns those that failed, by number.
    pub(super) fn write_all(
        rows: &[Self],
        netlink: &mut Netlink,
    ) -> io::Result<Vec<(usize, io::Error)>> {
        let request = |row: &Self| RouteNetlinkMessage::NewNeighbour(row.message());
        netlink.tell(rows.iter().map(request).collect(), WRITE)
    }

    /// Removes it; no error if it is gone, or its device is.
    pub(super) fn remove(self, netlink: &mut Netlink) -> io::Result<()> {
        match netlink.ask(RouteNetlinkMessage::DelNeighbour(self.message()), 0) {
            Err(error) if is_gone(&error) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Reads an entry that was marked as learned elsewhere, with what it is.
    pub(super) fn read(message: &NeighbourMessage) -> Option<Self> {
        let header = &message.header;
        if header.family != AddressFamily::Bridge {
            return None;
        }
        let (mut mac, mut vtep, mut is_of_bridge) = (None, None, false);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = bytes.first_chunk().copied().map(Mac);
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => vtep = Some(*ip),
                // The family of the message says nothing about that of the address.
                NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
                    vtep = bytes.first_chunk::<4>().copied().map(Ipv4Addr::from);
                }
                NeighbourAttribute::Controller(_) => is_of_bridge = true,
                _ => {}
            }
        }
        let vtep = vtep.filter(|_| !is_of_bridge);
        let is_ours = is_of_bridge || vtep.is_some();
        mac.filter(|_| is_ours).map(|mac| Self { mac, device: header.ifindex, vtep })
    }
}

/// An entry that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) row: Row,
    /// True if it is marked as learned elsewhere.
    pub(super) is_marked: bool,
    /// True if it is marked so, and not as permanent or static: a device may have learned it.
    pub(super) is_learned: bool,
    /// True if a device has taken it over.
    pub(super) is_offloaded: bool,
    /// Time since it was written, or its device saw a frame from the address.
    pub(super) age: Duration,
}

impl Found {
    pub(super) fn read(message: &NeighbourMessage) -> Option<Self> {
        let is_marked = message.header.flags.contains(NeighbourFlags::ExtLearned);
        let is_static =
            matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
        let age = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::CacheInfo(info) => Some(TICK * info.updated),
            _ => None,
        });
        Some(Self {
            row: Row::read(message)?,
            is_marked,
            is_learned: is_marked && !is_static,
            is_offloaded: message.header.flags.contains(NeighbourFlags::Offloaded),
            age: age.unwrap_or(Duration::MAX),
        })
    }
}

/// Returns all entries of bridges and VXLAN devices.
pub(super) fn all(netlink: &mut Netlink) -> io::Result<Vec<Found>> {
    let mut question = NeighbourMessage::default();
    question.header.family = AddressFamily::Bridge;
    let question = RouteNetlinkMessage::GetNeighbour(question);
    let answer = netlink.ask_for(question, NLM_F_DUMP, ROWS_MAX)?;
    let rows = answer.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(message) => Found::read(message),
        _ => None,
    });
    Ok(rows.collect())
}

/// Error numbers of what is not there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}
