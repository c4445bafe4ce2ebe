//! The header in front of a frame of a virtqueue or a TAP, and the offloads that it requests: the
//! features and the terms of virtio (1.2 sections 5.1.3 and 5.1.6; segmentation of UDP is of 1.3).

use crate::offload::{InvalidOffload, Kind, Offload, OffloadRequest};

const CSUM: u64 = 1;
const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
const GUEST_ECN: u64 = 1 << 9;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;
const HOST_ECN: u64 = 1 << 13;
const GUEST_USO4: u64 = 1 << 54;
const GUEST_USO6: u64 = 1 << 55;
const HOST_USO: u64 = 1 << 56;

/// Size of the header with `num_buffers`, as `VIRTIO_F_VERSION_1` demands.
pub(crate) const HEADER_SIZE: usize = 12;
/// Offsets of `gso_type` and `num_buffers`; `flags` come first.
const GSO_TYPE: usize = 1;
pub(crate) const NUM_BUFFERS: usize = 10;

/// Offered features: offloads that guests may leave to the port, and offloads left to guests.
pub(crate) const OFFERED: u64 = CSUM
    | GUEST_CSUM
    | GUEST_TSO4
    | GUEST_TSO6
    | GUEST_ECN
    | HOST_TSO4
    | HOST_TSO6
    | HOST_ECN
    | GUEST_USO4
    | GUEST_USO6
    | HOST_USO;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_*`.
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Returns true if a frame is unfinished: it needs a checksum, or has to be cut into segments.
pub(crate) const fn asks_for_offload(header: &[u8; HEADER_SIZE]) -> bool {
    header[0] & NEEDS_CSUM != 0 || header[GSO_TYPE] != 0
}

/// Makes the header of a finished frame, over `count` of its receiver's buffers.
pub(crate) fn of_buffers(count: u16) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[NUM_BUFFERS..].copy_from_slice(&count.to_le_bytes());
    header
}

/// Returns true if a guest may leave any offload to the port.
pub(crate) const fn may_leave(agreed: u64) -> bool {
    agreed & CSUM != 0
}

/// Parses the request of a header.
///
/// # Errors
/// It was not negotiated, or makes no sense.
pub(crate) fn ask_of(
    header: &[u8; HEADER_SIZE],
    agreed: u64,
) -> Result<OffloadRequest, InvalidOffload> {
    let has = |feature| agreed & feature != 0;
    let &[flags, gso, _, _, size @ .., start_low, start_high, offset_low, offset_high, _, _] =
        header;
    if flags & NEEDS_CSUM == 0 || !has(CSUM) {
        return Err(InvalidOffload);
    }
    let ecn = gso & GSO_ECN != 0;
    let kind = match gso & !GSO_ECN {
        0 if !ecn => None,
        GSO_TCPV4 if has(HOST_TSO4) => Some(Kind::Tcp4),
        GSO_TCPV6 if has(HOST_TSO6) => Some(Kind::Tcp6),
        GSO_UDP_L4 if has(HOST_USO) && !ecn => Some(Kind::Udp),
        _ => return Err(InvalidOffload),
    };
    if ecn && !has(HOST_ECN) {
        return Err(InvalidOffload);
    }
    Ok(OffloadRequest {
        start: u16::from_le_bytes([start_low, start_high]),
        offset: u16::from_le_bytes([offset_low, offset_high]),
        cut: kind.map(|kind| (kind, u16::from_le_bytes(size))),
        ecn,
    })
}

/// Returns true if these offloads may be left to a guest.
pub(crate) fn takes(agreed: u64, left: &Offload) -> bool {
    let cut = match left.ask().cut {
        None => 0,
        Some((Kind::Tcp4, _)) => GUEST_TSO4,
        Some((Kind::Tcp6, _)) => GUEST_TSO6,
        Some((Kind::Udp, _)) if left.is_ipv6() => GUEST_USO6,
        Some((Kind::Udp, _)) => GUEST_USO4,
    };
    let ecn = if cut != 0 && left.ask().ecn { GUEST_ECN } else { 0 };
    let needed = GUEST_CSUM | cut | ecn;
    agreed & needed == needed
}

/// Makes the header of a frame with offloads left to its receiver, over `buffers` of its buffers.
pub(crate) fn header_of(left: &Offload, buffers: u16) -> [u8; HEADER_SIZE] {
    let ask = left.ask();
    let mut header = [0; HEADER_SIZE];
    header[0] = NEEDS_CSUM;
    if let Some((kind, each)) = ask.cut {
        let gso = match kind {
            Kind::Tcp4 => GSO_TCPV4,
            Kind::Tcp6 => GSO_TCPV6,
            Kind::Udp => GSO_UDP_L4,
        };
        header[1] = gso | if ask.ecn { GSO_ECN } else { 0 };
        header[2..4].copy_from_slice(&left.header_size().to_le_bytes());
        header[4..6].copy_from_slice(&each.to_le_bytes());
    }
    header[6..8].copy_from_slice(&ask.start.to_le_bytes());
    header[8..10].copy_from_slice(&ask.offset.to_le_bytes());
    header[NUM_BUFFERS..].copy_from_slice(&buffers.to_le_bytes());
    header
}
