//! "Too large": ICMP destination unreachable, fragmentation needed (RFC 792; RFC 1191 section 4),
//! and ICMPv6 packet too big (RFC 4443 section 3.2).
//!
//! ```text
//!  0          1          2              4              6              8
//!  | type 3   | code 4   | checksum     | unused       | MTU          |   ICMP
//!  | type 2   | code 0   | checksum     | MTU                         |   ICMPv6
//!  | as much of the packet that was too large as there is ...
//! ```
//!
//! [`answer`] makes such a message for a tenant's frame, as a bridge does that forwards into a
//! tunnel (Linux, `iptunnel_pmtud_build_icmp`). Its source is the address that the packet was for.
//! [`Heard`] reads one that a router of the underlay sent.

use core::net::Ipv4Addr;

use crate::{EtherType, checksum, ethernet, ipv4, ipv6, udp, vlan, vxlan};

/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// Next header of an IPv6 fragment header (RFC 8200 section 4.5).
const FRAGMENT_HEADER: u8 = 44;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const PACKET_TOO_BIG: u8 = 2;

/// The size of the fields in front of the quoted packet.
const MESSAGE_SIZE: usize = 8;
/// Bytes of a transport header that must be quoted: its ports, and the sequence number of TCP.
const TRANSPORT_SIZE: usize = 8;
/// Upper bound of the bytes of a packet that are quoted.
const QUOTE_SIZE_MAX: usize = 114;

/// The size of the largest answer.
pub const ANSWER_SIZE_MAX: usize =
    ethernet::HEADER_SIZE + vlan::TAG_SIZE + ipv6::HEADER_SIZE + MESSAGE_SIZE + QUOTE_SIZE_MAX;

/// The smallest MTU that a host believes in: every host takes packets of this size (RFC 791 section
/// 3.1).
pub const MTU_MIN: u16 = 576;
/// The smallest MTU that IPv6 may have (RFC 8200 section 5).
const MTU_MIN_V6: u16 = 1280;

/// The MTUs of common networks, for routers that do not report theirs (RFC 1191 section 7.1).
const PLATEAUS: [u16; 7] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];

/// Writes the answer to a frame that is too large for a layer-3 MTU, and returns its size. `head`
/// is the frame from its destination address on, whole or cut off.
///
/// The answer has the tag of the frame, if there is one. Returns `None` if the frame gets no
/// answer: it is not IP, has two tags, may be fragmented (RFC 791), is a later fragment, is an
/// error itself, is not from one host to another (RFC 1122 section 3.2.2; RFC 4443 section 2.4), or
/// would have fitted.
#[must_use]
pub fn answer(head: &[u8], mtu: u16, out: &mut [u8; ANSWER_SIZE_MAX]) -> Option<usize> {
    let frame = ethernet::Frame::new_checked(head).ok()?;
    if frame.dst().is_group() || frame.src().is_group() {
        return None;
    }
    let (mut ethertype, mut packet) = (frame.ethertype(), frame.payload());
    let mut link_size = ethernet::HEADER_SIZE;
    if ethertype == EtherType::VLAN {
        let tag = vlan::Tag::new_checked(packet).ok()?;
        // The tag, and the type behind it.
        out[link_size..][..vlan::TAG_SIZE].copy_from_slice(&packet[..vlan::TAG_SIZE]);
        (ethertype, packet) = (tag.ethertype(), tag.payload());
        link_size += vlan::TAG_SIZE;
    }
    let (link, rest) = out.split_at_mut(link_size);
    let link = link.first_chunk_mut::<{ ethernet::HEADER_SIZE }>().expect("it is longer");
    ethernet::Repr { dst: frame.src(), src: frame.dst(), ethertype: frame.ethertype() }.emit(link);
    let size = match ethertype {
        EtherType::IPV4 => answer_v4(packet, mtu, rest)?,
        EtherType::IPV6 => answer_v6(packet, mtu, rest)?,
        _ => return None,
    };
    Some(link_size + size)
}

/// Returns true if an address belongs to one host.
fn is_host(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && !address.is_loopback() && !address.is_multicast() && !address.is_broadcast()
}

