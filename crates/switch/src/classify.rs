//! Classification of a received frame: its destination, its priority, and its validity.
//!
//! Every frame is read once, here, and only its head. A frame that breaks a format ends under the
//! reason that names the format. Nothing is guessed and nothing panics, whatever the bytes.

use core::net::Ipv4Addr;

use sluice_base::{DropReason, Mac, Priority, VlanTag};
use sluice_wire::{EtherType, arp, ecn, ethernet, ipv4, ipv6, mac_control, udp, vlan, vxlan};

use crate::config::Trust;

/// Result of the classification of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A tenant's frame.
    Forward(Classified),
    /// A frame from the neighbour's flow control.
    Pause(mac_control::Message),
    /// The frame ends here.
    Drop(DropReason),
}

/// A tenant's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classified {
    pub(crate) dst: Mac,
    pub(crate) priority: Priority,
}

/// A tenant's frame that came in VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decapsulated {
    pub(crate) inner: Classified,
    /// Address of the sending VTEP.
    pub(crate) remote: Ipv4Addr,
    /// Network number in the VXLAN header.
    pub(crate) vni: u32,
    /// End of the tenant's frame. The bytes behind it are padding of the link, or belong to
    /// nothing.
    pub(crate) size: u32,
    /// Bytes in front of the tenant's frame.
    pub(crate) strip: u16,
    /// New value of the inner ECN field, if it must change.
    pub(crate) ecn: Option<u8>,
    /// Drop reason of a frame that has a tag of its own, unless its network carries such tags.
    pub(crate) own_tag: Option<DropReason>,
}

/// Result of the classification of a frame from the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OuterVerdict {
    /// A tenant's frame.
    Forward(Decapsulated),
    /// A frame from the neighbour's flow control.
    Pause(mac_control::Message),
    /// The frame ends here; the priority is that of the outer frame as far as it could be read.
    Drop(DropReason, Priority),
}

/// Rule by which a port reads priorities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marking<'a> {
    pub(crate) trust: Trust,
    pub(crate) default: Priority,
    pub(crate) dscp_to_priority: &'a [Priority; 64],
}

/// Bytes that [`plain_underlay`] expects in front of a tenant's frame.
pub(crate) const PLAIN_OUTER_SIZE: usize =
    ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE + vxlan::HEADER_SIZE;

/// The UDP and VXLAN headers, which the UDP length counts with the tenant's frame.
const TUNNEL_SIZE: u32 = 16;
const _: () = assert!(TUNNEL_SIZE as usize == udp::HEADER_SIZE + vxlan::HEADER_SIZE);

fn malformed_pause(payload: &[u8]) -> Result<mac_control::Message, DropReason> {
    match mac_control::Message::parse(payload) {
        Ok(mac_control::Message::Unknown { .. }) | Err(_) => Err(DropReason::BadPause),
        Ok(message) => Ok(message),
    }
}

/// Classifies the common case in few instructions: an untagged unicast IPv4 frame. Returns its
/// destination as a number, and its priority. On `None` the frame has to go through [`access`].
#[inline]
pub(crate) fn plain(head: &[u8], marking: Marking<'_>) -> Option<(u64, u8)> {
    let head: &[u8; 34] = head.first_chunk()?;
    // The destination is in the top 48 bits, then the first two octets of the source.
    let addresses = u64::from_be_bytes(*head.first_chunk()?);
    const GROUP_BITS: u64 = (1 << 56) | (1 << 8);
    let is_ipv4 = head[12] == 0x08 && head[13] == 0x00;
    if !is_ipv4 || addresses & GROUP_BITS != 0 {
        return None;
    }
    let priority = match marking.trust {
        Trust::PcpThenDscp => marking.dscp_to_priority[usize::from(head[15] >> 2)],
        Trust::Nothing => marking.default,
    };
    Some((addresses >> 16, priority.get()))
}

/// A tenant's frame that came in VXLAN, as far as [`plain_underlay`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainDecapsulated {
    /// The destination as a number.
    pub(crate) dst: u64,
    pub(crate) priority: u8,
    /// Address of the sending VTEP.
    pub(crate) remote: u32,
    /// Network number in the VXLAN header.
    pub(crate) vni: u32,
}

