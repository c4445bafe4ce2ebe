//! Frames made by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_base::{Mac, PriorityMask};
use sluice_switch::Egress;
use sluice_wire::mac_control::Message;
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv4, ipv6, udp, vlan, vxlan};

use super::{KEPT, TestBuf};

/// A tenant's IPv4/UDP frame.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    pub dst: Mac,
    pub src: Mac,
    pub dscp: u8,
    pub ecn: u8,
    /// The priority of an 802.1Q tag with VID 0, if it has one.
    pub pcp: Option<u8>,
    pub src_port: u16,
    /// The size of the whole frame.
    pub size: u32,
}

impl Tenant {
    pub fn new(dst: Mac, src: Mac, dscp: u8, size: u32) -> Self {
        Self { dst, src, dscp, ecn: 0, pcp: None, src_port: 1000, size }
    }

    /// The smallest size that holds its headers.
    pub const SIZE_MIN: u32 = 50;

    pub fn bytes(&self) -> Vec<u8> {
        assert!(self.size >= Self::SIZE_MIN);
        let mut out = vec![0; self.size as usize];
        let mut at = 14;
        let mut ethertype = EtherType::IPV4;
        if let Some(pcp) = self.pcp {
            let tag = vlan::Repr {
                priority: sluice_base::Priority::from_low_bits(pcp),
                drop_eligible: false,
                vid: 0,
                ethertype,
            };
            tag.emit(&mut out[14..]);
            ethertype = EtherType::VLAN;
            at = 18;
        }
        ethernet::Repr { dst: self.dst, src: self.src, ethertype }.emit(&mut out);
        let rest = u16::try_from(self.size as usize - at - 28).unwrap();
        ipv4::Repr {
            src: Ipv4Addr::new(192, 168, 0, 1),
            dst: Ipv4Addr::new(192, 168, 0, 2),
            protocol: ipv4::PROTOCOL_UDP,
            dscp: self.dscp,
            ecn: self.ecn,
            ttl: 64,
            ident: 7,
            dont_fragment: false,
            payload_size: rest + 8,
        }
        .emit(&mut out[at..]);
        udp::Repr { src_port: self.src_port, dst_port: 9, payload_size: rest }
            .emit(&mut out[at + 20..]);
        out
    }
}

/// Returns ARP from `src`, which claims `ip`: a request to a group, a reply to one address.
pub fn arp(dst: Mac, src: Mac, ip: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0; 60];
    ethernet::Repr { dst, src, ethertype: EtherType::ARP }.emit(&mut out);
    let answers = !dst.is_group();
    arp::Repr {
        operation: if answers { arp::Operation::REPLY } else { arp::Operation::REQUEST },
        sender_mac: src,
        sender_ip: ip,
        target_mac: if answers { dst } else { Mac::default() },
        target_ip: Ipv4Addr::new(192, 168, 0, 9),
    }
    .emit(&mut out[14..]);
    out
}

/// Returns a message of Neighbor Discovery: a solicitation to a group, an advertisement to one
/// address, for `target`.
pub fn neighbor(dst: Mac, src: Mac, ip: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut out = vec![0; 86];
    ethernet::Repr { dst, src, ethertype: EtherType::IPV6 }.emit(&mut out);
    out[14] = 0x60;
    out[19] = 32;
    out[20] = icmpv6::PROTOCOL;
    out[21] = icmpv6::HOP_LIMIT;
    out[22..38].copy_from_slice(&ip.octets());
    out[38..54].copy_from_slice(&icmpv6::ALL_NODES.octets());
    let message = &mut out[14 + ipv6::HEADER_SIZE..];
    message[0] = if dst.is_group() { 135 } else { 136 };
    message[8..24].copy_from_slice(&target.octets());
    out
}

/// Puts a priority tag into a frame.
pub fn tagged(bytes: &[u8], kind: EtherType) -> Vec<u8> {
    let mut out = bytes[..12].to_vec();
    out.extend(kind.0.to_be_bytes());
    out.extend([0, 0]);
    out.extend(&bytes[12..]);
    out
}

/// The outer headers of a tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    pub dst: Mac,
    pub remote: Ipv4Addr,
    pub local: Ipv4Addr,
    pub vni: u32,
    pub dscp: u8,
    pub ecn: u8,
    /// The priority of an outer tag, if it has one.
    pub pcp: Option<u8>,
}

/// Returns a tenant's frame in VXLAN.
pub fn in_vxlan(outer: &Outer, inner: &[u8]) -> Vec<u8> {
    let mut head = vec![0; 14];
    let mut ethertype = EtherType::IPV4;
    if let Some(pcp) = outer.pcp {
        head.extend([pcp << 5, 0, 0x08, 0x00]);
        ethertype = EtherType::VLAN;
    }
    let src = Mac([2, 9, 9, 9, 9, 9]);
    ethernet::Repr { dst: outer.dst, src, ethertype }.emit(&mut head);
    let at = head.len();
    head.resize(at + 36, 0);
    let udp_payload = u16::try_from(inner.len() + 8).unwrap();
    ipv4::Repr {
        src: outer.remote,
        dst: outer.local,
        protocol: ipv4::PROTOCOL_UDP,
        dscp: outer.dscp,
        ecn: outer.ecn,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: udp_payload + 8,
    }
    .emit(&mut head[at..]);
    udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_size: udp_payload }
        .emit(&mut head[at + 20..]);
    vxlan::Repr { vni: sluice_base::Vni::new(outer.vni).unwrap() }.emit(&mut head[at + 28..]);
    head.extend(inner);
    head
}

/// Returns a PFC frame.
pub fn pfc(enabled: u8, quanta: [u16; 8]) -> Vec<u8> {
    let mut out = [0; sluice_wire::mac_control::FRAME_SIZE];
    Message::Pfc { enabled: PriorityMask(enabled), quanta }.emit(Mac([2, 8, 8, 8, 8, 8]), &mut out);
    out.to_vec()
}

/// Returns a PAUSE frame of 802.3.
pub fn pause(quanta: u16) -> Vec<u8> {
    let mut out = [0; sluice_wire::mac_control::FRAME_SIZE];
    Message::Pause { quanta }.emit(Mac([2, 8, 8, 8, 8, 8]), &mut out);
    out.to_vec()
}

/// Returns the bytes that a driver puts on the wire, as far as a [`TestBuf`] keeps them.
pub fn on_wire(egress: &Egress<'_, TestBuf>) -> Vec<u8> {
    let mut out = egress.header.to_vec();
    if let Some(buf) = egress.buf {
        out.extend(&buf.bytes[usize::from(egress.strip)..]);
    }
    out.resize(KEPT.min(egress.size as usize), 0);
    out
}
