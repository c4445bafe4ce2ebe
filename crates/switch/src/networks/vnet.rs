//! One network: its number, its MTU, its local ports and its tunnels.

use alloc::boxed::Box;
use alloc::vec::Vec;

use sluice_base::{SourceId, TunnelId, Vni};

use crate::config::VnetConfig;
use crate::place::ETHERNET_BYTES;

use super::PlaceState;
use super::decap::Decap;

/// A network. The fields that frames need are in the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Vnet {
    vni: Option<Vni>,
    frame_size_max: u32,
    /// Decap flows of its tunnels, by tunnel number: every frame from the underlay looks its own
    /// up.
    decaps: Box<[Decap]>,
    /// Its tunnels, a bit each.
    tunnel_bits: Box<[u64]>,
    /// True if its frames may have 802.1Q tags of their own.
    own_tags: bool,
    tunnels: Box<[u16]>,
    /// Its local ports.
    members: Vec<u16>,
    state: PlaceState,
}

impl Vnet {
    /// Returns a place without a network.
    pub(super) fn free() -> Self {
        Self {
            vni: None,
            frame_size_max: 0,
            decaps: Box::default(),
            tunnel_bits: Box::default(),
            own_tags: false,
            tunnels: Box::default(),
            members: Vec::new(),
            state: PlaceState::Free,
        }
    }

    /// Returns a network without tunnels and members. Any of `ports` ports may become a member.
    pub(super) fn new(config: &VnetConfig, ports: usize) -> Self {
        Self {
            vni: config.vni,
            frame_size_max: u32::from(config.mtu) + ETHERNET_BYTES,
            members: Vec::with_capacity(ports),
            state: PlaceState::InUse,
            ..Self::free()
        }
    }

    #[inline]
    pub(crate) const fn vni(&self) -> Option<Vni> {
        self.vni
    }

    /// Returns the size of its largest frame without tag, Ethernet header included.
    #[inline]
    pub(crate) const fn frame_size_max(&self) -> u32 {
        self.frame_size_max
    }

    /// Returns its layer-3 MTU.
    pub(crate) const fn mtu(&self) -> u32 {
        self.frame_size_max - ETHERNET_BYTES
    }

    /// Returns true if its frames may have 802.1Q tags of their own.
    pub(crate) const fn has_own_tags(&self) -> bool {
        self.own_tags
    }

    /// Returns its local ports.
    pub(crate) fn members(&self) -> &[u16] {
        &self.members
    }

    pub(crate) const fn tunnels(&self) -> &[u16] {
        &self.tunnels
    }

    /// Returns the decap flows of its tunnels, by tunnel number.
    #[inline]
    pub(super) const fn decaps(&self) -> &[Decap] {
        &self.decaps
    }

    #[inline]
    pub(super) const fn decaps_mut(&mut self) -> &mut [Decap] {
        &mut self.decaps
    }

    pub(crate) const fn state(&self) -> PlaceState {
        self.state
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.state == PlaceState::InUse
    }

    /// Returns true if frames of the network may come through a tunnel.
    #[inline]
    pub(crate) fn has_tunnel(&self, tunnel: u16) -> bool {
        let bits = self.tunnel_bits.get(usize::from(tunnel / 64)).copied().unwrap_or(0);
        bits >> (tunnel % 64) & 1 == 1
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.frame_size_max = u32::from(mtu) + ETHERNET_BYTES;
    }

    /// Sets whether its frames may have 802.1Q tags of their own.
    pub(super) const fn set_own_tags(&mut self, own_tags: bool) {
        self.own_tags = own_tags;
    }

    /// Sets the tunnels of the network. Those that it had keep their decap flows. The source
    /// numbers of tunnels follow those of `inputs` inputs; `port_of` returns the port of a tunnel.
    pub(super) fn set_tunnels(
        &mut self,
        tunnels: &[TunnelId],
        inputs: usize,
        port_of: impl Fn(usize) -> u16,
    ) {
        self.tunnels = tunnels.iter().map(|tunnel| tunnel.0).collect();
        self.tunnel_bits = bits_of(tunnels.iter().map(|tunnel| tunnel.index()));
        let count = tunnels.iter().map(|tunnel| tunnel.index() + 1).max().unwrap_or(0);
        let row = |at: usize| {
            let unused = || Decap::unused(port_of(at), SourceId::from_index(inputs + at).0);
            let kept = self
                .decaps
                .get(at)
                .copied()
                .filter(|_| tunnels.contains(&TunnelId::from_index(at)));
            kept.filter(|row| row.port() == port_of(at)).unwrap_or_else(unused)
        };
        self.decaps = (0..count).map(row).collect();
    }

    /// Adds a local port. The ports stand in the order of their numbers.
    pub(super) fn join(&mut self, port: u16) {
        self.members.insert(self.members.partition_point(|member| *member < port), port);
    }

    /// Removes a local port.
    pub(super) fn leave(&mut self, port: u16) {
        self.members.retain(|member| *member != port);
    }

    /// Marks the network as removed. Its number on the wire stays for frames that another switch
    /// has handed off already.
    pub(super) fn remove(&mut self) {
        (self.tunnels, self.tunnel_bits) = Default::default();
        (self.decaps, self.state) = (Default::default(), PlaceState::Removed);
    }

    /// Makes the place of a removed network free.
    pub(super) fn make_free(&mut self) {
        debug_assert!(self.state != PlaceState::InUse, "a network would be lost");
        self.state = PlaceState::Free;
    }
}

/// Returns a set of small numbers, a bit each.
fn bits_of(members: impl Iterator<Item = usize>) -> Box<[u64]> {
    let mut bits = Vec::new();
    for member in members {
        if bits.len() <= member / 64 {
            bits.resize(member / 64 + 1, 0);
        }
        bits[member / 64] |= 1 << (member % 64);
    }
    bits.into()
}
