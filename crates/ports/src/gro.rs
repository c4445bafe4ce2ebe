//! Generic receive offload: TCP segments of a flow, each the next of the one before, become one
//! super-frame for a peer that takes it (as in Linux, `networking/segmentation-offloads`).
//!
//! ```text
//!   segment 1 | segment 2 | segment 3   ─▶   | headers | payload 1 | payload 2 | payload 3 |
//! ```
//!
//! Segments that differ in more than sequence number, PSH, checksum and an identification that
//! counts up are not joined, so that the receiver can cut the super-frame into what came. Only
//! segments with a right checksum are joined: the super-frame has none.
//!
//! A segment that is shorter than the first one, or has PSH, is the last one of its super-frame.

mod segment;
mod tunnel;

use core::ops::DerefMut;

use sluice_base::Priority;
use sluice_switch::Egress;
use sluice_wire::{checksum, ipv4, ipv6, tcp};

use self::segment::Segment;
pub(crate) use self::tunnel::{Run, join};
use crate::frame::FrameBuf;
use crate::offload::{Kind, Offload, OffloadRequest, SEGMENTS_MAX};
use crate::port::Amount;

/// Flows whose segments are joined at the same time.
const FLOWS: usize = 8;
/// Maximum of an IP packet in bytes.
const PACKET_SIZE_MAX: usize = u16::MAX as usize;
const ETHERNET_SIZE: usize = sluice_wire::ethernet::HEADER_SIZE;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM_AT: usize = 16;
const TCP_FLAGS_AT: usize = 13;

/// Answer to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It was taken.
    Taken,
    /// It can be sent at once, ahead of what waits: it belongs to none of the flows.
    Apart,
    /// Waiting frames have to be sent first. Then this one may be offered again.
    Behind,
}

/// Super-frames in the making.
#[derive(Debug, Default)]
pub(crate) struct Gro {
    /// In the order of their first segments; unused ones, with their memory, follow.
    flows: Vec<Flow<Box<[u8]>>>,
    used: usize,
}

/// A super-frame in the making.
#[derive(Debug)]
struct Flow<M> {
    bytes: M,
    size: usize,
    transport_at: usize,
    /// Size of the headers.
    header_size: usize,
    /// Payload of each segment but the last one.
    each: u16,
    segments: u16,
    next_seq: u32,
    /// Identification of the first segment; the others count up from it.
    ident: u16,
    /// True if no segment can follow.
    ended: bool,
    priority: Priority,
}

/// A frame of one or more segments.
pub(crate) struct Merged<'a> {
    pub(crate) bytes: &'a [u8],
    /// Offloads that are left to the receiver; `None` for a single segment.
    pub(crate) left: Option<Offload>,
    segments: u16,
    pub(crate) priority: Priority,
}

impl Merged<'_> {
    /// The frame, for a driver.
    pub(crate) fn frame(&self) -> Egress<'_, FrameBuf> {
        Egress {
            header: self.bytes,
            buf: None,
            strip: 0,
            size: u32::try_from(self.bytes.len()).expect("an IP packet"),
            first: 0,
            priority: self.priority,
            tunnel: None,
        }
    }

    /// Sizes of its frames on a wire.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let of = |left: &Offload, nth| usize::from(left.header_size()) + left.part(nth).1;
        (0..self.segments)
            .map(move |nth| self.left.as_ref().map_or(self.bytes.len(), |left| of(left, nth)))
    }
}

impl Gro {
    /// Joins a frame to those that wait, if it is a segment that can be joined.
    #[inline]
    pub(crate) fn join(&mut self, frame: &Egress<'_, FrameBuf>) -> Joined {
        let Some(segment) = Segment::of(frame) else {
            return if self.used == 0 { Joined::Apart } else { Joined::Behind };
        };
        let waiting = &mut self.flows[..self.used];
        if let Some(flow) = waiting.iter_mut().find(|flow| flow.is_same_flow(&segment)) {
            let joins = flow.takes(&segment) && frame.priority == flow.priority;
            if joins {
                flow.append(&segment);
            }
            return if joins { Joined::Taken } else { Joined::Behind };
        }
        if !segment.begins {
            return Joined::Apart;
        }
        if self.used == FLOWS {
            return Joined::Behind;
        }
        if self.used == self.flows.len() {
            self.flows.push(Flow::over(vec![0; ETHERNET_SIZE + PACKET_SIZE_MAX].into()));
        }
        self.flows[self.used].begin(&segment, frame.priority);
        self.used += 1;
        Joined::Taken
    }

    /// The frame that has waited longest.
    pub(crate) fn first(&mut self) -> Option<Merged<'_>> {
        let flow = self.flows[..self.used].first_mut()?;
        let left = flow.finish();
        let (segments, priority) = (flow.segments, flow.priority);
        Some(Merged { bytes: &flow.bytes[..flow.size], left, segments, priority })
    }

    /// Forgets the frame that has waited longest: it was sent.
    pub(crate) fn remove_first(&mut self) {
        self.flows[..self.used].rotate_left(1);
        self.used -= 1;
    }

    /// Segments that wait.
    pub(crate) fn waiting(&self) -> Amount {
        let waiting = &self.flows[..self.used];
        Amount {
            frames: waiting.iter().map(|flow| u64::from(flow.segments)).sum(),
            bytes: waiting.iter().map(|flow| flow.wire_size()).sum(),
        }
    }
}

