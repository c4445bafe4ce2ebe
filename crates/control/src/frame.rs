//! The parsed head of a punted frame, read once for learning and resolution.
//!
//! A punt carries the first bytes of a frame. The control plane reads the addresses, the tags and,
//! if there is one, the message of ARP (RFC 826) or Neighbor Discovery (RFC 4861). A message behind
//! an IPv6 extension header is not looked for; such a frame is [`Body::Other`].

use core::net::{IpAddr, Ipv6Addr};

use sluice_base::Mac;
use sluice_wire::{EtherType, Truncated, arp, ethernet, icmpv6, ipv6, vlan};

/// Largest number of tags that are parsed: an outer and an inner one (IEEE 802.1Q clause 9.5).
pub const TAGS_MAX: usize = 2;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A request or reply of ARP.
    Arp(arp::Repr),
    /// A message of IPv6 neighbours, with its addresses.
    Neighbor {
        /// The IPv6 source.
        src: Ipv6Addr,
        /// The IPv6 destination.
        dst: Ipv6Addr,
        /// The message.
        message: icmpv6::Repr,
    },
    /// The frame claims to be one of the two protocols and breaks their rules.
    Malformed,
    /// Any other content.
    Other,
}

/// A frame as it was punted.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The destination address.
    pub dst: Mac,
    /// The source address.
    pub src: Mac,
    /// The tags, four bytes each, from the type of the first on; empty without tags.
    pub tags: &'a [u8],
    /// Its content.
    pub body: Body,
}

impl<'a> Frame<'a> {
    /// Reads the start of a frame from its destination address on.
    ///
    /// # Errors
    /// [`Truncated`] if the addresses, the tags and the type are not complete.
    #[inline]
    pub fn parse(head: &'a [u8]) -> Result<Self, Truncated> {
        let frame = ethernet::Frame::new_checked(head)?;
        let (mut ethertype, mut payload, mut tags) = (frame.ethertype(), frame.payload(), 0);
        while ethertype.is_tag() && tags < TAGS_MAX {
            let tag = vlan::Tag::new_checked(payload)?;
            (ethertype, payload, tags) = (tag.ethertype(), tag.payload(), tags + 1);
        }
        let tags_start = ethernet::HEADER_SIZE - size_of::<EtherType>();
        let tags = &head[tags_start..tags_start + tags * vlan::TAG_SIZE];
        let body = match ethertype {
            EtherType::ARP => read_arp(payload),
            EtherType::IPV6 => read_ipv6(payload),
            _ => Body::Other,
        };
        Ok(Self { dst: frame.dst(), src: frame.src(), tags, body })
    }

    /// Returns the target address, if the frame is a question of neighbours.
    #[inline]
    #[must_use]
    pub fn asks_for(&self) -> Option<IpAddr> {
        match self.body {
            Body::Arp(arp) if arp.operation == arp::Operation::REQUEST && !arp.is_gratuitous() => {
                Some(arp.target_ip.into())
            }
            Body::Neighbor { message: icmpv6::Repr::Solicitation { target, .. }, .. } => {
                Some(target.into())
            }
            _ => None,
        }
    }
}

fn read_arp(payload: &[u8]) -> Body {
    let packet = arp::Packet::new_checked(payload).ok();
    packet.and_then(|packet| arp::Repr::parse(&packet)).map_or(Body::Malformed, Body::Arp)
}

fn read_ipv6(payload: &[u8]) -> Body {
    let Ok(packet) = ipv6::Packet::new_checked(payload) else { return Body::Other };
    let kind = icmpv6::Kind::of(packet.payload());
    if packet.next_header() != icmpv6::PROTOCOL || !kind.is_some_and(icmpv6::Kind::is_neighbor) {
        return Body::Other;
    }
    let (src, dst) = (packet.src(), packet.dst());
    let message = icmpv6::Repr::receive(&packet);
    message.map_or(Body::Malformed, |message| Body::Neighbor { src, dst, message })
}

#[cfg(test)]
pub(crate) mod tests;
