//! The sending half: windows, timers and new data. Loss recovery is in `recovery.rs`.
//!
//! ```text
//!            una          high_rxt        nxt                     edge        end
//!   acked     |  sent again  |   sent once |  may be sent          |  written  |
//!   ----------+--------------+-------------+-----------------------+-----------+
//!
//!   OPEN ------ third duplicate, or IsLost(una) ------> RECOVERY --- una >= recover ---> OPEN
//!   OPEN, RECOVERY, LOSS -- the timer expires --------> LOSS ------- una >= recover ---> OPEN
//! ```
//!
//! A connection is calm while it is OPEN and nothing hints at a loss: then an acknowledgement moves
//! `una`, takes a sample, grows the window and restarts the timer, without a loop or an
//! allocation. Everything else goes through `recovery.rs`.
//!
//! One deadline serves the retransmission timer and, while the peer's window is shut and nothing
//! is in flight, the persist timer: both never run together.

use sluice_base::Nanos;

use super::Stats;
use super::config::{Config, RttSampling};
use super::control::{Control, Progress, Window};
use super::rack::Rack;
use super::receiver::is_stamped;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::segment::{Segment, since_stamp};

/// Phase of the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No repair runs.
    Open,
    /// Fast recovery.
    Recovery,
    /// The timer expired: everything outstanding is sent again.
    Loss,
}

/// The state of the sending half.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Sender {
    /// The largest window that the peer offered.
    window_most: u32,
    pub(super) duplicates: u8,
    /// Number of time-outs since `una` moved last.
    pub(super) timeouts: u8,
    pub(super) phase: Phase,
    /// True if nothing hints at a loss: the fast paths hold.
    pub(super) calm: bool,
    /// True if the first hole is to be sent again regardless of the window.
    pub(super) force: bool,
    /// True if this recovery has had its rescue retransmission.
    pub(super) rescued: bool,
    /// True if the deadline is the persist timer's.
    persisting: bool,
    /// True if a window probe is due.
    probe: bool,
    /// True if a tail loss probe is due.
    pub(super) tail_probe: bool,
    /// The first byte not acknowledged.
    pub(super) una: u64,
    /// The first byte never sent.
    pub(super) nxt: u64,
    /// The first byte not written by the application.
    pub(super) end: u64,
    /// The first byte that the peer has no room for.
    pub(super) edge: u64,
    pub(super) window: Window,
    /// Bytes that may be in flight beyond the window, because duplicates show that other bytes left
    /// the network.
    pub(super) inflation: u64,
    /// Time at which the retransmission or the persist timer expires, `MAX` if none runs.
    pub(super) deadline: Nanos,
    pub(super) last_send: Nanos,
    pub(super) rtt: Rtt,
    pub(super) control: Control,
    /// The end of the segment that is timed, zero if none is.
    pub(super) timed_end: u64,
    timed_start: Nanos,
    /// Bytes in flight by the scoreboard; only kept while the connection is not calm.
    pub(super) pipe: u64,
    /// Edge below which bytes that are not held are lost; only kept while not calm.
    pub(super) lost_edge: u64,
    /// The byte whose acknowledgement ends a repair.
    pub(super) recover: u64,
    /// Edge below which all bytes were sent again in this repair.
    pub(super) high_rxt: u64,
    pub(super) board: Option<Box<Scoreboard>>,
    /// Times of segments, if losses are found by time.
    pub(super) rack: Option<Box<Rack>>,
}

impl Sender {
    pub(super) fn new(config: &Config, now: Nanos) -> Self {
        Self {
            una: 0,
            nxt: 0,
            end: 0,
            edge: 0,
            window: Window { cwnd: initial_window(config), ssthresh: config.initial_ssthresh },
            inflation: 0,
            pipe: 0,
            lost_edge: 0,
            recover: 0,
            high_rxt: 0,
            deadline: Nanos::MAX,
            timed_end: 0,
            timed_start: Nanos::ZERO,
            last_send: now,
            rtt: Rtt::new(config),
            control: Control::new(config.algorithm),
            board: None,
            rack: (config.rack && config.sack).then(|| Box::new(Rack::new())),
            window_most: 0,
            duplicates: 0,
            timeouts: 0,
            phase: Phase::Open,
            calm: true,
            force: false,
            rescued: false,
            persisting: false,
            probe: false,
            tail_probe: false,
        }
    }

