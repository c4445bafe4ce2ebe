//! What stands at the other end of a port in tests and benchmarks: a guest with a virtio network
//! device, as a virtual machine has it, in the thread of whoever asks.
//!
//! ```text
//!   test or benchmark ── Guest ══ shared memory, rings ══ switch under test
//!                          └───── vhost-user socket ─────────┘
//! ```
//!
//! [`guest`] is the driver and the front end, [`load`] a generator that drives several guests from
//! one thread, [`unfinished`] makes frames of which something is left to a card, and [`bound`]
//! keeps bounds on time for machines that have nothing else to do. The guest shares
//! memory with another process, so this crate may use `unsafe`; nothing that is shipped depends on
//! it (`docs/decisions/0016-testkit.md`).
//!
//! Directions are those of the guest: a [`guest::Sender`] sends into the switch, a
//! [`guest::Receiver`] takes what comes from it. The words *rx* and *tx* are left to ports.

pub mod bound;
pub mod guest;
pub mod load;
pub mod unfinished;
