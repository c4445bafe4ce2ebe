//! Independent observer of losses: a BPF program at the kernel's tracepoint `kfree_skb` counts
//! every packet that the kernel drops, by network namespace, device, reason and place in the
//! kernel. Tests and the lab compare Sluice's own counters with it.
//!
//! ```text
//!   kernel: kfree_skb(packet, location, reason) ─▶ bpf/dropwatch.bpf.c ─▶ map
//!                                                                          │ read on request
//!   test:   Drops::watch(namespaces) ……………… since() ◀── minus the baseline ─┘
//! ```
//!
//! A drop breaks a promise only if somebody wanted the packet. The kernel also drops its own copy
//! of a packet that a packet socket has already read, and packets without a listener:
//! [`Dropped::is_loss`] tells the two apart by reason, and an unknown reason is a loss.
//!
//! Limits: Linux 6.11, root, `clang` at build time; [`Unavailable`] names the missing one. The map
//! has 4,096 places; [`Drops::missed`] counts drops that found no room in it. A packet that a NIC
//! or a driver without an skb drops (XDP, a full hardware ring) is not seen, nor is one for which a
//! packet socket had no room: it lives on in the stack.

mod drops;
mod names;
mod program;
mod reason;

pub use drops::{Dropped, Drops};
pub use reason::is_loss;

/// The observer cannot run here.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch kernel drops: {0}")]
pub struct Unavailable(String);
