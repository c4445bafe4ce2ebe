//! Receive buffers of UDP sockets behind a container's card: a datagram waits in the port while the
//! socket that it is for has no room.
//!
//! ```text
//!   switch ─▶ offer ─▶ gate ── room, or no UDP ─▶ write ─▶ container's stack ─▶ socket ─▶ recv
//!                       │ ▲                                                       │        │
//!                  none │ └─ asked once per half of the room (`ask`, test run) ◀──┘        │
//!                       ▼                                                                  │
//!                  queue of the socket ◀── woken (`sock_recv_length`, ring) ◀──────────────┘
//! ```
//!
//! **Asking.** A program looks the socket up as the kernel would for the datagram
//! (`bpf_sk_lookup_udp` with all four of addresses and ports, so connected sockets and
//! `SO_REUSEPORT` groups are found) and reads `sk_rmem_alloc` and `sk_rcvbuf`. It is run from here,
//! by `BPF_PROG_TEST_RUN`, and not per frame: the answer is spent as credit, by upper bounds of
//! `truesize`, before the next question.
//!
//! **Resuming.** While a socket is held, a second program at the tracepoint `sock_recv_length`
//! tells when it was drained to its mark. Arm, then recheck: after arming the room is asked once
//! more, so that a drain in between is seen. A slow timer asks as well, for what passes by that
//! tracepoint (a larger `SO_RCVBUF`, a socket that is closed).
//!
//! **Not its aim.** TCP is not looked at. Fragments, multicast and broadcast, sockets bound to a
//! device and datagrams that the container forwards are passed as they are.

mod arrivals;
mod btf;
mod charge;
mod credits;
mod flight;
mod flow;
mod gate;
mod guest;
mod kernel;
mod receivers;
mod room;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use sluice_base::{Nanos, Priority};
use sluice_switch::Hold;

pub(crate) use self::arrivals::Arrivals;
pub(crate) use self::gate::{Admit, Waiting};
pub(crate) use self::guest::GuestRoom;
pub(crate) use self::kernel::KernelRoom;
pub(crate) use self::receivers::Receivers;
pub(crate) use self::room::RoomSource;

/// Time for which a port holds frames of each priority for a socket without room; `None` for a
/// priority whose frames it does not hold.
pub type SocketHolds = [Option<Hold>; Priority::COUNT];

/// State of the UDP receivers behind a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketsShot {
    /// Reason why datagrams are not held for sockets; `None` if they are.
    pub lacks: Option<String>,
    /// True if a drained socket is signalled; otherwise it is polled.
    pub is_signalled: bool,
    /// The sockets that are held now.
    pub held: Vec<HeldSocket>,
    /// Counters since the port was opened.
    pub counters: SocketCounts,
}

/// A socket for which datagrams wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSocket {
    /// Address and port of the datagrams.
    pub address: SocketAddr,
    /// Priority of the oldest datagram that waits.
    pub priority: Priority,
    /// When it began, in the worker's time.
    pub since: Nanos,
    /// Frames that wait in the port.
    pub frames: u64,
    /// True if it is beyond its hold, so that frames for it end.
    pub is_stuck: bool,
}

/// Counters of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Times that a socket began to be held.
    pub holds: u64,
    /// Datagrams that waited for a socket in the port.
    pub waited: u64,
    /// Questions for a socket's room.
    pub asked: u64,
    /// Offers that were refused because the queue of a socket was full.
    pub full: u64,
    /// Offers that were refused because as many sockets were held as a port may have.
    pub beyond: u64,
    /// Times that the whole port was held for a socket.
    pub ports: u64,
    /// Datagrams that ended because their socket was beyond its hold.
    pub stuck: u64,
    /// Frames that were sent to the card and never arrived there, where arrivals are counted.
    pub written_off: u64,
}
