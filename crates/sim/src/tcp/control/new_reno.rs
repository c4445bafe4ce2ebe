//! The window of RFC 5681: one segment more per window acknowledged, half after a loss.

use crate::tcp::config::Config;

use super::{WINDOW_MAX, Window, slow_start, threshold};

/// State of congestion avoidance.
#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct NewReno {
    /// Bytes acknowledged since the window last grew (RFC 3465 clause 2.1).
    counted: u64,
}

impl NewReno {
    #[inline]
    pub(super) fn acknowledged(&mut self, window: &mut Window, acked: u64, config: &Config) {
        let mut acked = acked;
        if window.cwnd < window.ssthresh {
            acked = slow_start(window, acked, config);
            if acked == 0 {
                return;
            }
        }
        self.counted += acked;
        if self.counted >= window.cwnd {
            self.counted -= window.cwnd;
            window.cwnd = (window.cwnd + u64::from(config.mss)).min(WINDOW_MAX);
        }
    }

    /// Returns the new threshold after a loss (equation 4 of RFC 5681).
    pub(super) fn reduce(&mut self, flight: u64, config: &Config) -> u64 {
        self.counted = 0;
        threshold(flight / 2, config)
    }
}
