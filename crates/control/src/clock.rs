//! The caller's time, made to run forwards. If the caller's time goes back, this time stands still;
//! forward jumps pass at once.

use sluice_base::Nanos;

/// Time that never goes back, and its relation to the caller's.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    seen: Option<Nanos>,
    elapsed: Nanos,
}

impl Clock {
    /// Moves to `now` of the caller's clock. Returns the time here.
    pub(crate) fn at(&mut self, now: Nanos) -> Nanos {
        let before = self.seen.replace(now).unwrap_or(now);
        self.elapsed = self.elapsed.after(now.since(before));
        self.elapsed
    }

    /// Returns the time here at the last call of [`Self::at`].
    pub(crate) const fn latest(&self) -> Nanos {
        self.elapsed
    }

    /// Returns `at` by the caller's clock.
    pub(crate) fn outside(&self, at: Nanos) -> Nanos {
        self.seen.unwrap_or(Nanos::ZERO).after(at.since(self.elapsed))
    }
}
