//! Parser of the kernel's netlink datagrams (netlink(7)). Nothing here sends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::Stats64;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteType};
use netlink_packet_route::stats::StatsAttribute;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcStats2};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sluice_base::Mac;

use crate::link::LinkNow;

/// Alignment of messages (netlink(7)).
const ALIGN: usize = 4;
/// Size of a message header.
const HEADER_SIZE: usize = 16;

/// Appends one datagram of the answer to the question of this number to `answer`. Returns `None` if
/// more datagrams follow.
pub fn read(
    datagram: &[u8],
    sequence: u32,
    answer: &mut Vec<RouteNetlinkMessage>,
) -> Option<io::Result<()>> {
    for message in Messages(datagram) {
        if message.header.sequence_number != sequence {
            continue; // Left over from a question that timed out.
        }
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => answer.push(inner),
            NetlinkPayload::Done(_) => return Some(Ok(())),
            NetlinkPayload::Error(error) => {
                return Some(error.code.map_or(Ok(()), |code| Err(error_of(code.get()))));
            }
            _ => {}
        }
    }
    None
}

/// The acknowledgements and errors in a datagram, by the numbers of their requests.
pub fn results(datagram: &[u8]) -> impl Iterator<Item = (u32, io::Result<()>)> + '_ {
    Messages(datagram).filter_map(|message| match message.payload {
        NetlinkPayload::Error(error) => {
            let result = error.code.map_or(Ok(()), |code| Err(error_of(code.get())));
            Some((message.header.sequence_number, result))
        }
        _ => None,
    })
}

/// Converts a negative error number. A number without a positive one becomes an unknown error.
fn error_of(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code.checked_abs().unwrap_or(i32::MAX))
}

/// The changes in a datagram.
#[must_use]
pub fn changes(datagram: &[u8]) -> Vec<RouteNetlinkMessage> {
    let inner = |message: NetlinkMessage<_>| match message.payload {
        NetlinkPayload::InnerMessage(inner) => Some(inner),
        _ => None,
    };
    Messages(datagram).filter_map(inner).collect()
}

/// The first device in an answer.
#[must_use]
pub fn link(answer: &[RouteNetlinkMessage]) -> Option<LinkNow> {
    answer.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => LinkNow::of(link),
        _ => None,
    })
}

/// The counters of a device.
#[must_use]
pub fn counters(answer: &[RouteNetlinkMessage]) -> Option<Stats64> {
    answer.iter().find_map(|message| {
        let RouteNetlinkMessage::NewStats(message) = message else { return None };
        message.attributes.iter().find_map(|attribute| match attribute {
            StatsAttribute::Link64(stats) => Some(*stats),
            _ => None,
        })
    })
}

/// Frames that the queueing discipline at the root of this device dropped; 0 if the answer has
/// none.
#[must_use]
pub fn root_drops(answer: &[RouteNetlinkMessage], index: i32) -> u32 {
    let mut drops = 0;
    for message in answer {
        let RouteNetlinkMessage::NewQueueDiscipline(message) = message else { continue };
        if message.header.index != index || message.header.parent != TcHandle::ROOT {
            continue;
        }
        for attribute in &message.attributes {
            let TcAttribute::Stats2(stats) = attribute else { continue };
            for stat in stats {
                if let TcStats2::Queue(queue) = stat {
                    drops = queue.drops;
                }
            }
        }
    }
    drops
}

/// Addresses of a device, with the lengths of their prefixes.
#[must_use]
pub fn addresses(answer: &[RouteNetlinkMessage], index: u32) -> Vec<(IpAddr, u8)> {
    let of_device = answer.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(message) if message.header.index == index => Some(message),
        _ => None,
    });
    let own = of_device.filter_map(|message| {
        let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
            message.attributes.iter().find_map(wanted)
        };
        // At one end of a point-to-point link the other end has the plain address.
        let ip = find(|attribute| match attribute {
            AddressAttribute::Local(ip) => Some(*ip),
            _ => None,
        });
        let ip = ip.or_else(|| {
            find(|attribute| match attribute {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            })
        });
        Some((ip?, message.header.prefix_len))
    });
    own.collect()
}

/// Routes of the main table that lead out by a device: destination, length of its prefix, router.
#[must_use]
pub fn routes(answer: &[RouteNetlinkMessage], index: u32) -> Vec<(IpAddr, u8, Option<IpAddr>)> {
    let unicast = answer.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route)
            if route.header.table == RouteHeader::RT_TABLE_MAIN
                && route.header.kind == RouteType::Unicast =>
        {
            Some(route)
        }
        _ => None,
    });
    let read = unicast.filter_map(|route| {
        let (mut by, mut gateway) = (None, None);
        let mut to: Option<IpAddr> = match route.header.address_family {
            AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
            AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
            _ => None,
        };
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => by = Some(*index),
                RouteAttribute::Destination(address) => to = ip_of(address),
                RouteAttribute::Gateway(address) => gateway = ip_of(address),
                _ => {}
            }
        }
        (by == Some(index)).then_some((to?, route.header.destination_prefix_length, gateway))
    });
    read.collect()
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// Address of an entry of the neighbour table.
#[must_use]
pub fn neighbor_address(neighbour: &NeighbourMessage) -> Option<Ipv4Addr> {
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(*address),
        _ => None,
    })
}

/// MAC of a neighbour entry in a usable state.
#[must_use]
pub fn neighbor_mac(neighbour: &NeighbourMessage) -> Option<Mac> {
    let usable = matches!(
        neighbour.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    );
    neighbour.attributes.iter().filter(|_| usable).find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(Mac),
        _ => None,
    })
}

/// The messages of one datagram. A message that cannot be read is skipped.
struct Messages<'a>(&'a [u8]);

impl Iterator for Messages<'_> {
    type Item = NetlinkMessage<RouteNetlinkMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let size = u32::from_ne_bytes(*self.0.first_chunk()?) as usize;
            if size < HEADER_SIZE || size > self.0.len() {
                return None;
            }
            let (message, _) = self.0.split_at(size);
            self.0 = self.0.get(size.next_multiple_of(ALIGN)..).unwrap_or_default();
            if let Ok(message) = NetlinkMessage::deserialize(message) {
                return Some(message);
            }
            let plain = without_options(message);
            if let Some(Ok(message)) = plain.map(|plain| NetlinkMessage::deserialize(&plain)) {
                return Some(message);
            }
        }
    }
}

/// A message about a queueing discipline without its options (`TCA_OPTIONS`), which are no
/// attributes in some of them: those of `pfifo` are one number.
fn without_options(message: &[u8]) -> Option<Vec<u8>> {
    const RTM_NEWQDISC: u16 = 36;
    const TC_HEADER_SIZE: usize = 20;
    const TCA_OPTIONS: u16 = 2;
    const TCA_PAD: u16 = 9;
    let number = |at: usize| message.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes);
    if number(4)? != RTM_NEWQDISC {
        return None;
    }
    let mut at = HEADER_SIZE + TC_HEADER_SIZE;
    while number(at + 2)? != TCA_OPTIONS {
        at += usize::from(number(at)?.max(1)).next_multiple_of(ALIGN);
    }
    let mut plain = message.to_vec();
    plain[at + 2..at + 4].copy_from_slice(&TCA_PAD.to_ne_bytes());
    Some(plain)
}

#[cfg(test)]
mod tests;
