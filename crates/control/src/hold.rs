//! Holds between hosts: a host whose receiver does not keep up tells the hosts that send to it, and
//! these hold its frames at their side.
//!
//! ```text
//!   receiver's host                                  sender's host
//!   data ── a port is to be held ──> requester ── state ──> responder ── hold these ──> data
//!                                        ^                      │
//!                                        └────── answered ──────┘
//! ```
//!
//! **Aim.** Every [`HoldResponder`] concerned has the state of the [`HoldRequester`] one message
//! later. No endpoint is held for longer than [`LEASE`] by a host that is gone, or by a message
//! that is old.
//!
//! **State, not changes.** A message is all that one host wants of another
//! ([`HoldPart`](sluice_wire::fabric::HoldPart)), in one or several parts. Endpoints that a message
//! does not name are released. Messages are numbered by the incarnation of their sender and a
//! sequence in it. A message that is not above the last one is ignored, on any connection.
//!
//! **Leases.** A requester repeats its state every [`RENEW_EVERY`], and repeats messages that were
//! not answered. A responder that hears nothing for [`LEASE`] releases its holds. A session that
//! ends releases none: on a busy machine the next one comes within the lease, and what the senders
//! would send meanwhile finds no room at the receiver's host. The data process has a lease of its
//! own, which the responder renews every [`RENEW_EVERY`].
//!
//! Pure: no clock, no socket. The caller decides which endpoints are meant, and if a host may speak
//! for them.

mod requester;
mod responder;

use sluice_base::Nanos;

pub use self::requester::{Answered, HoldRequester, Port};
pub use self::responder::{Counts, Entry, HoldCommand, HoldResponder, Turn};

/// Period in which a requester repeats its state.
pub const RENEW_EVERY: Nanos = Nanos::from_millis(500);
/// Time without a renewal after which a hold ends.
pub const LEASE: Nanos = Nanos::from_millis(2_000);
/// Time for which an answer is waited for.
pub const ANSWER_MAX: Nanos = Nanos::from_millis(500);
const _: () = assert!(RENEW_EVERY.0 + ANSWER_MAX.0 < LEASE.0);

#[cfg(test)]
mod tests;
