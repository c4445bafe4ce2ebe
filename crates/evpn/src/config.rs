//! Configuration of a speaker.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use sluice_base::{Nanos, Vni};

/// A route target of the forms `AS:NUMBER` (RFC 4360 section 3.1 and 4, RFC 5668) and
/// `IPV4:NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteTarget([u8; 8]);

impl RouteTarget {
    /// Returns the target `AS:number`. An AS of four octets leaves 16 bits to the number, of which
    /// the low ones are taken.
    #[must_use]
    pub fn of_as(number: u32, value: u32) -> Self {
        let mut octets = [0; 8];
        if let Ok(short) = u16::try_from(number) {
            octets[..2].copy_from_slice(&[0x00, 0x02]);
            octets[2..4].copy_from_slice(&short.to_be_bytes());
            octets[4..].copy_from_slice(&value.to_be_bytes());
        } else {
            octets[..2].copy_from_slice(&[0x02, 0x02]);
            octets[2..6].copy_from_slice(&number.to_be_bytes());
            octets[6..].copy_from_slice(&value.to_be_bytes()[2..]);
        }
        Self(octets)
    }

    /// Returns the extended community.
    #[must_use]
    pub const fn octets(self) -> [u8; 8] {
        self.0
    }

    /// Returns the target in an extended community; `None` if it is another kind.
    pub(crate) fn of_community(octets: [u8; 8]) -> Option<Self> {
        (octets[0] <= 2 && octets[1] == 2).then_some(Self(octets))
    }
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, _, a, b, c, d, e, g] = self.0;
        let (long, short) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, g]));
        match kind {
            0 => {
                let value = u32::from_be_bytes([c, d, e, g]);
                write!(f, "{}:{value}", u16::from_be_bytes([a, b]))
            }
            1 => write!(f, "{}:{short}", Ipv4Addr::from(long)),
            _ => write!(f, "{long}:{short}"),
        }
    }
}

/// The text is no route target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTargetError;

impl fmt::Display for ParseTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a route target is AS:NUMBER or ADDRESS:NUMBER, like 65000:42; behind an AS above \
             65535 or an address the number is 65535 at most",
        )
    }
}

impl std::error::Error for ParseTargetError {}

impl FromStr for RouteTarget {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (admin, value) = text.split_once(':').ok_or(ParseTargetError)?;
        let value: u32 = value.parse().map_err(|_| ParseTargetError)?;
        if let Ok(address) = admin.parse::<Ipv4Addr>() {
            let value = u16::try_from(value).map_err(|_| ParseTargetError)?;
            let mut octets = [0x01, 0x02, 0, 0, 0, 0, 0, 0];
            octets[2..6].copy_from_slice(&address.octets());
            octets[6..].copy_from_slice(&value.to_be_bytes());
            return Ok(Self(octets));
        }
        let number: u32 = admin.parse().map_err(|_| ParseTargetError)?;
        if number > u32::from(u16::MAX) && value > u32::from(u16::MAX) {
            return Err(ParseTargetError);
        }
        Ok(Self::of_as(number, value))
    }
}

/// A network that is exported and imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its number on the wire.
    pub vni: Vni,
    /// The target that its routes have, here and elsewhere.
    pub target: RouteTarget,
}

/// A BGP neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub remote_as: u32,
    /// True if it connects to this speaker, which never connects to it.
    pub is_passive: bool,
}

/// Bounds on what neighbors can make grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Routes of one neighbor; beyond, its session ends (RFC 4486 section 4, subcode 1).
    pub routes_per_neighbor: usize,
    /// Routes for one MAC of a network, over all neighbors; others are kept out and counted.
    pub routes_per_mac: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { routes_per_neighbor: 1 << 20, routes_per_mac: 64 }
    }
}

/// Longest time of a restart: 12 bits (RFC 4724 section 3).
const RESTART_S_MAX: u16 = 0x0fff;

/// The speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The AS of this speaker.
    pub local_as: u32,
    /// Its BGP identifier (RFC 6286): not zero.
    pub router_id: Ipv4Addr,
    /// The VTEP for which it speaks: next hop of its routes.
    pub vtep: Ipv4Addr,
    /// Hold time that is offered, in seconds (RFC 4271 section 4.2): 0, or 3 and more.
    pub hold_s: u16,
    /// Time for which a neighbor's routes stay after its session ended, until it is back. Neighbors
    /// are asked to keep this speaker's as long (RFC 4724), up to 4095 s.
    pub stale_max: Nanos,
    /// The neighbors.
    pub neighbors: Vec<NeighborConfig>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// Hold time of a configuration that names none: that of FRR's data-center profile.
    pub const HOLD_S: u16 = 9;
    /// Time for which routes stay without a session, if the configuration names none.
    pub const STALE_MAX: Nanos = Nanos::from_millis(30_000);

    /// Returns the time that neighbors give this speaker to come back, in seconds.
    pub(crate) fn restart_s(&self) -> u16 {
        let seconds = self.stale_max.0.div_ceil(1_000_000_000).min(RESTART_S_MAX.into());
        u16::try_from(seconds).unwrap_or(RESTART_S_MAX)
    }
}

#[cfg(test)]
mod tests;
