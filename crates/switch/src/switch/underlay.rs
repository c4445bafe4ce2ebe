//! State of an underlay: the address and the MTU of its device, which may change while the switch
//! runs, and the MTU of the path to each far end, which is learned.
//!
//! ```text
//!   network's MTU ─┐
//!   device − 50 ───┼─ the least ─▶ largest tenant's frame through a tunnel, or `oversize`
//!   path − 50 ─────┘
//! ```
//!
//! A path's MTU comes from a router's message about a frame that was sent (RFC 1191). The message
//! is accepted if it quotes a datagram that one of the tunnels may have sent, and it can only lower
//! the MTU. After ten minutes the MTU is forgotten, so that a path that has become wider is used
//! (section 6.3).

use core::net::Ipv4Addr;

use alloc::vec::Vec;

use sluice_base::{Buf, Mac, Nanos, PortId, TunnelId};
use sluice_wire::{EtherType, ethernet, ipv4, too_big, vlan};

use crate::config::PortRole;
use crate::networks::Tunnel;
use crate::surface::{CommandError, Notice};
use crate::switch::Switch;
use crate::tunnel::OUTER_BYTES;

/// Lifetime of a path's MTU (RFC 1191 section 6.3).
const BELIEVED_FOR: Nanos = Nanos::from_millis(600_000);

/// Tunnels with a learned MTU, and the moment at which each one expires.
#[derive(Debug)]
pub(crate) struct Paths(Vec<(u16, Nanos)>);

impl Paths {
    /// Returns an empty list with room for every tunnel.
    pub(crate) fn new(tunnels: usize) -> Self {
        Self(Vec::with_capacity(tunnels))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn believe(&mut self, tunnel: u16, until: Nanos) {
        match self.0.iter_mut().find(|(known, _)| *known == tunnel) {
            Some((_, old)) => *old = until,
            None => self.0.push((tunnel, until)),
        }
    }

    /// Forgets the MTU of a tunnel that is removed.
    pub(crate) fn forget_tunnel(&mut self, tunnel: u16) {
        self.0.retain(|(known, _)| *known != tunnel);
    }

    fn forget(&mut self, now: Nanos) -> Option<u16> {
        let at = self.0.iter().position(|(_, until)| *until <= now)?;
        Some(self.0.swap_remove(at).0)
    }
}

impl<B: Buf> Switch<B> {
    /// Sets the MAC of a tunnel's next hop; with `None` its frames wait.
    ///
    /// # Errors
    /// There is no such tunnel.
    pub fn set_next_hop(
        &mut self,
        now: Nanos,
        tunnel: TunnelId,
        mac: Option<Mac>,
    ) -> Result<(), CommandError> {
        if !self.networks.tunnels().get(tunnel.index()).is_some_and(Tunnel::is_in_use) {
            return Err(CommandError::NoSuchTunnel(tunnel));
        }
        self.change_next_hop(now, tunnel.index(), mac);
        Ok(())
    }

    /// Sets the next hop of the tunnel at an index.
    pub(crate) fn change_next_hop(&mut self, now: Nanos, tunnel: usize, mac: Option<Mac>) {
        let had = self.networks.set_next_hop(tunnel, mac);
        let t = &self.networks.tunnels()[tunnel];
        let (group, port) = (t.group(), usize::from(t.port()));
        // The tag of a frame in a common queue has 16 bits for a queue group.
        let open =
            mac.is_some() && !self.egress.port(port).is_detached() && u16::try_from(group).is_ok();
        self.egress.set_plain(group, open);
        if self.isolation.is_any() {
            self.refresh_plain(u16::try_from(port).expect("a port's number"));
        }
        if mac.is_some() {
            self.egress.open_closed(group);
        } else if had || self.egress.is_open(group) {
            self.close_group(now, group);
        }
    }

    /// Closes the queue group of a tunnel that lost its next hop: its queues leave the port's rings
    /// and wait.
    fn close_group(&mut self, now: Nanos, group: u32) {
        self.egress.close(group, now.after(self.unresolved.timeout()));
        self.leave_common(group);
        self.egress.park_all(group);
    }

