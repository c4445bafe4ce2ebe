//! Datagrams that are given to a device as one, and that come from one as one (UDP segmentation
//! offload, USO): in front of a packet stands the header of virtio (1.3 section 5.1.6), and the
//! device or the kernel cuts it into frames.
//!
//! ```text
//!   sent:  | net header | Ethernet, IPv4, UDP | VXLAN, frame 0 | VXLAN, frame 1 | ...
//!   came:  the same, if no wire was on its way: over a veth pair
//!          ring: | its first bytes, `TP_STATUS_COPY` |      socket: | all of it |
//! ```
//!
//! A packet that is larger than a slot of the ring stands in the queue of its socket, whole, in the
//! order of the slots (`PACKET_COPY_THRESH`). Its frames are handed over one by one, as if each had
//! had a slot of its own; those for which there is no room yet wait here, set aside.
//!
//! Only the kernel's header tells of a series: the sizes inside are a tenant's, and cutting by them
//! would make frames of what is its payload.

use std::os::fd::BorrowedFd;

use rustix::net::RecvFlags;

use super::rings::RxFrame;
use crate::frame::FrameBuf;
use crate::gro::{self, Run};
use crate::offload::{Kind, Offload, OffloadRequest};
use crate::pool::Pool;
use crate::port::HeldBack;
use crate::staging::ADDRESSES_SIZE;