    /// Notes that the peer has room for `window` bytes after `ack`. Returns true if that is more
    /// than before. A late segment reports less and is ignored: a window never shrinks here.
    #[inline]
    pub(super) fn offered(&mut self, ack: u64, window: u32) -> bool {
        let edge = ack + u64::from(window);
        if edge <= self.edge {
            return false;
        }
        self.edge = edge;
        self.window_most = self.window_most.max(window);
        if self.persisting {
            self.persisting = false;
            self.probe = false;
            self.deadline = Nanos::MAX;
            self.rtt.clear_backoff();
        }
        true
    }

    /// Takes a segment with a valid `ack`.
    #[inline]
    pub(super) fn acknowledged(
        &mut self,
        now: Nanos,
        segment: &Segment,
        config: &Config,
        stats: &mut Stats,
    ) {
        let ack = segment.ack;
        if ack > self.nxt {
            // Only the byte of a window probe can be acknowledged before it counts as sent.
            if !self.persisting || ack > self.nxt + 1 || ack > self.end {
                return;
            }
            self.nxt = ack;
        }
        let opened = self.offered(ack, segment.window);
        if self.rack.is_some() {
            self.probe_answered(segment, config);
        }
        if self.is_without_news(segment, config) {
            return;
        }
        if !self.calm || !segment.sack.is_empty() || ack <= self.una {
            self.acknowledged_disordered(now, segment, opened, config, stats);
            return;
        }
        let flight = self.nxt - self.una;
        let acked = ack - self.una;
        self.una = ack;
        self.sample(now, segment, config);
        self.grow(now, acked, flight, config);
        if self.rack.is_some() {
            self.rack_delivered(now, ack, config);
        }
        self.restart_timer(now, config);
    }

    /// Returns true if an acknowledgement has no news, like the ones that come with data of the
    /// peer.
    #[inline]
    fn is_without_news(&self, segment: &Segment, config: &Config) -> bool {
        let repeats = segment.ack <= self.una && self.calm && segment.sack.is_empty();
        repeats && (config.sack || segment.len > 0 || self.una == self.nxt)
    }

    /// Lets the window grow if it was the limit.
    #[inline]
    pub(super) fn grow(&mut self, now: Nanos, acked: u64, flight: u64, config: &Config) {
        let Window { cwnd, ssthresh } = self.window;
        let limiting = if !config.window_validation {
            cwnd <= self.edge - self.una
        } else if cwnd < ssthresh {
            cwnd < 2 * flight
        } else {
            cwnd < flight + u64::from(config.mss)
        };
        if limiting {
            let srtt = self.rtt.srtt().unwrap_or(Nanos::ZERO);
            let progress = Progress { now, acked, una: self.una, nxt: self.nxt, srtt };
            self.control.acknowledged(&mut self.window, &progress, config);
        }
    }

    /// Restarts the timer by clauses 5.2 and 5.3 of RFC 6298: off when nothing is in flight, else
    /// from now on.
    #[inline]
    pub(super) fn restart_timer(&mut self, now: Nanos, config: &Config) {
        let at = if self.una == self.nxt { Nanos::MAX } else { now.after(self.rtt.rto(config)) };
        self.set_timer(now, at, config);
    }

    /// Sets the retransmission timer.
    #[inline]
    fn set_timer(&mut self, now: Nanos, at: Nanos, config: &Config) {
        self.deadline = at;
        if self.rack.is_some() {
            self.arm(now, at, config);
        }
    }

    /// Sets the retransmission timer if it does not run. With losses found by time, new data sets
    /// the probe's anew.
    #[inline]
    pub(super) fn start_timer(&mut self, now: Nanos, config: &Config) {
        let running = self.rack.as_ref().map_or(self.deadline, |rack| rack.rto_at());
        if running == Nanos::MAX {
            self.set_timer(now, now.after(self.rtt.rto(config)), config);
        } else if self.rack.is_some() {
            self.arm(now, running, config);
        }
    }

    /// Takes a sample of the round trip time, if this acknowledgement of new data gives one.
    #[inline]
    pub(super) fn sample(&mut self, now: Nanos, segment: &Segment, config: &Config) {
        let rtt = match config.rtt_sampling {
            RttSampling::EveryAck => {
                if !is_stamped(segment) {
                    return;
                }
                since_stamp(now, segment.echo)
            }
            RttSampling::OneSegment => {
                if self.timed_end == 0 || segment.ack < self.timed_end {
                    return;
                }
                self.timed_end = 0;
                now.since(self.timed_start)
            }
        };
        self.rtt.sample(rtt, config);
        if let Some(rack) = &mut self.rack {
            rack.sampled(rtt);
        }
        self.control.sampled(rtt, segment.ack);
    }