fn answer_v4(packet: &[u8], mtu: u16, out: &mut [u8]) -> Option<usize> {
    let ip = ipv4::Packet::new_checked(packet).ok()?;
    let is_plain = ip.version() == 4 && ip.dont_fragment() && !ip.is_fragment();
    let fits = ip.total_size() <= mtu || mtu < MTU_MIN;
    if !is_plain || fits || !is_host(ip.src()) || !is_host(ip.dst()) {
        return None;
    }
    let transport = ip.payload();
    if transport.len() < TRANSPORT_SIZE {
        return None;
    }
    // Errors: unreachable, source quench, redirect, time exceeded, parameter problem.
    if ip.protocol() == PROTOCOL_ICMP && matches!(transport[0], 3 | 4 | 5 | 11 | 12) {
        return None;
    }
    let quote = &packet[..packet.len().min(QUOTE_SIZE_MAX)];
    let (header, message) = out.split_at_mut(ipv4::HEADER_SIZE_MIN);
    let message = &mut message[..MESSAGE_SIZE + quote.len()];
    let [high, low] = mtu.to_be_bytes();
    let fields = [UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0, high, low];
    message[..MESSAGE_SIZE].copy_from_slice(&fields);
    message[MESSAGE_SIZE..].copy_from_slice(quote);
    let sum = checksum::internet(message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let repr = ipv4::Repr {
        src: ip.dst(),
        dst: ip.src(),
        protocol: PROTOCOL_ICMP,
        dscp: 0,
        ecn: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: u16::try_from(message.len()).ok()?,
    };
    repr.emit(header);
    Some(ipv4::HEADER_SIZE_MIN + message.len())
}

fn answer_v6(packet: &[u8], mtu: u16, out: &mut [u8]) -> Option<usize> {
    let ip = ipv6::Packet::new_checked(packet).ok()?;
    let size = u32::from(ip.payload_size()) + 40;
    let is_host = |address: core::net::Ipv6Addr| {
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
    };
    let fits = size <= u32::from(mtu) || mtu < MTU_MIN_V6;
    if ip.version() != 6 || fits || !is_host(ip.src()) || !is_host(ip.dst()) {
        return None;
    }
    let transport = ip.payload();
    if transport.len() < TRANSPORT_SIZE {
        return None;
    }
    // Errors have types below 128 (RFC 4443 section 2.1).
    if ip.next_header() == PROTOCOL_ICMPV6 && transport[0] < 128 {
        return None;
    }
    let offset = u16::from_be_bytes([transport[2], transport[3]]) >> 3;
    if ip.next_header() == FRAGMENT_HEADER && offset != 0 {
        return None;
    }
    let quote = &packet[..packet.len().min(QUOTE_SIZE_MAX)];
    let (header, message) = out.split_at_mut(ipv6::HEADER_SIZE);
    let message = &mut message[..MESSAGE_SIZE + quote.len()];
    message[..MESSAGE_SIZE].copy_from_slice(&[PACKET_TOO_BIG, 0, 0, 0, 0, 0, 0, 0]);
    message[6..MESSAGE_SIZE].copy_from_slice(&mtu.to_be_bytes());
    message[MESSAGE_SIZE..].copy_from_slice(quote);
    let (src, dst) = (ip.dst(), ip.src());
    let sum = checksum::over_ipv6(src, dst, PROTOCOL_ICMPV6, message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let repr = ipv6::Repr {
        src,
        dst,
        next_header: PROTOCOL_ICMPV6,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: 64,
        payload_size: u16::try_from(message.len()).ok()?,
    };
    repr.emit(header);
    Some(ipv6::HEADER_SIZE + message.len())
}

/// "Fragmentation needed" about a VXLAN datagram, as a router sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The MTU behind the router: at least [`MTU_MIN`], and below the size of the datagram's
    /// packet.
    pub mtu: u16,
    /// The source of the datagram.
    pub src: Ipv4Addr,
    /// The destination of the datagram.
    pub dst: Ipv4Addr,
    /// The network of the datagram, if the quote reaches that far.
    pub vni: Option<u32>,
}

impl Heard {
    /// Reads a packet. Returns `None` if it is anything else, or if no router would send it: it
    /// quotes a packet that may be fragmented, one that its MTU lets pass, or a datagram that no
    /// VTEP sends.
    #[must_use]
    pub fn of(ip: &ipv4::Packet<'_>) -> Option<Self> {
        let message = ip.payload();
        let whole = usize::from(ip.total_size()).checked_sub(ip.header_size())?;
        let is_one = ip.protocol() == PROTOCOL_ICMP
            && !ip.is_fragment()
            && message.get(..2) == Some(&[UNREACHABLE, FRAGMENTATION_NEEDED]);
        // The checksum of a message that is cut off cannot be verified.
        if !is_one || (message.len() == whole && checksum::internet(message) != 0) {
            return None;
        }
        let said = u16::from_be_bytes([*message.get(6)?, *message.get(7)?]);
        let quoted = ipv4::Packet::new_checked(message.get(MESSAGE_SIZE..)?).ok()?;
        let is_ours = quoted.version() == 4
            && quoted.header_size() == ipv4::HEADER_SIZE_MIN
            && quoted.protocol() == ipv4::PROTOCOL_UDP
            && quoted.dont_fragment()
            && !quoted.is_fragment();
        let datagram = udp::Packet::new_checked(quoted.payload()).ok()?;
        if !is_ours
            || datagram.dst_port() != vxlan::PORT
            || datagram.src_port() < crate::flow::SOURCE_PORT_MIN
        {
            return None;
        }
        let size = quoted.total_size();
        let mtu = match said {
            // A router older than RFC 1191.
            0 => PLATEAUS.into_iter().find(|plateau| *plateau < size).unwrap_or(MTU_MIN),
            said => said.max(MTU_MIN),
        };
        if mtu >= size {
            return None;
        }
        let vni = match vxlan::Header::new_checked(datagram.payload()) {
            Ok(header) if header.has_vni() => Some(header.vni().get()),
            Ok(_) => return None,
            Err(_) => None,
        };
        Some(Self { mtu, src: quoted.src(), dst: quoted.dst(), vni })
    }
}

#[cfg(test)]
mod tests;
