//! Settings of an endpoint: algorithms, buffers and timers, with two profiles of real stacks.
//!
//! Many connections share one configuration, so it is kept behind an `Arc` and only read.

use sluice_base::Nanos;

/// Congestion control of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582, the window counted in bytes (RFC 3465).
    NewReno,
    /// RFC 9438.
    Cubic,
    /// Brakmo and Peterson 1995, as Linux and ns-3 restate it.
    Vegas,
}

/// Beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends the SYN at once.
    Client,
    /// Waits for a SYN.
    Server,
    /// No handshake: both ends can send. Both ends must have this role.
    Established,
}

/// Rule by which the retransmission time-out follows from the round trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoRule {
    /// `max(rto_min, SRTT + max(tick, 4 RTTVAR)) + rto_slop` (RFC 6298 clause 2.3; the slop is
    /// FreeBSD's `tcp_rexmit_slop`).
    Rfc6298,
    /// `SRTT + max(rto_min, tick, 4 RTTVAR) + rto_slop`: Linux bounds the variance term, not the
    /// sum.
    Linux,
}

/// Source of samples of the round trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RttSampling {
    /// One segment at a time is timed, never a retransmitted one (Karn; RFC 6298 clause 3).
    OneSegment,
    /// Every acknowledgement of new data, by time stamps (RFC 7323 clause 4).
    EveryAck,
}

/// The settings of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Payload bytes of a full segment; at least 1.
    pub mss: u32,
    /// The initial window in segments (RFC 3390, RFC 6928).
    pub initial_window: u32,
    /// The slow start threshold before the first loss, in bytes.
    pub initial_ssthresh: u64,
    /// Largest number of segments' worth of bytes that one acknowledgement may add to the window in
    /// slow start (L of RFC 3465 clause 2.2).
    pub abc_limit: u32,
    /// Selective acknowledgements (RFC 2018, RFC 6675) instead of partial ones (RFC 6582).
    pub sack: bool,
    /// Losses found by time (RACK, RFC 8985 clause 6), beside three duplicates. It needs SACK.
    pub rack: bool,
    /// A probe two round trips after the last news (TLP, RFC 8985 clause 7). It needs `rack`.
    pub tail_loss_probe: bool,
    /// Granularity of the timer of probes.
    pub probe_tick: Nanos,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// True if the window grows only while it is the limit (RFC 7661 clause 4.3 in the simple form
    /// of Linux). Without it the window grows up to the peer's.
    pub window_validation: bool,
    /// True if a time-out that turns out to be early is undone: the first acknowledgement after it
    /// answers the first copy, by its time stamp (Eifel, RFC 3522 and RFC 4015) or, without stamps,
    /// because it comes within half of SRTT (FreeBSD's bad retransmit window).
    pub undo: bool,
    /// True if the window falls back to the initial one after an idle RTO (RFC 5681 clause 4.1).
    pub idle_restart: bool,
    /// True if a short segment waits while data is in flight (RFC 896).
    pub nagle: bool,
    /// Computation of the time-out.
    pub rto_rule: RtoRule,
    /// The time-out before the first sample (RFC 6298 clause 2.1).
    pub rto_initial: Nanos,
    /// The lower bound of the time-out, by `rto_rule`.
    pub rto_min: Nanos,
    /// Least time-out of the first data after a SYN that timed out (RFC 6298 clause 5.7).
    pub rto_fallback: Nanos,
    /// The upper bound of the time-out.
    pub rto_max: Nanos,
    /// Added to every time-out.
    pub rto_slop: Nanos,
    /// Granularity of the clock (G of RFC 6298 clause 2.3).
    pub tick: Nanos,
    /// Source of samples of the round trip time.
    pub rtt_sampling: RttSampling,
    /// Number of segments that one acknowledgement covers; 1 acknowledges each (RFC 1122 clause
    /// 4.2.3.2 allows 2).
    pub ack_every: u8,
    /// Number of segments at the start of a connection that are acknowledged at once (Linux's quick
    /// ACKs).
    pub quick_acks: u8,
    /// Longest delay of an acknowledgement: at most 500 ms (RFC 9293 clause 3.8.6.3, RFC 1122
    /// clause 4.2.3.2), and less than [`Self::least_rto`], or nothing lost times out.
    pub ack_delay: Nanos,
    /// Bytes that the sender may have unacknowledged.
    pub send_buffer: u32,
    /// Bytes that the receiver holds for the application, and so advertises.
    pub receive_buffer: u32,
    /// Shift of the window scale option (RFC 7323 clause 2): the advertised window is at most
    /// `65535 << window_scale`. The loss of low bits is not modelled.
    pub window_scale: u8,
    /// True if the application takes every byte at once. Otherwise it calls
    /// [`super::Connection::read`].
    pub auto_read: bool,
    /// CUBIC's multiplicative decrease in 1024ths (RFC 9438 clause 4.6 has 0.7).
    pub cubic_beta: u16,
    /// CUBIC's fast convergence (RFC 9438 clause 4.7).
    pub cubic_fast_convergence: bool,
    /// Vegas: fewer queued segments than this let the window grow.
    pub vegas_alpha: u32,
    /// Vegas: more queued segments than this let the window shrink.
    pub vegas_beta: u32,
    /// Vegas: more queued segments than this end slow start.
    pub vegas_gamma: u32,
}

