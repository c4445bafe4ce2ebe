//! How long to look on before sleeping.
//!
//! A virtual machine's queues are memory: to look at them costs nothing, while to be woken costs
//! some ten microseconds, and a system call at the sender. So after work with them the worker looks
//! on for a while, and for how long follows from what that was good for. Work that came soon after
//! the worker slept would have been worth waiting for, so the time doubles; a long sleep halves it.
//! A machine that sends now and then soon costs nothing beside its frames, one that sends all the
//! time is never waited for.

use sluice_base::Nanos;

/// Below this looking on is worth nothing: it is what one turn takes.
const SHORTEST: Nanos = Nanos::from_micros(2);

/// How long to look on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    most: Nanos,
    span: Nanos,
    /// When work was done last.
    last: Nanos,
}

impl Spin {
    /// One that lasts `most` at most; zero is none at all.
    pub(super) const fn new(most: Nanos) -> Self {
        Self { most, span: Nanos::ZERO, last: Nanos::ZERO }
    }

    /// Work was done.
    #[inline]
    pub(super) fn worked(&mut self, now: Nanos) {
        self.last = now;
    }

    /// Whether to look on.
    #[inline]
    pub(super) fn goes_on(&self, now: Nanos) -> bool {
        now.since(self.last) < self.span
    }

    /// The worker slept so long.
    pub(super) fn slept(&mut self, time: Nanos) {
        self.span = if time < self.most {
            Nanos(self.span.0 * 2).max(SHORTEST).min(self.most)
        } else {
            let half = Nanos(self.span.0 / 2);
            if half < SHORTEST { Nanos::ZERO } else { half }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Nanos = Nanos::from_micros(50);

    #[test]
    fn who_is_woken_soon_looks_on_longer_and_who_sleeps_long_soon_does_not() {
        let mut spin = Spin::new(MOST);
        spin.worked(Nanos(1_000));
        assert!(!spin.goes_on(Nanos(1_000)), "nothing is known of it yet");
        for _ in 0..8 {
            spin.slept(Nanos::from_micros(20));
        }
        assert!(spin.goes_on(Nanos(1_000 + MOST.0 - 1)) && !spin.goes_on(Nanos(1_000 + MOST.0)));
        for _ in 0..8 {
            spin.slept(Nanos::from_millis(1));
        }
        assert!(!spin.goes_on(Nanos(1_000)));
    }

    #[test]
    fn none_at_all() {
        let mut spin = Spin::new(Nanos::ZERO);
        spin.slept(Nanos::ZERO);
        spin.worked(Nanos(5));
        assert!(!spin.goes_on(Nanos(5)));
    }
}
