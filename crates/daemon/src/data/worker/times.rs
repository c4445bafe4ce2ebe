//! Use of the worker's time.

use sluice_base::Nanos;

/// Kind of a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Spent {
    /// A turn that moved something.
    #[default]
    Busy,
    /// A turn that found nothing.
    Looking,
    /// Sleep, and the turn before it, which found nothing.
    Asleep,
}

/// The times since the worker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::data) struct Times {
    /// Turns that moved something.
    pub(in crate::data) busy: Nanos,
    /// Turns that found nothing, after which the worker did not sleep.
    pub(in crate::data) looking: Nanos,
    /// Sleeping.
    pub(in crate::data) asleep: Nanos,
    /// Number of turns.
    pub(in crate::data) turns: u64,
}

/// A stopwatch that always runs for one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    times: Times,
    since: Nanos,
}

impl Stopwatch {
    pub(super) fn new(now: Nanos) -> Self {
        Self { times: Times::default(), since: now }
    }

    /// Adds the time since the last call to a kind.
    #[inline]
    pub(super) fn split(&mut self, now: Nanos, spent: Spent) {
        let span = now.since(self.since);
        self.since = now;
        let sum = match spent {
            Spent::Busy => &mut self.times.busy,
            Spent::Looking => &mut self.times.looking,
            Spent::Asleep => &mut self.times.asleep,
        };
        *sum = Nanos(sum.0 + span.0);
    }

    #[inline]
    pub(super) fn turn(&mut self) {
        self.times.turns += 1;
    }

    pub(super) const fn times(&self) -> Times {
        self.times
    }
}
