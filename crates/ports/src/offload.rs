//! Offloads of a guest's frames: checks and performs them (virtio 1.2 section 5.1.6.2).
//!
//! ```text
//!   NEEDS_CSUM      | ethernet | ip | tcp, its checksum open | payload |
//!                                     ^ start   ^ start + offset
//!   super-frame     | headers | payload ........................................ |
//!   its segments    | headers' | part | headers' | part | ... | headers' | rest |
//! ```
//!
//! A frame stays as it is up to its egress driver. If the peer of that driver does offloads, it
//! gets the request with the frame; else a [`Finisher`](crate::finish::Finisher) performs it.
//!
//! **A guest's request is not trusted.** Its checksum field must lie behind everything by which the
//! switch decided: a checksum that is "finished" in a source address would change the sender of the
//! frame. A frame to be cut must match its headers, up to their last byte, and all headers must lie
//! in the head that was copied.
//!
//! Segments are made as Linux makes them (`tcp_gso_segment`): the IPv4 identification increments,
//! FIN and PSH stand in the last one only, CWR in the first one only (RFC 3168 section 6.1.2).

use sluice_wire::{EtherType, checksum, ipv4, ipv6, tcp, udp, vlan};

/// Maximum of segments of a super-frame. A TCP segment in Linux has 48 bytes at least, so that the
/// largest frame stays below; without a limit, segments of a byte would be 65,000 frames.
pub(crate) const SEGMENTS_MAX: u32 = 2048;
/// ICMPv6, and the offset of its checksum (RFC 4443 section 2.1).
const ICMPV6: u8 = 58;
const ICMPV6_CHECKSUM_AT: u16 = 2;
/// Offsets of the checksums of TCP and UDP.
const TCP_CHECKSUM_AT: u16 = 16;
const UDP_CHECKSUM_AT: u16 = 6;
/// Maximum of tags in front of a packet.
const TAGS_MAX: usize = 2;

/// Kind of the segments of a super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams, each with its header.
    Udp,
}

/// Offloads that a guest requests for a frame, not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffloadRequest {
    /// Start of the bytes that the checksum covers, and the offset of its field from there.
    pub(crate) start: u16,
    pub(crate) offset: u16,
    /// Kind of the segments, and bytes of payload of each.
    pub(crate) cut: Option<(Kind, u16)>,
    /// True if CWR may be set.
    pub(crate) ecn: bool,
}

/// Offloads to be performed on a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    ask: OffloadRequest,
    /// Size of the frame in memory.
    size: u32,
    /// Offset of the IP header.
    network_at: u16,
    /// Size of the headers of each segment.
    header_size: u16,
    is_ipv6: bool,
}

/// A frame requests an offload that cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidOffload;

impl Offload {
    /// Placeholder for memory that holds no request yet.
    pub(crate) const NOTHING: Self = Self {
        ask: OffloadRequest { start: 0, offset: 0, cut: None, ecn: false },
        size: 0,
        network_at: 0,
        header_size: 0,
        is_ipv6: false,
    };

    /// Checks a request for a frame of `size` bytes that begins with `head`.
    pub(crate) fn check(
        mut ask: OffloadRequest,
        head: &[u8],
        size: usize,
    ) -> Result<Self, InvalidOffload> {
        let end = usize::from(ask.start) + usize::from(ask.offset) + 2;
        if end > size {
            return Err(InvalidOffload);
        }
        let network = Network::of(head)?;
        if usize::from(ask.start) < network.transport_at {
            return Err(InvalidOffload);
        }
        if network.protocol == Some(ICMPV6) {
            let whole = usize::from(ask.start) == network.transport_at;
            if !whole || ask.offset != ICMPV6_CHECKSUM_AT {
                return Err(InvalidOffload);
            }
        }
        let (mut header_size, mut is_ipv6) = (0, false);
        if let Some((kind, each)) = ask.cut {
            header_size = network.cuttable(kind, ask, head, size)?;
            is_ipv6 = network.is_ipv6;
            let payload = u32::try_from(size).map_err(|_| InvalidOffload)? - u32::from(header_size);
            if each == 0 || payload.div_ceil(each.into()) > SEGMENTS_MAX {
                return Err(InvalidOffload);
            }
            if payload <= each.into() {
                ask.cut = None;
            }
        }
        let network_at = u16::try_from(network.at).map_err(|_| InvalidOffload)?;
        let size = u32::try_from(size).map_err(|_| InvalidOffload)?;
        Ok(Self { ask, size, network_at, header_size, is_ipv6 })
    }

