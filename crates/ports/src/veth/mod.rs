//! A container's network card that holds its sender: one end of a veth pair, whose other end gives
//! its frames to AF_XDP.
//!
//! ```text
//!   socket ─▶ stack ─▶ hint ─▶ [ pfifo ] ─▶ [ ring: 256 ] ─▶ NAPI ─▶ XDP ─▶ [ AF_XDP ] ─▶ switch
//!     ▲ held by its send buffer   ▲ stopped     ▲ full        run by the port alone
//!   socket ◀─ stack ◀─ NAPI ◀─ [ ring: 256 ] ◀─ [ pfifo ] ◀─ packet socket ◀─ switch
//! ```
//!
//! A veth whose ring is full stops its queueing discipline, and that holds the sender's socket. The
//! ring is full only if nobody runs the NAPI behind it; a NAPI run by interrupts goes on whatever
//! the switch does, and drops at the AF_XDP socket. So the port has the kernel leave the NAPI alone
//! (`napi.rs`) and runs it itself, and only while there is room for all that it may bring
//! (`rings.rs`). No interrupt tells of the first frame then: a program at the container's egress
//! does (`waking.rs`).
//!
//! [`VethPort::open`] tests on the new pair that a sender is held and nothing is lost
//! (`stop_test.rs`), and fails otherwise ([`crate::OpenError::NotHeld`]).
//!
//! Limits. Frames that pass the queueing discipline by (`PACKET_QDISC_BYPASS`, AF_XDP in the
//! container) are refused when the ring is full, and do not wake the port: they wait for the next
//! frame that does. The owner of the container may replace the discipline or switch checksum
//! offload on; what the former drops shows in `device.tx_dropped`.
//!
//! In the other direction datagrams may wait while their UDP socket has no room (`rcvbuf.rs`). A
//! program at the container's ingress counts what has arrived, since frames are under way for a
//! time.
//!
//! A card goes away with its port, or is kept for the port of another process (`kept.rs`).
//!
//! Offloads are off: every frame is one frame on the wire with finished checksums.

mod counters;
mod driver;
mod kept;
mod napi;
mod pair;
mod pending;
mod receivers;
pub(crate) mod requests;
mod rings;
mod stop_test;
mod waking;

pub use driver::{VethConfig, VethPort};
pub use kept::{Known, remove};
