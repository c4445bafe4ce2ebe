//! Hash of the flow that a frame belongs to. A VXLAN sender puts it into its UDP source port, so
//! that the underlay spreads flows over its paths and a receiver over its cores, and each flow
//! stays on one (RFC 7348 section 5).
//!
//! A flow is given by the addresses, protocol and ports of TCP or UDP over IPv4 or IPv6; without
//! ports by the addresses and the protocol; without IP by the two MAC addresses and the EtherType.
//! One VLAN tag is skipped. Fragments have no ports, not even the first one, which would otherwise
//! take another path than the rest of its packet. The two directions of a connection are two flows.
//!
//! The hash is the same on every machine and in every run. It is not a secret: a tenant can choose
//! flows that collide, and wins nothing but a shared path with itself.

use crate::{EtherType, ethernet, ipv4, ipv6, vlan};

/// The first of the ports that [`source_port`] gives: the dynamic ones (RFC 6335 section 6).
pub const SOURCE_PORT_MIN: u16 = 49152;

/// Numbers with about as many ones as zeros: the fractions of the square roots of 2, 3, 5 and 7,
/// in 64 bits.
const KEYS: [u64; 4] =
    [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Returns the hash of the flow that a frame belongs to. `head` is the frame from its destination
/// address on; the first 128 bytes hold all that counts. A frame without an Ethernet header hashes
/// to zero.
#[inline]
#[must_use]
pub fn hash(head: &[u8]) -> u32 {
    if let Some(flow) = plain_flow(head) {
        return mix(flow);
    }
    let Ok(frame) = ethernet::Frame::new_checked(head) else { return 0 };
    let (mut ethertype, mut payload) = (frame.ethertype(), frame.payload());
    if ethertype.is_tag()
        && let Ok(tag) = vlan::Tag::new_checked(payload)
    {
        (ethertype, payload) = (tag.ethertype(), tag.payload());
    }
    let flow = match ethertype {
        EtherType::IPV4 => ipv4_flow(payload),
        EtherType::IPV6 => ipv6_flow(payload),
        _ => None,
    };
    mix(flow.unwrap_or_else(|| {
        [frame.dst().to_u64(), frame.src().to_u64() << 16 | u64::from(ethertype.0)]
    }))
}

#[inline]
const fn mix([addresses, rest]: [u64; 2]) -> u32 {
    let mixed = fold(fold(addresses ^ KEYS[0], rest ^ KEYS[1]), KEYS[2]);
    (mixed >> 32) as u32
}

/// Returns the flow of nearly every frame, read at fixed places: TCP or UDP over IPv4 without tag,
/// options or fragments. On `None` the frame has to be parsed.
#[inline]
fn plain_flow(head: &[u8]) -> Option<[u64; 2]> {
    const SIZE: usize = ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + 4;
    const IPV4_WITHOUT_OPTIONS: u32 = 0x0008_0045;
    let head: &[u8; SIZE] = head.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (protocol, is_fragment) = (head[23], word(18) & 0x3fff != 0);
    let has_ports = matches!(protocol, ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP);
    if word(12) >> 8 != IPV4_WITHOUT_OPTIONS || !has_ports || is_fragment {
        return None;
    }
    let addresses = u64::from(word(26)) << 32 | u64::from(word(30));
    Some([addresses, u64::from(word(34)) << 32 | u64::from(protocol)])
}

/// Returns the UDP source port for a flow, 49152 to 65535 (RFC 7348 section 5).
#[inline]
#[must_use]
pub const fn source_port(hash: u32) -> u16 {
    SOURCE_PORT_MIN | (hash >> 18) as u16
}

/// Returns addresses and rest of an IPv4 packet's flow; `None` if it is not IPv4, whatever the
/// EtherType.
#[inline]
fn ipv4_flow(bytes: &[u8]) -> Option<[u64; 2]> {
    let packet = ipv4::Packet::new_checked(bytes).ok()?;
    let (header_size, protocol) = (packet.header_size(), packet.protocol());
    if packet.version() != 4 || header_size < ipv4::HEADER_SIZE_MIN {
        return None;
    }
    let ports = if packet.is_fragment() { 0 } else { ports(protocol, bytes, header_size) };
    let addresses = u64::from(packet.src().to_bits()) << 32 | u64::from(packet.dst().to_bits());
    Some([addresses, ports | u64::from(protocol)])
}

/// Returns addresses and rest of an IPv6 packet's flow; `None` if it is not IPv6, whatever the
/// EtherType. Ports behind extension headers are not looked for.
#[inline]
fn ipv6_flow(bytes: &[u8]) -> Option<[u64; 2]> {
    let packet = ipv6::Packet::new_checked(bytes).ok()?;
    if packet.version() != 6 {
        return None;
    }
    let [src_high, src_low] = halves(packet.src().to_bits());
    let [dst_high, dst_low] = halves(packet.dst().to_bits());
    let src = fold(src_high ^ KEYS[0], src_low ^ KEYS[1]);
    let dst = fold(dst_high ^ KEYS[2], dst_low ^ KEYS[3]);
    let ports = ports(packet.next_header(), bytes, ipv6::HEADER_SIZE);
    Some([src ^ dst, ports | u64::from(packet.next_header())])
}

/// Returns the first four bytes behind the header, in the upper half of the word, if they are the
/// ports of TCP or UDP; zero otherwise.
#[inline]
fn ports(protocol: u8, bytes: &[u8], header_size: usize) -> u64 {
    if !matches!(protocol, ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP) {
        return 0;
    }
    let ports = bytes.get(header_size..).and_then(<[u8]>::first_chunk);
    ports.map_or(0, |&ports| u64::from(u32::from_be_bytes(ports)) << 32)
}

/// Returns both halves of `bits`, the higher one first.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// Returns both halves of the product, added without carry: every bit of either factor reaches
/// about half of the result's.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let [high, low] = halves(a as u128 * b as u128);
    high ^ low
}

#[cfg(test)]
mod tests;
