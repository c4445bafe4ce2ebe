//! Frames on their way from the container's egress to the AF_XDP socket, and the time to look for
//! them again.
//!
//! ```text
//!             sent = received, armed                 polled in vain
//!   IDLE ◀──────────────────────────── BUSY ──────────────────────────▶ LATE: a timer, 50 µs,
//!     │          a wake-up              ▲  ◀────────── frames ───────────  twice as long each time
//!     └─────────────────────────────────┘                                  │ about 1.6 s in vain
//!                                                                          ▼
//!                                         IDLE ◀── the difference is noted: it will not come
//! ```
//!
//! A frame takes microseconds from the program to the ring, so it is late only while its sender's
//! core is kept from running. It never comes if something between dropped it: the device, or the
//! discipline beyond its limit, both of which count it. More frames than were sent come if some
//! passed the program by.

use std::time::Duration;

/// First wait for a late frame, and the last one.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_micros(819_200);

/// What is on its way.
#[derive(Debug)]
pub(super) struct Pending {
    /// Frames that came, and those that will not come.
    received: u64,
    /// The next wait.
    wait: Duration,
    /// Frames that were sent and did not come.
    missing: u64,
}

/// What to do when a poll brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InVain {
    /// Poll again after this time.
    Wait(Duration),
    /// Nothing is on its way any more.
    Settled,
}

impl Pending {
    /// Nothing is on its way after `sent` frames.
    pub(super) const fn new(sent: u64) -> Self {
        Self { received: sent, wait: WAIT_MIN, missing: 0 }
    }

    /// Notes a frame that came.
    #[inline]
    pub(super) const fn came(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.wait = WAIT_MIN;
    }

    /// The count of sent frames at which nothing is on its way.
    #[inline]
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Notes that polls brought nothing although `sent` differs.
    #[cold]
    pub(super) fn in_vain(&mut self, sent: u64) -> InVain {
        let wait = self.wait;
        if wait <= WAIT_MAX {
            self.wait *= 2;
            return InVain::Wait(wait);
        }
        self.wait = WAIT_MIN;
        let missing = sent.wrapping_sub(self.received).cast_signed();
        self.missing += u64::try_from(missing).unwrap_or(0);
        self.received = sent;
        InVain::Settled
    }

    /// Frames that were sent and never came.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_frames_are_waited_for_then_given_up() {
        let mut pending = Pending::new(7);
        pending.came();
        let mut waited = Duration::ZERO;
        let mut waits = 0;
        while let InVain::Wait(wait) = pending.in_vain(11) {
            waited += wait;
            waits += 1;
        }
        assert_eq!((waits, waited), (15, 2 * WAIT_MAX - WAIT_MIN));
        assert_eq!((pending.received(), pending.missing()), (11, 3));
    }

    #[test]
    fn frame_that_came_begins_waits_anew() {
        let mut pending = Pending::new(0);
        for _ in 0..3 {
            pending.in_vain(2);
        }
        pending.came();
        assert_eq!(pending.in_vain(2), InVain::Wait(WAIT_MIN));
    }

    #[test]
    fn frames_past_the_program_are_not_missing() {
        let mut pending = Pending::new(u64::MAX);
        pending.came();
        pending.came();
        while pending.in_vain(0) != InVain::Settled {}
        assert_eq!((pending.received(), pending.missing()), (0, 0));
    }
}
