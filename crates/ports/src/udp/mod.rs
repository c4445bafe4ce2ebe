//! The underlay by kernel sockets: VXLAN over any IP network.
//!
//! The switch works on whole frames, so this port prepends to each received datagram the Ethernet,
//! IPv4 and UDP headers that the kernel removed (with the sender's address, the port's own MAC as
//! destination, and the DSCP and ECN bits as received), and removes the same 42 bytes from frames
//! that it sends. The core cannot tell it from an `l2` port.
//!
//! ```text
//!   slot:      | Ethernet 14 | IPv4 20 | UDP 8 | VXLAN 8 | inner frame ...
//!   received:  '── written by the port ───────' '── recvmmsg ─────────────
//!   sent:      '── address, TOS, source port ─' '── sendmmsg ─────────────
//! ```
//!
//! The source port of the outer UDP header carries the flow's entropy. A socket has one port, so a
//! few sockets stand for all: the port of the header chooses one. A flow therefore always leaves by
//! one socket, in order.
//!
//! Several threads may have a port each at one address ([`UdpConfig::sharers`]): the kernel then
//! gives each datagram to one of them, by the addresses of the inner frame, so that the frames of a
//! pair all come to one port, in order ([`Selector`]). A pair may move to another port while frames
//! come ([`crate::buckets`]).
//!
//! Limits: it can neither send nor see PFC frames. A full receive buffer drops (`socket.drops`),
//! and so does the kernel while it resolves a neighbour (`neigh.unresolved_discards`); see
//! [`crate::Port::lossless`].

mod control;
mod counters;
mod driver;
mod high;
mod inbox;
mod outer;
mod program;
mod rings;
mod sharing;
#[cfg(test)]
mod tests;

pub use driver::{UdpConfig, UdpPort, VXLAN_PORT};
pub use sharing::{SelectError, Selector};