impl<M: DerefMut<Target = [u8]>> Flow<M> {
    /// A super-frame to be made in this memory.
    fn over(bytes: M) -> Self {
        Self {
            bytes,
            size: 0,
            transport_at: 0,
            header_size: 0,
            each: 0,
            segments: 0,
            next_seq: 0,
            ident: 0,
            ended: false,
            priority: Priority::ZERO,
        }
    }

    fn begin(&mut self, segment: &Segment<'_>, priority: Priority) {
        self.bytes[..segment.bytes.len()].copy_from_slice(segment.bytes);
        self.size = segment.bytes.len();
        self.transport_at = segment.transport_at;
        self.header_size = segment.header_size;
        self.each = segment.payload_size();
        self.segments = 1;
        self.next_seq = segment.seq().wrapping_add(self.each.into());
        self.ident = segment.ident();
        self.ended = segment.is_pushed();
        self.priority = priority;
    }

    /// True if a segment has the addresses and ports of this flow.
    fn is_same_flow(&self, segment: &Segment<'_>) -> bool {
        segment.transport_at == self.transport_at
            && segment.addresses() == &self.bytes[segment.addresses_range()]
            && segment.ports() == &self.bytes[self.transport_at..][..4]
    }

    /// True if a segment of this flow is the next one, and like those before.
    fn takes(&self, segment: &Segment<'_>) -> bool {
        segment.begins
            && !self.ended
            && segment.seq() == self.next_seq
            && self.counts_on(segment)
            && u32::from(self.segments) < SEGMENTS_MAX
            && segment.payload_size() <= self.each
            && segment.header_size == self.header_size
            && self.size + usize::from(segment.payload_size()) <= self.size_max()
            && segment.is_like(&self.bytes[..self.header_size])
    }

    /// Size of the largest frame that can be made here.
    fn size_max(&self) -> usize {
        self.bytes.len().min(ETHERNET_SIZE + PACKET_SIZE_MAX)
    }

    /// True if the identification of IPv4 is the next one: so the receiver's kernel makes it again.
    fn counts_on(&self, segment: &Segment<'_>) -> bool {
        let is_ipv6 = self.transport_at == ETHERNET_SIZE + ipv6::HEADER_SIZE;
        is_ipv6 || segment.ident() == self.ident.wrapping_add(self.segments)
    }

    fn append(&mut self, segment: &Segment<'_>) {
        let payload = &segment.bytes[segment.header_size..];
        self.bytes[self.size..][..payload.len()].copy_from_slice(payload);
        self.size += payload.len();
        self.segments += 1;
        self.next_seq = self.next_seq.wrapping_add(segment.payload_size().into());
        self.ended = segment.payload_size() < self.each || segment.is_pushed();
        if segment.is_pushed() {
            self.bytes[self.transport_at + TCP_FLAGS_AT] |= tcp::flags::PSH;
        }
    }

    /// Bytes of all segments with their headers.
    fn wire_size(&self) -> u64 {
        (self.size + usize::from(self.segments - 1) * self.header_size) as u64
    }

    /// Writes sizes and checksums of the headers. Returns what is left to the receiver.
    fn finish(&mut self) -> Option<Offload> {
        if self.segments == 1 {
            return None;
        }
        let is_ipv6 = self.transport_at == ETHERNET_SIZE + ipv6::HEADER_SIZE;
        let packet = &mut self.bytes[ETHERNET_SIZE..self.size];
        let packet_size = u16::try_from(packet.len()).expect("not above `PACKET_SIZE_MAX`");
        let payload_size = u16::try_from(self.size - self.transport_at).expect("smaller");
        let sum = if is_ipv6 {
            packet[4..6].copy_from_slice(&payload_size.to_be_bytes());
            let packet = ipv6::Packet::new_checked(packet).ok()?;
            checksum::pseudo_ipv6(packet.src(), packet.dst(), ipv4::PROTOCOL_TCP, payload_size)
        } else {
            packet[2..4].copy_from_slice(&packet_size.to_be_bytes());
            packet[10..12].fill(0);
            let header = checksum::internet(&packet[..ipv4::HEADER_SIZE_MIN]);
            packet[10..12].copy_from_slice(&header.to_be_bytes());
            let packet = ipv4::Packet::new_checked(packet).ok()?;
            checksum::pseudo_ipv4(packet.src(), packet.dst(), ipv4::PROTOCOL_TCP, payload_size)
        };
        self.bytes[self.transport_at + TCP_CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
        let kind = if is_ipv6 { Kind::Tcp6 } else { Kind::Tcp4 };
        let request = OffloadRequest {
            start: u16::try_from(self.transport_at).expect("behind one IP header"),
            offset: u16::try_from(TCP_CHECKSUM_AT).expect("a small number"),
            cut: Some((kind, self.each)),
            ecn: false,
        };
        let left = Offload::check(request, &self.bytes[..self.header_size], self.size);
        Some(left.expect("it is a super-frame of TCP"))
    }
}

#[cfg(test)]
mod tests;