    /// The same offloads of a frame that lies behind `outer` bytes of outer headers, which each of
    /// its segments has.
    pub(crate) const fn behind(mut self, outer: u16) -> Self {
        self.ask.start += outer;
        self.network_at += outer;
        self.header_size += outer;
        self.size += outer as u32;
        self
    }

    /// The same offloads of the frame behind the first `outer` bytes.
    pub(crate) const fn without(mut self, outer: u16) -> Self {
        self.ask.start -= outer;
        self.network_at -= outer;
        self.header_size -= outer;
        self.size -= outer as u32;
        self
    }

    /// The request.
    pub(crate) const fn ask(&self) -> &OffloadRequest {
        &self.ask
    }

    /// Size of the headers of each segment.
    pub(crate) const fn header_size(&self) -> u16 {
        self.header_size
    }

    /// Returns true if the IP header is of version 6.
    pub(crate) const fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Returns true if it is more than one frame on the wire.
    pub(crate) const fn is_super(&self) -> bool {
        self.ask.cut.is_some()
    }

    /// Size of the frame in memory.
    pub(crate) const fn size(&self) -> usize {
        self.size as usize
    }

    /// Bytes of payload of each segment but the last one.
    fn payload_each(&self) -> u32 {
        self.ask.cut.map_or(self.size, |(_, each)| each.into())
    }

    /// Number of frames on the wire.
    pub(crate) fn segments(&self) -> u16 {
        if !self.is_super() {
            return 1;
        }
        let payload = self.size - u32::from(self.header_size);
        u16::try_from(payload.div_ceil(self.payload_each())).expect("at most `SEGMENTS_MAX`")
    }

    /// Size of all wire frames together.
    pub(crate) fn wire_size(&self) -> u32 {
        self.size + u32::from(self.segments() - 1) * u32::from(self.header_size)
    }

    /// Size of the largest wire frame.
    pub(crate) fn segment_size(&self) -> u32 {
        if self.is_super() { u32::from(self.header_size) + self.payload_each() } else { self.size }
    }

    /// Offset and size, in the frame, of the payload of the `nth` segment.
    pub(crate) fn part(&self, nth: u16) -> (usize, usize) {
        let at = u32::from(self.header_size) + u32::from(nth) * self.payload_each();
        (at as usize, self.payload_each().min(self.size - at) as usize)
    }

