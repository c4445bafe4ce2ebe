//! Holds between hosts: a host whose receiver does not take what comes says so to the hosts that
//! send to it, and they hold its frames at their side.
//!
//! ```text
//!   receiver's host                                  sender's host
//!   data ── a port is to be held ──> Teller ── state ──> Keeper ── hold these ──> data
//!                                      ^                   │
//!                                      └──── answered ─────┘
//! ```
//!
//! **Aim.** What stands at the [`Teller`] stands at every [`Keeper`] that it concerns, one message
//! later; and nobody is held for longer than [`LEASE`] by a host that is gone, or by a message
//! that is old.
//!
//! **State, not changes.** A message is all that one host wants of another
//! ([`HoldPart`](sluice_wire::fabric::HoldPart)), in one part or a few. What it does not name is
//! let go. Messages are numbered by the incarnation of their sender and a sequence in it, and one
//! that is not above the last is not heard, on whatever connection it comes.
//!
//! **Leases.** What stands is told again every [`RENEW_EVERY`], and what was not answered is told
//! again. Who hears nothing for [`LEASE`] lets go, and so does who loses the session. A keeper
//! tells its data process every [`RENEW_EVERY`], which has a lease of its own.
//!
//! Pure: no clock, no socket. Which endpoints are meant, and whether a host may speak for them, is
//! for the caller to say.

mod keeper;
mod teller;

use sluice_base::{Nanos, PriorityMask};

pub use self::keeper::{Counts, Entry, Keeper, Order, Turn};
pub use self::teller::{Answered, Port, Teller};

/// How often what stands is told again.
pub const RENEW_EVERY: Nanos = Nanos::from_millis(500);
/// After so long without a word of it, a hold ends.
pub const LEASE: Nanos = Nanos::from_millis(2_000);
/// For how long an answer is waited for.
pub const ANSWER_MAX: Nanos = Nanos::from_millis(500);
const _: () = assert!(RENEW_EVERY.0 + ANSWER_MAX.0 < LEASE.0);

/// A port of this host, as it takes what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// Priorities that have lost their claim on what all share.
    pub isolated: PriorityMask,
    /// Priorities that senders are to hold.
    pub held: PriorityMask,
    /// Those among them whose hold contract is over.
    pub stuck: PriorityMask,
}

impl Receiver {
    /// Whether nothing is wrong with it.
    #[must_use]
    pub const fn is_fine(&self) -> bool {
        self.isolated.is_empty() && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
