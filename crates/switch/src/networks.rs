//! Networks and tunnels: which there are, which belong together, and the frames that came and went
//! through the tunnels.
//!
//! This module owns both tables and the decap flows between them, and nobody else changes them. It
//! knows no queue: what waits for a network or a tunnel is ended by the switch
//! (`switch::changes`).

mod decap;
mod tunnel;
mod vnet;

use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_base::{Mac, PortId, SourceId, TunnelId, VnetId};

use crate::config::{PortConfig, PortRole, SwitchConfig, Tags, TunnelConfig, VnetConfig};
use crate::inspect::Counter;
use crate::place::NO_PORT;
use crate::surface::CommandError;

pub use self::decap::DecapFlow;
pub(crate) use self::tunnel::Tunnel;
pub(crate) use self::vnet::Vnet;

/// State of the place of a network or tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// There is nothing; something may come.
    Free,
    /// There is a network or tunnel.
    InUse,
    /// The network or tunnel there is removed, and frames that name it are still in the switch.
    Removed,
}

/// The networks and tunnels of a switch, by number. The tables come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Networks {
    tunnels: Box<[Tunnel]>,
    vnets: Box<[Vnet]>,
    /// Number of networks in use.
    in_use: usize,
    /// Least MTU of a network; `None` without a network.
    mtu_min: Option<u32>,
}

impl Networks {
    /// Makes the tables of a configuration, for a switch with so many inputs.
    pub(crate) fn new(config: &SwitchConfig, inputs: usize) -> Self {
        let vnets = make_vnets(config, inputs);
        let tunnels = make_tunnels(config, inputs);
        Self { tunnels, vnets, in_use: 0, mtu_min: None }
    }

    #[inline]
    pub(crate) const fn vnets(&self) -> &[Vnet] {
        &self.vnets
    }

    #[inline]
    pub(crate) fn vnet(&self, vnet: u16) -> &Vnet {
        &self.vnets[usize::from(vnet)]
    }

    #[inline]
    pub(crate) const fn tunnels(&self) -> &[Tunnel] {
        &self.tunnels
    }

    #[inline]
    pub(crate) fn tunnel(&self, tunnel: u16) -> &Tunnel {
        &self.tunnels[usize::from(tunnel)]
    }

    #[inline]
    fn vnet_mut(&mut self, vnet: usize) -> &mut Vnet {
        &mut self.vnets[vnet]
    }

    #[inline]
    fn tunnel_mut(&mut self, tunnel: usize) -> &mut Tunnel {
        &mut self.tunnels[tunnel]
    }

    /// Returns the networks, to be changed, beside the tunnels.
    fn split_mut(&mut self) -> (&mut [Vnet], &[Tunnel]) {
        (&mut self.vnets, &self.tunnels)
    }

    /// Refuses the number of a network that is not there.
    pub(crate) fn check(&self, vnet: VnetId) -> Result<(), CommandError> {
        match self.vnets.get(vnet.index()) {
            Some(there) if there.is_in_use() => Ok(()),
            _ => Err(CommandError::NoSuchVnet(vnet)),
        }
    }

    /// Returns true if there are at least two networks.
    pub(crate) const fn has_several(&self) -> bool {
        self.in_use > 1
    }

    /// Returns the least MTU of a network; the largest number without a network.
    pub(crate) fn mtu_min(&self) -> u32 {
        self.mtu_min.unwrap_or(u32::MAX)
    }

    /// Recomputes the sums over networks. Returns true if the least MTU changed.
    pub(crate) fn sum_up(&mut self) -> bool {
        let before = self.mtu_min;
        let in_use = self.vnets.iter().filter(|vnet| vnet.is_in_use());
        (self.in_use, self.mtu_min) = (in_use.clone().count(), in_use.map(Vnet::mtu).min());
        self.mtu_min != before
    }

    /// Puts a network at a free place. Any of `ports` ports may become a member; the switch has so
    /// many inputs.
    pub(crate) fn add_vnet(
        &mut self,
        vnet: VnetId,
        config: &VnetConfig,
        ports: usize,
        inputs: usize,
    ) {
        self.vnets[vnet.index()] = Vnet::new(config, ports);
        self.set_vnet_tunnels(vnet.index(), &config.tunnels, inputs);
    }

    /// Sets the MTU and the tunnels of a network, in a switch with so many inputs.
    pub(crate) fn set_vnet(&mut self, vnet: VnetId, mtu: u16, tunnels: &[TunnelId], inputs: usize) {
        self.vnets[vnet.index()].set_mtu(mtu);
        self.set_vnet_tunnels(vnet.index(), tunnels, inputs);
    }

