//! State of a device, followed by netlink: its attributes, its departure, and its return.
//!
//! ```text
//!            RTM_NEWLINK: address, MTU, flags, name
//!              ┌──────┐
//!              ▼      │   RTM_DELLINK: deleted, or moved to another namespace
//!            THERE ───┴──────────────────────────────▶ GONE
//!              ▲            one of its name came        │
//!              └────────────────────────────────────────┘
//! ```
//!
//! A device is identified by its index as long as it is there, under any name, and by its name when
//! it comes back. A message of its departure is trusted; any other state is queried anew.

use std::io;
use std::os::fd::BorrowedFd;

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sluice_base::Mac;

use crate::device::device;
use crate::error::OpenError;
use crate::netlink::{Changes, GROUP_LINK, Netlink};

/// State of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNow {
    /// Its index.
    pub index: u32,
    /// Number of times it has come since it is followed: sockets bound to it end when it goes away,
    /// also if it comes back with the same index.
    pub times: u32,
    /// Its name.
    pub name: String,
    /// Its address.
    pub mac: Mac,
    /// Its layer-3 MTU.
    pub mtu: u32,
    /// True if it is set up.
    pub up: bool,
    /// True if it has a carrier.
    pub carrier: bool,
}

impl LinkNow {
    /// Reads a message; `None` if an attribute is missing.
    pub(crate) fn of(message: &LinkMessage) -> Option<Self> {
        let (mut name, mut mac, mut mtu) = (None, None, None);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text.clone()),
                LinkAttribute::Mtu(size) => mtu = Some(*size),
                LinkAttribute::Address(bytes) => mac = bytes.first_chunk().copied().map(Mac),
                _ => {}
            }
        }
        let flags = message.header.flags;
        Some(Self {
            index: message.header.index,
            times: 0,
            name: name?,
            mac: mac?,
            mtu: mtu?,
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
        })
    }
}

/// Presence of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// It is here.
    There(LinkNow),
    /// It was deleted.
    Deleted,
    /// It was moved to another network namespace.
    Moved,
}

/// Follows one device.
#[derive(Debug)]
pub struct Link {
    name: String,
    /// Its index, while it is there.
    index: Option<u32>,
    times: u32,
    /// True if it went to another namespace when it was seen last.
    moved: bool,
    questions: Netlink,
    changes: Netlink,
    stale: bool,
    /// True if a message was lost.
    overrun: bool,
    told: Option<LinkState>,
}

impl Link {
    /// Follows a device of this network namespace.
    ///
    /// # Errors
    /// [`OpenError`] if there is no such device or netlink cannot be used.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let failed = |what| OpenError::device(name, what);
        // Before the first query, so that no change is missed between.
        let changes = Netlink::subscribe(GROUP_LINK).map_err(failed("follow it"))?;
        Ok(Self {
            name: name.to_owned(),
            index: Some(device(name).map_err(failed("look it up"))?.index),
            times: 0,
            moved: false,
            questions: Netlink::open().map_err(failed("open netlink for it"))?,
            changes,
            stale: true,
            overrun: false,
            told: None,
        })
    }

    /// The descriptor that is readable when the kernel has changes.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.changes.fd()
    }

    /// Reads the kernel's changes; returns the state of the device, if it differs from that of the
    /// last call.
    ///
    /// # Errors
    /// If netlink cannot be used any more.
    pub fn poll(&mut self) -> io::Result<Option<LinkState>> {
        loop {
            match self.changes.changes()? {
                Changes::Some(messages) => messages.iter().for_each(|one| self.take_in(one)),
                Changes::Overrun => (self.stale, self.overrun) = (true, true),
                Changes::None => break,
            }
        }
        if !std::mem::take(&mut self.stale) {
            return Ok(None);
        }
        let Some(state) = self.look()? else { return Ok(None) };
        self.overrun = false;
        if self.told.as_ref() == Some(&state) {
            return Ok(None);
        }
        self.told = Some(state.clone());
        Ok(Some(state))
    }

    fn take_in(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => {
                let back = self.index.is_none() && name_of(link) == Some(&self.name);
                self.stale |= back || self.index == Some(link.header.index);
            }
            // A bridge announces a port that leaves it by the same message as a deleted device.
            RouteNetlinkMessage::DelLink(link)
                if self.index == Some(link.header.index)
                    && link.header.interface_family != AddressFamily::Bridge =>
            {
                let to_another = |attribute: &LinkAttribute| {
                    matches!(attribute, LinkAttribute::NewNetnsId(_) | LinkAttribute::NewIfIndex(_))
                };
                self.moved = link.attributes.iter().any(to_another);
                self.index = None;
                self.stale = true;
            }
            _ => {}
        }
    }

    /// Queries the device; `None` if it is gone, and the message with the reason is still to come.
    fn look(&mut self) -> io::Result<Option<LinkState>> {
        if let Some(index) = self.index {
            if let Some(now) = self.questions.link(index)? {
                return Ok(Some(LinkState::There(LinkNow { times: self.times, ..now })));
            }
            if !self.overrun {
                return Ok(None);
            }
            self.index = None;
        }
        let found = match device(&self.name) {
            Ok(found) => self.questions.link(found.index)?,
            Err(_) => None,
        };
        let Some(now) = found else {
            let gone = if self.moved { LinkState::Moved } else { LinkState::Deleted };
            return Ok(Some(gone));
        };
        (self.index, self.moved) = (Some(now.index), false);
        self.times += 1;
        Ok(Some(LinkState::There(LinkNow { times: self.times, ..now })))
    }
}

fn name_of(link: &LinkMessage) -> Option<&String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    })
}
