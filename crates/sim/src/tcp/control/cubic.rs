//! CUBIC (RFC 9438) in integers.
//!
//! ```text
//!   W(t) = C (t - K)^3 + W_max        K = cbrt((W_max - cwnd_epoch) / C)     C = 410/1024
//! ```
//!
//! Time counts in units of 2^-20 s, so that a cube of 12 bits of seconds has 96 bits and a product
//! with a segment size fits into 128. An acknowledgement costs three wide products and no
//! division: instead of dividing by the window, credit is counted and a segment is added per
//! window of credit. The cube root is taken when an epoch starts, that is once per loss.
//!
//! The Reno-friendly window (clause 4.3) grows beside it with `alpha = 3 (1 - beta) / (1 + beta)`
//! segments per round until it passes the window before the loss, then with 1; the larger of
//! the two counts.

use sluice_base::Nanos;

use crate::tcp::config::Config;

use super::{Progress, WINDOW_MAX, Window, slow_start, threshold};

/// C in 1024ths of a segment per second cubed (clause 4.1 has 0.4).
const C: u64 = 410;
/// Number of bits of a time unit below the second.
const TIME_SHIFT: u32 = 20;
/// Bound of a time from the curve's flat point, so that its cube fits.
const TIME_MAX: u64 = 1 << 32;
/// 2^70 / 10^9: nanoseconds by this, shifted by 50, are units of 2^-20 s.
const UNITS_PER_NANO: u128 = 1_180_591_620_717;

/// State of CUBIC. Windows are bytes, times are units of 2^-20 s.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Cubic {
    /// Time at which the epoch started; `MAX` while none runs.
    epoch: Nanos,
    /// The window before the last reduction, less with fast convergence.
    w_max: u64,
    /// The window at the curve's flat point in this epoch.
    origin: u64,
    /// Time from the start of the epoch to the flat point.
    k: u64,
    /// The Reno-friendly window.
    friendly: u64,
    /// 1024ths of acknowledged bytes that count towards the friendly window.
    friendly_credit: u64,
    /// Products of bytes wanted and bytes acknowledged that count towards the window.
    credit: u64,
    /// The window before the last reduction (cwnd_prior).
    prior: u64,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            epoch: Nanos::MAX,
            w_max: 0,
            origin: 0,
            k: 0,
            friendly: 0,
            friendly_credit: 0,
            credit: 0,
            prior: 0,
        }
    }
}

impl Cubic {
    #[inline(never)]
    pub(super) fn acknowledged(&mut self, window: &mut Window, ack: &Progress, config: &Config) {
        let mut acked = ack.acked;
        if window.cwnd < window.ssthresh {
            acked = slow_start(window, acked, config);
            if acked == 0 {
                return;
            }
        }
        let mss = u64::from(config.mss);
        if self.epoch == Nanos::MAX {
            self.start(window.cwnd, ack.now, mss);
        }
        self.grow_friendly(window.cwnd, acked, config);
        // Clause 4.4: the window aims at the point of the curve one round trip later.
        let elapsed = ack.now.since(self.epoch).after(ack.srtt);
        let target = self.curve(units(elapsed), mss).min(window.cwnd + window.cwnd / 2);
        if target <= self.friendly {
            window.cwnd = window.cwnd.max(self.friendly).min(WINDOW_MAX);
        } else if target > window.cwnd {
            self.credit += (target - window.cwnd) * acked;
            let price = window.cwnd * mss;
            while self.credit >= price {
                self.credit -= price;
                window.cwnd = (window.cwnd + mss).min(WINDOW_MAX);
            }
        }
    }

    /// Starts an epoch, with the first acknowledgement in avoidance (clause 4.2).
    #[cold]
    fn start(&mut self, cwnd: u64, now: Nanos, mss: u64) {
        self.epoch = now;
        self.friendly = cwnd;
        self.friendly_credit = 0;
        self.credit = 0;
        if cwnd < self.w_max {
            let cube = (u128::from(self.w_max - cwnd) << (10 + 3 * TIME_SHIFT))
                / u128::from(C * mss.max(1));
            self.k = cube_root(cube);
            self.origin = self.w_max;
        } else {
            self.k = 0;
            self.origin = cwnd;
        }
    }

    /// Grows the friendly window (clause 4.3), by credit instead of a division.
    #[inline]
    fn grow_friendly(&mut self, cwnd: u64, acked: u64, config: &Config) {
        let alpha = if self.friendly >= self.prior { 1_024 } else { friendly_alpha(config) };
        self.friendly_credit += alpha * acked;
        let price = cwnd << 10;
        while self.friendly_credit >= price {
            self.friendly_credit -= price;
            self.friendly += u64::from(config.mss);
        }
    }

    /// Returns W(t) of clause 4.2, at least zero.
    #[inline]
    fn curve(&self, t: u64, mss: u64) -> u64 {
        let distance = u128::from(t.abs_diff(self.k).min(TIME_MAX));
        let rise = (distance * distance * distance * u128::from(C * mss)) >> (10 + 3 * TIME_SHIFT);
        let rise = u64::try_from(rise).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
        if t < self.k { self.origin.saturating_sub(rise) } else { self.origin + rise }
    }

    /// Returns the new threshold after a loss (clauses 4.6 and 4.7).
    pub(super) fn reduce(&mut self, window: &Window, flight: u64, config: &Config) -> u64 {
        let beta = u64::from(config.cubic_beta);
        self.prior = window.cwnd;
        self.w_max = if config.cubic_fast_convergence && window.cwnd < self.w_max {
            window.cwnd * (1_024 + beta) / 2_048
        } else {
            window.cwnd
        };
        self.epoch = Nanos::MAX;
        threshold(flight * beta / 1_024, config)
    }

    /// Moves the epoch (clause 5.8): the curve does not climb while nothing is sent.
    pub(super) const fn idle(&mut self, span: Nanos) {
        self.epoch = self.epoch.after(span);
    }
}

/// Returns alpha of clause 4.3 in 1024ths.
#[inline]
fn friendly_alpha(config: &Config) -> u64 {
    let beta = u32::from(config.cubic_beta.min(1_024));
    u64::from(3 * (1_024 - beta) * 1_024 / (1_024 + beta))
}

/// Returns nanoseconds as units of 2^-20 s.
#[inline]
fn units(span: Nanos) -> u64 {
    u64::try_from((u128::from(span.0) * UNITS_PER_NANO) >> 50).unwrap_or(u64::MAX)
}

/// Returns the largest number whose cube is not above `cube`, bit by bit.
fn cube_root(cube: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..42).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= cube {
            root = candidate;
        }
    }
    u64::try_from(root).unwrap_or(TIME_MAX)
}

#[cfg(test)]
mod tests;