    fn set_vnet_tunnels(&mut self, vnet: usize, to: &[TunnelId], inputs: usize) {
        let tunnels = &self.tunnels;
        self.vnets[vnet].set_tunnels(to, inputs, |tunnel| tunnels[tunnel].port());
    }

    /// Marks a network as removed.
    pub(crate) fn remove_vnet(&mut self, vnet: VnetId) {
        self.vnets[vnet.index()].remove();
    }

    /// Makes the place of a removed network free, which no frame names any more.
    pub(crate) fn free_vnet(&mut self, vnet: VnetId) {
        self.vnets[vnet.index()].make_free();
    }

    /// Adds a local port to a network.
    pub(crate) fn join(&mut self, vnet: VnetId, port: PortId) {
        self.vnets[vnet.index()].join(port.0);
    }

    /// Removes a local port from a network.
    pub(crate) fn leave(&mut self, vnet: VnetId, port: PortId) {
        self.vnets[vnet.index()].leave(port.0);
    }

    /// Puts a tunnel at a free place. No network has it, and its next hop is not known yet.
    pub(crate) fn begin_tunnel(&mut self, tunnel: TunnelId, config: &TunnelConfig) {
        self.tunnels[tunnel.index()].begin(config);
    }

    /// Marks a tunnel as removed.
    pub(crate) fn remove_tunnel(&mut self, tunnel: TunnelId) {
        self.tunnels[tunnel.index()].remove();
    }

    /// Makes the place of a removed tunnel free, which no frame names any more.
    pub(crate) fn free_tunnel(&mut self, tunnel: TunnelId) {
        self.tunnels[tunnel.index()].make_free();
    }

    /// Takes a tunnel out of all networks, in a switch with so many inputs.
    pub(crate) fn leave_all(&mut self, tunnel: TunnelId, inputs: usize) {
        for at in 0..self.vnets.len() {
            if !self.vnets[at].has_tunnel(tunnel.0) {
                continue;
            }
            self.close_decap(at, tunnel.index());
            let others = self.vnets[at].tunnels().iter().filter(|of| **of != tunnel.0);
            let others: Vec<TunnelId> = others.copied().map(TunnelId).collect();
            self.set_vnet_tunnels(at, &others, inputs);
        }
    }

    /// Sets the next hop of a tunnel. Returns true if it had one.
    pub(crate) fn set_next_hop(&mut self, tunnel: usize, mac: Option<Mac>) -> bool {
        self.tunnels[tunnel].set_next_hop(mac)
    }

    /// Sets the MTU of the path to the far end of a tunnel, or forgets it.
    pub(crate) fn set_path_mtu(&mut self, tunnel: u16, mtu: Option<u16>) {
        self.tunnel_mut(tunnel.into()).set_path_mtu(mtu);
    }

    /// Counts frames that a driver took into a tunnel.
    #[inline]
    pub(crate) fn add_sent(&mut self, tunnel: TunnelId, sum: Counter) {
        self.tunnels[tunnel.index()].add_sent(sum);
    }
}

fn make_vnets(config: &SwitchConfig, inputs: usize) -> Box<[Vnet]> {
    let mut vnets: Vec<Vnet> = Vec::with_capacity(config.vnet_places());
    vnets.resize_with(config.vnet_places(), Vnet::free);
    for (at, vnet) in config.numbered_vnets() {
        let port_of = |tunnel: usize| {
            config.tunnel_at(TunnelId::from_index(tunnel)).map_or(NO_PORT, |tunnel| tunnel.port.0)
        };
        let is_member =
            |port: &PortConfig| port.role == PortRole::Access { vnet: VnetId::from_index(at) };
        let members = config.ports.iter().enumerate().filter(|(_, port)| is_member(port));
        vnets[at] = Vnet::new(vnet, config.ports.len());
        vnets[at].set_tunnels(&vnet.tunnels, inputs, port_of);
        vnets[at].set_own_tags(members.clone().any(|(_, port)| port.tags == Tags::Trunk));
        members.for_each(|(port, _)| vnets[at].join(PortId::from_index(port).0));
    }
    vnets.into()
}

fn make_tunnels(config: &SwitchConfig, inputs: usize) -> Box<[Tunnel]> {
    let place = |at: usize| {
        let group = u32::try_from(config.ports.len() + at).expect("fewer than 2^20 queue groups");
        Tunnel::free(group, SourceId::from_index(inputs + at).0)
    };
    let mut tunnels: Vec<Tunnel> = (0..config.tunnel_places()).map(place).collect();
    for (at, tunnel) in config.numbered_tunnels() {
        tunnels[at].begin(tunnel);
    }
    tunnels.into()
}
