//! The receiving half: order, acknowledgements and the advertised window.
//!
//! ```text
//!   in order, nothing missing --> count; every n-th segment is acknowledged at once, else a timer
//!   beyond a gap -------------> hold, acknowledge at once (RFC 5681 clause 4.2)
//!   fills a gap --------------> acknowledge at once
//!   nothing new --------------> acknowledge at once (RFC 9293 clause 3.10.7.4)
//! ```

use std::hint::cold_path;

use sluice_base::Nanos;

use super::Stats;
use super::config::Config;
use super::reassembly::Reassembly;
use super::segment::{Flags, SackBlocks, Segment};

/// The state of the receiving half.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// The next byte in order.
    pub(super) next: u64,
    /// Bytes that the application took.
    taken: u64,
    /// The right edge of the advertised window; it never moves back.
    edge: u64,
    /// The acknowledgement sent last (`Last.ACK.sent` of RFC 7323).
    acked: u64,
    /// Time at which a delayed acknowledgement is due, `MAX` if none is.
    pub(super) deadline: Nanos,
    held: Option<Box<Reassembly>>,
    /// The time stamp to echo (`TS.Recent`).
    pub(super) echo: u32,
    /// Number of segments in order that are not acknowledged.
    unacked: u8,
    /// Number of segments that are still to be acknowledged at once.
    quick: u8,
    /// True if an acknowledgement is due now.
    pub(super) ack_now: bool,
}

impl Receiver {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            next: 0,
            taken: 0,
            edge: config.window_max() as u64,
            acked: 0,
            deadline: Nanos::MAX,
            held: None,
            echo: 0,
            unacked: 0,
            quick: config.quick_acks,
            ack_now: false,
        }
    }

    /// Remembers the time stamp to echo (RFC 7323 clause 4.3).
    #[inline]
    pub(super) const fn stamped(&mut self, segment: &Segment) {
        // In wrapping arithmetic a stamp is newer if it is less than half of the range ahead. After
        // an idle time of more than that the next byte in order is believed all the same (RFC 7323
        // clause 5.5).
        let newer = segment.stamp.wrapping_sub(self.echo) < 1 << 31;
        if segment.seq <= self.acked && (newer || segment.seq == self.next) {
            self.echo = segment.stamp;
        }
    }

    /// Takes a segment with payload.
    #[inline]
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        segment: &Segment,
        config: &Config,
        stats: &mut Stats,
    ) {
        let end = segment.end();
        if segment.seq == self.next && end <= self.edge && self.held.is_none() {
            self.next = end;
            self.accepted(now, config);
        } else {
            self.receive_disordered(now, segment, config, stats);
        }
    }

    /// Notes that bytes came in order.
    #[inline]
    fn accepted(&mut self, now: Nanos, config: &Config) {
        if config.auto_read {
            self.taken = self.next;
            self.edge = self.next + u64::from(config.window_max());
        }
        self.unacked += 1;
        if self.quick > 0 {
            self.quick -= 1;
            self.ack_now = true;
        } else if self.unacked >= config.ack_every {
            self.ack_now = true;
        } else if self.deadline == Nanos::MAX {
            self.deadline = now.after(config.ack_delay);
        }
    }

    #[inline(never)]
    fn receive_disordered(
        &mut self,
        now: Nanos,
        segment: &Segment,
        config: &Config,
        stats: &mut Stats,
    ) {
        let end = segment.end().min(self.edge);
        if end <= self.next || segment.seq >= end {
            stats.useless_received += 1;
            self.ack_now = true;
            return;
        }
        if segment.seq > self.next {
            let held = self.held.get_or_insert_default();
            stats.disordered_received += 1;
            if !held.insert(segment.seq, end) {
                stats.useless_received += 1;
            }
            self.ack_now = true;
            return;
        }
        self.next = end;
        if let Some(held) = &mut self.held {
            self.ack_now |= !held.is_empty();
            self.next = held.advance(end);
            if held.is_empty() {
                self.held = None;
            }
        }
        self.accepted(now, config);
    }

    /// Takes `bytes` for the application, at most the delivered ones.
    pub(super) fn take(&mut self, bytes: u64, config: &Config) {
        self.taken = self.taken.saturating_add(bytes).min(self.next);
        // A window update is worth a segment of its own when it lets the peer send two full
        // segments, or half of the buffer (RFC 9293 clause 3.8.6.2.2).
        let step = u64::from(config.mss) * 2;
        if self.room(config).saturating_sub(self.edge) >= step.min(half_buffer(config)) {
            self.ack_now = true;
        }
    }

    /// Returns the right edge that the buffer allows.
    fn room(&self, config: &Config) -> u64 {
        let waiting = self.next - self.taken;
        let free = u64::from(config.receive_buffer).saturating_sub(waiting);
        self.next + free.min(u64::from(config.window_max()))
    }

    /// Returns the window to advertise, and moves the edge on.
    #[inline]
    pub(super) fn advertise(&mut self, config: &Config) -> u32 {
        if !config.auto_read {
            cold_path();
            let room = self.room(config);
            // Small steps are held back (RFC 9293 clause 3.8.6.2.2).
            if room.saturating_sub(self.edge) >= u64::from(config.mss).min(half_buffer(config)) {
                self.edge = room;
            }
        }
        u32::try_from(self.edge - self.next).unwrap_or(u32::MAX)
    }

    /// Notes that an acknowledgement leaves with a segment.
    #[inline]
    pub(super) const fn sent(&mut self) {
        self.acked = self.next;
        self.unacked = 0;
        self.ack_now = false;
        self.deadline = Nanos::MAX;
    }

    /// Returns true if bytes have arrived beyond a gap.
    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        self.held.is_some() && !self.blocks().is_empty()
    }

    /// Returns the blocks for an acknowledgement that leaves now.
    #[inline]
    pub(super) fn blocks(&self) -> SackBlocks {
        if self.held.is_some() { self.blocks_held() } else { SackBlocks::NONE }
    }

    #[inline(never)]
    fn blocks_held(&self) -> SackBlocks {
        self.held.as_ref().map_or(SackBlocks::NONE, |held| held.blocks(self.next))
    }

    /// Acts on the timer if it passed.
    pub(super) fn expire(&mut self, now: Nanos) {
        if self.deadline <= now {
            self.deadline = Nanos::MAX;
            self.ack_now = true;
        }
    }
}

/// Returns half of the receive buffer, at least a byte.
fn half_buffer(config: &Config) -> u64 {
    u64::from(config.receive_buffer / 2).max(1)
}

/// Returns true if a segment carries time stamps.
#[inline]
pub(super) const fn is_stamped(segment: &Segment) -> bool {
    segment.flags.contains(Flags::STAMPED)
}

#[cfg(test)]
mod tests;
