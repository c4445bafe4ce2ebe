//! Tunnels on demand: one per host, made by the first flow and given back some time after the last.
//!
//! ```text
//!   event                  CLOSED            IN USE (flows > 0)             LINGERING (until)
//!   a flow is made         open, IN USE      one flow more                  IN USE
//!   a flow ends            (cannot be)       one less; of the last:         (cannot be)
//!                                            LINGERING for the life
//!   the time comes         -                 -                              close, CLOSED
//!   the host is removed    -                 close, CLOSED                  close, CLOSED
//! ```
//!
//! An **encap flow** is a remote endpoint in the forwarding table (FDB): [`fdb`](super::fdb) has
//! them, and they are counted here. A **decap flow** is a network and a host that frames come from:
//! at most (N - 1) * M for N hosts with M networks each, and only flows in use. The switch reports
//! the first frame of a decap flow. After its life the flow is taken out of the switch, which
//! reports the next first frame if there is any. So a flow in use costs one notice in a life, and
//! nothing has to be polled.
//!
//! A decap flow of a host in a network that it is not in **waits**, since the switch reports it
//! once: it is forgotten there when the host has entered the network, and reported again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Vni};

use super::agenda::Agenda;
use super::surface::TunnelInfo;

#[derive(Clone, Copy, Debug)]
struct Tunnel {
    opened: Nanos,
    encap: u32,
    decap: u32,
}

/// Kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Encap,
    Decap,
}

/// Change of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the switch has to follow"]
pub(super) enum Turn {
    /// The tunnel stays as it is.
    Stays,
    /// The tunnel is to be opened.
    Open,
}

/// The tunnels and decap flows of a host.
#[derive(Debug)]
pub(super) struct Tunnels {
    tunnels: BTreeMap<HostId, Tunnel>,
    lingering: Agenda<HostId>,
    decaps: Agenda<(HostId, Vni)>,
    /// Decap flows of hosts in networks that they are not in.
    waiting: BTreeSet<(HostId, Vni)>,
    decap_life: Nanos,
    tunnel_life: Nanos,
}

impl Tunnels {
    pub(super) const fn new(decap_life: Nanos, tunnel_life: Nanos) -> Self {
        Self {
            tunnels: BTreeMap::new(),
            lingering: Agenda::new(),
            decaps: Agenda::new(),
            waiting: BTreeSet::new(),
            decap_life,
            tunnel_life,
        }
    }

    /// Counts a flow to or from a host that is made.
    pub(super) fn flow_made(&mut self, now: Nanos, host: HostId, flow: Flow) -> Turn {
        let turn = if self.tunnels.contains_key(&host) { Turn::Stays } else { Turn::Open };
        let new = Tunnel { opened: now, encap: 0, decap: 0 };
        let tunnel = self.tunnels.entry(host).or_insert(new);
        *tunnel.count(flow) += 1;
        self.lingering.remove(host);
        turn
    }

    /// Counts a flow that ends.
    pub(super) fn flow_ended(&mut self, now: Nanos, host: HostId, flow: Flow) {
        let tunnel = self.tunnels.get_mut(&host).expect("a flow has a tunnel");
        *tunnel.count(flow) -= 1;
        if tunnel.encap + tunnel.decap == 0 {
            self.lingering.set(host, now.after(self.tunnel_life));
        }
    }

    /// Closes a tunnel whose time has come, and returns its host.
    pub(super) fn close_expired(&mut self, now: Nanos) -> Option<HostId> {
        let host = self.lingering.due(now)?;
        self.remove(host);
        Some(host)
    }

    /// Closes the tunnel of a host, whose flows have ended. True if it had one.
    pub(super) fn remove(&mut self, host: HostId) -> bool {
        self.lingering.remove(host);
        let tunnel = self.tunnels.remove(&host);
        let empty = |tunnel: &Tunnel| tunnel.encap + tunnel.decap == 0;
        assert!(tunnel.as_ref().is_none_or(empty), "flows end before their tunnel");
        tunnel.is_some()
    }

    /// Notes a first frame of a host in a network. `Some` if the flow is new.
    pub(super) fn decap(&mut self, now: Nanos, vni: Vni, host: HostId) -> Option<Turn> {
        let before = self.decaps.set((host, vni), now.after(self.decap_life));
        before.is_none().then(|| self.flow_made(now, host, Flow::Decap))
    }

    /// Notes a first frame of a host in a network that it is not in.
    pub(super) fn decap_waits(&mut self, vni: Vni, host: HostId) {
        self.waiting.insert((host, vni));
    }

    /// Takes out the waiting decap flows that `which` names.
    pub(super) fn take_waiting(
        &mut self,
        which: impl Fn(Vni, HostId) -> bool,
    ) -> Vec<(Vni, HostId)> {
        let taken: Vec<_> = self.waiting().filter(|(vni, host)| which(*vni, *host)).collect();
        taken.iter().for_each(|(vni, host)| _ = self.waiting.remove(&(*host, *vni)));
        taken
    }

    /// Iterates over the waiting decap flows, by host.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Vni, HostId)> + '_ {
        self.waiting.iter().map(|(host, vni)| (*vni, *host))
    }

    /// Returns a decap flow whose life is over.
    pub(super) fn expired_decap(&self, now: Nanos) -> Option<(Vni, HostId)> {
        self.decaps.due(now).map(|(host, vni)| (vni, host))
    }

    /// Removes a decap flow. False if there is none.
    pub(super) fn remove_decap(&mut self, now: Nanos, vni: Vni, host: HostId) -> bool {
        let there = self.decaps.remove((host, vni));
        if there {
            self.flow_ended(now, host, Flow::Decap);
        }
        there
    }

    /// Iterates over every decap flow, by host, each with the time until which it is kept.
    pub(super) fn decaps(&self) -> impl Iterator<Item = (Vni, HostId, Nanos)> + '_ {
        self.decaps_from(HostId(0))
    }

    /// Iterates over the decap flows of hosts from one on.
    pub(super) fn decaps_from(
        &self,
        host: HostId,
    ) -> impl Iterator<Item = (Vni, HostId, Nanos)> + '_ {
        let first = Vni::new(0).expect("24 bits");
        self.decaps.from((host, first)).map(|((host, vni), until)| (vni, host, until))
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        [self.lingering.deadline(), self.decaps.deadline()].into_iter().flatten().min()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = TunnelInfo> + '_ {
        self.tunnels.iter().map(|(host, tunnel)| TunnelInfo {
            host: *host,
            opened: tunnel.opened,
            encap_flows: tunnel.encap,
            decap_flows: tunnel.decap,
        })
    }
}

impl Tunnel {
    const fn count(&mut self, flow: Flow) -> &mut u32 {
        match flow {
            Flow::Encap => &mut self.encap,
            Flow::Decap => &mut self.decap,
        }
    }
}

#[cfg(test)]
mod tests;
