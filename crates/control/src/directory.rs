//! Interface of learning and resolution to the rest of the control plane: the places of endpoints,
//! and the ports and networks of this host. The vport table and the configuration implement it.

use core::net::IpAddr;

use sluice_base::{HostId, PortId, Vni};

use crate::vport::{Claim, Key};

/// Worth of the best claim for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A claim of this host.
    Own,
    /// A claim of another host, which is alive.
    Authoritative,
    /// A claim of another host, which is suspected or dead: frames still go there, but no host
    /// answers for the endpoint.
    Stale,
}

/// The best claim for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The claim.
    pub claim: Claim,
    /// The host that claims the endpoint.
    pub owner: HostId,
    /// Worth of the claim.
    pub state: State,
}

/// Lookup of endpoints.
pub trait Directory {
    /// Returns the best claim for `key`.
    fn find(&self, key: Key) -> Option<Found>;

    /// Returns the best claim for an endpoint of network `vni` that has `ip`. Of claims that differ
    /// in worth a live one comes first.
    fn find_ip(&self, vni: Vni, ip: IpAddr) -> Option<Found>;

    /// Returns true if the endpoint `key` itself said lately that it has `ip`, so that this host
    /// may answer for it.
    fn is_confirmed(&self, key: Key, ip: IpAddr) -> bool;
}

/// Rule by which a port gets its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRule {
    /// By configuration: only bound endpoints may use the port, with the addresses that they are
    /// bound with.
    Bound,
    /// From frames that come in.
    Learn {
        /// Largest number of endpoints.
        quota: u32,
        /// True if the endpoints stay for good ([`crate::vport::Origin::Sticky`]).
        sticky: bool,
    },
}

/// This host's ports and networks.
pub trait Places {
    /// Returns true if `port` is in network `vni`.
    fn is_member(&self, port: PortId, vni: Vni) -> bool;

    /// Returns the rule by which `port` gets its endpoints.
    fn rule(&self, port: PortId) -> PortRule;

    /// Returns true if endpoints bound to `port` may share `ip`.
    fn allows(&self, port: PortId, ip: IpAddr) -> bool;

    /// Returns the ports of this host in network `vni`.
    fn ports(&self, vni: Vni) -> &[PortId];

    /// Returns the other hosts that have ports in network `vni`.
    fn hosts(&self, vni: Vni) -> &[HostId];
}
