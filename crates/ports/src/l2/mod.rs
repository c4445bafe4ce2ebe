//! Whole frames on a device, by AF_PACKET: an underlay, or a cable of a physical switch.
//!
//! Received frames lie in a ring shared with the kernel (TPACKET version 2: one slot per frame, so
//! that a frame is seen when it comes and not when a block is full). `read` copies each into a slot
//! of the pool and frees its place in the ring at once: the ring is this port's PFC headroom and
//! must be empty when the pause begins. Frames to send are staged and sent by `sendmmsg` from a
//! second socket, which receives nothing. Segments of a super-frame for a tunnel go past the
//! staging, as one datagram that the device cuts; what comes as one is taken apart (`joined.rs`).
//!
//! ```text
//!   wire ─▶ device ─▶ [ ring: as many slots as the headroom needs ] ─ copy ─▶ pool ─▶ switch
//!                └──▶ the kernel's own stack (ARP, ping), without VXLAN: see `icmp_suppress`;
//!                     its own frames never enter the ring of an underlay: see `filter`
//!   wire ◀─ device ◀─ sendmmsg ◀─ [ 32 staged frames ] ◀─ switch
//! ```
//!
//! Changes of the kernel to a frame are undone: the 802.1Q tag is put back, and the checksum that a
//! local sender left to a card is finished. PFC frames pass as frames, both ways. The device's
//! segmentation and receive offloads are switched off when the port opens; a device on which that
//! fails is refused, for its frames would never have been on a wire. On a host's underlay checksums
//! may be left to the device.
//!
//! **Flow control is kept apart from data.** Flow-control frames of the neighbour have a small ring
//! of their own and are passed on regardless of waiting data
//! ([`crate::FlowControl::receive_control`]); the filter of each socket keeps the other kind out of
//! its ring. And data are read priority by
//! priority: frames of a closed priority are set aside (`aside.rs`), so that they cause no
//! head-of-line blocking.
//!
//! Limits: nothing stops the kernel from filling the ring. If the reader is late for longer than
//! the ring was sized for, the kernel drops, and counts it (`ring.drops`). If a neighbour goes on
//! sending a priority that is paused, frames are dropped here (`aside.full`).

mod aside;
mod driver;
mod filter;
mod handing;
pub mod icmp_suppress;
mod joined;
mod offload;
pub(crate) mod outgoing;
mod rings;
#[cfg(test)]
mod tests;
mod trunk;

pub use driver::{KernelShare, L2Config, L2Port};
pub use rings::{RingPlan, WIRE_OVERHEAD};
pub use trunk::{Trunk, Vlan, VlanPort};
