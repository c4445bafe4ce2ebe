//! VXLAN on the way out: the headers in front of a tenant's frame (RFC 7348 section 5).
//!
//! 50 bytes: Ethernet 14, IPv4 20, UDP 8, VXLAN 8. The outer DSCP says the priority, the outer ECN
//! field is the inner one (RFC 6040 section 4.1, normal mode), and the UDP source port is a hash of
//! the inner flow, so that the underlay can spread flows and keeps the order within one.

use core::net::Ipv4Addr;

use sluice_base::{Mac, Vni};
use sluice_wire::{EtherType, ethernet, flow, ipv4, udp, vxlan};

use crate::classify;

/// The size of the outer headers.
pub(crate) const OUTER_SIZE: usize =
    ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE + vxlan::HEADER_SIZE;

const _: () = assert!(OUTER_SIZE == 50);

/// The two ends of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) local_mac: Mac,
    pub(crate) next_hop: Mac,
    pub(crate) local: Ipv4Addr,
    pub(crate) remote: Ipv4Addr,
}

/// Writes the outer headers of a tenant's frame of `inner_size` bytes whose first bytes are
/// `inner_head`.
pub(crate) fn encapsulate(
    ends: &Ends,
    vni: Vni,
    dscp: u8,
    inner_head: &[u8],
    inner_size: u32,
    out: &mut [u8],
) {
    let ecn = ethernet::Frame::new_checked(inner_head)
        .ok()
        .and_then(|frame| classify::tenant_ecn(&frame))
        .unwrap_or(0);
    let udp_payload = u16::try_from(inner_size).expect("checked against the MTU")
        + u16::try_from(vxlan::HEADER_SIZE).expect("8");
    let hash = flow::hash(inner_head);
    ethernet::Repr { dst: ends.next_hop, src: ends.local_mac, ethertype: EtherType::IPV4 }
        .emit(&mut out[..14]);
    ipv4::Repr {
        src: ends.local,
        dst: ends.remote,
        protocol: ipv4::PROTOCOL_UDP,
        dscp,
        ecn,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: udp_payload + 8,
    }
    .emit(&mut out[14..34]);
    udp::Repr {
        src_port: flow::source_port(hash),
        dst_port: vxlan::PORT,
        payload_size: udp_payload,
    }
    .emit(&mut out[34..42]);
    vxlan::Repr { vni }.emit(&mut out[42..50]);
}
