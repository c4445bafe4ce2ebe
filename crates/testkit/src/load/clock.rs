//! The processor's time stamp counter as a clock: reading it costs a few nanoseconds.

use std::time::{Duration, Instant};

/// A clock of ticks.
pub trait Clock {
    /// Returns the ticks since some moment.
    fn now(&self) -> u64;
    /// Returns the number of ticks in a second.
    fn per_second(&self) -> u64;
}

/// The time stamp counter, or the system's clock on a machine without one.
#[derive(Clone, Copy, Debug)]
pub struct Tsc {
    per_second: u64,
    begin: Instant,
}

impl Tsc {
    /// Measures the counter against the system's clock, for 50 ms.
    #[must_use]
    pub fn measured() -> Self {
        let mut tsc = Self { per_second: 1_000_000_000, begin: Instant::now() };
        let (from, begin) = (tsc.now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (ticks, time) = (tsc.now() - from, begin.elapsed());
        let rate = u128::from(ticks) * 1_000_000_000 / time.as_nanos().max(1);
        tsc.per_second = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        tsc
    }
}

impl Clock for Tsc {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "the instruction has no safe wrapper")]
    #[inline]
    fn now(&self) -> u64 {
        // SAFETY: it reads a register that every processor of this kind has.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn per_second(&self) -> u64 {
        let _ = self.begin;
        self.per_second
    }
}
