//! The next hop of a tunnel, as the kernel knows it.
//!
//! An `l2` underlay writes whole frames and so needs the MAC of the next hop. The kernel keeps the
//! address, the routes and the ARP table; this module reads and follows them. No frame of ours
//! passes the kernel, so it would never resolve by itself and would forget its entries: it gets "in
//! use" for the entry again and again, which makes it resolve and confirm the entry as if there
//! were traffic.
//!
//! ```text
//!   watch ─▶ route? ──none, or over another device──▶ no MAC ◀──── link or route changed
//!              │ next hop = gateway, or the destination          │
//!              ▼                                                 │
//!          neighbour? ──none, incomplete, failed──▶ no MAC: "in use", again each second
//!              │ reachable, stale, delay, probe, permanent
//!              ▼
//!             MAC ─── "in use" every 5 s, so that stale entries are confirmed
//! ```
//!
//! Nothing here waits for the network; each question to the kernel is a round trip of a few
//! microseconds.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sluice_base::{Mac, Nanos};

use crate::device::device;
use crate::error::OpenError;
use crate::netlink::reply::{neighbor_address, neighbor_mac};
use crate::netlink::{Changes, GROUP_IPV4_ROUTE, GROUP_LINK, GROUP_NEIGHBOUR, Netlink};

/// Interval of "in use" for a resolved entry. Well below the 15 s after which an entry may become
/// stale, so that it is confirmed at once.
const CONFIRM_EVERY: Nanos = Nanos::from_millis(5_000);
/// Interval of requests to resolve an entry.
const RESOLVE_EVERY: Nanos = Nanos::from_millis(1_000);

/// Change of a next hop: it became known, or is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The destination that is watched.
    pub destination: Ipv4Addr,
    /// MAC that frames to it must carry; `None` if there is none now.
    pub mac: Option<Mac>,
}

/// State of one destination.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Next hop on our device; `None` if no route goes over it.
    hop: Option<Ipv4Addr>,
    mac: Option<Mac>,
    /// Set by an administrator: the kernel does not resolve it and must not be asked to.
    fixed: bool,
    /// MAC that the caller got last.
    told: Option<Mac>,
}

/// Follows the next hops of a few destinations over one device.
#[derive(Debug)]
pub struct Neighbours {
    /// The device's name when it was opened.
    device: String,
    index: u32,
    questions: Netlink,
    changes: Netlink,
    known: BTreeMap<Ipv4Addr, Known>,
    /// True if routes must be looked up again.
    stale: bool,
    next_use: Nanos,
}

