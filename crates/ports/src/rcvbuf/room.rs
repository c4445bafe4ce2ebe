//! Room of a socket, and where it is asked for.

use sluice_base::Nanos;

use super::charge;
use super::flow::Flow;

/// Room of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Identity of the socket; never 0.
    pub(crate) socket: u64,
    /// Bytes in its receive buffer (`sk_rmem_alloc`).
    pub(crate) used: u32,
    /// Size of the buffer (`sk_rcvbuf`).
    pub(crate) limit: u32,
    /// Bytes that may be under way to it.
    pub(crate) in_flight: u32,
}

impl Room {
    /// Returns true if the kernel takes a datagram of this charge: an empty buffer takes any.
    pub(super) const fn takes(self, charge: u32) -> bool {
        let filled = self.filled();
        filled == 0 || filled.saturating_add(charge) <= self.limit
    }

    /// Bytes that are in its buffer, or may soon be.
    pub(super) const fn filled(self) -> u32 {
        self.used.saturating_add(self.in_flight)
    }

    /// The part of the room that may be spent before the next question: half of it, or one
    /// datagram. Others may fill the buffer as well.
    pub(super) const fn credit(self, charge: u32) -> u32 {
        let half = self.limit.saturating_sub(self.filled()) / 2;
        if half > charge { half } else { charge }
    }

    /// Mark at or below which a drained socket is signalled: half of its buffer, and room for the
    /// datagram that waits.
    pub(super) const fn mark(self, charge: u32) -> u32 {
        let (half, rest) = (self.limit / 2, self.limit.saturating_sub(charge));
        if half < rest { half } else { rest }
    }
}

/// The kernel, or a model of it.
pub(crate) trait RoomSource {
    /// Looks up the socket of a flow; `None` if there is none.
    fn ask(&mut self, flow: &Flow) -> Option<Room>;

    /// Signals the next drain of a socket to this mark.
    fn arm(&mut self, socket: u64, mark: u32);

    /// Signals the socket no more.
    fn disarm(&mut self, socket: u64);

    /// The next socket that was drained to its mark.
    fn next_drained(&mut self) -> Option<u64>;

    /// Returns true if drains are signalled.
    fn is_signalled(&self) -> bool;

    /// Makes a descriptor signal at this interval; `None` stops it.
    fn tick(&mut self, interval: Option<Nanos>);

    /// Notes how many frames the port has sent since it was opened.
    fn note_sent(&mut self, _total: u64) {}

    /// Number of the last frame that the port sent.
    fn sent(&self) -> u64 {
        0
    }

    /// Number of the last frame that is in its socket, or dropped, with all before it, as far as
    /// the next answer for this flow speaks of them. By default sending delivers.
    fn arrived(&mut self, _now: Nanos, _flow: &Flow) -> u64 {
        u64::MAX
    }

    /// Upper bound of what a frame of this size takes of its socket's buffer.
    fn charge(&self, bytes: u32) -> u32 {
        charge::of_frame(bytes)
    }
}