/// Classifies as [`plain`] a frame from the underlay, at fixed offsets: VXLAN to this VTEP without
/// tag and without IP options, around a frame of the common case whose ECN field does not change.
/// On `None` the frame has to go through [`underlay`].
#[inline]
pub(crate) fn plain_underlay(
    head: &[u8],
    size: u32,
    local: Ipv4Addr,
    mac: Mac,
    marking: Marking<'_>,
) -> Option<PlainDecapsulated> {
    let head: &[u8; PLAIN_OUTER_SIZE + 34] = head.first_chunk()?;
    let (outer, inner) = head.split_first_chunk::<PLAIN_OUTER_SIZE>()?;
    let half = |at: usize| u16::from_be_bytes([outer[at], outer[at + 1]]);
    let word =
        |at: usize| u32::from_be_bytes([outer[at], outer[at + 1], outer[at + 2], outer[at + 3]]);
    let for_us = word(0) == u32::from_be_bytes([mac.0[0], mac.0[1], mac.0[2], mac.0[3]])
        && half(4) == u16::from_be_bytes([mac.0[4], mac.0[5]])
        && word(30) == local.to_bits();
    // Compares EtherType, version and header size at once; then protocol and port.
    let is_vxlan = word(12) >> 8 == 0x0008_0045
        && outer[23] == ipv4::PROTOCOL_UDP
        && half(36) == vxlan::PORT
        && outer[42] & 0x08 != 0;
    let ip_size = half(16);
    let is_whole = half(20) & 0x3fff == 0
        && u32::from(ip_size) + 14 == size
        && u32::from(half(38)) + 20 == u32::from(ip_size);
    if !for_us || !is_vxlan || !is_whole {
        return None;
    }
    let sum: u64 = [14, 18, 22, 26, 30].iter().map(|at| u64::from(word(*at))).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    if !sum.is_multiple_of(0xffff) {
        return None;
    }
    let tos = outer[15];
    let (dst, _) = plain(inner, marking)?;
    let ecn = inner[15] & 3;
    if ecn::decapsulate(tos, ecn) != Some(ecn) {
        return None;
    }
    let priority = match marking.trust {
        Trust::PcpThenDscp => marking.dscp_to_priority[usize::from(tos >> 2)],
        Trust::Nothing => marking.default,
    };
    Some(PlainDecapsulated { dst, priority: priority.get(), remote: word(26), vni: word(46) >> 8 })
}

/// Classifies a frame of an access port: a container's, a VM's, or a cable's.
#[inline]
pub(crate) fn access(head: &[u8], size: u32, marking: Marking<'_>) -> Verdict {
    let Ok(frame) = ethernet::Frame::new_checked(head) else {
        return Verdict::Drop(DropReason::Runt);
    };
    let dst = frame.dst();
    if dst.is_reserved() {
        return reserved(&frame);
    }
    match tenant(&frame, size, marking) {
        Ok(priority) => Verdict::Forward(Classified { dst, priority }),
        Err(reason) => Verdict::Drop(reason),
    }
}

/// Classifies as [`access`] a frame whose driver has handled its tag.
pub(crate) fn behind_driver(head: &[u8], size: u32, marking: Marking<'_>, tag: VlanTag) -> Verdict {
    let tci = match tag {
        VlanTag::AsIs => return access(head, size, marking),
        VlanTag::NotAllowed => return of_no_vlan(head, size, marking),
        VlanTag::TakenOff(tci) => tci,
    };
    // The PCP gives the frame's priority, whatever its DSCP.
    let marking = match marking.trust {
        Trust::Nothing => marking,
        Trust::PcpThenDscp => {
            Marking { trust: Trust::Nothing, default: vlan::priority_of(tci), ..marking }
        }
    };
    match access(head, size, marking) {
        // A tag behind that of a VLAN is the tenant's own. A tag behind a priority tag is the first
        // one with a VLAN, which the port does not have.
        Verdict::Drop(DropReason::VlanNotAllowed | DropReason::BadVlan)
            if vlan::vid_of(tci) != vlan::VID_NONE && has_whole_tag(head) =>
        {
            let dst = ethernet::Frame::new_checked(head).map_or(Mac::default(), |f| f.dst());
            Verdict::Forward(Classified { dst, priority: marking.default })
        }
        verdict => verdict,
    }
}