impl Neighbours {
    /// Follows destinations over `device` of this network namespace.
    ///
    /// # Errors
    /// [`OpenError`] if there is no such device or netlink cannot be used.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let failed = |what| OpenError::device(name, what);
        let groups = GROUP_NEIGHBOUR | GROUP_IPV4_ROUTE | GROUP_LINK;
        Ok(Self {
            device: name.to_owned(),
            index: device(name).map_err(failed("look it up"))?.index,
            questions: Netlink::open().map_err(failed("open netlink for it"))?,
            changes: Netlink::subscribe(groups).map_err(failed("follow its neighbours"))?,
            known: BTreeMap::new(),
            stale: false,
            next_use: Nanos::ZERO,
        })
    }

    /// Adds a destination. Its next hop comes out of [`Self::poll`].
    pub fn watch(&mut self, destination: Ipv4Addr) {
        self.known.entry(destination).or_default();
        self.stale = true;
        self.next_use = Nanos::ZERO;
    }

    /// The descriptor that is readable when the kernel has changes.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.changes.fd()
    }

    /// Reads the kernel's changes, sends "in use" if that is due at `now`, and returns the
    /// differences since the last call.
    ///
    /// # Errors
    /// If netlink cannot be used any more.
    pub fn poll(&mut self, now: Nanos) -> io::Result<Vec<NextHop>> {
        loop {
            match self.changes.changes()? {
                Changes::Some(messages) => messages.iter().for_each(|one| self.take_in(one)),
                Changes::Overrun => self.stale = true,
                Changes::None => break,
            }
        }
        if std::mem::take(&mut self.stale) {
            self.look_at_everything()?;
        }
        if now >= self.next_use {
            self.tell_in_use()?;
            let resolved = self.known.values().all(|known| known.mac.is_some());
            self.next_use = now.after(if resolved { CONFIRM_EVERY } else { RESOLVE_EVERY });
        }
        let mut news = Vec::new();
        for (&destination, known) in &mut self.known {
            if known.told != known.mac {
                known.told = known.mac;
                news.push(NextHop { destination, mac: known.mac });
            }
        }
        Ok(news)
    }

    /// Latest time of the next [`Self::poll`].
    #[must_use]
    pub fn deadline(&self) -> Nanos {
        if self.known.is_empty() { Nanos::MAX } else { self.next_use }
    }

    /// Applies one change from the kernel.
    fn take_in(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewNeighbour(neighbour) => self.set(neighbour, true),
            RouteNetlinkMessage::DelNeighbour(neighbour) => self.set(neighbour, false),
            // A link that goes down takes its routes with it, without a message about them.
            RouteNetlinkMessage::NewRoute(_)
            | RouteNetlinkMessage::DelRoute(_)
            | RouteNetlinkMessage::NewLink(_)
            | RouteNetlinkMessage::DelLink(_) => self.stale = true,
            _ => {}
        }
    }

    /// Sets the MAC of every destination behind a neighbour.
    fn set(&mut self, neighbour: &NeighbourMessage, there: bool) {
        if neighbour.header.ifindex != self.index {
            return;
        }
        let Some(address) = neighbor_address(neighbour) else { return };
        let mac = if there { neighbor_mac(neighbour) } else { None };
        let fixed = there && is_fixed(&neighbour.header.state);
        for known in self.known.values_mut().filter(|known| known.hop == Some(address)) {
            if known.mac.is_some() && mac.is_none() {
                self.next_use = Nanos::ZERO; // Resolve it again at once.
            }
            (known.mac, known.fixed) = (mac, fixed);
        }
    }

    /// Asks for the routes and neighbours of all destinations.
    fn look_at_everything(&mut self) -> io::Result<()> {
        // A device that went away and came back has another index.
        if self.questions.link(self.index)?.is_none()
            && let Ok(found) = device(&self.device)
        {
            self.index = found.index;
        }
        let destinations: Vec<Ipv4Addr> = self.known.keys().copied().collect();
        for destination in destinations {
            let hop = self.route(destination)?;
            let neighbour = match hop {
                Some(hop) => self.neighbour(hop)?,
                None => None,
            };
            let known = self.known.entry(destination).or_default();
            known.hop = hop;
            known.mac = neighbour.as_ref().and_then(neighbor_mac);
            known.fixed = neighbour.is_some_and(|one| is_fixed(&one.header.state));
        }
        self.next_use = Nanos::ZERO;
        Ok(())
    }

    /// The next hop to `destination`, if it is over our device.
    fn route(&mut self, destination: Ipv4Addr) -> io::Result<Option<Ipv4Addr>> {
        let mut question = RouteMessage::default();
        question.header.address_family = AddressFamily::Inet;
        question.header.destination_prefix_length = 32;
        let to = RouteAddress::Inet(destination);
        question.attributes.push(RouteAttribute::Destination(to));
        let answer =
            none_if_absent(self.questions.ask(RouteNetlinkMessage::GetRoute(question), 0))?;
        for message in answer {
            let RouteNetlinkMessage::NewRoute(route) = message else { continue };
            if route.header.kind != RouteType::Unicast {
                return Ok(None);
            }
            let mut hop = Some(destination);
            let mut device = None;
            for attribute in route.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => device = Some(index),
                    RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => hop = Some(gateway),
                    RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => hop = None,
                    _ => {}
                }
            }
            return Ok(hop.filter(|_| device == Some(self.index)));
        }
        Ok(None)
    }

    /// The kernel's entry of a neighbour.
    fn neighbour(&mut self, hop: Ipv4Addr) -> io::Result<Option<NeighbourMessage>> {
        let question = RouteNetlinkMessage::GetNeighbour(self.message(hop));
        let answer = none_if_absent(self.questions.ask(question, 0))?;
        Ok(answer.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewNeighbour(neighbour) => Some(neighbour),
            _ => None,
        }))
    }

    /// Tells the kernel that all next hops are in use.
    fn tell_in_use(&mut self) -> io::Result<()> {
        let mut hops: Vec<Ipv4Addr> = self
            .known
            .values()
            .filter(|known| !known.fixed)
            .filter_map(|known| known.hop)
            .collect();
        hops.sort_unstable();
        hops.dedup();
        for hop in hops {
            let mut message = self.message(hop);
            message.header.flags = NeighbourFlags::Use;
            let message = RouteNetlinkMessage::NewNeighbour(message);
            none_if_absent(self.questions.ask(message, NLM_F_CREATE | NLM_F_REPLACE))?;
        }
        Ok(())
    }

    fn message(&self, hop: Ipv4Addr) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = self.index;
        let to = NeighbourAddress::Inet(hop);
        message.attributes.push(NeighbourAttribute::Destination(to));
        message
    }
}

/// Turns the errors "there is none" and "not now" into an empty answer: a missing entry, an
/// unreachable network, a device that is down or gone.
fn none_if_absent(
    answer: io::Result<Vec<RouteNetlinkMessage>>,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    match answer {
        Err(error) => match error.raw_os_error() {
            Some(
                libc::ENOENT
                | libc::ESRCH
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::ENODEV
                | libc::EINVAL
                | libc::ENOBUFS,
            ) => Ok(Vec::new()),
            _ => Err(error),
        },
        answer => answer,
    }
}

fn is_fixed(state: &NeighbourState) -> bool {
    matches!(state, NeighbourState::Permanent | NeighbourState::Noarp)
}

#[cfg(test)]
mod tests;