impl Config {
    /// FreeBSD 9 with the timers of the predecessor's study (Crisan et al., "Short and Fat: TCP
    /// Performance in CEE Datacenter Networks", Hot Interconnects 2011, and "Got Loss? Get zOVN!",
    /// SIGCOMM 2013): least time-out 2 ms, variance addend 20 ms, 1 us clock, buffers of
    /// 128 KB and 256 KB, an ACK for two segments.
    ///
    /// The delayed ACK lasts 10 ms: FreeBSD's 100 ms are shortened as its slop of 200 ms is. With
    /// 100 ms every odd segment at the end of a message would time out after 22 ms.
    ///
    /// FreeBSD 9.0 begins with the window of RFC 3390, `min(4 MSS, max(2 MSS, 4380))`, which is 3
    /// segments of 1460 bytes, and counts bytes with L = 2. Vegas needs a sample for every ACK, so
    /// with it time stamps are on.
    #[must_use]
    pub const fn freebsd9(algorithm: Algorithm) -> Self {
        let rtt_sampling = match algorithm {
            Algorithm::Vegas => RttSampling::EveryAck,
            Algorithm::NewReno | Algorithm::Cubic => RttSampling::OneSegment,
        };
        Self {
            algorithm,
            mss: 1_460,
            initial_window: 3,
            initial_ssthresh: u64::MAX,
            abc_limit: 2,
            sack: true,
            rack: false,
            tail_loss_probe: false,
            probe_tick: Nanos::from_millis(4),
            limited_transmit: true,
            window_validation: false,
            undo: true,
            idle_restart: true,
            nagle: false,
            rto_rule: RtoRule::Rfc6298,
            rto_initial: Nanos::from_millis(1_000),
            rto_min: Nanos::from_millis(2),
            rto_fallback: Nanos::from_millis(3_000),
            rto_max: Nanos::from_millis(64_000),
            rto_slop: Nanos::from_millis(20),
            tick: Nanos::from_micros(1),
            rtt_sampling,
            ack_every: 2,
            quick_acks: 0,
            ack_delay: Nanos::from_millis(10),
            send_buffer: 128 << 10,
            receive_buffer: 256 << 10,
            window_scale: 8,
            auto_read: true,
            cubic_beta: 717,
            cubic_fast_convergence: true,
            vegas_alpha: 2,
            vegas_beta: 4,
            vegas_gamma: 1,
        }
    }

    /// Linux of 2013 (3.x, before RACK and tail loss probes): initial window 10 (RFC 6928), least
    /// variance term 200 ms, CUBIC's decrease 717/1024, delayed ACK 40 ms after 16 quick ones, time
    /// stamps, slow start after idle. Send and receive buffers are the largest of its auto-tuning,
    /// 4 MiB and 6 MiB.
    ///
    /// Not modelled: quick ACKs again after a pause, rate halving, F-RTO, undo of fast recoveries.
    #[must_use]
    pub const fn linux_2013(algorithm: Algorithm) -> Self {
        Self {
            initial_window: 10,
            abc_limit: u32::MAX,
            window_validation: true,
            rto_rule: RtoRule::Linux,
            rto_min: Nanos::from_millis(200),
            rto_max: Nanos::from_millis(120_000),
            rto_slop: Nanos::ZERO,
            rtt_sampling: RttSampling::EveryAck,
            quick_acks: 16,
            ack_delay: Nanos::from_millis(40),
            send_buffer: 4 << 20,
            receive_buffer: 6 << 20,
            ..Self::freebsd9(algorithm)
        }
    }

    /// Linux of today (6.18): losses are found by time, and the tail of a burst is probed.
    ///
    /// Not modelled beyond what [`Self::linux_2013`] leaves out: proportional rate reduction,
    /// `HyStart`, F-RTO, D-SACK.
    #[must_use]
    pub const fn linux_now(algorithm: Algorithm) -> Self {
        Self { rack: true, tail_loss_probe: true, ..Self::linux_2013(algorithm) }
    }

    /// The least time after which a segment that nobody acknowledges is sent again.
    #[must_use]
    pub fn least_rto(&self) -> Nanos {
        let variance = self.rto_min.max(self.tick);
        Nanos(variance.0 + self.rto_slop.0).min(self.rto_max)
    }

    /// Returns true if a segment at the end of a message may time out although nothing is lost: its
    /// acknowledgement is delayed for longer than a sender on a short path waits (RFC 6298 clause
    /// 2.4 has a second for that reason).
    #[must_use]
    pub fn ack_delay_outlasts_rto(&self) -> bool {
        self.ack_every > 1 && self.ack_delay >= self.least_rto()
    }

    /// Returns true if segments carry time stamps.
    #[must_use]
    pub const fn stamps(&self) -> bool {
        matches!(self.rtt_sampling, RttSampling::EveryAck)
    }

    /// The largest window that can be advertised, in bytes.
    #[must_use]
    pub const fn window_max(&self) -> u32 {
        let scaled = 65_535_u64 << if self.window_scale > 14 { 14 } else { self.window_scale };
        if scaled < self.receive_buffer as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "below a 32 bit number")]
            return scaled as u32;
        }
        self.receive_buffer
    }
}
