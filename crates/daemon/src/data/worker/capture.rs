//! The worker's part in captures.

use std::sync::mpsc::SyncSender;

use sluice_base::Nanos;

use super::Worker;
use crate::data::capture::{Capture, DROPS_MAX};

impl Worker {
    /// Copies frames from now on.
    #[cold]
    pub(super) fn begin_capture(&mut self, capture: Capture) {
        self.captures.get_or_insert_default().begin(capture);
        self.follow_drops();
    }

    /// Ends a capture.
    #[cold]
    pub(super) fn end_capture(&mut self, number: u64, reply: &SyncSender<Option<Capture>>) {
        let Some(captures) = &mut self.captures else { return };
        // Its memory is the session's to give back; without it nobody waits.
        _ = reply.send(captures.end(number));
        if captures.is_empty() {
            self.captures = None;
        }
        self.follow_drops();
    }

    /// Has the switch keep dropped frames if a capture wants them.
    fn follow_drops(&mut self) {
        let wanted = self.captures.as_ref().is_some_and(|captures| captures.want_drops());
        self.host.switch_mut().watch_drops(if wanted { DROPS_MAX } else { 0 });
    }

    /// Copies the frames that were dropped in this turn.
    #[cold]
    pub(super) fn capture_dropped(&mut self, now: Nanos) {
        let Some(captures) = &mut self.captures else { return };
        if captures.want_drops() {
            let missed = self.host.switch_mut().take_dropped(|frame| captures.dropped(now, frame));
            captures.missed_drops(missed);
        }
    }
}
