//! The outer headers, which the kernel writes and removes: Ethernet, IPv4, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

use sluice_base::Mac;
use sluice_wire::{EtherType, ethernet, ipv4, udp};

use super::inbox::Datagram;
use super::rings::Target;

/// Size of the headers that this port prepends to a datagram: Ethernet, IPv4, UDP.
pub(super) const OUTER_SIZE: usize =
    ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE;
const UDP_HEADER_SIZE: u16 = 8;
const _: () = assert!(UDP_HEADER_SIZE as usize == udp::HEADER_SIZE);
/// Size of an 802.1Q tag of the outer header, which a socket cannot send.
const TAG_SIZE: usize = 4;

/// Writes a datagram, behind the headers that the kernel removed from it, as of a VTEP's address,
/// port and MAC.
pub(super) fn write_frame(
    datagram: &Datagram<'_>,
    (local, port, mac): (Ipv4Addr, u16, Mac),
    to: &mut [u8],
) {
    let (to, data) = to.split_at_mut(OUTER_SIZE);
    data.copy_from_slice(datagram.bytes);
    write_headers(datagram, (local, port, mac), to);
}

/// Writes the headers that the kernel removed from a datagram.
pub(super) fn write_headers(
    datagram: &Datagram<'_>,
    (local, port, mac): (Ipv4Addr, u16, Mac),
    to: &mut [u8],
) {
    let (ethernet_at, rest) = to.split_at_mut(ethernet::HEADER_SIZE);
    let (ipv4_at, udp_at) = rest.split_at_mut(ipv4::HEADER_SIZE_MIN);
    ethernet::Repr { dst: mac, src: Mac::default(), ethertype: EtherType::IPV4 }.emit(ethernet_at);
    let size = u16::try_from(datagram.bytes.len()).expect("a datagram is smaller than 64 KiB");
    ipv4::Repr {
        src: *datagram.from.ip(),
        dst: local,
        protocol: ipv4::PROTOCOL_UDP,
        dscp: datagram.tos >> 2,
        ecn: datagram.tos & 3,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: size + UDP_HEADER_SIZE,
    }
    .emit(ipv4_at);
    udp::Repr { src_port: datagram.from.port(), dst_port: port, payload_size: size }.emit(udp_at);
}

/// Target of a frame, by its outer headers; the number of their bytes that the kernel writes
/// itself; and their source port. `None` if they are not Ethernet, IPv4 and UDP.
pub(super) fn target(header: &[u8], port: u16) -> Option<(Target, usize, u16)> {
    let tagged = header.get(12..14)? == [0x81, 0x00];
    let at = ethernet::HEADER_SIZE + if tagged { TAG_SIZE } else { 0 };
    let packet = ipv4::Packet::new_checked(header.get(at..)?).ok()?;
    let plain = header[at - 2..at] == [0x08, 0x00]
        && packet.header_size() == ipv4::HEADER_SIZE_MIN
        && packet.protocol() == ipv4::PROTOCOL_UDP;
    let datagram = udp::Packet::new_checked(header.get(at + ipv4::HEADER_SIZE_MIN..)?).ok()?;
    let tos = packet.dscp() << 2 | packet.ecn();
    let target = Target { to: SocketAddrV4::new(packet.dst(), port), tos };
    plain.then_some((target, OUTER_SIZE + at - ethernet::HEADER_SIZE, datagram.src_port()))
}