/// Size of the header in front of a packet of a packet socket (`struct virtio_net_hdr`).
pub(super) const NET_HEADER_SIZE: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`.
const GSO_UDP_L4: u8 = 5;
/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM_AT: u16 = 6;
/// Bytes that tell a packet from any other: all of its headers.
const SAME_BYTES: usize = 64;
/// Largest packet, and Ethernet with two tags.
const PACKET_SIZE_MAX: usize = (1 << 16) + 22;

/// Makes the header of a series: datagrams of `each` bytes of payload behind headers of which that
/// of UDP begins at `udp_at`. Its numbers are in the machine's own order.
pub(super) fn net_header_of_series(each: u16, udp_at: u16) -> [u8; NET_HEADER_SIZE] {
    let [size_a, size_b] = (udp_at + 8).to_ne_bytes();
    let [each_a, each_b] = each.to_ne_bytes();
    let [at_a, at_b] = udp_at.to_ne_bytes();
    let [sum_a, sum_b] = UDP_CHECKSUM_AT.to_ne_bytes();
    [NEEDS_CSUM, GSO_UDP_L4, size_a, size_b, each_a, each_b, at_a, at_b, sum_a, sum_b]
}

/// A packet of several datagrams, and those of its frames that were not handed over yet.
#[derive(Debug)]
pub(super) struct Joined {
    bytes: Box<[u8]>,
    left: Offload,
    /// The tag that the kernel removed.
    tag: Option<[u8; 4]>,
    next: u16,
    end: u16,
    /// True if each datagram gets a checksum: its reader is not the VTEP here.
    sums: bool,
}

impl Joined {
    /// Makes room for one packet.
    pub(super) fn new(sums: bool) -> Self {
        Self {
            bytes: vec![0; NET_HEADER_SIZE + PACKET_SIZE_MAX].into_boxed_slice(),
            left: Offload::NOTHING,
            tag: None,
            next: 0,
            end: 0,
            sums,
        }
    }

    /// Takes the packet that begins with the bytes of `frame` from the queue of its socket. Returns
    /// false if it is no series of datagrams, or not there.
    pub(super) fn fetch(&mut self, socket: BorrowedFd<'_>, frame: &RxFrame<'_>) -> bool {
        debug_assert!(self.next == self.end, "no frame is overwritten");
        loop {
            let received = rustix::net::recv(socket, &mut self.bytes[..], RecvFlags::DONTWAIT);
            let size = match received {
                Ok((size, _)) => size,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return false,
            };
            let Some(packet) = self.bytes[..size].get(NET_HEADER_SIZE..) else { return false };
            let same = SAME_BYTES.min(frame.bytes.len());
            // What another process left there has no slot any more.
            if packet.get(..same) != Some(&frame.bytes[..same]) {
                continue;
            }
            let Some(left) = series_of(&self.bytes[..NET_HEADER_SIZE], packet) else {
                return false;
            };
            (self.next, self.end) = (0, left.segments());
            (self.left, self.tag) = (left, frame.tag);
            return true;
        }
    }

    /// Copies the next frame to the front of `to`. Returns its size, or `Err` if it is larger;
    /// `None` if there is no frame.
    pub(super) fn next(&mut self, to: &mut [u8]) -> Option<Result<usize, ()>> {
        if self.next == self.end {
            return None;
        }
        let nth = self.next;
        self.next += 1;
        let tag: &[u8] = self.tag.as_ref().map_or(&[], |tag| tag);
        let (at, payload) = self.left.part(nth);
        let (from, headers) = (NET_HEADER_SIZE, usize::from(self.left.header_size()));
        let size = headers + payload;
        let Some(to) = to.get_mut(..tag.len() + size) else { return Some(Err(())) };
        let frame = &mut to[tag.len()..];
        frame[..headers].copy_from_slice(&self.bytes[from..from + headers]);
        frame[headers..].copy_from_slice(&self.bytes[from + at..][..payload]);
        if self.sums {
            self.left.make(nth, frame);
        } else {
            self.left.make_headers_without_sum(nth, &mut frame[..headers], payload);
        }
        if !tag.is_empty() {
            to.copy_within(tag.len()..tag.len() + ADDRESSES_SIZE, 0);
            to[ADDRESSES_SIZE..][..tag.len()].copy_from_slice(tag);
        }
        Some(Ok(tag.len() + size))
    }

    /// Takes the next frames as one, at most `most`, if they are segments of one flow. Returns it
    /// and their number.
    pub(super) fn join(&mut self, most: usize, pool: &mut Pool) -> Option<(FrameBuf, usize)> {
        if self.next == self.end || self.sums || self.tag.is_some() {
            return None;
        }
        let (nth, size) = (self.next, self.left.size());
        let packet = &self.bytes[NET_HEADER_SIZE..][..size];
        let (headers, each) = (usize::from(self.left.header_size()), self.left.part(0).1);
        let run = Run { bytes: &packet[self.left.part(nth).0..], each };
        let (buf, count) = gro::join(run, most, pool, |to, payload| {
            to.copy_from_slice(&packet[..headers]);
            self.left.make_headers_without_sum(nth, to, payload);
        })?;
        self.next += u16::try_from(count).expect("not above `end`");
        Some((buf, count))
    }

    /// Frames that wait here, added to those that wait elsewhere.
    pub(super) fn add_to(&self, others: HeldBack) -> HeldBack {
        let sizes = (self.next..self.end).map(|nth| self.left.part(nth).1);
        let bytes: usize = sizes.map(|size| size + usize::from(self.left.header_size())).sum();
        let frames = others.frames + u64::from(self.end - self.next);
        let bytes = others.bytes + bytes as u64;
        HeldBack {
            frames,
            bytes,
            frames_max: others.frames_max.max(frames),
            bytes_max: others.bytes_max.max(bytes),
        }
    }
}

/// Returns what a packet is a series of, if it is one of UDP datagrams.
fn series_of(net_header: &[u8], packet: &[u8]) -> Option<Offload> {
    let &[_, kind, _, _, each @ .., _, _, _, _] = net_header.first_chunk::<NET_HEADER_SIZE>()?;
    if kind != GSO_UDP_L4 {
        return None;
    }
    let ethertype = packet.get(12..14)?;
    let start = match ethertype {
        [0x08, 0x00] => 14 + u16::from(packet.get(14)? & 0x0f) * 4,
        [0x86, 0xdd] => 14 + 40,
        _ => return None,
    };
    let cut = Some((Kind::Udp, u16::from_ne_bytes(each)));
    let ask = OffloadRequest { start, offset: UDP_CHECKSUM_AT, cut, ecn: false };
    let head = &packet[..packet.len().min(crate::frame::HEAD_SIZE)];
    Offload::check(ask, head, packet.len()).ok().filter(Offload::is_super)
}

#[cfg(test)]
mod tests;
