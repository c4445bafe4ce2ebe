//! How long a driver tries a frame that its device refuses, before it believes that the device
//! never takes it.
//!
//! No error says whether a device has no room now or never wants a frame: `ENOBUFS` says both, and
//! so does `EPERM` of a rule with a rate. What happens to other frames does. A *sign* is one
//! refusal of the head while there was, as far as a driver can know, room for another frame:
//!
//! ```text
//!            sign                  sign             as many as wanted
//!   head ───────────▶ suspected ─────────▶ …… ──────────────────────▶ it ends: half is wanted
//!                         │                                            of the next one
//!                         └─ it leaves after n signs: 4 n are wanted at least
//! ```
//!
//! One head costs the time of the signs that are wanted. That is halved each time, so that a
//! hundred heads in a row, of whatever size and to whomever, cost twice the time of the first one;
//! the last ones, [`AT_ONCE`] signs and fewer, are not even waited for. A frame that was suspected
//! and left says how many signs mean nothing here, as where a full queue has room for some now and
//! then. Frames that nobody refuses bring the patience back, slowly.

/// So many signs are always wanted.
const SIGNS_MIN: u32 = 16;
/// Up to so many are gathered in one go.
const AT_ONCE: u32 = 32;
/// A frame that left after some signs: so many times more of them mean nothing either.
const MARGIN: u32 = 4;
/// After so many frames that were never refused one sign more is wanted.
const CALM: u32 = 64;

/// Signs that the frame at the head of one queue is never taken.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Signs that are wanted of a device that has taken everything so far.
    full: u32,
    wanted: u32,
    signs: u32,
    calm: u32,
}

impl Patience {
    pub(crate) const fn new(full: u32) -> Self {
        Self { full, wanted: full, signs: 0, calm: 0 }
    }

    /// The head left.
    #[inline]
    pub(crate) fn passed(&mut self) {
        if self.wanted < self.full || self.signs > 0 {
            self.relearn();
        }
    }

    #[cold]
    fn relearn(&mut self) {
        self.wanted = self.wanted.max(self.signs * MARGIN);
        self.calm = if self.signs == 0 { self.calm + 1 } else { 0 };
        if self.calm == CALM {
            self.calm = 0;
            self.wanted += 1;
        }
        self.wanted = self.wanted.min(self.full);
        self.signs = 0;
    }

    /// The head was refused although there was room. Returns whether it ends.
    #[cold]
    pub(crate) fn is_over(&mut self) -> bool {
        self.signs += 1;
        if self.signs < self.wanted {
            return false;
        }
        self.wanted = (self.wanted / 2).max(SIGNS_MIN);
        self.forget();
        true
    }

    /// The head is another one.
    pub(crate) const fn forget(&mut self) {
        self.signs = 0;
        self.calm = 0;
    }

    /// Whether the next sign is looked for at once.
    pub(crate) const fn is_short(&self) -> bool {
        self.wanted <= AT_ONCE
    }
}

#[cfg(test)]
mod tests;
