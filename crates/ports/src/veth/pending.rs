//! Frames on their way from the container's egress to the AF_XDP socket, and the time to look for
//! them again.
//!
//! ```text
//!             sent = received, armed                 polled in vain
//!   IDLE ◀──────────────────────────── BUSY ──────────────────────────▶ LATE: a timer, 50 µs,
//!     │          a wake-up              ▲  ◀────────── frames ───────────  twice as long each time
//!     └─────────────────────────────────┘                                  │ about 1.6 s in vain
//!                                                                          ▼
//!                          IDLE, absent: armed, and a look every 0.8 s ◀── the difference is noted
//! ```
//!
//! A frame takes microseconds from the program to the ring, so it is late only while its sender's
//! core is kept from running. It never comes if something between dropped it. Nothing here can tell
//! these cases apart, so `absent` is no count of losses: the device and the discipline count those.
//! While frames are absent the port looks for them, because a frame that comes after it was noted
//! as absent does not wake. More frames than were sent come if some passed the program by.

use std::time::Duration;

/// First wait for a late frame, and the last one.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_micros(819_200);

/// Frames on their way.
#[derive(Debug)]
pub(super) struct Pending {
    /// Frames that came, and those noted as absent.
    received: u64,
    /// The next wait.
    wait: Duration,
    /// Frames that were sent and have not come so far.
    absent: u64,
}

/// Action when a poll brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InVain {
    /// Poll again after this time.
    Wait(Duration),
    /// Arm for the next frame.
    Settled,
}

impl Pending {
    /// Begins after `received` frames, `absent` of which have not come.
    pub(super) const fn new(received: u64, absent: u64) -> Self {
        Self { received, wait: WAIT_MIN, absent }
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

    /// Frames that were sent and have not come so far.
    pub(super) const fn absent(&self) -> u64 {
        self.absent
    }

    /// Interval of looks for absent frames, if there are any.
    pub(super) fn look_after(&self) -> Option<Duration> {
        (self.absent > 0).then_some(WAIT_MAX)
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
        let more = sent.wrapping_sub(self.received).cast_signed();
        self.absent = self.absent.saturating_add_signed(more);
        self.received = sent;
        InVain::Settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_frames_are_waited_for_then_noted() {
        let mut pending = Pending::new(7, 0);
        pending.came();
        let mut waited = Duration::ZERO;
        let mut waits = 0;
        while let InVain::Wait(wait) = pending.in_vain(11) {
            waited += wait;
            waits += 1;
        }
        assert_eq!((waits, waited), (15, 2 * WAIT_MAX - WAIT_MIN));
        assert_eq!((pending.received(), pending.absent()), (11, 3));
        assert_eq!(pending.look_after(), Some(WAIT_MAX));
    }

    #[test]
    fn absent_frame_that_comes_is_forgotten() {
        let mut pending = Pending::new(0, 0);
        while pending.in_vain(2) != InVain::Settled {}
        pending.came();
        while pending.in_vain(2) != InVain::Settled {}
        assert_eq!((pending.received(), pending.absent()), (2, 1));
        pending.came();
        while pending.in_vain(2) != InVain::Settled {}
        assert_eq!((pending.absent(), pending.look_after()), (0, None));
    }

    #[test]
    fn frame_that_came_begins_waits_anew() {
        let mut pending = Pending::new(0, 0);
        for _ in 0..3 {
            pending.in_vain(2);
        }
        pending.came();
        assert_eq!(pending.in_vain(2), InVain::Wait(WAIT_MIN));
    }

    #[test]
    fn frames_past_the_program_are_not_absent() {
        let mut pending = Pending::new(u64::MAX, 0);
        pending.came();
        pending.came();
        while pending.in_vain(0) != InVain::Settled {}
        assert_eq!((pending.received(), pending.absent()), (0, 0));
    }
}
