//! Token buckets in integers, each kept as one moment.
//!
//! A bucket is the moment at which it would be full again (the generic cell rate algorithm, ITU-T
//! I.371 annex A). Taking a token moves that moment by one interval; a token may be taken while it
//! is not farther away than the burst allows. Nothing has to be refilled and no timer runs, so a
//! bucket costs eight bytes and its rate is kept once for all buckets of a kind.
//!
//! ```text
//!            now            full
//!   ──────────┼──────────────┼───────>  a token is there if full - now <= (burst - 1) intervals
//! ```
//!
//! In any span no more than `burst + span * rate` are taken, because the interval is rounded up.

use sluice_base::Nanos;

/// Bounds of the frequency of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Times per second, on the long run. Zero: never.
    pub per_second: u32,
    /// Times at once. Zero: never.
    pub burst: u32,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self { per_second: 1_000_000_000, burst: u32::MAX };
    /// Never.
    pub const NEVER: Self = Self { per_second: 0, burst: 0 };
}

/// A rate, converted for use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Nanos,
    /// Largest distance of "full" from now; `None`: nothing passes.
    tolerance: Option<Nanos>,
}

/// State of one bucket: the moment at which it is full again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    full: Nanos,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        if rate.per_second == 0 || rate.burst == 0 {
            return Self { interval: Nanos::ZERO, tolerance: None };
        }
        let interval = 1_000_000_000_u64.div_ceil(u64::from(rate.per_second));
        let tolerance = interval.saturating_mul(u64::from(rate.burst - 1));
        Self { interval: Nanos(interval), tolerance: Some(Nanos(tolerance)) }
    }

    /// Returns true if the bucket holds a token.
    #[inline]
    pub(crate) fn has(&self, now: Nanos, bucket: Bucket) -> bool {
        self.tolerance.is_some_and(|tolerance| bucket.full.since(now) <= tolerance)
    }

    /// Takes a token that the bucket holds.
    #[inline]
    pub(crate) fn take(&self, now: Nanos, bucket: &mut Bucket) {
        debug_assert!(self.has(now, *bucket), "a token is there before it is taken");
        bucket.full = bucket.full.max(now).after(self.interval);
    }

    /// Takes a token if the bucket holds one.
    #[inline]
    pub(crate) fn try_take(&self, now: Nanos, bucket: &mut Bucket) -> bool {
        let has = self.has(now, *bucket);
        if has {
            self.take(now, bucket);
        }
        has
    }
}

#[cfg(test)]
mod tests;
