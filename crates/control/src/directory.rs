//! What learning and resolution ask of the rest of the control plane: who is where, and what this
//! host's ports and networks are. The vport table and the configuration answer.

use core::net::IpAddr;

use sluice_base::{HostId, PortId, Vni};

use crate::vport::{Claim, Key};

/// How much the best claim for an endpoint is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// This host's own.
    Own,
    /// Of another host, which is alive.
    Authoritative,
    /// Of another host, which is suspected or dead: frames still go there, but nobody speaks for
    /// it.
    Stale,
}

/// The best claim for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is claimed.
    pub claim: Claim,
    /// Who claims it.
    pub owner: HostId,
    /// What the claim is worth.
    pub state: State,
}

/// Who is where.
pub trait Directory {
    /// The best claim for `key`.
    fn find(&self, key: Key) -> Option<Found>;

    /// The best claim for an endpoint of network `vni` that has `ip`. Of claims that differ in
    /// worth a live one comes first.
    fn find_ip(&self, vni: Vni, ip: IpAddr) -> Option<Found>;

    /// Whether the endpoint `key` itself said lately that it has `ip`, so that it may be answered
    /// for.
    fn is_confirmed(&self, key: Key, ip: IpAddr) -> bool;
}

/// How a port comes by its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRule {
    /// By configuration: whoever is bound to it may use it, with the addresses that it is bound
    /// with, and nobody else.
    Bound,
    /// From its frames.
    Learn {
        /// How many endpoints at most.
        quota: u32,
        /// Whether they stay for good ([`crate::vport::Origin::Sticky`]).
        sticky: bool,
    },
}

/// This host's ports and networks.
pub trait Places {
    /// Whether `port` is in network `vni`.
    fn is_member(&self, port: PortId, vni: Vni) -> bool;

    /// How `port` comes by its endpoints.
    fn rule(&self, port: PortId) -> PortRule;

    /// Whether what is bound to `port` may share `ip`.
    fn allows(&self, port: PortId, ip: IpAddr) -> bool;

    /// The ports of this host in network `vni`.
    fn ports(&self, vni: Vni) -> &[PortId];

    /// The other hosts that have ports in network `vni`.
    fn hosts(&self, vni: Vni) -> &[HostId];
}
