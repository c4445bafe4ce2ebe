//! What a loop remembers of a port that had no room, and when it offers to it again.
//!
//! ```text
//!             refused, a time                   Armed, and it waits for room
//!   free ────────────────────────▶ again at T ───────────────────────────────▶ until told
//!    ▲   ◀────────────────────────  ▲     │                                     │
//!    │            taken             │     │ More, or it waits for nothing       │ told
//!    │                              │     ▼                                     │
//!    └───────────────────────────  at once ◀────────────────────────────────────┘
//!                 taken
//! ```
//!
//! Only a port that itself still waits for room, and says that a descriptor tells of it, is left
//! alone without an end: a wake-up that was missed would hold its frames for ever. Everything else
//! that it says before a sleep makes the loop offer once more.

use sluice_base::Nanos;

use crate::port::{Port, Rest};

/// Event for which a port without room waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// It has room, as far as it knows.
    No,
    /// A descriptor tells of room.
    ForRoom,
    /// This long, for nobody will tell.
    For(Nanos),
}

impl Waits {
    /// Reads it off a port, after an offer or a flush.
    #[must_use]
    pub fn of(port: &dyn Port) -> Self {
        match (port.retry_after(), port.wants_write()) {
            (Some(span), _) => Self::For(span),
            (None, true) => Self::ForRoom,
            (None, false) => Self::No,
        }
    }
}

/// Whether, and until when, a port is not offered to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// `None`: there was room.
    missing: Option<Nanos>,
}

impl Room {
    /// The last offer found none.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.missing.is_some()
    }

    /// The port may be offered to.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.missing.is_none_or(|until| now >= until)
    }

    /// The moment of the next offer, if one is awaited: [`Nanos::MAX`] if a descriptor has to tell.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.missing
    }

    /// It was offered to, and waits for this now.
    pub fn offered(&mut self, now: Nanos, waits: Waits) {
        self.missing = match waits {
            Waits::No => None,
            Waits::ForRoom => Some(Nanos::MAX),
            Waits::For(span) => Some(now.after(span)),
        };
    }

    /// A descriptor told of something: the next turn offers. Trying once too often does no harm.
    pub fn told(&mut self) {
        if self.missing.is_some() {
            self.missing = Some(Nanos::ZERO);
        }
    }

    /// The port answered [`Port::rest`]; `wants_write` is what it says afterwards. Returns whether
    /// the loop has to serve the port once more before it may sleep.
    #[must_use]
    pub fn rested(&mut self, answer: Rest, wants_write: bool) -> bool {
        match (answer, self.missing) {
            (Rest::Told, _) | (Rest::Armed, None) => false,
            (Rest::Armed, Some(_)) if wants_write => {
                self.missing = Some(Nanos::MAX);
                false
            }
            (Rest::Armed | Rest::More, _) => {
                self.told();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
