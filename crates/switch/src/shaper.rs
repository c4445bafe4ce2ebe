//! A token bucket kept as one moment: when the next frame may go.
//!
//! `next = max(next, now - catch_up) + bytes / rate`. Unused time counts for at most `catch_up`,
//! so the burst is `rate * catch_up`; no timer runs and nothing has to be refilled.

use sluice_base::Nanos;

use crate::config::RateLimit;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shaper {
    /// The moment from which the next frame may go.
    next: Nanos,
    catch_up: Nanos,
    overhead: u64,
    /// Nanoseconds for a byte, times 2^20; 0: no limit.
    nanos_per_byte: u64,
    /// Fraction of a nanosecond that was cut off so far, times 2^20.
    rest: u64,
}

impl Shaper {
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        match limit {
            None => Self {
                next: Nanos::ZERO,
                catch_up: Nanos::ZERO,
                overhead: 0,
                nanos_per_byte: 0,
                rest: 0,
            },
            Some(l) => Self {
                next: Nanos::ZERO,
                catch_up: l.catch_up,
                overhead: u64::from(l.overhead),
                nanos_per_byte: ((8_000_000_000_u128 << 20) / u128::from(l.rate.0.max(1)))
                    .try_into()
                    .unwrap_or(u64::MAX >> 20),
                rest: 0,
            },
        }
    }

    /// Sets another limit. What was sent stays paid at the price of before, so that a change gives
    /// no burst. Without a limit no frame waits.
    pub(crate) fn set_limit(&mut self, limit: Option<RateLimit>) {
        let next = if limit.is_some() { self.next } else { Nanos::ZERO };
        *self = Self { next, ..Self::new(limit) };
    }

    /// Returns true if there is a limit at all.
    #[inline]
    pub(crate) const fn is_limited(&self) -> bool {
        self.nanos_per_byte != 0
    }

    /// Returns the moment from which a frame may go.
    #[inline]
    pub(crate) const fn ready_at(&self) -> Nanos {
        self.next
    }

    /// Returns true if a frame may go now.
    #[inline]
    pub(crate) fn is_ready(&self, now: Nanos) -> bool {
        self.next <= now
    }

    /// Pays for a frame of `bytes`.
    #[inline]
    pub(crate) fn charge(&mut self, now: Nanos, bytes: u32) {
        self.charge_all(now, 1, bytes);
    }

    /// Pays for so many frames of `bytes` together.
    #[inline]
    pub(crate) fn charge_all(&mut self, now: Nanos, frames: u32, bytes: u32) {
        if self.nanos_per_byte == 0 {
            return;
        }
        let floor = now.before(self.catch_up);
        if self.next < floor {
            self.next = floor;
            self.rest = 0;
        }
        let cost = u128::from(self.nanos_per_byte)
            * (u128::from(bytes) + u128::from(frames) * u128::from(self.overhead))
            + u128::from(self.rest);
        self.rest = u64::try_from(cost & 0xf_ffff).expect("20 bits");
        let nanos = u64::try_from(cost >> 20).unwrap_or(u64::MAX);
        self.next = self.next.after(Nanos(nanos));
    }
}

#[cfg(test)]
mod tests;
