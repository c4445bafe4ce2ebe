//! VXLAN encapsulation: the headers in front of a tenant's frame (RFC 7348 section 5).
//!
//! 50 bytes: Ethernet 14, IPv4 20, UDP 8, VXLAN 8. The outer DSCP encodes the priority, the outer
//! ECN field is the inner one (RFC 6040 section 4.1, normal mode), and the UDP source port is a
//! hash of the inner flow, so that the underlay can spread flows and keep the order within each.
//!
//! The part that is the same for every frame of a port is made once ([`Outer`]). A frame's own
//! fields are written over it, and only they are added to the checksum.

use core::net::Ipv4Addr;

use sluice_base::{Mac, TunnelId, Vni};
use sluice_wire::{EtherType, checksum, ethernet, flow, ipv4, udp, vxlan};

use crate::classify;

/// The size of the outer headers.
pub(crate) const OUTER_SIZE: usize = classify::PLAIN_OUTER_SIZE;

/// The size of the outer headers, in the type of frame sizes.
pub(crate) const OUTER_BYTES: u32 = 50;

const _: () = assert!(OUTER_SIZE == 50);

/// Bytes of the outer IPv4 packet in front of the tenant's frame: all headers but Ethernet.
const IP_BYTES: u16 = 36;

/// The far end of a tunnel, and the network of the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) next_hop: Mac,
    pub(crate) remote: Ipv4Addr,
    pub(crate) vni: Vni,
}

/// The outer headers of a port, without a frame's own fields: destination, DSCP and ECN, size,
/// source port and network.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    bytes: [u8; OUTER_SIZE],
    /// The one's complement sum of the IPv4 header in `bytes`, not complemented.
    sum: u32,
}

impl Outer {
    /// Returns the outer headers of a port with this address.
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
        vxlan::Repr { vni: Vni::new(0).expect("24 bits") }.emit(&mut bytes[42..50]);
        let sum = !checksum::internet(&bytes[14..34]);
        Self { bytes, sum: sum.into() }
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
        // Folds twice, since the first folding may carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let [_, _, sum @ ..] = (!sum).to_be_bytes();
        let [_, vni @ ..] = to.vni.get().to_be_bytes();
        *out = self.bytes;
        out[..6].copy_from_slice(&to.next_hop.0);
        out[15] = tos;
        out[16..18].copy_from_slice(&ip_size.to_be_bytes());
        out[24..26].copy_from_slice(&sum);
        out[30..34].copy_from_slice(&remote.to_be_bytes());
        out[34..36].copy_from_slice(&flow::source_port(flow::hash(inner_head)).to_be_bytes());
        out[38..40].copy_from_slice(&(ip_size - 20).to_be_bytes());
        out[46..49].copy_from_slice(&vni);
    }
}

/// Fields that the frames of a run through one tunnel have in common.
#[derive(Debug)]
pub(crate) struct Wrap {
    pub(crate) outer: Outer,
    pub(crate) to: To,
    pub(crate) dscp: u8,
    pub(crate) tunnel: TunnelId,
}

impl Wrap {
    /// Writes the headers in front of a frame that fits into the tunnel.
    #[inline(always)]
    pub(crate) fn write(&self, inner_head: &[u8], inner_size: u32, out: &mut [u8; OUTER_SIZE]) {
        #[expect(clippy::cast_possible_truncation, reason = "it fits into the tunnel")]
        self.outer.write(&self.to, self.dscp, inner_head, inner_size as u16, out);
    }
}

/// Adapts the outer headers of a super-frame's largest segment to a segment of `inner_size` bytes,
/// which is not larger. The outer headers are the first 50 bytes of `header`.
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

/// Returns the ECN field of a tenant's frame; not ECN-capable if it is not IP.
#[inline]
fn ecn_of(inner_head: &[u8]) -> u8 {
    if let Some(head) = inner_head.first_chunk::<34>()
        && (head[12], head[13]) == (0x08, 0x00)
    {
        return head[15] & 3;
    }
    ecn_of_other(inner_head)
}

/// Returns the ECN field as [`ecn_of`], for frames other than untagged IPv4.
#[inline(never)]
fn ecn_of_other(inner_head: &[u8]) -> u8 {
    ethernet::Frame::new_checked(inner_head)
        .ok()
        .and_then(|frame| classify::tenant_ecn(&frame))
        .unwrap_or(0)
}
