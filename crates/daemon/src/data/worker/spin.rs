//! How long to look on before sleeping.
//!
//! A virtual machine's queues are memory: to look at them costs nothing, while to be woken costs
//! some ten microseconds, and a system call at the sender. So after work with them the worker looks
//! on for a while, and for how long follows from what that was good for. Work that came soon after
//! the worker slept would have been worth waiting for, so the time doubles; a long sleep halves it.
//! A machine that sends now and then soon costs nothing beside its frames, one that sends all the
//! time is never waited for.
//!
//! Where work comes every few microseconds a pause is an accident, of the sender's core mostly, and
//! to sleep over it saves little: the worker looks on four times as long then. A hundred frames
//! would wait for its waking up.

use sluice_base::Nanos;

/// Below this looking on is worth nothing: it is what one turn takes.
const SHORTEST: Nanos = Nanos::from_micros(2);
/// Work that comes as often as this, in the mean, comes all the time.
const DENSE: Nanos = Nanos::from_micros(8);
/// How many times longer to look on then.
const DENSE_TIMES: u64 = 4;
/// The weight of one gap in the mean of gaps, and the longest that counts.
const GAP_PART: u64 = 64;
const GAP_MAX: Nanos = Nanos::from_micros(200);

/// How long to look on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    most: Nanos,
    span: Nanos,
    /// When work was done last.
    last: Nanos,
    /// From one turn with work to the next, in the mean of late, times [`GAP_PART`].
    gaps: u64,
}

impl Spin {
    /// One that lasts `most` at most; zero is none at all.
    pub(super) const fn new(most: Nanos) -> Self {
        Self { most, span: Nanos::ZERO, last: Nanos::ZERO, gaps: GAP_MAX.0 * GAP_PART }
    }

    /// Work was done.
    #[inline]
    pub(super) fn worked(&mut self, now: Nanos) {
        self.gaps += now.since(self.last).min(GAP_MAX).0;
        self.gaps -= self.gaps / GAP_PART;
        self.last = now;
    }

    /// Whether to look on.
    #[inline]
    pub(super) fn goes_on(&self, now: Nanos) -> bool {
        let pause = now.since(self.last);
        pause < self.span || (self.is_dense() && pause.0 < self.span.0 * DENSE_TIMES)
    }

    #[inline]
    const fn is_dense(&self) -> bool {
        self.gaps < DENSE.0 * GAP_PART
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
    fn where_work_comes_all_the_time_a_pause_is_waited_for() {
        let mut spin = Spin::new(MOST);
        for _ in 0..8 {
            spin.slept(Nanos::from_micros(20));
        }
        let mut now = Nanos::from_millis(1);
        let mut work = |spin: &mut Spin, times: u32, gap: Nanos| {
            for _ in 0..times {
                now = now.after(gap);
                spin.worked(now);
            }
            now
        };
        let end = work(&mut spin, 1_000, Nanos::from_micros(1));
        assert!(spin.goes_on(end.after(Nanos(4 * MOST.0 - 1))));
        assert!(!spin.goes_on(end.after(Nanos(4 * MOST.0))));
        let end = work(&mut spin, 1_000, Nanos::from_micros(30));
        assert!(spin.goes_on(end.after(Nanos(MOST.0 - 1))), "now and then, but often");
        assert!(!spin.goes_on(end.after(MOST)));
        // A few pauses do not make it rare.
        work(&mut spin, 1_000, Nanos::from_micros(1));
        let end = work(&mut spin, 2, Nanos::from_millis(10));
        assert!(spin.goes_on(end.after(Nanos(2 * MOST.0))));
    }

    #[test]
    fn none_at_all() {
        let mut spin = Spin::new(Nanos::ZERO);
        spin.slept(Nanos::ZERO);
        spin.worked(Nanos(5));
        assert!(!spin.goes_on(Nanos(5)));
    }
}
