//! Schedule of periodic work.

use std::time::{Duration, Instant};

/// Periodic work. Missed periods are not made up for: many measurements within a moment would be
/// useless.
#[derive(Debug)]
pub(crate) struct Due {
    every: Duration,
    next: Instant,
}

impl Due {
    pub(crate) fn new(now: Instant, every: Duration) -> Self {
        Self { every, next: now + every }
    }

    pub(crate) fn at(&self) -> Instant {
        self.next
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Notes that the work is done, at `now`.
    pub(crate) fn done(&mut self, now: Instant) {
        self.next += self.every;
        if self.next <= now {
            self.next = now + self.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periodic_work_keeps_interval_without_catching_up() {
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let mut due = Due::new(begin, Duration::from_millis(100));
        assert!(!due.is_due(after(99)) && due.is_due(after(100)));
        due.done(after(130));
        assert_eq!(due.at(), after(200), "a little late is late once");
        // Kept from its core for three seconds, before the work or during it.
        assert!(due.is_due(after(3_200)));
        due.done(after(3_201));
        assert!(!due.is_due(after(3_300)));
        assert_eq!(due.at(), after(3_301));
    }
}
