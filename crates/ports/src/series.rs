//! Segments of a super-frame that goes through a tunnel, made without a copy of their payload, for
//! a kernel that takes several datagrams of one size as one.
//!
//! ```text
//!   super-frame in the pool:   | headers | payload ................................ |
//!                                          ^ part 0     ^ part 1     ^ part 2
//!   given to the kernel:       | VXLAN, headers 0 | part 0 | VXLAN, headers 1 | part 1 | ...
//! ```
//!
//! Only the headers are made here, checksums included; the kernel gathers the rest from where it
//! lies. What cannot go so, a guest's memory or a single segment, goes by a [`Finisher`]: a guest
//! may write while a checksum is being made, and no code gets a reference into its memory.
//!
//! [`Finisher`]: crate::finish::Finisher

use sluice_base::Buf as _;
use sluice_switch::{Egress, Taken};

use crate::frame::FrameBuf;
use crate::offload::Offload;

/// Maximum of segments that the kernel is given as one (`UDP_MAX_SEGMENTS` before Linux 6.9), and
/// that go before the switch schedules again.
pub(crate) const SEGMENTS_TOGETHER_MAX: usize = 64;
/// The same, as a number of segments.
const TURN_SEGMENTS_MAX: u16 = 64;
const _: () = assert!(TURN_SEGMENTS_MAX as usize == SEGMENTS_TOGETHER_MAX);
/// Largest payload of a UDP datagram over IPv4, also of several that are given as one.
pub(crate) const DATAGRAMS_SIZE_MAX: usize = 65_507;
/// Bytes of a datagram beside the IP packet of its segment: VXLAN header, and Ethernet header.
const AROUND_SIZE: usize = 8 + 14;
/// Parts of a series: two for each segment, and what a driver puts in front of all.
pub(crate) const PARTS_MAX: usize = 2 * SEGMENTS_TOGETHER_MAX + 2;
/// Room for the headers of one segment: those of VXLAN, and the tenant's.
const HEADER_ROOM: usize = 256;

/// Returns the number of segments, of a network with this MTU, that the kernel takes as one. A
/// super-frame of more would cost a second datagram for the rest, each way down to its receiver.
pub(crate) fn segments_max(mtu: u16) -> u32 {
    let together = DATAGRAMS_SIZE_MAX / (usize::from(mtu) + AROUND_SIZE);
    u32::try_from(together.clamp(1, SEGMENTS_TOGETHER_MAX)).unwrap_or(1)
}

/// Memory for the headers of a series.
#[derive(Debug)]
pub(crate) struct SeriesHeaders(Box<[u8]>);

/// A series of segments.
#[derive(Debug)]
pub(crate) struct Series<'a> {
    headers: &'a [u8],
    header_size: usize,
    bytes: &'a [u8],
    left: &'a Offload,
    first: u16,
    /// Number of segments, two at least.
    pub(crate) count: u16,
    /// Size of each datagram's payload but the last one's, which may be smaller.
    pub(crate) each: u16,
    /// Size of all payloads together.
    pub(crate) size: u16,
}

impl SeriesHeaders {
    pub(crate) fn new() -> Self {
        Self(vec![0; HEADER_ROOM * SEGMENTS_TOGETHER_MAX].into_boxed_slice())
    }

    /// Makes the segments of a frame from `first` on, as many as the kernel takes as one, and none
    /// that should wait for its scheduler. The outer headers without their first `skip` bytes stand
    /// in front of each. `None` if there are no two that can go so.
    #[inline]
    pub(crate) fn make<'a>(
        &'a mut self,
        frame: &Egress<'a, FrameBuf>,
        first: u16,
        skip: usize,
    ) -> Option<Series<'a>> {
        let buf = frame.buf.filter(|buf| buf.pool_slot().is_some())?;
        let left = buf.offload().filter(|left| left.is_super())?;
        let is_through_tunnel = frame.tunnel.is_some() && frame.strip == 0;
        let outer = frame.header.get(skip..).filter(|_| is_through_tunnel)?;
        let inner = usize::from(left.header_size());
        let header_size = outer.len() + inner;
        let each = u16::try_from(outer.len() + left.segment_size() as usize).ok()?;
        let together = DATAGRAMS_SIZE_MAX / usize::from(each);
        let end = first.saturating_add(u16::try_from(together).ok()?);
        let end = end.min(frame.first.saturating_add(TURN_SEGMENTS_MAX)).min(left.segments());
        let count = end.checked_sub(first).filter(|count| *count > 1)?;
        if header_size > HEADER_ROOM {
            return None;
        }
        let bytes = buf.bytes();
        let mut size = 0;
        for (nth, header) in (first..end).zip(self.0.chunks_exact_mut(HEADER_ROOM)) {
            let (at, payload) = left.part(nth);
            let (in_front, header) = header[..header_size].split_at_mut(outer.len());
            in_front.copy_from_slice(outer);
            header.copy_from_slice(&bytes[..inner]);
            left.make_headers(nth, header, &bytes[at..at + payload]);
            size += header_size + payload;
        }
        let size = u16::try_from(size).expect("not above `DATAGRAMS_SIZE_MAX`");
        Some(Series { headers: &self.0, header_size, bytes, left, first, count, each, size })
    }
}

impl Series<'_> {
    /// Its parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let headers = self.headers.chunks_exact(HEADER_ROOM);
        (self.first..self.first + self.count).zip(headers).flat_map(|(nth, header)| {
            let (at, size) = self.left.part(nth);
            [&header[..self.header_size], &self.bytes[at..at + size]]
        })
    }

    /// Writes its parts into a list for the kernel. Returns their number.
    pub(crate) fn list(&self, parts: &mut [libc::iovec]) -> usize {
        let mut count = 0;
        for (to, part) in parts.iter_mut().zip(self.parts()) {
            *to = part_of(part);
            count += 1;
        }
        debug_assert_eq!(count, 2 * usize::from(self.count));
        count
    }
}

/// Answer to the offer of a frame whose segments were taken up to `next`.
pub(crate) fn taken(frame: &Egress<'_, FrameBuf>, next: u16) -> Taken {
    match next - frame.first {
        0 => Taken::No,
        _ if frame.buf.is_some_and(|buf| buf.segments() == next) => Taken::All,
        count => Taken::Segments(count),
    }
}

/// A part of a message, which the kernel only reads.
pub(crate) const fn part_of(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests;