fn has_whole_tag(head: &[u8]) -> bool {
    head.len() >= ethernet::HEADER_SIZE + vlan::TAG_SIZE
}

/// Classifies a frame of no VLAN that its device has, which ends here unless it is flow control.
/// Flow control belongs to the link and has no tag (802.1Q clause 36).
#[cold]
fn of_no_vlan(head: &[u8], size: u32, marking: Marking<'_>) -> Verdict {
    match access(head, size, marking) {
        Verdict::Forward(_) => {
            let tagged = ethernet::Frame::new_checked(head).is_ok_and(|f| f.ethertype().is_tag());
            let reason = if tagged { DropReason::VlanNotAllowed } else { DropReason::Untagged };
            Verdict::Drop(reason)
        }
        verdict => verdict,
    }
}

#[cold]
fn reserved(frame: &ethernet::Frame<'_>) -> Verdict {
    if frame.dst() != Mac::PAUSE || frame.ethertype() != EtherType::MAC_CONTROL {
        return Verdict::Drop(DropReason::ReservedAddress);
    }
    match malformed_pause(frame.payload()) {
        Ok(message) => Verdict::Pause(message),
        Err(reason) => Verdict::Drop(reason),
    }
}

/// Checks a tenant's frame and reads its priority. `size` is that of the whole frame.
#[inline]
fn tenant(
    frame: &ethernet::Frame<'_>,
    size: u32,
    marking: Marking<'_>,
) -> Result<Priority, DropReason> {
    if !frame.src().is_individual() {
        return Err(DropReason::BadSource);
    }
    match frame.ethertype() {
        EtherType::IPV4 => Ok(match marking.trust {
            Trust::PcpThenDscp => ipv4_priority(frame.payload(), marking),
            Trust::Nothing => marking.default,
        }),
        ethertype => other_ethertype(ethertype, frame.payload(), size, marking),
    }
}

fn other_ethertype(
    ethertype: EtherType,
    payload: &[u8],
    size: u32,
    marking: Marking<'_>,
) -> Result<Priority, DropReason> {
    match ethertype {
        EtherType::ARP => {
            let arp = arp::Packet::new_checked(payload).map_err(|_| DropReason::BadArp)?;
            if arp.is_well_formed() { Ok(marking.default) } else { Err(DropReason::BadArp) }
        }
        EtherType::IPV6 if marking.trust == Trust::PcpThenDscp => {
            Ok(ipv6::Packet::new_checked(payload)
                .map_or(marking.default, |ip| marking.dscp_to_priority[usize::from(ip.dscp())]))
        }
        EtherType::VLAN | EtherType::QINQ => vlan_priority(payload, marking),
        EtherType::MAC_CONTROL => Err(DropReason::ReservedAddress),
        // A length instead of a type (802.3 clause 3.2.6) must not exceed what there is.
        EtherType(length) if length <= 1500 && u32::from(length) + 14 > size => {
            Err(DropReason::Runt)
        }
        _ => Ok(marking.default),
    }
}

fn ipv4_priority(payload: &[u8], marking: Marking<'_>) -> Priority {
    ipv4::Packet::new_checked(payload)
        .map_or(marking.default, |ip| marking.dscp_to_priority[usize::from(ip.dscp() & 63)])
}

/// Returns the priority of a tagged frame. Only a priority tag, VID 0 (802.1Q clause 9.6), is
/// accepted.
fn vlan_priority(payload: &[u8], marking: Marking<'_>) -> Result<Priority, DropReason> {
    let tag = vlan::Tag::new_checked(payload).map_err(|_| DropReason::BadVlan)?;
    if tag.ethertype().is_tag() {
        return Err(DropReason::BadVlan);
    }
    if tag.vid() != vlan::VID_NONE {
        return Err(DropReason::VlanNotAllowed);
    }
    Ok(match marking.trust {
        Trust::PcpThenDscp => tag.priority(),
        Trust::Nothing => marking.default,
    })
}

