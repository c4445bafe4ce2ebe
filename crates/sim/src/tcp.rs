//! TCP endpoints as pure state machines: time and segments in, segments and deadlines out.
//!
//! ```text
//!     write, read          receive(segment)         expire
//!          |                      |                    |
//!          v                      v                    v
//!   +-------------+  ack   +-------------+      +-------------+
//!   |   Sender    |<-------| Connection  |      |  deadline() |
//!   | una nxt end |        +-------------+      +-------------+
//!   | Control Rtt |  data         |
//!   | Scoreboard  |        +-------------+
//!   +-------------+        |  Receiver   |
//!          |               | Reassembly  |
//!          v               +-------------+
//!     poll() -> segments          |
//!          ^----------------------+  acknowledgements go along
//! ```
//!
//! After each call of `write`, `read`, `receive` or `expire` the caller drains `poll` and asks for
//! the `deadline`. A deadline may move later without notice to a timer that the caller has set:
//! calling `expire` early is harmless and cheap. Nothing here reads a clock or draws a random
//! number, so that the same calls give the same segments.
//!
//! Left out on purpose: payload, checksums, wrapping sequence numbers, urgent data, closing,
//! resets, path MTU. Possible extensions: PRR, `HyStart`, DCTCP; the flags for ECN
//! are there. Control, loss detection and timers have a file each for that.
//!
//! The common case (data in order, an acknowledgement without a loss) has no loop and no
//! allocation. State for losses is in boxes that the first loss allocates.

use std::sync::Arc;

use sluice_base::Nanos;

mod config;
mod control;
mod handshake;
mod rack;
mod reassembly;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod segment;
mod sender;

pub use config::{Algorithm, Config, Role, RtoRule, RttSampling};
pub use segment::{Flags, SACK_BLOCKS_MAX, SackBlocks, Segment};

use handshake::Handshake;
use receiver::{Receiver, is_stamped};
use segment::stamp_of;
use sender::Sender;

/// Counters of an endpoint since it began; first the ones that every segment counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Segments sent, of every kind.
    pub segments_sent: u64,
    /// Segments received, of every kind.
    pub segments_received: u64,
    /// Segments that carried bytes for a second time or more.
    pub retransmissions: u64,
    /// Bytes in retransmissions.
    pub bytes_retransmitted: u64,
    /// Time-outs of the retransmission timer, for SYN and SYN-ACK too.
    pub timeouts: u32,
    /// Time-outs that turned out to be early and were undone.
    pub timeouts_undone: u32,
    /// Fast recoveries entered.
    pub fast_recoveries: u32,
    /// Rescue retransmissions (RFC 6675 clause 4, rule 4 of `NextSeg`).
    pub rescues: u32,
    /// Probes of a shut window.
    pub window_probes: u32,
    /// Duplicate acknowledgements received.
    pub duplicate_acks: u32,
    /// Segments received beyond a gap.
    pub disordered_received: u64,
    /// Segments received that brought nothing new.
    pub useless_received: u64,
}

/// One end of a connection. Its fields, and the fields of its parts, stand in this order so that
/// data used for every segment lies on few cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Connection {
    stats: Stats,
    config: Arc<Config>,
    handshake: Handshake,
    receiver: Receiver,
    sender: Sender,
}

const _: () = assert!(size_of::<Connection>() <= 400, "an endpoint is a few cache lines");

impl Connection {
    /// Creates an endpoint that begins at `now`. The settings are shared, not copied.
    ///
    /// # Panics
    ///
    /// If the settings cannot work: no segment size, or a send buffer below one segment.
    #[must_use]
    pub fn new(config: &Arc<Config>, role: Role, now: Nanos) -> Self {
        assert!(config.mss > 0 && config.send_buffer >= config.mss, "a segment must fit");
        let mut sender = Sender::new(config, now);
        if role == Role::Established {
            sender.offered(0, config.window_max());
        }
        Self {
            sender,
            receiver: Receiver::new(config),
            handshake: Handshake::of(role),
            stats: Stats::default(),
            config: Arc::clone(config),
        }
    }

    /// Appends `bytes` of the application to its stream.
    pub const fn write(&mut self, _now: Nanos, bytes: u64) {
        self.sender.end += bytes;
    }

    /// Takes `bytes` of the delivered stream for the application; not needed with
    /// [`Config::auto_read`].
    pub fn read(&mut self, _now: Nanos, bytes: u64) {
        self.receiver.take(bytes, &self.config);
    }

