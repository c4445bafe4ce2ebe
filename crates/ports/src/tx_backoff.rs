//! State of a port that had no room, and the time of the next offer to it.
//!
//! ```text
//!             refused, a time                   Armed, and it waits for room
//!   free ────────────────────────▶ again at T ───────────────────────────────▶ until event
//!    ▲   ◀────────────────────────  ▲     │                                     │
//!    │            taken             │     │ More, or it waits for nothing       │ event
//!    │                              │     ▼                                     │
//!    └───────────────────────────  at once ◀────────────────────────────────────┘
//!                 taken
//! ```
//!
//! A port is left alone without a limit only if it still waits for room itself, and answers that a
//! descriptor signals it: a missed wake-up would hold its frames for ever. After any other answer
//! before a sleep the loop offers once more.

use sluice_base::Nanos;

use crate::port::{ArmResult, Port};

/// Event for which a port without room waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// None: it has room, as far as it knows.
    No,
    /// A descriptor signals room.
    ForRoom,
    /// A time span, for there is no event.
    For(Nanos),
}

impl Waits {
    /// Returns the state of a port, after an offer or a flush.
    #[must_use]
    pub fn of(port: &dyn Port) -> Self {
        match (port.retry_after(), port.wants_write()) {
            (Some(span), _) => Self::For(span),
            (None, true) => Self::ForRoom,
            (None, false) => Self::No,
        }
    }
}

/// Time until which a port is not offered to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxBackoff {
    /// Time of the next offer; `None` if there was room.
    missing: Option<Nanos>,
}

impl TxBackoff {
    /// Returns true if the last offer found no room.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.missing.is_some()
    }

    /// Returns true if the port may be offered to.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.missing.is_none_or(|until| now >= until)
    }

    /// Time of the next offer, if one is due; [`Nanos::MAX`] if a descriptor has to signal first.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.missing
    }

    /// Notes the state of the port after an offer.
    pub fn offered(&mut self, now: Nanos, waits: Waits) {
        self.missing = match waits {
            Waits::No => None,
            Waits::ForRoom => Some(Nanos::MAX),
            Waits::For(span) => Some(now.after(span)),
        };
    }

    /// Notes an event: the next turn offers. An offer too many does no harm.
    pub fn note_event(&mut self) {
        if self.missing.is_some() {
            self.missing = Some(Nanos::ZERO);
        }
    }

    /// Notes the answer of
    /// [`SharedRings::arm_notifications`](crate::SharedRings::arm_notifications); `wants_write` is
    /// the port's value afterwards. Returns true if the loop has to serve the port once more before
    /// it may sleep.
    #[must_use]
    pub fn note_armed(&mut self, answer: ArmResult, wants_write: bool) -> bool {
        match (answer, self.missing) {
            (ArmResult::Armed, None) => false,
            (ArmResult::Armed, Some(_)) if wants_write => {
                self.missing = Some(Nanos::MAX);
                false
            }
            (ArmResult::Armed | ArmResult::More, _) => {
                self.note_event();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
