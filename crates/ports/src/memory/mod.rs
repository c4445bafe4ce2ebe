//! Ports in this process: two bounded rings between a port and its peer.
//!
//! For tests, examples and benches. [`cable`] makes two ports, each other's peer; [`port`] makes
//! one port and a [`Probe`], with which a test plays the other side. The rings have room for a
//! fixed number of frames and nothing is ever dropped: a full ring refuses.
//!
//! ```text
//!   port a: offer ─▶ [ ring a→b ] ─▶ read of port b, or Probe::receive
//!           read  ◀─ [ ring b→a ] ◀─ offer of port b, or Probe::send
//! ```
//!
//! Each side has an event descriptor that its peer kicks when a ring stops being empty, or stops
//! being full, so that a loop can wait for a memory port as for any other.

mod driver;
mod rings;
#[cfg(test)]
mod tests;

pub use driver::{MemoryConfig, MemoryPort, Probe, cable, port};
