//! The other end of a port in tests and benchmarks: a guest with a virtio network device, as a
//! virtual machine has it, in the thread of the caller.
//!
//! ```text
//!   test or benchmark ── Guest ══ shared memory, rings ══ switch under test
//!                          └───── vhost-user socket ─────────┘
//! ```
//!
//! [`guest`] is the driver and the front end, [`load`] a generator that drives several guests from
//! one thread, [`unfinished`] makes frames that a card has to finish, [`bound`] asserts bounds on
//! time on machines without other load, and [`udp`] finds free ports. The guest shares memory with
//! another process, so this crate may use `unsafe`; no shipped code depends on it
//! (`docs/decisions/0016-testkit.md`).
//!
//! Directions are those of the guest: a [`guest::Sender`] sends into the switch, a
//! [`guest::Receiver`] takes frames from it. The words *rx* and *tx* are left to ports.

pub mod bound;
pub mod guest;
pub mod load;
pub mod udp;
pub mod unfinished;
