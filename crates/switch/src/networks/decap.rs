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

use sluice_base::{Mac, TunnelId, VnetId};

use crate::inspect::Counter;
use crate::surface::CommandError;

use super::Networks;

/// The flow of one peer to one network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decap {
    received: Counter,
    /// The port that its tunnel leads through.
    port: u16,
    /// The source number of its tunnel.
    source: u16,
    in_use: bool,
    /// True if it is in use and its frames need no further checks. Never true if the peer does not
    /// have the network.
    is_plain: bool,
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
    pub(super) const fn unused(port: u16, source: u16) -> Self {
        let received = Counter { frames: 0, bytes: 0 };
        Self { received, port, source, in_use: false, is_plain: false }
    }

    /// Returns the port that its tunnel leads through.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if frames that come in at a port need no further checks.
    #[inline]
    const fn is_plain_at(&self, port: u16) -> bool {
        self.is_plain && self.port == port
    }

    /// Ends the flow. Returns its counts.
    const fn end(&mut self) -> Counter {
        let received = self.received;
        *self = Self::unused(self.port, self.source);
        received
    }
}

impl Networks {
    /// Returns true if frames of a peer to a network, which come in at a port, need no further
    /// checks.
    #[inline]
    pub(crate) fn is_plain_flow(&self, vnet: u16, tunnel: u16, port: u16) -> bool {
        let flow = self.vnet(vnet).decaps().get(usize::from(tunnel));
        flow.is_some_and(|flow| flow.is_plain_at(port))
    }

    /// Counts a frame of a flow that is plain. Returns the source number of its tunnel.
    #[inline]
    pub(crate) fn count_plain(&mut self, vnet: u16, tunnel: u16, bytes: u32) -> u16 {
        let flow = self.flow_mut(vnet, tunnel);
        flow.received.add(bytes);
        flow.source
    }

    /// Counts a frame that was accepted on the slow path, and makes its flow if there is none. A
    /// flooded frame makes no flow: it also reaches hosts that exchange no traffic. `report`
    /// tells control of a new flow, and returns false if control is attached and has no room.
    pub(crate) fn count_decap(
        &mut self,
        (vnet, tunnel): (u16, u16),
        (dst, bytes): (Mac, u32),
        is_watched: bool,
        report: impl FnOnce() -> bool,
    ) {
        let flow = self.flow_mut(vnet, tunnel);
        if !flow.in_use {
            if dst.is_group() || !report() {
                self.tunnel_mut(tunnel.into()).add_received(Counter::of(bytes));
                return;
            }
            flow.in_use = true;
            flow.is_plain = !is_watched;
        }
        flow.received.add(bytes);
    }

    /// Returns the flow of a peer to a network that has it.
    #[inline]
    fn flow_mut(&mut self, vnet: u16, tunnel: u16) -> &mut Decap {
        &mut self.vnet_mut(vnet.into()).decaps_mut()[usize::from(tunnel)]
    }

    /// Updates the rows after control was attached or detached: frames out of foreign tunnels are
    /// punted to control.
    pub(crate) fn foreign_changed(&mut self, is_attached: bool) {
        let (vnets, tunnels) = self.split_mut();
        for vnet in vnets {
            for (flow, tunnel) in vnet.decaps_mut().iter_mut().zip(tunnels) {
                flow.is_plain = flow.in_use && !(is_attached && tunnel.is_foreign());
            }
        }
    }

    /// Adds the counts of a decap flow to those of its tunnel, and ends the flow.
    pub(crate) fn close_decap(&mut self, vnet: usize, tunnel: usize) {
        if let Some(flow) = self.vnet_mut(vnet).decaps_mut().get_mut(tunnel) {
            let sum = flow.end();
            self.tunnel_mut(tunnel).add_received(sum);
        }
    }

    /// Adds the counts of all decap flows of a network to those of their tunnels, and ends them.
    pub(crate) fn close_decaps(&mut self, vnet: usize) {
        for tunnel in 0..self.vnet_mut(vnet).decaps().len() {
            self.close_decap(vnet, tunnel);
        }
    }

    /// Forgets a flow. Its counts are added to those of its tunnel.
    pub(crate) fn forget_decap(
        &mut self,
        vnet: VnetId,
        tunnel: TunnelId,
    ) -> Result<(), CommandError> {
        if tunnel.index() >= self.tunnels().len() {
            return Err(CommandError::NoSuchTunnel(tunnel));
        }
        if self.vnet(vnet.0).decaps().get(tunnel.index()).is_none() {
            return Err(CommandError::NotInNetwork(tunnel));
        }
        self.close_decap(vnet.index(), tunnel.index());
        Ok(())
    }

    /// Returns the decap flows in use.
    pub(crate) fn decap_flows(&self) -> impl Iterator<Item = DecapFlow> + '_ {
        self.vnets().iter().enumerate().flat_map(|(at, vnet)| {
            let vnet_id = VnetId::from_index(at);
            let in_use = vnet.decaps().iter().enumerate().filter(|(_, flow)| flow.in_use);
            in_use.map(move |(tunnel, flow)| DecapFlow {
                vnet: vnet_id,
                tunnel: TunnelId::from_index(tunnel),
                received: flow.received,
            })
        })
    }

    /// Returns the frames accepted from a tunnel, flows that were forgotten included.
    pub(crate) fn received_from(&self, tunnel: usize) -> Counter {
        let mut sum = self.tunnels()[tunnel].received();
        for flow in self.vnets().iter().filter_map(|vnet| vnet.decaps().get(tunnel)) {
            sum.add_all(flow.received);
        }
        sum
    }
}

#[cfg(test)]
mod tests;
