//! VXLAN on the way out: the headers in front of a tenant's frame (RFC 7348 section 5).
//!
//! 50 bytes: Ethernet 14, IPv4 20, UDP 8, VXLAN 8. The outer DSCP says the priority, the outer ECN
//! field is the inner one (RFC 6040 section 4.1, normal mode), and the UDP source port is a hash of
//! the inner flow, so that the underlay can spread flows and keeps the order within one.
//!
//! What is the same for every frame of a port is made once ([`Outer`]). A frame's own fields are
//! put into it, and only they are added to the sum that its checksum is made of.
//!
//! They are put in while it is in registers, and the whole is stored in words of eight bytes, each
//! once: a driver that reads it at once, in the same words, gets them from the stores. Where a load
//! needs parts of several stores it waits until all are in the cache.

use core::net::Ipv4Addr;

use sluice_base::{Mac, Vni};
use sluice_wire::{EtherType, checksum, ethernet, flow, ipv4, udp, vxlan};

use crate::classify;

/// The size of the outer headers.
pub(crate) const OUTER_SIZE: usize =
    ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE + vxlan::HEADER_SIZE;

/// The same, as frames' sizes are counted.
pub(crate) const OUTER_BYTES: u32 = 50;

const _: () = assert!(OUTER_SIZE == 50);

/// Whole words of eight bytes in it.
const WORDS: usize = OUTER_SIZE / 8;

/// What the outer IPv4 packet has in front of the tenant's frame: all but Ethernet.
const IP_BYTES: u16 = 36;

/// The far end of a tunnel, and the network that it is used by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) next_hop: Mac,
    pub(crate) remote: Ipv4Addr,
    pub(crate) vni: Vni,
}

/// The outer headers of a port, without a frame's own fields: where it goes, its marks, its size,
/// its flow, its network.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    words: [u64; WORDS],
    tail: u16,
    /// The sum of the IPv4 header as it stands there, before it is complemented.
    sum: u32,
}

impl Outer {
    /// For a port with this address.
    pub(crate) fn new(mac: Mac, local: Ipv4Addr) -> Self {
        let mut bytes = [0; OUTER_SIZE];
        ethernet::Repr { dst: Mac([0; 6]), src: mac, ethertype: EtherType::IPV4 }
            .emit(&mut bytes[..14]);
        ipv4::Repr {
            src: local,
            dst: Ipv4Addr::UNSPECIFIED,
            protocol: ipv4::PROTOCOL_UDP,
            dscp: 0,
            ecn: 0,
            ttl: 64,
            ident: 0,
            dont_fragment: true,
            payload_size: 0,
        }
        .emit(&mut bytes[14..34]);
        bytes[16..18].fill(0);
        bytes[24..26].fill(0);
        udp::Repr { src_port: 0, dst_port: vxlan::PORT, payload_size: 0 }.emit(&mut bytes[34..42]);
        bytes[38..40].fill(0);
        vxlan::Repr { vni: Vni::new(0).expect("24 bits") }.emit(&mut bytes[42..50]);
        let sum = !checksum::internet(&bytes[14..34]);
        let (words, tail) = words_of(&bytes);
        Self { words, tail, sum: sum.into() }
    }

    /// Writes the headers in front of a tenant's frame of `inner_size` bytes whose first bytes are
    /// `inner_head`.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        to: &To,
        dscp: u8,
        inner_head: &[u8],
        inner_size: u16,
        out: &mut [u8; OUTER_SIZE],
    ) {
        let tos = dscp << 2 | ecn_of(inner_head);
        let ip_size = inner_size + IP_BYTES;
        let remote = to.remote.to_bits();
        let sum = self.sum + u32::from(tos) + u32::from(ip_size);
        let sum = sum + (remote >> 16) + (remote & 0xffff);
        // Twice: the first folding may carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
        let sum = !(sum as u16);
        let [_, vni @ ..] = to.vni.get().to_be_bytes();
        let src_port = flow::source_port(flow::hash(inner_head));
        let [a, b, c, d] = remote.to_be_bytes();
        let mut words = self.words;
        let mut put = |at: usize, bytes: &[u8]| put(&mut words, at, bytes);
        put(0, &to.next_hop.0);
        put(15, &[tos]);
        put(16, &ip_size.to_be_bytes());
        put(24, &sum.to_be_bytes());
        put(30, &[a, b]);
        put(32, &[c, d]);
        put(34, &src_port.to_be_bytes());
        put(38, &(ip_size - 20).to_be_bytes());
        put(46, &vni[..2]);
        let (places, tail) = out.as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        tail.copy_from_slice(&(self.tail | u16::from(vni[2])).to_le_bytes());
    }
}

/// Puts bytes into one of the words, at this place of the headers, where zeros are.
#[inline(always)]
fn put(words: &mut [u64; WORDS], at: usize, bytes: &[u8]) {
    let word = &mut words[at / 8];
    for (nth, byte) in bytes.iter().enumerate() {
        *word |= u64::from(*byte) << (8 * (at % 8 + nth));
    }
}

/// The headers as words, as they lie in memory, and the two bytes behind the last one.
fn words_of(bytes: &[u8; OUTER_SIZE]) -> ([u64; WORDS], u16) {
    let (words, tail) = bytes.as_chunks::<8>();
    let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
    let tail = <[u8; 2]>::try_from(tail).map_or(0, u16::from_le_bytes);
    (core::array::from_fn(word), tail)
}

/// Makes the outer headers of a super-frame's largest segment those of one of `inner_size` bytes,
/// which is not larger. They are the first 50 bytes of `header`.
///
/// # Panics
/// If `header` is shorter.
pub fn resize_outer(header: &mut [u8], inner_size: u16) {
    let old = u16::from_be_bytes([header[16], header[17]]);
    let new = inner_size + IP_BYTES;
    let sum = u16::from_be_bytes([header[24], header[25]]);
    header[16..18].copy_from_slice(&new.to_be_bytes());
    header[24..26].copy_from_slice(&checksum::update(sum, old, new).to_be_bytes());
    header[38..40].copy_from_slice(&(new - 20).to_be_bytes());
}

/// The ECN field of a tenant's frame; not ECN-capable if it is not IP.
#[inline]
fn ecn_of(inner_head: &[u8]) -> u8 {
    if let Some(head) = inner_head.first_chunk::<34>()
        && (head[12], head[13]) == (0x08, 0x00)
    {
        return head[15] & 3;
    }
    ecn_of_other(inner_head)
}

/// As [`ecn_of`], for what is not IPv4 without a tag.
#[inline(never)]
fn ecn_of_other(inner_head: &[u8]) -> u8 {
    ethernet::Frame::new_checked(inner_head)
        .ok()
        .and_then(|frame| classify::tenant_ecn(&frame))
        .unwrap_or(0)
}
