//! A container's network card: a TAP device in the container's network namespace.
//!
//! The device itself is the container's card; this port is its other end. Frames that the container
//! sends wait in the device's ring (`txqueuelen` frames) until the port reads them; a frame that
//! the port writes passes the container's stack at once, to the socket, and so is never held by the
//! kernel.
//!
//! ```text
//!   socket ─▶ stack ─▶ [ ring: txqueuelen frames ] ─▶ read()  ─▶ switch
//!   socket ◀─ stack ◀───────────────────────────────  write() ◀─ switch
//! ```
//!
//! From Linux 7.3 on a full ring stops the device's queue: frames wait in its queueing discipline,
//! and their senders in their calls (`pressure`).
//!
//! Limit: before that there is no backpressure. A full ring drops, silently, and neither a queueing
//! discipline nor the size of the socket's send buffer changes that (the row `device.tx_dropped`
//! counts it). So the ring must hold all data that its senders may have in flight: TCP's windows do
//! limit that, a sender of UDP does not. The port keeps the ring large (20,000 frames by default)
//! and states its condition in [`crate::Port::lossless`].
//!
//! A TAP goes away with the port, or outlives it and the process ([`KeptTap`]).
//!
//! Frames have a virtio-net header in front (`IFF_VNET_HDR`), and the container leaves checksums
//! and segmentation to the port, unless that is switched off ([`TapConfig::offload`]). A
//! super-frame stays whole up to its output, so that two containers of one host exchange 64 KB in
//! one call each. One read takes one frame, straight into a slot, and one write sends one, gathered
//! from header and slot. TCP segments for the container that come one behind the other are joined
//! until the switch has no more of them (`gro`), for a write costs the whole way through the
//! container's stack; nothing waits longer than that.

pub mod abandoned;
mod driver;
mod incoming;
mod kept;
mod look;
mod pressure;
mod rings;
#[cfg(test)]
mod tests;

pub use driver::{TapConfig, TapPort, TapRoute};
pub use kept::{KeptTap, KnownTap};
pub use look::TapLook;