    /// Takes a segment that arrives.
    #[inline]
    pub fn receive(&mut self, now: Nanos, segment: &Segment) {
        self.stats.segments_received += 1;
        if self.handshake != Handshake::Done && !self.receive_opening(now, segment) {
            return;
        }
        if segment.flags.contains(Flags::SYN) {
            // The answer to the SYN was lost, or this segment is the one that opened the
            // connection.
            self.receiver.ack_now = true;
            return;
        }
        if is_stamped(segment) {
            self.receiver.stamped(segment);
        }
        if segment.len > 0 {
            self.receiver.receive(now, segment, &self.config, &mut self.stats);
        }
        if segment.flags.contains(Flags::ACK) {
            self.sender.acknowledged(now, segment, &self.config, &mut self.stats);
        }
    }

    /// Returns the next segment to send now; call until `None`.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> Option<Segment> {
        if self.handshake != Handshake::Done {
            return self.poll_opening(now);
        }
        // A segment beyond a gap is acknowledged at once (RFC 5681 clause 4.2), by a segment
        // without data: one with data is no duplicate to the peer, and has no room for SACK.
        if self.receiver.ack_now && self.receiver.has_gap() {
            return Some(self.emit(now, self.sender.nxt, 0, Flags::ACK));
        }
        if let Some((seq, len)) = self.sender.poll(now, &self.config, &mut self.stats) {
            return Some(self.emit(now, seq, len, Flags::ACK));
        }
        if self.receiver.ack_now {
            return Some(self.emit(now, self.sender.nxt, 0, Flags::ACK));
        }
        None
    }

    /// Builds a segment; the pending acknowledgement goes with it.
    #[inline]
    fn emit(&mut self, now: Nanos, seq: u64, len: u32, flags: Flags) -> Segment {
        self.stats.segments_sent += 1;
        let window = self.receiver.advertise(&self.config);
        let stamped = self.config.rtt_sampling == RttSampling::EveryAck;
        let segment = Segment {
            seq,
            ack: self.receiver.next,
            window,
            len,
            stamp: if stamped { stamp_of(now) } else { 0 },
            echo: self.receiver.echo,
            sack: if self.config.sack && len == 0 {
                self.receiver.blocks()
            } else {
                SackBlocks::NONE
            },
            flags: if stamped { flags.with(Flags::STAMPED) } else { flags },
        };
        self.receiver.sent();
        segment
    }

    /// Returns the earliest time at which [`Self::expire`] has something to do: retransmission,
    /// persist or delayed acknowledgement.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let earliest = self.sender.deadline.min(self.receiver.deadline);
        (earliest != Nanos::MAX).then_some(earliest)
    }

    /// Acts on the timers that have passed; harmless when none has.
    #[inline(never)]
    pub fn expire(&mut self, now: Nanos) {
        self.receiver.expire(now);
        if self.handshake == Handshake::Done {
            self.sender.expire(now, &self.config, &mut self.stats);
        } else {
            self.expire_opening(now);
        }
    }

    /// Returns true if data can be sent and received.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.handshake == Handshake::Done
    }

    /// Number of bytes of the peer's stream that are here without a gap.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.receiver.next
    }

    /// Number of bytes of this end's stream that the peer has acknowledged.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.sender.una
    }

    /// Number of bytes of this end's stream that were sent once at least.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sender.nxt
    }

    /// Number of bytes of this end's stream that the application has written.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.sender.end
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Number of tail loss probes sent.
    #[must_use]
    pub fn tail_probes(&self) -> u32 {
        self.sender.rack.as_ref().map_or(0, |rack| rack.probes())
    }

    /// The congestion window in bytes.
    #[must_use]
    pub const fn cwnd(&self) -> u64 {
        self.sender.window.cwnd
    }

    /// The slow start threshold in bytes.
    #[must_use]
    pub const fn ssthresh(&self) -> u64 {
        self.sender.window.ssthresh
    }

    /// The smoothed round trip time, once there is a sample.
    #[must_use]
    pub const fn srtt(&self) -> Option<Nanos> {
        self.sender.rtt.srtt()
    }

    /// The present retransmission time-out, with its backoff.
    #[must_use]
    pub fn rto(&self) -> Nanos {
        self.sender.rtt.rto(&self.config)
    }

    /// Number of bytes that are thought to be on their way: sent and not acknowledged, less the
    /// bytes that the peer holds or that count as lost.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.sender.in_flight()
    }
}

#[cfg(test)]
mod tests;
