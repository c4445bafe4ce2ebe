//! Clients that watch what happens. One that reads too slowly misses events and delays nobody; it
//! is told how many, as soon as it has read again.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use sluice_api::fabric::{Answer, EventRow};

/// Events that may wait for a watcher.
const EVENTS_MAX: usize = 1024;
/// Kind of the event that stands for missed ones.
const MISSED: &str = "events-missed";

/// The watchers.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Watcher>);

/// A watching client.
#[derive(Debug)]
pub(super) struct Watcher {
    events: SyncSender<Answer>,
    /// Events for which there was no room since the last that was sent.
    missed: u64,
}

impl Watcher {
    /// Returns a watcher, and what it is told.
    pub(super) fn new() -> (Self, Receiver<Answer>) {
        let (events, told) = sync_channel(EVENTS_MAX);
        (Self { events, missed: 0 }, told)
    }

    /// Tells an event. Returns false if nobody listens any more.
    fn tell(&mut self, row: &EventRow) -> bool {
        if self.missed > 0 {
            let what = format!("{} were missed, as they were read too slowly", self.missed);
            let missed = EventRow { at_ns: row.at_ns, event: MISSED.to_owned(), what };
            match self.events.try_send(Answer::Event(missed)) {
                Ok(()) => self.missed = 0,
                Err(TrySendError::Full(_)) => {
                    self.missed += 1;
                    return true;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
        match self.events.try_send(Answer::Event(row.clone())) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

impl Watchers {
    pub(super) fn add(&mut self, watcher: Watcher) {
        self.0.push(watcher);
    }

    /// Returns true if nobody watches.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells everybody who still listens.
    pub(super) fn tell(&mut self, row: &EventRow) {
        self.0.retain_mut(|watcher| watcher.tell(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize) -> EventRow {
        EventRow { at_ns: number as u64, event: "host-up".to_owned(), what: number.to_string() }
    }

    fn read(told: &Receiver<Answer>) -> Vec<EventRow> {
        let rows = told.try_iter().map(|answer| match answer {
            Answer::Event(row) => row,
            other => panic!("{other:?}"),
        });
        rows.collect()
    }

    #[test]
    fn slow_watcher_is_told_what_it_missed() {
        let (mut watchers, (watcher, told)) = (Watchers::default(), Watcher::new());
        assert!(watchers.is_empty());
        watchers.add(watcher);
        (0..EVENTS_MAX + 5).for_each(|number| watchers.tell(&row(number)));
        let first = read(&told);
        assert_eq!((first.len(), &first[EVENTS_MAX - 1]), (EVENTS_MAX, &row(EVENTS_MAX - 1)));
        watchers.tell(&row(9_999));
        let next = read(&told);
        assert_eq!((next[0].event.as_str(), &next[1]), (MISSED, &row(9_999)));
        assert!(next[0].what.starts_with("5 were missed"), "{next:?}");
        watchers.tell(&row(7));
        assert_eq!(read(&told), [row(7)]);
        drop(told);
        watchers.tell(&row(8));
        assert!(watchers.is_empty());
    }
}
