//! Discovery of hosts on the underlay's network, by a beacon that each sends about once a second.
//!
//! ```text
//!   host ── UDP 224.0.0.254:7475, TTL 1, every 0.8 to 1.2 s ──> who listens on the same network
//! ```
//!
//! | file | content |
//! |---|---|
//! | `beacon` | the datagram |
//! | `announcer` | the thread that sends it |
//! | `heard` | the bounded list of what was heard |
//! | `listener` | the sockets of `sluice fabric discover` |
//! | `devices` | devices of a host that has no configuration |
//!
//! A beacon is a hint for people and nothing else. It cannot be authenticated before there is
//! trust, so nothing acts on it: no state changes, no connection is made, nothing is answered. A
//! forged one costs its reader a look; `sluice fabric join` verifies the member by the token.
//!
//! The group is that for experiments in the link-local block (RFC 4727 section 2.4.2): routers
//! forward none of it (RFC 5771 section 4), and switches flood it without a querier (RFC 4541
//! section 2.1.2). Sender and listener are bound to one device each, so that a tenant's network
//! neither hears a beacon nor has one heard.

mod announcer;
mod beacon;
mod devices;
mod heard;
mod listener;

use std::net::Ipv4Addr;

pub use self::announcer::Announcer;
pub use self::beacon::{BEACON_SIZE_MAX, Beacon, BeaconError, Membership};
pub use self::devices::candidates;
pub use self::heard::{HEARD_MAX, HeardHosts};
pub use self::listener::{ListenError, listen};

/// Group of the beacons.
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
/// Port of the beacons.
const PORT: u16 = 7475;

/// Device on whose network a host is announced, with the address that it is announced from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the device.
    pub device: String,
    /// Address of the host there.
    pub address: Ipv4Addr,
}
