//! Questions in the name of a sender.
//!
//! An endpoint with a static neighbour entry never asks, and one that was silent since it came was
//! never learned. When such a pair is to talk, the receiver would never be found. A frame that
//! misses names both by their IP addresses, and this is enough to ask for the receiver as the
//! sender would have: the receiver is learned from its answer.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use sluice_base::Mac;
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv4, ipv6, vlan};

use crate::frame::Frame;
use crate::learn::{is_unicast_v4, is_unicast_v6};
use crate::resolve::{advertise, emit_message};

/// Size of the smallest frame in bytes, without frame check sequence (IEEE 802.3 clause 4A.4.2).
const FRAME_SIZE_MIN: usize = 60;

/// Source of this host's questions to its own endpoints: a locally administered address (IEEE 802
/// clause 8.4) that no endpoint has. Every host has the same, and no frame to it leaves its host.
pub(super) const MAC: Mac = Mac([0x02, 0x53, 0x6c, 0x75, 0x69, 0x63]);

/// Returns the question to the endpoint `mac` for `ip`, sent to it only. ARP asks as a probe does,
/// which leaves no trace in its caches. Neighbor Discovery asks as for reachability (RFC 4861
/// clause 7.3.3), because a probe would be taken for another endpoint that wants the address.
pub(super) fn to_endpoint(mac: Mac, ip: core::net::IpAddr) -> Vec<u8> {
    use core::net::IpAddr;
    let (ethertype, payload) = match ip {
        IpAddr::V4(ip) => {
            let mut bytes = vec![0; arp::SIZE];
            arp::Repr::probe(MAC, ip).emit(&mut bytes);
            (EtherType::ARP, bytes)
        }
        IpAddr::V6(ip) => (EtherType::IPV6, solicitation(ipv6::link_local(MAC), ip, ip, MAC)),
    };
    frame_of(ethernet::Repr { dst: mac, src: MAC, ethertype }, &[], &payload)
}

/// Returns the announcement of `ip` by the endpoint `mac` to all: an ARP announcement (RFC 5227
/// section 2.3), or an unsolicited advertisement that overrides (RFC 4861 clause 7.2.6).
pub(super) fn announcement(mac: Mac, ip: core::net::IpAddr) -> Vec<u8> {
    use core::net::IpAddr;
    let (dst, ethertype, payload) = match ip {
        IpAddr::V4(ip) => {
            let mut bytes = vec![0; arp::SIZE];
            arp::Repr::announcement(mac, ip).emit(&mut bytes);
            (Mac::BROADCAST, EtherType::ARP, bytes)
        }
        IpAddr::V6(ip) => {
            let mut bytes = vec![0; ipv6::HEADER_SIZE + icmpv6::SIZE_MAX];
            let group = advertise(Ipv6Addr::UNSPECIFIED, ip, mac, &mut bytes);
            (ipv6::group_mac(group), EtherType::IPV6, bytes)
        }
    };
    frame_of(ethernet::Repr { dst, src: mac, ethertype }, &[], &payload)
}

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// Returns the question for the receiver of the frame that begins with `head` and is parsed as
/// `frame`; `None` if its packet does not name the receiver.
pub(super) fn question(head: &[u8], frame: &Frame<'_>) -> Option<Vec<u8>> {
    let pair = pair_of(head, frame)?;
    let (dst, ethertype, payload) = match pair {
        Pair::V4(src, target) => {
            let mut bytes = vec![0; arp::SIZE];
            arp::Repr { sender_ip: src, ..arp::Repr::probe(frame.src, target) }.emit(&mut bytes);
            (Mac::BROADCAST, EtherType::ARP, bytes)
        }
        Pair::V6(src, target) => {
            let group = icmpv6::solicited_node(target);
            let bytes = solicitation(src, target, group, frame.src);
            (ipv6::group_mac(group), EtherType::IPV6, bytes)
        }
    };
    Some(frame_of(ethernet::Repr { dst, src: frame.src, ethertype }, frame.tags, &payload))
}

/// Returns a frame with these tags, padded to the smallest one.
fn frame_of(header: ethernet::Repr, tags: &[u8], payload: &[u8]) -> Vec<u8> {
    let start = ethernet::HEADER_SIZE + tags.len();
    let mut out = vec![0; (start + payload.len()).max(FRAME_SIZE_MIN)];
    header.emit(&mut out);
    // The type goes behind the tags.
    let type_start = ethernet::HEADER_SIZE - size_of::<EtherType>();
    out.copy_within(type_start..ethernet::HEADER_SIZE, type_start + tags.len());
    out[type_start..type_start + tags.len()].copy_from_slice(tags);
    out[start..start + payload.len()].copy_from_slice(payload);
    out
}

fn solicitation(src: Ipv6Addr, target: Ipv6Addr, group: Ipv6Addr, mac: Mac) -> Vec<u8> {
    let message = icmpv6::Repr::Solicitation { target, source_mac: Some(mac) };
    let mut bytes = vec![0; ipv6::HEADER_SIZE + message.size()];
    emit_message(src, group, message, &mut bytes);
    bytes
}

fn pair_of(head: &[u8], frame: &Frame<'_>) -> Option<Pair> {
    if let crate::frame::Body::Arp(arp) = frame.body {
        // An answer to an unknown endpoint.
        return v4(arp.sender_ip, arp.target_ip);
    }
    let type_start = ethernet::HEADER_SIZE - size_of::<EtherType>() + frame.tags.len();
    let ethertype = u16::from_be_bytes(*head.get(type_start..)?.first_chunk()?);
    debug_assert!(frame.tags.len().is_multiple_of(vlan::TAG_SIZE));
    let payload = &head[type_start + size_of::<EtherType>()..];
    match EtherType(ethertype) {
        EtherType::IPV4 => {
            let packet = ipv4::Packet::new_checked(payload).ok()?;
            v4(packet.src(), packet.dst())
        }
        EtherType::IPV6 => {
            let packet = ipv6::Packet::new_checked(payload).ok()?;
            let (src, dst) = (packet.src(), packet.dst());
            (is_unicast_v6(src) && is_unicast_v6(dst)).then_some(Pair::V6(src, dst))
        }
        _ => None,
    }
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr) -> Option<Pair> {
    (is_unicast_v4(src) && is_unicast_v4(dst)).then_some(Pair::V4(src, dst))
}
