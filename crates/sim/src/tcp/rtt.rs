//! Round trip time and retransmission time-out (RFC 6298).
//!
//! SRTT is kept eight times, RTTVAR four times too large, as Jacobson's integers are, in
//! nanoseconds: the gains 1/8 and 1/4 become shifts, and 4 RTTVAR is at hand.

use sluice_base::Nanos;

use super::config::{Config, RtoRule};

/// Number of doublings after which the time-out no longer grows: beyond any sensible upper bound.
const BACKOFF_MAX: u8 = 16;

/// The estimator of one direction.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    srtt_by_8: u64,
    rttvar_by_4: u64,
    /// The time-out without backoff.
    base: Nanos,
    backoff: u8,
    sampled: bool,
}

impl Rtt {
    /// Creates an estimator without samples (clause 2.1).
    pub(super) const fn new(config: &Config) -> Self {
        Self { srtt_by_8: 0, rttvar_by_4: 0, base: config.rto_initial, backoff: 0, sampled: false }
    }

    /// Takes a sample by clauses 2.2 and 2.3; ends the backoff (clause 5.7).
    #[inline]
    pub(super) fn sample(&mut self, rtt: Nanos, config: &Config) {
        // A time of zero would make the first sample look like none.
        let rtt = rtt.0.max(1);
        if self.sampled {
            let delta = rtt.abs_diff(self.srtt_by_8 >> 3);
            self.rttvar_by_4 = self.rttvar_by_4 - (self.rttvar_by_4 >> 2) + delta;
            self.srtt_by_8 = self.srtt_by_8 - (self.srtt_by_8 >> 3) + rtt;
        } else {
            self.srtt_by_8 = rtt << 3;
            self.rttvar_by_4 = rtt << 1;
            self.sampled = true;
        }
        self.backoff = 0;
        let srtt = self.srtt_by_8 >> 3;
        let variance = self.rttvar_by_4.max(config.tick.0);
        let bounded = match config.rto_rule {
            RtoRule::Rfc6298 => (srtt + variance).max(config.rto_min.0),
            RtoRule::Linux => srtt + variance.max(config.rto_min.0),
        };
        self.base = Nanos((bounded + config.rto_slop.0).min(config.rto_max.0));
    }

    /// The present time-out.
    #[inline]
    pub(super) fn rto(&self, config: &Config) -> Nanos {
        if self.backoff == 0 {
            return self.base;
        }
        Nanos(self.base.0.saturating_mul(1 << self.backoff).min(config.rto_max.0))
    }

    /// Returns true if the timer expired and no sample came since.
    pub(super) const fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Doubles the time-out after the timer expired (clause 5.5).
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Ends the backoff: the peer answers again, although the answer gave no sample.
    pub(super) const fn clear_backoff(&mut self) {
        self.backoff = 0;
    }

    /// Raises the time-out of the first data after a SYN that timed out (clause 5.7).
    pub(super) fn after_syn_timeout(&mut self, config: &Config) {
        self.backoff = 0;
        if !self.sampled {
            self.base = self.base.max(config.rto_fallback);
        }
    }

    /// Returns SRTT, once there is a sample.
    #[inline]
    pub(super) const fn srtt(&self) -> Option<Nanos> {
        if self.sampled { Some(Nanos(self.srtt_by_8 >> 3)) } else { None }
    }
}

#[cfg(test)]
mod tests;
