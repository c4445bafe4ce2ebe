//! Datagrams that the kernel has given and that are in no slot yet.
//!
//! The kernel gives datagrams of one sender and one size together (`UDP_GRO`): those that its
//! sender gave to its own kernel together (`UDP_SEGMENT`), or that a network card or the kernel
//! joined on their way. One buffer may have more of them than the caller has room for; the rest
//! waits here, and counts as set aside.
//!
//! ```text
//!   recvmmsg ──> block 0: | datagram | datagram | datagram | last |     each of one size
//!                block 1: | datagram |
//!                             ^ next
//! ```

use std::net::SocketAddrV4;

use super::control::Said;
use crate::gro::Run;
use crate::port::HeldBack;

/// Maximum of buffers filled by one system call.
pub(super) const BLOCKS: usize = 32;
/// Size of a buffer: the largest datagram, or as many as the kernel joins.
pub(super) const BLOCK_SIZE: usize = 1 << 16;
/// Distance of two buffers: their beginnings share no set of a cache.
const BLOCK_STRIDE: usize = BLOCK_SIZE + 320;

/// What one buffer has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) size: usize,
    pub(super) from: SocketAddrV4,
    pub(super) said: Said,
    /// True if it was larger than its buffer.
    pub(super) truncated: bool,
}

impl Arrival {
    /// Size of the datagram at `at`, which the last one may be shorter than.
    fn size_at(&self, at: usize) -> usize {
        let rest = self.size - at;
        self.said.each.map_or(rest, |each| rest.min(each.into()))
    }

    /// Number of datagrams from `at` on. A datagram may be empty.
    fn count_from(&self, at: usize) -> usize {
        let rest = self.size - at;
        self.said.each.map_or(1, |each| rest.div_ceil(each.into()).max(1))
    }
}

/// One datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) from: SocketAddrV4,
    pub(super) tos: u8,
    /// True if it was larger than its buffer.
    pub(super) truncated: bool,
}

/// The buffers.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    arrivals: Vec<Arrival>,
    /// The next datagram: its buffer, and its first byte there.
    block: usize,
    at: usize,
    left: HeldBack,
    /// Most datagrams that a buffer had at the last time.
    joined: usize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BLOCK_STRIDE * BLOCKS].into_boxed_slice(),
            arrivals: Vec::with_capacity(BLOCKS),
            block: 0,
            at: 0,
            left: HeldBack::default(),
            joined: 1,
        }
    }

    /// Number of buffers to fill for about so many datagrams, as they have come lately.
    pub(super) fn blocks_for(&self, datagrams: usize) -> usize {
        (datagrams / self.joined).clamp(1, BLOCKS)
    }

    /// The buffers, to be filled; all that was in them is forgotten.
    pub(super) fn blocks(&mut self) -> impl Iterator<Item = &mut [u8]> {
        debug_assert!(self.is_empty(), "no datagram is overwritten");
        self.bytes.chunks_exact_mut(BLOCK_STRIDE).map(|block| &mut block[..BLOCK_SIZE])
    }

    /// Takes note of the buffers that were filled, from the first on.
    pub(super) fn filled(&mut self, arrivals: impl Iterator<Item = Arrival>) {
        self.arrivals.clear();
        self.arrivals.extend(arrivals);
        (self.block, self.at) = (0, 0);
        if self.arrivals.is_empty() {
            return;
        }
        let counts = self.arrivals.iter().map(|arrival| arrival.count_from(0));
        self.joined = counts.clone().max().unwrap_or(1);
        self.left.frames = counts.sum::<usize>() as u64;
        self.left.bytes = self.arrivals.iter().map(|arrival| arrival.size as u64).sum();
        self.left.frames_max = self.left.frames_max.max(self.left.frames);
        self.left.bytes_max = self.left.bytes_max.max(self.left.bytes);
    }

    /// Sizes of what came in each buffer.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.arrivals.iter().map(|arrival| arrival.size)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.frames == 0
    }

    /// Datagrams that wait here.
    pub(super) fn left(&self) -> HeldBack {
        self.left
    }

    /// The datagrams of the next one's buffer from it on, its sender, and the TOS.
    pub(super) fn run(&self) -> Option<(Run<'_>, Datagram<'_>)> {
        let arrival = self.arrivals.get(self.block).filter(|_| !self.is_empty())?;
        let (block, at) = (self.block * BLOCK_STRIDE, self.at);
        let each = usize::from(arrival.said.each.filter(|_| !arrival.truncated)?);
        let bytes = &self.bytes[block + at..block + arrival.size];
        let first = Datagram {
            bytes: &bytes[..each.min(bytes.len())],
            from: arrival.from,
            tos: arrival.said.tos,
            truncated: false,
        };
        Some((Run { bytes, each }, first))
    }

    /// Takes so many of the datagrams of a run.
    pub(super) fn skip(&mut self, count: usize) {
        (0..count).for_each(|_| _ = self.next());
    }

    /// Takes the next datagram.
    pub(super) fn next(&mut self) -> Option<Datagram<'_>> {
        if self.is_empty() {
            return None;
        }
        let arrival = self.arrivals.get(self.block)?;
        let (block, at) = (self.block * BLOCK_STRIDE, self.at);
        let size = arrival.size_at(at);
        self.left.frames -= 1;
        self.left.bytes -= size as u64;
        self.at += size;
        if self.at >= arrival.size {
            (self.block, self.at) = (self.block + 1, 0);
        }
        Some(Datagram {
            bytes: &self.bytes[block + at..][..size],
            from: arrival.from,
            tos: arrival.said.tos,
            truncated: arrival.truncated,
        })
    }
}

#[cfg(test)]
mod tests;