/// Classifies a frame from the underlay: VXLAN to this VTEP (RFC 7348 section 5), or flow control.
/// Any other frame is for the kernel, which has its own copy, and ends here under `not_for_us`.
pub(crate) fn underlay(
    head: &[u8],
    size: u32,
    local: Ipv4Addr,
    mac: Mac,
    marking: Marking<'_>,
) -> OuterVerdict {
    let mut priority = marking.default;
    match outer(head, size, local, mac, marking, &mut priority) {
        Ok(verdict) => verdict,
        Err(reason) => OuterVerdict::Drop(reason, priority),
    }
}

fn outer(
    head: &[u8],
    size: u32,
    local: Ipv4Addr,
    mac: Mac,
    marking: Marking<'_>,
    priority: &mut Priority,
) -> Result<OuterVerdict, DropReason> {
    let frame = ethernet::Frame::new_checked(head).map_err(|_| DropReason::Runt)?;
    if frame.dst() == Mac::PAUSE && frame.ethertype() == EtherType::MAC_CONTROL {
        return malformed_pause(frame.payload()).map(OuterVerdict::Pause);
    }
    if frame.dst() != mac {
        return Err(DropReason::NotForUs);
    }
    let (mut ethertype, mut payload, mut link_size) =
        (frame.ethertype(), frame.payload(), ethernet::HEADER_SIZE);
    let mut tagged = false;
    if ethertype == EtherType::VLAN {
        let tag = vlan::Tag::new_checked(payload).map_err(|_| DropReason::BadVlan)?;
        *priority = tag.priority();
        tagged = true;
        (ethertype, payload) = (tag.ethertype(), tag.payload());
        link_size += vlan::TAG_SIZE;
    }
    if ethertype != EtherType::IPV4 {
        return Err(DropReason::NotForUs);
    }
    let ip = ipv4::Packet::new_checked(payload).map_err(|_| DropReason::BadIp)?;
    if ip.version() != 4 || !ip.header_checksum_ok() {
        return Err(DropReason::BadIp);
    }
    if ip.dst() != local || ip.protocol() != ipv4::PROTOCOL_UDP {
        return Err(DropReason::NotForUs);
    }
    if !tagged && marking.trust == Trust::PcpThenDscp {
        *priority = marking.dscp_to_priority[usize::from(ip.dscp() & 63)];
    }
    vxlan_frame(&ip, link_size, size, marking, *priority)
}

