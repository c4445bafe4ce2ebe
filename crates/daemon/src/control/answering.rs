//! Requests that are being answered. A process that becomes another program waits for them: a
//! client would otherwise not learn what became of its request.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait: some answers take long, and a client may read none.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Count of requests that are being answered.
#[derive(Debug, Default)]
pub(super) struct Answering {
    count: Mutex<usize>,
    none: Condvar,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(super) struct Answer(Arc<Answering>);

impl Answering {
    /// Counts a request.
    pub(super) fn begin(self: &Arc<Self>) -> Answer {
        *self.count() += 1;
        Answer(Arc::clone(self))
    }

    /// Waits until all are answered, for a bounded time. Returns false if some are not.
    pub(super) fn finish(&self) -> bool {
        self.finish_within(ANSWERED_WITHIN)
    }

    fn finish_within(&self, limit: Duration) -> bool {
        let waited = self.none.wait_timeout_while(self.count(), limit, |count| *count > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut count = self.0.count();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_waits_for_answers_and_not_longer() {
        let answering = Arc::<Answering>::default();
        assert!(answering.finish(), "there are none");
        let answers = [answering.begin(), answering.begin()];
        assert!(!answering.finish_within(Duration::from_millis(1)));
        // The last one is written while somebody waits for it.
        let mut answers = answers.into_iter();
        drop(answers.next());
        let last = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(answers);
        });
        assert!(answering.finish_within(Duration::from_secs(60)));
        last.join().unwrap();
    }
}
