//! Routes, as the rest of the crate knows them.

use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{Mac, Vni};

/// A MAC in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MacKey {
    /// The network.
    pub vni: Vni,
    /// The address.
    pub mac: Mac,
}

/// Standing of an advertised MAC among others (RFC 7432 sections 7.7 and 15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mobility {
    /// True if the MAC is to stay where it is.
    pub is_sticky: bool,
    /// Number of its moves.
    pub sequence: u32,
}

impl Mobility {
    /// Returns true if an advertisement from `vtep` comes before another one: sticky before others
    /// (section 15.2), then the higher sequence, and of equals the lower VTEP.
    #[must_use]
    pub fn beats(self, vtep: Ipv4Addr, other: Self, others: Ipv4Addr) -> bool {
        let rank = |this: Self, at| (this.is_sticky, this.sequence, std::cmp::Reverse(at));
        rank(self, vtep) > rank(other, others)
    }
}

/// An endpoint of this host, to be advertised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Network and MAC.
    pub key: MacKey,
    /// Its IP addresses: a route for each, beside the one of the MAC alone.
    pub ips: Vec<IpAddr>,
    /// Its standing. The sequence is the least one: it is raised above that of any other VTEP.
    pub mobility: Mobility,
}

/// A MAC behind another VTEP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteMac {
    /// The VTEP.
    pub vtep: Ipv4Addr,
    /// The known IP addresses, in order.
    pub ips: Vec<IpAddr>,
    /// Its standing.
    pub mobility: Mobility,
}

/// A route distinguisher (RFC 4364 section 4.2).
pub(crate) type Distinguisher = [u8; 8];

/// The part of a route that names it (RFC 7432 sections 7.2 and 7.3): label and segment are no part
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nlri {
    /// Type 2.
    MacIp { rd: Distinguisher, tag: u32, mac: Mac, ip: Option<IpAddr> },
    /// Type 3.
    Multicast { rd: Distinguisher, tag: u32, originator: IpAddr },
}

/// A route in an UPDATE, with its label. That of a type 3 is in its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) nlri: Nlri,
    pub(crate) label: Option<u32>,
}

/// The attributes that all routes of an UPDATE share, as far as they matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The VTEP; `None` if it is no IPv4 address.
    pub(crate) next_hop: Option<Ipv4Addr>,
    /// Extended communities.
    pub(crate) communities: Vec<[u8; 8]>,
    /// All AS numbers of the path.
    pub(crate) as_path: Vec<u32>,
    /// The speaker that brought the route into its AS (RFC 4456 section 8).
    pub(crate) originator: Option<Ipv4Addr>,
    /// Label of the tunnel by ingress replication (RFC 6514 section 5); `None` if there is none or
    /// of another type.
    pub(crate) replication: Option<u32>,
}

impl Attributes {
    /// Returns the standing of the MACs (RFC 7432 section 7.7).
    pub(crate) fn mobility(&self) -> Mobility {
        let is_mobility = |community: &&[u8; 8]| community[..2] == [0x06, 0x00];
        let found = self.communities.iter().find(is_mobility);
        found.map_or(Mobility::default(), |octets| Mobility {
            is_sticky: octets[2] & 1 == 1,
            sequence: u32::from_be_bytes([octets[4], octets[5], octets[6], octets[7]]),
        })
    }

    /// Returns true if the tunnel is VXLAN, or none is named (RFC 8365 section 5.1.3, RFC 9012
    /// section 4.1).
    pub(crate) fn is_vxlan(&self) -> bool {
        let is_encapsulation = |community: &&[u8; 8]| community[..2] == [0x03, 0x0c];
        let mut named = self.communities.iter().filter(is_encapsulation).peekable();
        named.peek().is_none() || named.any(|octets| octets[6..] == [0x00, VXLAN])
    }
}

/// Tunnel type of VXLAN (RFC 9012 section 13.2).
pub(crate) const VXLAN: u8 = 8;

/// Returns the extended community of a standing.
pub(crate) const fn mobility_community(mobility: Mobility) -> [u8; 8] {
    let [a, b, c, d] = mobility.sequence.to_be_bytes();
    [0x06, 0x00, mobility.is_sticky as u8, 0, a, b, c, d]
}

/// The extended community that names VXLAN.
pub(crate) const ENCAPSULATION: [u8; 8] = [0x03, 0x0c, 0, 0, 0, 0, 0, VXLAN];
