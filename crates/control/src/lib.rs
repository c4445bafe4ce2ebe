//! The control plane of one host: the place of every endpoint, and its publication to all other
//! hosts.
//!
//! All modules are state machines without clock, socket, thread or randomness of their own: time
//! and messages go in, messages and commands come out. The daemon runs one beside its switch; the
//! simulator runs hundreds in a thread.
//!
//! Each state has one **owner**: a host publishes the vports of its own ports and no others, so
//! that no vote is needed. If two hosts claim an endpoint at the same time, all hosts decide alike
//! from the claims themselves ([`vport::Claim::beats`]).
//!
//! ```text
//!   own ports ── learn, bind ──> publisher ── a queue per peer ──> the table of every other host
//!   peers     ── claims ───────> table ── endpoints in use ──> tunnels, forwarding table (FDB)
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bridge;
pub mod bucket;
mod clock;
pub mod commit;
pub mod digest;
pub mod directory;
pub mod frame;
mod hash;
pub mod hold;
pub mod learn;
pub mod liveness;
pub mod mobility;
pub mod plane;
pub mod publisher;
pub mod punt;
mod recent;
pub mod resolve;
pub mod rpc;
pub mod session;
pub mod table;
pub mod vport;