/// Classifies the part behind the outer IP header: UDP, VXLAN, and the tenant's frame.
fn vxlan_frame(
    ip: &ipv4::Packet<'_>,
    link_size: usize,
    size: u32,
    marking: Marking<'_>,
    priority: Priority,
) -> Result<OuterVerdict, DropReason> {
    if ip.is_fragment() {
        // RFC 7348 section 4.3: VTEPs must not fragment, and a part cannot be classified.
        return Err(DropReason::BadIp);
    }
    // The lengths of IP and UDP bound their payloads: a frame may be longer, by the padding of its
    // link or a frame check sequence that was left on (RFC 894; RFC 1122 section 3.2.1), and so may
    // a packet be.
    let whole = u32::try_from(link_size).ok().map(|link| link + u32::from(ip.total_size()));
    let ip_payload_size = usize::from(ip.total_size()).checked_sub(ip.header_size());
    let datagram = udp::Packet::new_checked(ip.payload()).map_err(|_| DropReason::BadUdp)?;
    if datagram.dst_port() != vxlan::PORT {
        return Err(DropReason::NotForUs);
    }
    if whole.is_none_or(|whole| whole > size) {
        return Err(DropReason::BadIp);
    }
    let udp_size = usize::from(datagram.size());
    if udp_size < udp::HEADER_SIZE || ip_payload_size.is_none_or(|there| there < udp_size) {
        return Err(DropReason::BadUdp);
    }
    let header =
        vxlan::Header::new_checked(datagram.payload()).map_err(|_| DropReason::BadVxlan)?;
    if !header.has_vni() {
        return Err(DropReason::BadVxlan);
    }
    let inner = ethernet::Frame::new_checked(header.payload()).map_err(|_| DropReason::BadVxlan)?;
    let strip = link_size + ip.header_size() + udp::HEADER_SIZE + vxlan::HEADER_SIZE;
    let strip = u16::try_from(strip).map_err(|_| DropReason::BadIp)?;
    let inner_size = u32::from(datagram.size()) - TUNNEL_SIZE;
    let dst = inner.dst();
    if dst.is_reserved() {
        return Err(DropReason::ReservedAddress);
    }
    // The outer priority applies on this side of the tunnel; the inner one is only checked.
    let own_tag = match tenant(&inner, inner_size, marking) {
        Ok(_) => None,
        Err(reason @ (DropReason::VlanNotAllowed | DropReason::BadVlan))
            if has_whole_tag(header.payload()) =>
        {
            Some(reason)
        }
        Err(reason) => return Err(reason),
    };
    Ok(OuterVerdict::Forward(Decapsulated {
        inner: Classified { dst, priority },
        remote: ip.src(),
        vni: header.vni().get(),
        size: u32::from(strip) + inner_size,
        strip,
        ecn: inner_ecn(&inner, ip.ecn())?,
        own_tag,
    }))
}

/// Returns the inner ECN field after the tunnel, if it differs (RFC 6040 section 4.2).
fn inner_ecn(inner: &ethernet::Frame<'_>, outer: u8) -> Result<Option<u8>, DropReason> {
    let Some(now) = tenant_ecn(inner) else { return Ok(None) };
    match ecn::decapsulate(outer, now) {
        None => Err(DropReason::NotEcnCapable),
        Some(then) if then == now => Ok(None),
        Some(then) => Ok(Some(then)),
    }
}

/// Returns the ECN field of a tenant's frame; `None` if it is not IP (RFC 6040 section 4.1: no
/// marking).
pub(crate) fn tenant_ecn(frame: &ethernet::Frame<'_>) -> Option<u8> {
    let (ethertype, payload) = network_header(frame)?;
    match ethertype {
        EtherType::IPV4 => ipv4::Packet::new_checked(payload).ok().map(|ip| ip.ecn()),
        EtherType::IPV6 => ipv6::Packet::new_checked(payload).ok().map(|ip| ip.ecn()),
        _ => None,
    }
}

/// Returns type and bytes behind the Ethernet header and a tag.
fn network_header<'a>(frame: &ethernet::Frame<'a>) -> Option<(EtherType, &'a [u8])> {
    if frame.ethertype() != EtherType::VLAN {
        return Some((frame.ethertype(), frame.payload()));
    }
    let tag = vlan::Tag::new_checked(frame.payload()).ok()?;
    Some((tag.ethertype(), tag.payload()))
}

/// Copies the head of a tenant's frame up to the end of its IP header with another ECN field.
/// Returns the number of bytes written; 0 if the frame is not IP.
pub(crate) fn with_ecn(head: &[u8], value: u8, out: &mut [u8]) -> usize {
    let Ok(frame) = ethernet::Frame::new_checked(head) else { return 0 };
    let Some((ethertype, payload)) = network_header(&frame) else { return 0 };
    let network_at = head.len() - payload.len();
    let header_size = match ethertype {
        EtherType::IPV4 => ipv4::HEADER_SIZE_MIN,
        EtherType::IPV6 => ipv6::HEADER_SIZE,
        _ => return 0,
    };
    let size = network_at + header_size;
    if size > head.len() || size > out.len() {
        return 0;
    }
    out[..size].copy_from_slice(&head[..size]);
    match ethertype {
        EtherType::IPV4 => ipv4::set_ecn(&mut out[network_at..size], value),
        _ => ipv6::set_ecn(&mut out[network_at..size], value),
    }
    size
}

#[cfg(test)]
mod tests;
