//! Queries for people. They change nothing, and are not fast.

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, Mac, Nanos, PortId, PuntCause, Vni};

use super::Plane;
use super::surface::{Counts, HostInfo, Location, TunnelInfo, VportInfo};
use crate::directory::{Places, State};
use crate::punt::Refused;
use crate::session::Session;
use crate::table::{OwnerState, Vport};
use crate::vport::Key;

impl Plane {
    /// Returns the endpoints of a network in the order of their MACs: the first `count` after
    /// `after`.
    #[must_use]
    pub fn vports(&self, vni: Vni, after: Option<Mac>, count: usize) -> Vec<Vport> {
        self.table.list(vni, after, count)
    }

    /// Returns all knowledge of an endpoint; `None` if no host claims it. Times are this plane's
    /// own; [`Self::elapsed`] is the present on that scale.
    #[must_use]
    pub fn vport(&self, key: Key) -> Option<VportInfo> {
        let vport = self.table.find(key)?;
        let now = self.clock.latest();
        let state = match vport.state {
            _ if vport.owner == self.own => State::Own,
            OwnerState::Live => State::Authoritative,
            OwnerState::Stale => State::Stale,
        };
        Some(VportInfo {
            vport,
            state,
            installed: self.fdb.way(key).zip(self.fdb.used_at(key)),
            frozen_until: self.mobility.frozen_until(now, key),
            moves_often: self.mobility.moves_often(key),
            history: self.mobility.history(key).collect(),
        })
    }

    /// Returns the best claim for an endpoint of a network that has an IP address.
    #[must_use]
    pub fn vport_of_ip(&self, vni: Vni, ip: IpAddr) -> Option<Vport> {
        self.table.find_ip(vni, ip)
    }

    /// Number of endpoints that this host claims.
    #[must_use]
    pub fn own_claims(&self) -> u64 {
        self.table.digest(self.own).count
    }

    /// Iterates over every host's claim for an endpoint, the winner's first.
    pub fn claims(&self, key: Key) -> impl Iterator<Item = Vport> + '_ {
        self.table.claims(key)
    }

    /// Thaws an endpoint that moved too often. True if it was frozen.
    pub fn thaw(&mut self, now: Nanos, key: Key) -> bool {
        let now = self.clock.at(now);
        self.mobility.clear(now, key)
    }

    /// Iterates over the networks with claims, in order, each with its number of endpoints.
    pub fn vnets(&self) -> impl Iterator<Item = (Vni, u32)> + '_ {
        self.table.vnets()
    }

    /// Iterates over the networks of this host, in order.
    pub fn own_vnets(&self) -> impl Iterator<Item = Vni> + '_ {
        self.nets.local()
    }

    /// Iterates over the hosts with claims in a network, in order, each with its number of claims.
    pub fn hosts_of(&self, vni: Vni) -> impl Iterator<Item = (HostId, u64)> + '_ {
        self.table.hosts_of(vni)
    }

    /// Returns the ports of this host in a network, in order.
    #[must_use]
    pub fn ports_of(&self, vni: Vni) -> &[PortId] {
        self.nets.ports(vni)
    }

    /// Iterates over the tunnels, by host.
    pub fn tunnels(&self) -> impl Iterator<Item = TunnelInfo> + '_ {
        self.tunnels.iter()
    }

    /// Iterates over the installed endpoints, in order, each with its location and its last use.
    /// Endpoints behind hosts are the encap flows.
    pub fn installed(&self) -> impl Iterator<Item = (Key, Location, Nanos)> + '_ {
        self.fdb.iter()
    }

    /// Number of encap flows.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.fdb.flow_count()
    }

    /// Iterates over the decap flows, by host, each with the time until which it is kept.
    pub fn decap_flows(&self) -> impl Iterator<Item = (Vni, HostId, Nanos)> + '_ {
        self.tunnels.decaps()
    }

    /// Iterates over the decap flows of hosts in networks that they are not in, by host.
    pub fn waiting_decap_flows(&self) -> impl Iterator<Item = (Vni, HostId)> + '_ {
        self.tunnels.waiting()
    }

    /// Iterates over the other hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = HostInfo> + '_ {
        self.peers.iter().map(|(host, peer)| {
            let session = peer.session.as_ref();
            let acked = self.publisher.acked_by(host).unwrap_or(0);
            HostInfo {
                host,
                kind: peer.kind,
                health: peer.health,
                is_up: peer.is_up(),
                stale_since: peer.stale_since,
                have: session.map_or(NOTHING, Session::have),
                lag: session.map_or(0, |_| self.publisher.last() - acked),
                claims: self.table.digest(host).count,
                counts: session.map(Session::counts).unwrap_or_default(),
            }
        })
    }

    /// Returns this host.
    #[must_use]
    pub const fn own(&self) -> HostId {
        self.own
    }

    /// Returns the incarnation: the number of this run of the host's control plane.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.publisher.incarnation()
    }

    /// Returns the sequence of the last change of this host's claims.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.publisher.last()
    }

    /// Returns the time that this plane has run, by its own clock. All its times are on this scale.
    #[must_use]
    pub const fn elapsed(&self) -> Nanos {
        self.clock.latest()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.outbox.counts
    }

    /// Numbers of commands, events and datagrams that wait to be taken.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize, usize) {
        let (commands, events, datagrams) = self.outbox.waiting();
        (commands + self.hold_responder.waiting(), events, datagrams)
    }

    /// Number of wanted endpoints that no host claims.
    #[must_use]
    pub fn wanted_count(&self) -> usize {
        self.wanted.len()
    }

    /// Number of endpoints that are learned at a port of this host.
    #[must_use]
    pub fn learned_at(&self, port: PortId) -> u32 {
        self.learner.learned_at(port)
    }

    /// Number of known endpoints of foreign hosts.
    #[must_use]
    pub fn foreign_count(&self) -> usize {
        self.foreign.len()
    }

    /// Number of punts of a port for a cause that were refused for that reason.
    ///
    /// # Panics
    /// If there is no such port.
    #[must_use]
    pub fn punts_refused(&self, port: PortId, cause: PuntCause, why: Refused) -> u64 {
        self.policer.refused(port, cause, why)
    }

    /// Bytes of the vport table, the largest part, and its number of claims.
    #[must_use]
    pub fn memory(&self) -> (usize, u32) {
        (self.table.memory_bytes(), self.table.claim_count())
    }
}

const NOTHING: sluice_wire::fabric::Have =
    sluice_wire::fabric::Have { incarnation: 0, sequence: 0 };
