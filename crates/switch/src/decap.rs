//! Decap flows: one row for the frames of a peer to one network of this host.
//!
//! A flow is *made* by its first frame to an individual address, which is reported to control if it
//! is attached, and ends with [`Command::ForgetDecap`]. Neither affects forwarding: a frame is
//! accepted because its peer has the network, and the next one makes the flow again.
//!
//! ```text
//!   not in use ── first frame to one: an event fits, or control is away ──> in use
//!        ^                                                                     │
//!        └─────────────────────────── ForgetDecap ─────────────────────────────┘
//! ```
//!
//! If the event finds no room the frame is accepted without the flow, and the next one tries
//! again. A flow that was made while control was away is not reported: control reads the rows when
//! it attaches.
//!
//! The common case reads only the row, and not the tunnel: a single bit ([`Decap::is_plain`]) tells
//! that the peer has the network, and the row has copies of the fields of the tunnel that the fast
//! path needs.
//!
//! [`Command::ForgetDecap`]: crate::Command::ForgetDecap

use sluice_base::{Buf, Mac, TunnelId, VnetId};

use crate::inspect::Counter;
use crate::surface::CommandError;
use crate::switch::Switch;

/// The flow of one peer to one network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decap {
    pub(crate) received: Counter,
    /// The port that its tunnel leads through.
    pub(crate) port: u16,
    /// The source number of its tunnel.
    pub(crate) source: u16,
    in_use: bool,
    /// True if it is in use and its frames need no further checks. Never true if the peer does not
    /// have the network.
    pub(crate) is_plain: bool,
}

/// A decap flow, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecapFlow {
    /// The network.
    pub vnet: VnetId,
    /// The peer.
    pub tunnel: TunnelId,
    /// Frames accepted since the flow was made, outer headers included.
    pub received: Counter,
}

impl Decap {
    /// Returns a row that is not in use.
    pub(crate) const fn unused(port: u16, source: u16) -> Self {
        let received = Counter { frames: 0, bytes: 0 };
        Self { received, port, source, in_use: false, is_plain: false }
    }

    /// Ends the flow. Returns its counts.
    pub(crate) const fn end(&mut self) -> Counter {
        let received = self.received;
        *self = Self::unused(self.port, self.source);
        received
    }
}

impl<B: Buf> Switch<B> {
    /// Counts a frame that was accepted on the slow path, and makes its flow if there is none. A
    /// flooded frame makes no flow: it also reaches hosts that exchange no traffic.
    pub(crate) fn count_decap(&mut self, vnet: u16, tunnel: u16, dst: Mac, bytes: u32) {
        let is_watched = self.is_watched(tunnel);
        let flow = &mut self.vnets[usize::from(vnet)].decaps[usize::from(tunnel)];
        if !flow.in_use {
            let mut is_made = !dst.is_group();
            if is_made && self.control.is_attached() {
                is_made = self.control.tell_decap(VnetId(vnet), TunnelId(tunnel));
            }
            if !is_made {
                self.tunnels[usize::from(tunnel)].received.add(bytes);
                return;
            }
            flow.in_use = true;
            flow.is_plain = !is_watched;
        }
        flow.received.add(bytes);
    }

    /// Returns the flow of a peer to a network that has it.
    #[inline]
    pub(crate) fn flow_mut(&mut self, vnet: u16, tunnel: u16) -> &mut Decap {
        &mut self.vnets[usize::from(vnet)].decaps[usize::from(tunnel)]
    }

    /// Returns true if frames out of a tunnel are punted to control.
    pub(crate) fn is_watched(&self, tunnel: u16) -> bool {
        self.control.is_attached() && self.tunnels[usize::from(tunnel)].foreign
    }

    /// Updates the rows after control attached or detached.
    pub(crate) fn foreign_changed(&mut self) {
        let (attached, tunnels) = (self.control.is_attached(), &self.tunnels);
        for vnet in &mut self.vnets {
            for (flow, tunnel) in vnet.decaps.iter_mut().zip(tunnels) {
                flow.is_plain = flow.in_use && !(attached && tunnel.foreign);
            }
        }
    }

    /// Forgets a flow. Its counts are added to those of its tunnel.
    pub(crate) fn forget_decap(
        &mut self,
        vnet: VnetId,
        tunnel: TunnelId,
    ) -> Result<(), CommandError> {
        let t = self.tunnels.get_mut(tunnel.index());
        let t = t.ok_or(CommandError::NoSuchTunnel(tunnel))?;
        let flow = self.vnets[vnet.index()].decaps.get_mut(tunnel.index());
        let flow = flow.ok_or(CommandError::NotInNetwork(tunnel))?;
        t.received.add_all(flow.end());
        Ok(())
    }
}

impl<B> Switch<B> {
    /// Returns the decap flows in use.
    pub fn decap_flows(&self) -> impl Iterator<Item = DecapFlow> + '_ {
        self.vnets.iter().enumerate().flat_map(|(at, vnet)| {
            let vnet_id = VnetId::from_index(at);
            let in_use = vnet.decaps.iter().enumerate().filter(|(_, flow)| flow.in_use);
            in_use.map(move |(tunnel, flow)| DecapFlow {
                vnet: vnet_id,
                tunnel: TunnelId::from_index(tunnel),
                received: flow.received,
            })
        })
    }

    /// Returns the frames accepted from a tunnel, flows that were forgotten included.
    pub(crate) fn received_from(&self, tunnel: usize) -> Counter {
        let mut sum = self.tunnels[tunnel].received;
        for flow in self.vnets.iter().filter_map(|vnet| vnet.decaps.get(tunnel)) {
            sum.add_all(flow.received);
        }
        sum
    }
}

#[cfg(test)]
mod tests;
