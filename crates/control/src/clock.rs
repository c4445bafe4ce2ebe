//! The caller's time, made to run forwards. Backwards it stands still; forwards it passes at once.

use sluice_base::Nanos;

/// Time that never goes back, and how it relates to the caller's.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    seen: Option<Nanos>,
    elapsed: Nanos,
}

impl Clock {
    /// Time has come to `now` by the caller's clock: what it is here.
    pub(crate) fn at(&mut self, now: Nanos) -> Nanos {
        let before = self.seen.replace(now).unwrap_or(now);
        self.elapsed = self.elapsed.after(now.since(before));
        self.elapsed
    }

    /// What it was here when the caller last said.
    pub(crate) const fn latest(&self) -> Nanos {
        self.elapsed
    }

    /// When `at` will be by the caller's clock.
    pub(crate) fn outside(&self, at: Nanos) -> Nanos {
        self.seen.unwrap_or(Nanos::ZERO).after(at.since(self.elapsed))
    }
}
