//! Patience with a frame that its device refuses: when a driver gives the frame up.
//!
//! No error tells a device without room now from a device that never takes a frame: `ENOBUFS` means
//! both, and so does `EPERM` of a rule with a rate. The fate of other frames does tell. A *sign* is
//! one refusal of the head while there was, as far as a driver can know, room for another frame:
//!
//! ```text
//!            sign                  sign             as many as wanted
//!   head ───────────▶ suspected ─────────▶ …… ──────────────────────▶ it ends: half is wanted
//!                         │                                            of the next one
//!                         └─ it leaves after n signs: 4 n are wanted at least
//! ```
//!
//! One head costs the time of the wanted signs. Their number is halved each time, so that a hundred
//! heads in a row, of any size and to any destination, cost twice the time of the first one; at
//! [`AT_ONCE`] signs and fewer the driver does not even wait. A head that was suspected and left
//! shows how many signs mean nothing here, as with a full queue that has room for some now and
//! then. Frames that are never refused bring the number back up, slowly.

/// Minimum of wanted signs.
const SIGNS_MIN: u32 = 16;
/// Up to this many signs are gathered in one go.
const AT_ONCE: u32 = 32;
/// After a head that left despite some signs, this many times more are wanted at least.
const MARGIN: u32 = 4;
/// After this many frames that were never refused, one sign more is wanted.
const CALM: u32 = 64;

/// Signs that the device never takes the frame at the head of one queue.
#[derive(Clone, Debug)]
pub(crate) struct StuckHead {
    /// Signs wanted of a device that has taken everything so far.
    full: u32,
    wanted: u32,
    signs: u32,
    calm: u32,
}

impl StuckHead {
    pub(crate) const fn new(full: u32) -> Self {
        Self { full, wanted: full, signs: 0, calm: 0 }
    }

    /// Notes that the head left.
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

    /// Notes a refusal of the head although there was room. Returns true if the head is given up.
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

    /// Notes that the head is another frame.
    pub(crate) const fn forget(&mut self) {
        self.signs = 0;
        self.calm = 0;
    }

    /// Returns true if the driver tries again at once for the next sign.
    pub(crate) const fn is_short(&self) -> bool {
        self.wanted <= AT_ONCE
    }
}

#[cfg(test)]
mod tests;
