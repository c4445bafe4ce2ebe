//! Addresses that ARP and Neighbor Discovery claim for their sender.

use core::net::{IpAddr, Ipv6Addr};

use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv6};

use crate::switch::punt::behind_tag;

pub(super) const NO_ADDRESSES: [Option<IpAddr>; 2] = [None; 2];

/// Returns the addresses that an ARP or ND frame claims for its sender.
#[inline]
pub(super) fn claimed(head: &[u8]) -> [Option<IpAddr>; 2] {
    let Some(&[high, low]) = head.get(12..14) else { return NO_ADDRESSES };
    match EtherType(u16::from_be_bytes([high, low])) {
        EtherType::ARP | EtherType::IPV6 => claimed_by(head),
        ethertype if ethertype.is_tag() => claimed_by(head),
        _ => NO_ADDRESSES,
    }
}

fn claimed_by(head: &[u8]) -> [Option<IpAddr>; 2] {
    let frame = ethernet::Frame::new_checked(head).ok();
    match frame.as_ref().and_then(behind_tag) {
        Some((EtherType::ARP, payload)) => {
            let arp = arp::Packet::new_checked(payload).ok();
            [arp.map(|arp| arp.sender_ip().into()), None]
        }
        Some((EtherType::IPV6, payload)) => {
            let Ok(ip) = ipv6::Packet::new_checked(payload) else { return NO_ADDRESSES };
            let message = ip.payload();
            let kind = icmpv6::Kind::of(message).filter(|_| ip.next_header() == icmpv6::PROTOCOL);
            if !kind.is_some_and(crate::switch::punt::is_discovery) {
                return NO_ADDRESSES;
            }
            let target = message
                .get(8..icmpv6::HEADER_SIZE)
                .filter(|_| kind == Some(icmpv6::Kind::NEIGHBOR_ADVERTISEMENT));
            let target = target.and_then(|target| <[u8; 16]>::try_from(target).ok());
            [Some(ip.src().into()), target.map(|target| Ipv6Addr::from(target).into())]
        }
        _ => NO_ADDRESSES,
    }
}