    /// Returns the next bytes to send now: offset and length.
    #[inline]
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<(u64, u32)> {
        if self.tail_probe
            && let Some(probe) = self.poll_tail(now, config, stats)
        {
            return Some(probe);
        }
        if self.phase != Phase::Open {
            return self.poll_repair(now, config, stats);
        }
        if self.nxt == self.end {
            return None;
        }
        if self.una == self.nxt {
            self.before_burst(now, config);
        }
        let window = self.una + self.window.cwnd + self.inflation;
        self.poll_new(now, window, config, stats)
    }

    /// Returns new data, up to the byte `window` and as far as the buffers allow.
    #[inline]
    pub(super) fn poll_new(
        &mut self,
        now: Nanos,
        window: u64,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<(u64, u32)> {
        let mss = u64::from(config.mss);
        let len = mss.min(self.end - self.nxt);
        let allowed = window.min(self.una + u64::from(config.send_buffer));
        let after = self.nxt + len;
        if len == 0 || after > allowed {
            return None;
        }
        if after > self.edge {
            return self.poll_narrow(now, len, config, stats);
        }
        if config.nagle && len < mss && self.una < self.nxt {
            return None;
        }
        Some(self.send_new(now, len, config))
    }

    fn send_new(&mut self, now: Nanos, len: u64, config: &Config) -> (u64, u32) {
        let seq = self.nxt;
        self.nxt += len;
        self.pipe += len;
        if self.timed_end == 0 && self.phase == Phase::Open {
            self.timed_end = self.nxt;
            self.timed_start = now;
        }
        if len < u64::from(config.mss) {
            self.control.sent_short(seq, len);
        }
        self.last_send = now;
        if let Some(rack) = &mut self.rack {
            rack.sent(seq, self.nxt, now);
        }
        self.start_timer(now, config);
        (seq, length(len))
    }

    /// Handles a peer without room for `len` bytes: sends a shorter segment if it is worth one (RFC
    /// 9293 clause 3.8.6.2.1), or probes (clause 3.8.6.1).
    #[cold]
    fn poll_narrow(
        &mut self,
        now: Nanos,
        len: u64,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<(u64, u32)> {
        let room = self.edge.saturating_sub(self.nxt).min(len);
        if room > 0 && (self.probe || room >= u64::from(self.window_most / 2)) {
            self.probe = false;
            if self.persisting {
                self.persisting = false;
                self.deadline = Nanos::MAX;
            }
            return Some(self.send_new(now, room, config));
        }
        if self.probe {
            // The byte does not count as sent: it is likely to be thrown away.
            self.probe = false;
            stats.window_probes += 1;
            self.control.sent_short(self.nxt, 1);
            return Some((self.nxt, 1));
        }
        if self.una == self.nxt && self.deadline == Nanos::MAX {
            self.persisting = true;
            self.deadline = now.after(self.rtt.rto(config));
        }
        None
    }

    /// Checks the window before a burst: nothing is in flight and data waits, and after a pause the
    /// window may be out of date (RFC 5681 clause 4.1).
    #[cold]
    fn before_burst(&mut self, now: Nanos, config: &Config) {
        let idle = now.since(self.last_send);
        if idle <= self.rtt.rto(config) {
            return;
        }
        self.control.idle(idle);
        if config.idle_restart {
            self.window.cwnd = self.window.cwnd.min(initial_window(config));
        }
        // Once per pause, also if the peer's window holds the data back.
        self.last_send = now;
    }

    /// Handles the expiry of the timer.
    pub(super) fn expire(&mut self, now: Nanos, config: &Config, stats: &mut Stats) {
        if self.deadline > now {
            return;
        }
        if self.persisting {
            self.probe = true;
            self.rtt.back_off();
            self.deadline = now.after(self.rtt.rto(config));
        } else if self.rack.is_none() || !self.expire_rack(now, config, stats) {
            self.timed_out(now, config, stats);
        }
    }

    /// Number of bytes thought to be on their way.
    pub(super) const fn in_flight(&self) -> u64 {
        if self.calm { self.nxt - self.una } else { self.pipe }
    }
}

/// Returns the initial window in bytes.
pub(super) fn initial_window(config: &Config) -> u64 {
    u64::from(config.initial_window.max(1)) * u64::from(config.mss)
}

/// Returns a length that is at most a segment's.
pub(super) fn length(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
