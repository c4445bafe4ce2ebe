//! Congestion control: the reaction of the window to acknowledgements and losses.
//!
//! ```text
//!   acknowledgement --> acknowledged --> cwnd grows (slow start below ssthresh, else avoidance)
//!   short segment ----> sent_short
//!   RTT sample -------> sampled
//!   loss, time-out ---> reduce --------> the new ssthresh; the caller sets cwnd
//!   all repaired -----> reopened
//!   idle -------------> idle
//! ```
//!
//! Windows are bytes. An algorithm never looks at the scoreboard or at a timer, so that loss
//! detection and control can be combined freely. Dispatch is a `match`: no allocation, no
//! indirect call.

use sluice_base::Nanos;

use super::config::{Algorithm, Config};

mod cubic;
mod new_reno;
mod vegas;

use cubic::Cubic;
use new_reno::NewReno;
use vegas::Vegas;

/// No window grows beyond this, so that sums of windows and products with small factors fit.
pub(super) const WINDOW_MAX: u64 = 1 << 32;

/// Congestion window and slow start threshold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) cwnd: u64,
    pub(super) ssthresh: u64,
}

/// An acknowledgement of new data while the window may grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) now: Nanos,
    /// Bytes that the acknowledgement covers.
    pub(super) acked: u64,
    /// The first byte not acknowledged, after this acknowledgement.
    pub(super) una: u64,
    /// The first byte not sent.
    pub(super) nxt: u64,
    /// The smoothed round trip time, zero if unknown.
    pub(super) srtt: Nanos,
}

/// The algorithm of a connection and its state.
#[derive(Clone, Debug)]
pub(super) enum Control {
    NewReno(NewReno),
    Cubic(Cubic),
    Vegas(Vegas),
}

impl Control {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::default()),
            Algorithm::Cubic => Self::Cubic(Cubic::default()),
            Algorithm::Vegas => Self::Vegas(Vegas::default()),
        }
    }

    /// Lets the window grow.
    #[inline]
    pub(super) fn acknowledged(&mut self, window: &mut Window, ack: &Progress, config: &Config) {
        match self {
            Self::NewReno(reno) => reno.acknowledged(window, ack.acked, config),
            Self::Cubic(cubic) => cubic.acknowledged(window, ack, config),
            Self::Vegas(vegas) => vegas.acknowledged(window, ack, config),
        }
    }

    /// Takes a round trip time that was measured when the bytes below `ack` were acknowledged.
    #[inline]
    pub(super) fn sampled(&mut self, rtt: Nanos, ack: u64) {
        if let Self::Vegas(vegas) = self {
            vegas.sampled(rtt, ack);
        }
    }

    /// Notes a segment that is not full: its round trip time is another one.
    pub(super) const fn sent_short(&mut self, seq: u64, len: u64) {
        if let Self::Vegas(vegas) = self {
            vegas.sent_short(seq, len);
        }
    }

    /// Takes back an earlier state, after a time-out that was early.
    pub(super) fn restore(&mut self, earlier: Self) {
        match (self, earlier) {
            (Self::Vegas(vegas), Self::Vegas(earlier)) => vegas.restore(earlier),
            (control, earlier) => *control = earlier,
        }
    }

    /// Returns the new slow start threshold after a loss. `flight` is the number of outstanding
    /// bytes.
    pub(super) fn reduce(&mut self, window: &Window, flight: u64, config: &Config) -> u64 {
        match self {
            Self::NewReno(reno) => reno.reduce(flight, config),
            Self::Cubic(cubic) => cubic.reduce(window, flight, config),
            Self::Vegas(vegas) => vegas.reduce(flight, config),
        }
    }

    /// Notes that all losses are repaired; `nxt` is the first byte not sent.
    pub(super) fn reopened(&mut self, nxt: u64) {
        if let Self::Vegas(vegas) = self {
            vegas.reopened(nxt);
        }
    }

    /// Notes that nothing was sent for `span`.
    pub(super) fn idle(&mut self, span: Nanos) {
        if let Self::Cubic(cubic) = self {
            cubic.idle(span);
        }
    }
}

/// Slow start (RFC 5681 clause 3.1, byte counting by RFC 3465): the window grows by the
/// acknowledged bytes, to the threshold at most. Returns the bytes that are left for avoidance.
#[inline]
fn slow_start(window: &mut Window, acked: u64, config: &Config) -> u64 {
    let counted = acked.min(u64::from(config.abc_limit) * u64::from(config.mss));
    let grown = (window.cwnd + counted).min(window.ssthresh).min(WINDOW_MAX);
    let left = counted - (grown - window.cwnd).min(counted);
    window.cwnd = grown;
    left
}

/// Returns the least threshold: two segments (RFC 5681 equation 4).
fn threshold(bytes: u64, config: &Config) -> u64 {
    bytes.max(2 * u64::from(config.mss))
}

#[cfg(test)]
mod tests;
