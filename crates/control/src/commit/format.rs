//! Formats of the members' messages, so that neighbouring versions of the program work together
//! while a fabric is upgraded host by host.
//!
//! ```text
//!   connected ──> Formats(oldest, newest), in an envelope that every version reads
//!   common format ──> all that this host says to that member is written in the newest common one
//!   none ──────────> the member is away, as one without a connection, and both are named
//! ```
//!
//! A member that announces nothing is of format 1, whose program does not know the announcement.
//! A message that a member writes says more than its announcement: it may have been restarted with
//! another program.
//!
//! | format | differs |
//! |---|---|
//! | 1 | |
//! | 2 | the formats of the sender stand behind the first byte, where each later format has them |
//!
//! The log, the state and records have versions of their own (`command`, `state/snapshot`,
//! `record`): a host that cannot read an entry stays at the one before, and says so.

use core::fmt;

/// Formats of messages that a program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    oldest: u8,
    newest: u8,
}

impl Formats {
    /// Formats of this program.
    pub const OWN: Self = Self { oldest: 1, newest: 2 };
    /// Formats of a program that announces none.
    pub(super) const FIRST: Self = Self { oldest: 1, newest: 1 };

    /// Returns the formats from `oldest` to `newest`; `None` if there is none.
    #[must_use]
    pub const fn new(oldest: u8, newest: u8) -> Option<Self> {
        if oldest == 0 || oldest > newest { None } else { Some(Self { oldest, newest }) }
    }

    pub(super) const fn oldest(self) -> u8 {
        self.oldest
    }

    pub(super) const fn newest(self) -> u8 {
        self.newest
    }

    /// Returns true if a format is one of these.
    pub(super) const fn has(self, format: u8) -> bool {
        self.oldest <= format && format <= self.newest
    }

    /// Returns the newest format that both know.
    pub(super) fn common(self, other: Self) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (self.has(newest) && other.has(newest)).then_some(newest)
    }
}

impl Default for Formats {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "format {}", self.newest),
            false => write!(f, "formats {} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests;
