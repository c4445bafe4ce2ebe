//! Frames of stations, made without code of the program under test.

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_base::Mac;

use crate::rig::raw::ethernet;

/// EtherType for experiments (IEEE 802).
pub(crate) const EXPERIMENT: u16 = 0x88b5;
const ARP: u16 = 0x0806;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const NOBODY: Mac = Mac([0; 6]);

/// Makes an ARP packet: operation, sender and target.
fn arp(operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    for (mac, ip) in [sender, target] {
        packet.extend(mac.0);
        packet.extend(ip.octets());
    }
    packet
}

/// Makes a broadcast request.
pub(crate) fn request(mac: Mac, ip: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    ethernet(Mac::BROADCAST, mac, ARP, &arp(REQUEST, (mac, ip), (NOBODY, target)))
}

/// Makes a request to one machine, as a kernel with an old entry sends it.
pub(crate) fn unicast_request(to: Mac, mac: Mac, ip: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    ethernet(to, mac, ARP, &arp(REQUEST, (mac, ip), (NOBODY, target)))
}

/// Makes a gratuitous request (RFC 5227 clause 3).
pub(crate) fn announcement(mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    request(mac, ip, ip)
}

/// Makes a gratuitous request with another MAC than the frame's source.
pub(crate) fn announcement_for(source: Mac, mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    ethernet(Mac::BROADCAST, source, ARP, &arp(REQUEST, (mac, ip), (NOBODY, ip)))
}

/// Makes a gratuitous reply, to all.
pub(crate) fn broadcast_reply(mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    ethernet(Mac::BROADCAST, mac, ARP, &arp(REPLY, (mac, ip), (Mac::BROADCAST, ip)))
}

/// Makes a reply to one machine without a question.
pub(crate) fn unicast_reply(to: Mac, mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    ethernet(to, mac, ARP, &arp(REPLY, (mac, ip), (to, ip)))
}

/// Returns true if a frame is an ARP reply to this machine.
pub(crate) fn is_reply_to(frame: &[u8], mac: Mac) -> bool {
    frame[..6] == mac.0 && frame[12..14] == ARP.to_be_bytes() && frame[20..22] == [0, 2]
}

/// Returns true if a frame is an ARP packet with this sender.
pub(crate) fn is_arp_of(frame: &[u8], mac: Mac, ip: Ipv4Addr) -> bool {
    frame.len() >= 42
        && frame[12..14] == ARP.to_be_bytes()
        && frame[22..28] == mac.0
        && frame[28..32] == ip.octets()
}

/// Makes an IPv6 packet with an ICMPv6 message, with its checksum.
pub(crate) fn icmp6(src: Ipv6Addr, dst: Ipv6Addr, hops: u8, message: &[u8]) -> Vec<u8> {
    let size = u16::try_from(message.len()).unwrap();
    let mut pseudo = [&src.octets()[..], &dst.octets()].concat();
    pseudo.extend(u32::from(size).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(message);
    let sum = sluice_wire::checksum::internet(&pseudo).to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(size.to_be_bytes());
    packet.extend([58, hops]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(message);
    packet[42..44].copy_from_slice(&sum);
    packet
}

/// Returns the group of a solicited node, and its MAC.
pub(crate) fn solicited(ip: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let o = ip.octets();
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, o[13], o[14], o[15]]);
    (group, Mac([0x33, 0x33, 0xff, o[13], o[14], o[15]]))
}

/// All nodes of the link.
pub(crate) const ALL_NODES: (Ipv6Addr, Mac) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Mac([0x33, 0x33, 0, 0, 0, 1]));

/// Makes a message of neighbour discovery with a link-layer address option.
fn neighbour(kind: u8, flags: u8, target: Ipv6Addr, option: u8, mac: Mac) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(mac.0);
    message
}

/// Makes a neighbour solicitation to the group of its target.
pub(crate) fn solicitation(mac: Mac, ip: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let (group, to) = solicited(target);
    let packet = icmp6(ip, group, 255, &neighbour(135, 0, target, 1, mac));
    ethernet(to, mac, 0x86dd, &packet)
}

/// Makes an unsolicited advertisement, with Override.
pub(crate) fn advertisement(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    let packet = icmp6(ip, ALL_NODES.0, 255, &neighbour(136, 0x20, ip, 2, mac));
    ethernet(ALL_NODES.1, mac, 0x86dd, &packet)
}

/// Returns true if a frame is a neighbour advertisement to this machine.
pub(crate) fn is_advertisement_to(frame: &[u8], mac: Mac) -> bool {
    frame.len() >= 78
        && frame[..6] == mac.0
        && frame[12..14] == [0x86, 0xdd]
        && frame[20] == 58
        && frame[54] == 136
}
