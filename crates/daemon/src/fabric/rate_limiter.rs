//! Rate limit of log lines: frequent events are not logged each time. A log that floods hides
//! important lines, and fills a disk.

use std::collections::BTreeMap;

use sluice_base::Nanos;

/// Lines of one kind that are written in [`SPAN`].
const LINES_MAX: u32 = 10;
const SPAN: Nanos = Nanos::from_millis(1000);

/// Admits a few lines of each kind, and counts the others.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    since: Nanos,
    kinds: BTreeMap<&'static str, (u32, u64)>,
}

impl RateLimiter {
    /// Returns true if a line of this kind is written.
    pub(super) fn admit(&mut self, kind: &'static str) -> bool {
        let (written, others) = self.kinds.entry(kind).or_default();
        if *written < LINES_MAX {
            *written += 1;
            return true;
        }
        *others += 1;
        false
    }

    /// Returns the number of lines that were not written, once the span is over.
    pub(super) fn others(&mut self, now: Nanos) -> impl Iterator<Item = (&'static str, u64)> {
        let kinds = if now.since(self.since) >= SPAN {
            self.since = now;
            std::mem::take(&mut self.kinds)
        } else {
            BTreeMap::new()
        };
        kinds.into_iter().filter_map(|(kind, (_, others))| (others > 0).then_some((kind, others)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_limit_first_lines_written_rest_counted() {
        let mut few = RateLimiter::default();
        let at = Nanos::from_millis;
        assert_eq!(few.others(at(5_000)).count(), 0);
        let conflicts = (0..1_000).filter(|_| few.admit("conflict")).count();
        assert_eq!(conflicts, 10);
        assert!(few.admit("host-up"), "another kind");
        assert_eq!(few.others(at(5_999)).count(), 0, "not before its time");
        assert_eq!(few.others(at(6_000)).collect::<Vec<_>>(), [("conflict", 990)]);
        assert!(few.admit("conflict"), "a new span");
        assert_eq!(few.others(at(7_000)).count(), 0, "nothing is said twice");
    }
}
