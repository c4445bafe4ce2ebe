//! TCP endpoints as pure state machines: time and segments in, segments and deadlines out.
//!
//! This is the first stage: the interface, for connections that lose nothing.

use std::sync::Arc;

use sluice_base::Nanos;

mod config;
mod segment;

pub use config::{Algorithm, Config, Role, RtoRule, RttSampling};
pub use segment::{Flags, SACK_BLOCKS_MAX, SackBlocks, Segment};

/// What an endpoint counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments sent, of every kind.
    pub segments_sent: u64,
    /// Segments received, of every kind.
    pub segments_received: u64,
    /// Segments that carried bytes for a second time or more.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Fast recoveries entered.
    pub fast_recoveries: u64,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    config: Arc<Config>,
    una: u64,
    nxt: u64,
    end: u64,
    cwnd: u64,
    received: u64,
    unacked: u8,
    ack_at: Nanos,
    ack_now: bool,
    stats: Stats,
}

impl Connection {
    /// An endpoint that begins at `now`.
    #[must_use]
    pub fn new(config: &Arc<Config>, _role: Role, _now: Nanos) -> Self {
        Self {
            una: 0,
            nxt: 0,
            end: 0,
            cwnd: u64::from(config.initial_window) * u64::from(config.mss),
            received: 0,
            unacked: 0,
            ack_at: Nanos::MAX,
            ack_now: false,
            stats: Stats::default(),
            config: Arc::clone(config),
        }
    }

    /// The application appends `bytes` to its stream.
    pub fn write(&mut self, _now: Nanos, bytes: u64) {
        self.end += bytes;
    }

    /// The application takes `bytes`; not needed with `auto_read`.
    pub fn read(&mut self, _now: Nanos, _bytes: u64) {}

    /// A segment arrives.
    pub fn receive(&mut self, now: Nanos, segment: &Segment) {
        self.stats.segments_received += 1;
        if segment.ack > self.una {
            self.cwnd += segment.ack - self.una;
            self.una = segment.ack;
        }
        if segment.len > 0 && segment.seq == self.received {
            self.received = segment.end();
            self.unacked += 1;
            if self.unacked >= self.config.ack_every {
                self.ack_now = true;
            } else if self.ack_at == Nanos::MAX {
                self.ack_at = now.after(self.config.ack_delay);
            }
        }
    }

    /// The next segment to send now; call until `None`.
    pub fn poll(&mut self, _now: Nanos) -> Option<Segment> {
        let len = u64::from(self.config.mss).min(self.end - self.nxt);
        let fits = len > 0 && self.nxt + len <= self.una + self.cwnd;
        if !fits && !self.ack_now {
            return None;
        }
        let len = if fits { len } else { 0 };
        let segment = Segment {
            seq: self.nxt,
            ack: self.received,
            window: self.config.window_max(),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            flags: Flags::ACK,
            ..Segment::default()
        };
        self.nxt += len;
        self.ack_now = false;
        self.unacked = 0;
        self.ack_at = Nanos::MAX;
        self.stats.segments_sent += 1;
        Some(segment)
    }

    /// The earliest moment at which [`Self::expire`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        (self.ack_at != Nanos::MAX).then_some(self.ack_at)
    }

    /// Acts on the timers that have passed; harmless when none has.
    pub fn expire(&mut self, now: Nanos) {
        if self.ack_at <= now {
            self.ack_at = Nanos::MAX;
            self.ack_now = true;
        }
    }

    /// Bytes of the peer's stream that are here without a gap.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.received
    }

    /// Bytes of this end's stream that the peer has acknowledged.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.una
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The congestion window in bytes.
    #[must_use]
    pub const fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// The slow start threshold in bytes; `u64::MAX` before the first loss.
    #[must_use]
    pub const fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    /// The smoothed round trip time, once there is a sample.
    #[must_use]
    pub const fn srtt(&self) -> Option<Nanos> {
        None
    }

    /// Bytes that are thought to be on their way.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.nxt - self.una
    }
}
