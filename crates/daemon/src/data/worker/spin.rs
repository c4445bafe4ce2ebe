//! Time for which the worker polls before it sleeps.
//!
//! A virtual machine's queues are memory: polling them costs nothing, while a wake-up costs some
//! ten microseconds, and a system call at the sender. So after work with them the worker polls for
//! a while, and the length of that follows from its benefit. If work arrives soon after the worker
//! slept, polling would have been better, so the time doubles; a long sleep halves it. Polling soon
//! costs nothing beside the frames of a machine that sends rarely, and the worker never sleeps
//! beside one that sends all the time.
//!
//! If work arrives every few microseconds, a pause is an accident, mostly of the sender's core, and
//! sleeping through it saves little: the worker then polls four times as long. A hundred frames
//! would wait for its wake-up.

use sluice_base::Nanos;

/// Below this polling has no benefit: one turn takes as long.
const SHORTEST: Nanos = Nanos::from_micros(2);
/// Work with this mean gap, or a smaller one, is continuous.
const DENSE: Nanos = Nanos::from_micros(8);
/// Factor of the polling time for continuous work.
const DENSE_TIMES: u64 = 4;
/// The weight of one gap in the mean of gaps, and the longest that counts.
const GAP_PART: u64 = 64;
const GAP_MAX: Nanos = Nanos::from_micros(200);

/// Decides about polling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    most: Nanos,
    span: Nanos,
    /// Time of the last work.
    last: Nanos,
    /// Mean of recent gaps between turns with work, times [`GAP_PART`].
    gaps: u64,
}

impl Spin {
    /// Polls for at most `most`; zero is not at all.
    pub(super) const fn new(most: Nanos) -> Self {
        Self { most, span: Nanos::ZERO, last: Nanos::ZERO, gaps: GAP_MAX.0 * GAP_PART }
    }

    /// Notes that work was done.
    #[inline]
    pub(super) fn worked(&mut self, now: Nanos) {
        self.gaps += now.since(self.last).min(GAP_MAX).0;
        self.gaps -= self.gaps / GAP_PART;
        self.last = now;
    }

    /// Returns true if the worker should continue to poll.
    #[inline]
    pub(super) fn goes_on(&self, now: Nanos) -> bool {
        let pause = now.since(self.last);
        pause < self.span || (self.is_dense() && pause.0 < self.span.0 * DENSE_TIMES)
    }

    #[inline]
    const fn is_dense(&self) -> bool {
        self.gaps < DENSE.0 * GAP_PART
    }

    /// Notes the length of a sleep.
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
    fn polling_time_grows_after_short_sleeps_shrinks_otherwise() {
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
    fn polling_time_fourfold_under_continuous_work() {
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
        // A few pauses do not make the work rare.
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