    /// Sets the address that frames of an underlay come from and go to, and its layer-3 MTU.
    ///
    /// # Errors
    /// There is no such port, or it is no underlay.
    pub fn set_underlay(&mut self, port: PortId, mac: Mac, mtu: u16) -> Result<(), CommandError> {
        if !self.egress.set_underlay(port, mac, mtu) {
            return Err(CommandError::NoSuchPort(port));
        }
        for tunnel in 0..self.tunnel_places() {
            let place = &self.networks.tunnels()[tunnel];
            if place.is_in_use() && place.port() == port.0 {
                self.fit_tunnel(tunnel);
            }
        }
        Ok(())
    }

    /// Recomputes the size up to which frames fit into a tunnel without further checks.
    pub(crate) fn fit_tunnel(&mut self, tunnel: usize) {
        let t = &self.networks.tunnels()[tunnel];
        let device = self.egress.port(usize::from(t.port())).mtu();
        let outer = device.min(t.path_mtu().into()).saturating_sub(OUTER_BYTES);
        let mtu = outer.min(self.networks.mtu_min());
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        self.egress.fit(t.group(), mtu);
    }

    /// Learns the layer-3 MTU of the path to a far end, for which a datagram was too large (RFC
    /// 1191). Returns true if it is the far end of a tunnel.
    pub fn learn_path_mtu(&mut self, now: Nanos, remote: Ipv4Addr, mtu: u16) -> bool {
        let Some(number) = self.fdb.vtep(remote.to_bits()) else { return false };
        let mtu = mtu.max(too_big::MTU_MIN);
        let tunnel = self.networks.tunnel(number);
        let (device, known) =
            (self.egress.port(usize::from(tunnel.port())).mtu(), tunnel.path_mtu());
        if mtu > known || u32::from(mtu) >= device {
            return true;
        }
        self.paths.believe(number, now.after(BELIEVED_FOR));
        if mtu < known {
            self.networks.set_path_mtu(number, Some(mtu));
            self.fit_tunnel(number.into());
            self.too_big.tell(Notice::PathMtu { tunnel: TunnelId(number), mtu: Some(mtu) });
        }
        true
    }

    /// Forgets the path MTUs that have expired.
    #[cold]
    pub(crate) fn forget_paths(&mut self, now: Nanos) {
        while let Some(number) = self.paths.forget(now) {
            self.networks.set_path_mtu(number, None);
            self.fit_tunnel(number.into());
            self.too_big.tell(Notice::PathMtu { tunnel: TunnelId(number), mtu: None });
        }
    }

    /// Reads a frame of the underlay that is no tenant's. Returns true if it is a router's message
    /// that a tunnel's frame was too large, and its MTU was learned. Any host that can reach this
    /// one can forge such a message, therefore every quoted field has to match a frame that a
    /// tunnel sends.
    #[cold]
    pub(crate) fn hear_too_big(&mut self, now: Nanos, port: u16, local: Ipv4Addr, buf: &B) -> bool {
        let Some(heard) = heard(buf.head(), local) else { return false };
        let Some(tunnel) = self.tunnel_from(heard.dst.to_bits(), port) else { return false };
        let has = |vni| {
            let vnet = self.fdb.vnet_of(vni).map(|vnet| self.networks.vnet(vnet));
            vnet.is_some_and(|vnet| vnet.has_tunnel(tunnel))
        };
        if heard.src != local || !heard.vni.is_none_or(has) {
            return false;
        }
        self.learn_path_mtu(now, heard.dst, heard.mtu)
    }
}

/// Reads "fragmentation needed" to this host about a VXLAN datagram, with or without a tag.
fn heard(head: &[u8], local: Ipv4Addr) -> Option<too_big::Heard> {
    let frame = ethernet::Frame::new_checked(head).ok()?;
    let (mut ethertype, mut payload) = (frame.ethertype(), frame.payload());
    if ethertype == EtherType::VLAN {
        let tag = vlan::Tag::new_checked(payload).ok()?;
        (ethertype, payload) = (tag.ethertype(), tag.payload());
    }
    let ip = ipv4::Packet::new_checked(payload).ok()?;
    let for_us = ethertype == EtherType::IPV4 && ip.dst() == local && ip.header_checksum_ok();
    if for_us { too_big::Heard::of(&ip) } else { None }
}

impl<B> Switch<B> {
    /// Returns true if a port is an underlay.
    #[must_use]
    pub fn is_underlay(&self, port: PortId) -> bool {
        let port = self.egress.ports().get(port.index());
        port.is_some_and(|port| matches!(port.role(), PortRole::Underlay { .. }))
    }
}
