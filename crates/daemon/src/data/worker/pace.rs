//! Pauses of a busy worker, so that frames arrive in batches.
//!
//! A pause pays if frames gather meanwhile: a wake-up costs some ten microseconds, and one of sixty
//! frames costs hardly more than one of a single frame. A sender that waits for the answer to each
//! frame gathers nothing, and would only wait. So the worker pauses after turns that read many
//! frames, two in a row, and never after others: the first frame after a lull is served at once,
//! and so is the second. A worker that is woken too often to keep up finds more frames in each
//! turn, and begins to pause by itself.

use sluice_base::Nanos;

/// Frames of a turn that make it a batch.
const BATCH_MIN: usize = 8;
/// Turns in a row that read a batch before the first pause.
const TURNS_MIN: u8 = 2;

/// Decides about pauses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pause: Nanos,
    /// Turns in a row that read a batch.
    dense: u8,
}

impl Pace {
    /// Makes pauses of this length; zero is none at all.
    pub(super) const fn new(pause: Nanos) -> Self {
        Self { pause, dense: 0 }
    }

    /// Notes a turn that moved something and read `frames`. Returns the length of the pause after
    /// it.
    pub(super) fn after(&mut self, frames: usize) -> Option<Nanos> {
        self.dense = if frames < BATCH_MIN { 0 } else { (self.dense + 1).min(TURNS_MIN) };
        (self.dense == TURNS_MIN && self.pause > Nanos::ZERO).then_some(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Nanos = Nanos::from_micros(100);

    #[test]
    fn only_batches_are_waited_for() {
        let mut pace = Pace::new(PAUSE);
        for frames in [0, 1, 2, 7, 1, 63, 1, 64] {
            assert_eq!(pace.after(frames), None, "{frames}");
        }
        for frames in [8, 16, 64] {
            assert_eq!(pace.after(frames), Some(PAUSE), "{frames}");
        }
        assert_eq!((pace.after(7), pace.after(64), pace.after(64)), (None, None, Some(PAUSE)));
    }

    #[test]
    fn none_at_all() {
        let mut pace = Pace::new(Nanos::ZERO);
        assert!((0..10).all(|_| pace.after(64).is_none()));
    }
}
