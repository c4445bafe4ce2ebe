//! The monotonic clock, that of the machine, and sleeping.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use sluice_base::Nanos;

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the monotonic clock is never negative");
    let nanos = u64::try_from(time.tv_nsec).expect("below a second");
    Nanos(seconds * 1_000_000_000 + nanos)
}

/// Milliseconds since 1970 by the clock of the machine, which may be set.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a span for the kernel.
pub(crate) fn timespec(span: Nanos) -> Timespec {
    let seconds = i64::try_from(span.0 / 1_000_000_000).expect("at most 2^34");
    let nanos = i64::try_from(span.0 % 1_000_000_000).expect("below 10^9");
    Timespec { tv_sec: seconds, tv_nsec: nanos }
}

/// Sleeps, unless a signal interrupts.
pub(crate) fn sleep(span: Nanos) {
    // A signal may end it early, which no caller minds.
    _ = rustix::thread::nanosleep(&timespec(span));
}
