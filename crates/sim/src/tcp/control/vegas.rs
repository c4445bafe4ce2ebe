//! Vegas (Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet",
//! 1995): the window follows the number of segments that wait in queues.
//!
//! Once per round trip the least time of the round is held against the least time ever:
//! `expected = cwnd * base / least`, `queued = cwnd - expected`, in segments. In avoidance the
//! window grows by a segment if fewer than alpha are queued, shrinks if more than beta are. Slow
//! start ends when more than gamma are queued. With two samples or fewer in a round it acts as
//! NewReno, as Linux and ns-3 do; there the round also ends with the first byte sent in it. They
//! take `queued` as a whole number of segments, Linux rounding down and ns-3 up; here it is a
//! fraction.
//!
//! Only full segments give samples. A shorter one takes less time on each link; with such a time as
//! the least ever, the own time of full segments would count as a queue: on six links of 10 Gbit/s
//! a SYN is 7 us faster, which looks like six segments.
//!
//! Losses reduce the window as NewReno does; the earlier retransmission of the paper is not
//! modelled.

use sluice_base::Nanos;

use crate::tcp::config::Config;

use super::new_reno::NewReno;
use super::{Progress, Window, slow_start};

/// Number of samples in a round from which on its least time is trusted.
const SAMPLES_MIN: u32 = 3;

/// State of Vegas.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Vegas {
    /// Least round trip time ever.
    base: Nanos,
    /// Least round trip time of this round.
    least: Nanos,
    /// The byte whose acknowledgement ends the round.
    round_end: u64,
    samples: u32,
    /// Bytes below this are covered by samples.
    sampled: u64,
    /// The first byte of the first and the end of the last short segment without a sample; equal if
    /// there is none.
    short: (u64, u64),
    reno: NewReno,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            base: Nanos::MAX,
            least: Nanos::MAX,
            round_end: 0,
            samples: 0,
            sampled: 0,
            short: (0, 0),
            reno: NewReno::default(),
        }
    }
}

impl Vegas {
    #[inline]
    pub(super) fn sampled(&mut self, rtt: Nanos, ack: u64) {
        let is_short = self.sampled < self.short.1 && self.short.0 < ack;
        self.sampled = self.sampled.max(ack);
        if is_short {
            return;
        }
        let rtt = rtt.max(Nanos(1));
        self.base = self.base.min(rtt);
        self.least = self.least.min(rtt);
        self.samples += 1;
    }

    pub(super) const fn sent_short(&mut self, seq: u64, len: u64) {
        let end = seq + len;
        let (first, last) = if self.sampled < self.short.1 { self.short } else { (seq, end) };
        self.short = (if seq < first { seq } else { first }, if end > last { end } else { last });
    }

    /// Takes back an earlier state. What is on its way stays as it is.
    pub(super) const fn restore(&mut self, earlier: Self) {
        *self = Self { sampled: self.sampled, short: self.short, ..earlier };
    }

    #[inline(never)]
    pub(super) fn acknowledged(&mut self, window: &mut Window, ack: &Progress, config: &Config) {
        if ack.una >= self.round_end {
            self.round_end = ack.nxt.max(ack.una + 1);
            self.round(window, ack.acked, config);
            self.samples = 0;
            self.least = Nanos::MAX;
        } else if window.cwnd < window.ssthresh {
            slow_start(window, ack.acked, config);
        }
    }

    fn round(&mut self, window: &mut Window, acked: u64, config: &Config) {
        if self.samples < SAMPLES_MIN {
            self.reno.acknowledged(window, acked, config);
            return;
        }
        let mss = u64::from(config.mss);
        let segments = window.cwnd / mss;
        let least = u128::from(self.least.0);
        let wide = u128::from(segments);
        // Compared as a fraction: a whole number of segments would count 1.01 as 2, and a queue of
        // one segment would end the growth where alpha is 2.
        let queued = wide * u128::from(self.least.0 - self.base.0);
        let bound = |packets: u32| u128::from(packets) * least;
        let slow = window.cwnd < window.ssthresh;
        if slow && queued > bound(config.vegas_gamma) {
            let expected = u64::try_from(wide * u128::from(self.base.0) / least);
            window.cwnd = segments.min(expected.unwrap_or(segments) + 1) * mss;
            lower_threshold(window, mss);
        } else if slow {
            slow_start(window, acked, config);
        } else if queued > bound(config.vegas_beta) {
            window.cwnd = (segments - 1) * mss;
            lower_threshold(window, mss);
        } else if queued < bound(config.vegas_alpha) {
            window.cwnd = (segments + 1) * mss;
        }
        window.cwnd = window.cwnd.max(2 * mss);
        window.ssthresh = window.ssthresh.max(window.cwnd * 3 / 4);
    }

    pub(super) fn reduce(&mut self, flight: u64, config: &Config) -> u64 {
        self.reno.reduce(flight, config)
    }

    /// Begins a new round, without the samples of the repair.
    pub(super) fn reopened(&mut self, nxt: u64) {
        self.round_end = nxt;
        self.least = Nanos::MAX;
        self.samples = 0;
    }
}

/// Lowers the threshold below the window, so that slow start does not begin again.
fn lower_threshold(window: &mut Window, mss: u64) {
    window.ssthresh = window.ssthresh.min(window.cwnd.saturating_sub(mss)).max(2 * mss);
}
