//! Whole frames on a device, by AF_PACKET: an underlay, or a cable of a physical switch.
//!
//! Received frames lie in a ring shared with the kernel (TPACKET version 2: one slot per frame, so
//! that a frame is seen when it comes and not when a block is full). `read` copies each into a slot
//! of the pool and frees its place in the ring at once: the ring is this port's PFC headroom and
//! must be empty when the pause begins. Frames to send are staged and sent by `sendmmsg` from a
//! second socket, which receives nothing.
//!
//! ```text
//!   wire ─▶ device ─▶ [ ring: as many slots as the headroom needs ] ─ copy ─▶ pool ─▶ switch
//!                └──▶ the kernel's own stack (ARP, ping), without VXLAN: see `quiet`; what is the
//!                     kernel's never enters the ring of an underlay: see `filter`
//!   wire ◀─ device ◀─ sendmmsg ◀─ [ 32 staged frames ] ◀─ switch
//! ```
//!
//! What the kernel takes out of a frame is put back: the 802.1Q tag, and the checksum that a local
//! sender left to a card that does not exist. PFC frames pass as frames, both ways. The device's
//! segmentation and receive offloads are switched off when the port opens; a device on which that
//! fails is refused, for its frames would never have been on a wire.
//!
//! **Flow control is not among data.** What the neighbour says of its own buffers has a small ring
//! of its own and is told whatever waits ([`crate::Port::hear`]); the filter of each socket keeps
//! one kind out of the other's ring. And data are read priority by priority: frames of one that the
//! switch takes nothing of are set aside (`aside.rs`), so that they do not stand before the others.
//!
//! What it cannot do: stop the kernel from filling the ring. If the reader is late for longer than
//! the ring was sized for, the kernel drops, and says so (`ring.drops`). If a neighbour goes on
//! sending what it was told to pause, frames end here (`aside.full`).

mod aside;
mod driver;
mod filter;
mod handing;
mod offload;
mod outgoing;
pub mod quiet;
mod rings;
#[cfg(test)]
mod tests;
mod trunk;

pub use driver::{KernelShare, L2Config, L2Port};
pub use rings::{RingPlan, WIRE_OVERHEAD};
pub use trunk::{Trunk, Vlan, VlanPort};
