//! A BGP speaker for EVPN over VXLAN (RFC 7432, RFC 8365): routes of type 2 and 3.
//!
//! It speaks one address family (AFI 25, SAFI 70) with the neighbors that are configured: other
//! VTEPs or route reflectors. It announces the networks and endpoints of one VTEP and never passes
//! on a route of a neighbor. It does not forward, and does not know the kernel's tables.
//!
//! ```text
//!   owner ── announce, withdraw ──> Speaker <── bytes ── Driver <── TCP ── neighbors
//!         <── changes, events ────          ── bytes ──>        ──>
//! ```
//!
//! | file | content |
//! |---|---|
//! | `config` | neighbors, networks, route targets, bounds |
//! | `route` | routes as values; their standing (mobility) |
//! | `wire` | messages and octets: the codec is the crate `rustbgpd-wire` |
//! | `session` | one connection, from OPEN to its end |
//! | `neighbor` | connections of one neighbor, attempts, collisions |
//! | `rib` | routes of neighbors, the place of each MAC |
//! | `exports` | own routes, and what a neighbor does not know of them yet |
//! | `speaker` | all of these together, without clock and sockets |
//! | `driver` | sockets, without a thread |
//!
//! **Not here:** other address families, multihoming (types 1 and 4), prefixes (type 5), TCP-MD5
//! and TCP-AO, the part of a route reflector.
#![forbid(unsafe_code)]

mod config;
mod driver;
mod exports;
mod neighbor;
mod rib;
mod route;
mod session;
mod speaker;
mod wire;

pub use config::{Config, Limits, NeighborConfig, Network, ParseTargetError, RouteTarget};
pub use driver::{Driver, PORT};
pub use neighbor::{Link, NeighborId, Side};
pub use rib::KeptOut;
pub use route::{Endpoint, MacKey, Mobility, RemoteMac};
pub use session::{Ending, State};
pub use speaker::{Action, Change, Event, NeighborInfo, Refusal, Speaker};
