//! Vegas (Brakmo and Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet",
//! 1995): the window follows the number of segments that wait in queues.
//!
//! Once per round trip the least time of the round is held against the least time ever:
//! `expected = cwnd * base / least`, `queued = cwnd - expected`, in segments. In avoidance the
//! window grows by a segment if fewer than alpha are queued, shrinks if more than beta are. Slow
//! start ends when more than gamma are queued. With two samples or fewer in a round it acts as
//! NewReno, as Linux and ns-3 do; there the round also ends with the first byte sent in it.
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
    reno: NewReno,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            base: Nanos::MAX,
            least: Nanos::MAX,
            round_end: 0,
            samples: 0,
            reno: NewReno::default(),
        }
    }
}

impl Vegas {
    #[inline]
    pub(super) fn sampled(&mut self, rtt: Nanos) {
        let rtt = rtt.max(Nanos(1));
        self.base = self.base.min(rtt);
        self.least = self.least.min(rtt);
        self.samples += 1;
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
        let expected = u64::try_from(
            u128::from(segments) * u128::from(self.base.0) / u128::from(self.least.0),
        )
        .unwrap_or(segments);
        let queued = segments - expected;
        let slow = window.cwnd < window.ssthresh;
        if slow && queued > u64::from(config.vegas_gamma) {
            window.cwnd = segments.min(expected + 1) * mss;
            lower_threshold(window, mss);
        } else if slow {
            slow_start(window, acked, config);
        } else if queued > u64::from(config.vegas_beta) {
            window.cwnd = (segments - 1) * mss;
            lower_threshold(window, mss);
        } else if queued < u64::from(config.vegas_alpha) {
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