    /// Finishes the checksum of a whole frame.
    pub(crate) fn finish(&self, frame: &mut [u8]) {
        let start = usize::from(self.ask.start);
        let sum = not_zero(checksum::internet(&frame[start..]));
        frame[start + usize::from(self.ask.offset)..][..2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Turns `segment`, which has the headers of the whole frame and the payload of the `nth`
    /// segment, into that segment.
    pub(crate) fn make(&self, nth: u16, segment: &mut [u8]) {
        let (headers, payload) = segment.split_at_mut(self.header_size.into());
        self.make_headers(nth, headers, payload);
    }

    /// Turns `headers`, which are those of the whole frame, into those of the `nth` segment, whose
    /// `payload` lies elsewhere.
    pub(crate) fn make_headers(&self, nth: u16, headers: &mut [u8], payload: &[u8]) {
        let Some((kind, each)) = self.ask.cut else { return };
        let (network_at, transport_at) = (self.network_at.into(), usize::from(self.ask.start));
        let (front, transport) = headers.split_at_mut(transport_at);
        match kind {
            Kind::Tcp4 | Kind::Tcp6 => {
                make_tcp(nth, nth + 1 == self.segments(), each, transport);
            }
            Kind::Udp => {
                let size = transport.len() + payload.len();
                let size = u16::try_from(size).expect("a segment is small");
                transport[4..6].copy_from_slice(&size.to_be_bytes());
            }
        }
        let network = &mut front[network_at..];
        if self.is_ipv6 {
            make_ipv6(network, kind, (transport, payload));
        } else {
            make_ipv4(nth, network, kind, (transport, payload));
        }
    }
}

impl Offload {
    /// Turns `headers`, which are those of a whole frame of UDP, into those of the `nth` segment,
    /// whose payload has `payload` bytes, without a checksum (RFC 768; over IPv6, RFC 6935).
    pub(crate) fn make_headers_without_sum(&self, nth: u16, headers: &mut [u8], payload: usize) {
        let (front, transport) = headers.split_at_mut(usize::from(self.ask.start));
        let size = u16::try_from(transport.len() + payload).expect("a segment is small");
        transport[4..6].copy_from_slice(&size.to_be_bytes());
        transport[6..8].fill(0);
        let network = &mut front[self.network_at.into()..];
        if self.is_ipv6 {
            put_ipv6_size(network, usize::from(size));
        } else {
            put_ipv4_size(nth, network, usize::from(size));
        }
    }
}

/// A checksum of zero would mean "none" (RFC 768); 0xffff is also zero in one's complement (RFC
/// 1071).
const fn not_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

fn make_tcp(nth: u16, is_last: bool, each: u16, header: &mut [u8]) {
    use tcp::flags::{CWR, FIN, PSH};
    let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let seq = seq.wrapping_add(u32::from(nth) * u32::from(each));
    header[4..8].copy_from_slice(&seq.to_be_bytes());
    if !is_last {
        header[13] &= !(FIN | PSH);
    }
    if nth > 0 {
        header[13] &= !CWR;
    }
}

/// Number of the protocol, and offset of its checksum.
const fn protocol_of(kind: Kind) -> (u8, usize) {
    match kind {
        Kind::Tcp4 | Kind::Tcp6 => (ipv4::PROTOCOL_TCP, TCP_CHECKSUM_AT as usize),
        Kind::Udp => (ipv4::PROTOCOL_UDP, UDP_CHECKSUM_AT as usize),
    }
}

fn put_checksum(transport: &mut [u8], kind: Kind, over: impl Fn(&[u8]) -> u16) {
    let (_, at) = protocol_of(kind);
    transport[at..at + 2].fill(0);
    let sum = over(transport);
    let sum = if kind == Kind::Udp { not_zero(sum) } else { sum };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn make_ipv4(nth: u16, header: &mut [u8], kind: Kind, (transport, payload): (&mut [u8], &[u8])) {
    put_ipv4_size(nth, header, transport.len() + payload.len());
    let Ok(packet) = ipv4::Packet::new_checked(header) else { return };
    let (src, dst) = (packet.src(), packet.dst());
    put_checksum(transport, kind, |header| {
        checksum::parts_over_ipv4(src, dst, protocol_of(kind).0, (header, payload))
    });
}

/// Writes the size, the identification and the checksum of the IPv4 header of the `nth` segment.
fn put_ipv4_size(nth: u16, header: &mut [u8], payload: usize) {
    let size = u16::try_from(header.len() + payload).expect("a segment is small");
    let ident = u16::from_be_bytes([header[4], header[5]]).wrapping_add(nth);
    header[2..4].copy_from_slice(&size.to_be_bytes());
    header[4..6].copy_from_slice(&ident.to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum::internet(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn make_ipv6(header: &mut [u8], kind: Kind, (transport, payload): (&mut [u8], &[u8])) {
    put_ipv6_size(header, transport.len() + payload.len());
    let Ok(packet) = ipv6::Packet::new_checked(header) else { return };
    let (src, dst) = (packet.src(), packet.dst());
    put_checksum(transport, kind, |header| {
        checksum::parts_over_ipv6(src, dst, protocol_of(kind).0, (header, payload))
    });
}

fn put_ipv6_size(header: &mut [u8], payload: usize) {
    let size = header.len() - ipv6::HEADER_SIZE + payload;
    let size = u16::try_from(size).expect("a segment is small");
    header[4..6].copy_from_slice(&size.to_be_bytes());
}

/// Layer 3 of a frame, as parsed.
#[derive(Clone, Copy, Debug)]
struct Network {
    /// Offset of the IP header.
    at: usize,
    /// Offset of its payload, as far as the switch parses headers.
    transport_at: usize,
    /// Protocol of that payload.
    protocol: Option<u8>,
    is_ipv6: bool,
    /// Size from `at` on, according to the header; zero if the header does not give it.
    size: usize,
    /// False for a fragment, or with a routing header, which cannot be cut.
    is_whole: bool,
}

impl Network {
    fn of(head: &[u8]) -> Result<Self, InvalidOffload> {
        let mut at = 14;
        let ethertype = |at: usize| {
            let bytes = head.get(at - 2..at).and_then(|bytes| bytes.first_chunk());
            bytes.map(|bytes: &[u8; 2]| EtherType(u16::from_be_bytes(*bytes))).ok_or(InvalidOffload)
        };
        for _ in 0..TAGS_MAX {
            if ethertype(at)?.is_tag() {
                at += vlan::TAG_SIZE;
            }
        }
        let packet = head.get(at..).ok_or(InvalidOffload)?;
        match ethertype(at)? {
            EtherType::IPV4 => Self::of_ipv4(at, packet),
            EtherType::IPV6 => Self::of_ipv6(at, packet),
            EtherType::ARP | EtherType::MAC_CONTROL => Err(InvalidOffload),
            _ => Ok(Self {
                at,
                transport_at: at,
                protocol: None,
                is_ipv6: false,
                size: 0,
                is_whole: false,
            }),
        }
    }

    fn of_ipv4(at: usize, packet: &[u8]) -> Result<Self, InvalidOffload> {
        let packet = ipv4::Packet::new_checked(packet).map_err(|_| InvalidOffload)?;
        if packet.header_size() < ipv4::HEADER_SIZE_MIN {
            return Err(InvalidOffload);
        }
        Ok(Self {
            at,
            transport_at: at + packet.header_size(),
            protocol: Some(packet.protocol()),
            is_ipv6: false,
            size: packet.total_size().into(),
            is_whole: !packet.is_fragment(),
        })
    }

    /// Skips extension headers (RFC 8200 section 4).
    fn of_ipv6(at: usize, bytes: &[u8]) -> Result<Self, InvalidOffload> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const DESTINATION: u8 = 60;
        const FRAGMENT: u8 = 44;
        let packet = ipv6::Packet::new_checked(bytes).map_err(|_| InvalidOffload)?;
        let (mut next, mut end) = (packet.next_header(), ipv6::HEADER_SIZE);
        let mut is_whole = true;
        while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
            is_whole &= next != ROUTING;
            let header = bytes.get(end..end + 2).ok_or(InvalidOffload)?;
            next = header[0];
            end += (usize::from(header[1]) + 1) * 8;
        }
        let size = match packet.payload_size() {
            0 => 0,
            size => ipv6::HEADER_SIZE + usize::from(size),
        };
        Ok(Self {
            at,
            transport_at: at + end,
            protocol: Some(next),
            is_ipv6: true,
            size,
            is_whole: is_whole && next != FRAGMENT,
        })
    }

    /// Size of the headers of a frame to be cut, if it can be cut.
    fn cuttable(
        &self,
        kind: Kind,
        ask: OffloadRequest,
        head: &[u8],
        size: usize,
    ) -> Result<u16, InvalidOffload> {
        let is_of_kind = match kind {
            Kind::Tcp4 => !self.is_ipv6,
            Kind::Tcp6 => self.is_ipv6,
            Kind::Udp => true,
        };
        let (protocol, checksum_at) = protocol_of(kind);
        // Some drivers leave the size field to the card.
        let is_all = self.size == 0 || self.at + self.size == size;
        if !is_of_kind
            || self.protocol != Some(protocol)
            || !self.is_whole
            || !is_all
            || usize::from(ask.start) != self.transport_at
            || usize::from(ask.offset) != checksum_at
        {
            return Err(InvalidOffload);
        }
        let transport = head.get(self.transport_at..).ok_or(InvalidOffload)?;
        let own = match kind {
            Kind::Udp => udp::HEADER_SIZE,
            Kind::Tcp4 | Kind::Tcp6 => {
                let packet = tcp::Packet::new_checked(transport).map_err(|_| InvalidOffload)?;
                if packet.header_size() < tcp::HEADER_SIZE_MIN {
                    return Err(InvalidOffload);
                }
                packet.header_size()
            }
        };
        let end = self.transport_at + own;
        // There must be something to cut, and all of the headers must be in the copy.
        if end > head.len() || end >= size {
            return Err(InvalidOffload);
        }
        u16::try_from(end).map_err(|_| InvalidOffload)
    }
}

#[cfg(test)]
mod tests;
