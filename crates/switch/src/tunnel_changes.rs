//! Tunnels that come and go ([`crate::changes`]).

use alloc::vec::Vec;

use sluice_base::{Buf, Destination, DropReason, Nanos, TunnelId};

use crate::changes::{ChangeError, PlaceState};
use crate::config::{ConfigError, PortRole, TunnelConfig};
use crate::detach::dropped_since;
use crate::mac_table;
use crate::surface::Notice;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Adds a tunnel at a free place. No network has it yet ([`Self::set_vnet`]).
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed.
    pub fn add_tunnel(
        &mut self,
        now: Nanos,
        tunnel: TunnelId,
        config: &TunnelConfig,
    ) -> Result<(), ChangeError> {
        self.may_add_tunnel(tunnel, config)?;
        let at = tunnel.index();
        self.tunnels[at].begin(config);
        let group = self.tunnels[at].group;
        self.egress.begin_tunnel(group, tunnel, config.port.0);
        self.fdb.add_vtep(config.remote.to_bits(), tunnel.0);
        self.fit_tunnel(at);
        self.change_next_hop(now, at, config.next_hop);
        Ok(())
    }

    fn may_add_tunnel(&self, tunnel: TunnelId, config: &TunnelConfig) -> Result<(), ChangeError> {
        if tunnel.index() >= self.tunnels.len() {
            return Err(ChangeError::NoSuchTunnel(tunnel));
        }
        match self.tunnel_state(tunnel) {
            PlaceState::Free => {}
            state => return Err(ChangeError::TunnelTaken(tunnel, state)),
        }
        let index = config.port.index();
        let error = match self.egress.ports().get(index).map(|port| port.role()) {
            Some(PortRole::Underlay { .. }) if self.fdb.vtep(config.remote.to_bits()).is_none() => {
                return Ok(());
            }
            Some(PortRole::Underlay { .. }) => ConfigError::TunnelTwice { remote: config.remote },
            Some(_) => ConfigError::NotUnderlay { tunnel },
            None => ConfigError::NoSuch { what: "port", index, by: "a tunnel" },
        };
        Err(ChangeError::Config(error))
    }

    /// Removes a tunnel from all networks and from the switch. Returns the number of frames that
    /// ended with it.
    ///
    /// # Errors
    /// There is no such tunnel; nothing was changed.
    pub fn remove_tunnel(&mut self, now: Nanos, tunnel: TunnelId) -> Result<u32, ChangeError> {
        let at = tunnel.index();
        if !self.tunnels.get(at).is_some_and(|place| place.is_in_use()) {
            return Err(ChangeError::NoSuchTunnel(tunnel));
        }
        let before = self.dropped_as(DropReason::Removed);
        let (group, port) = (self.tunnels[at].group, self.tunnels[at].port);
        self.fdb.remove_vtep(self.tunnels[at].remote.to_bits());
        self.leave_vnets(tunnel);
        self.end_holds_of(|_, of| of == tunnel.0);
        self.fdb.remove_group(group);
        self.drop_queued(|_, _, to| to == group);
        self.drop_common_of(group, |_, _| true);
        self.forget_events_of(now, tunnel);
        self.paths.forget_tunnel(tunnel.0);
        self.isolation.forget_sender(tunnel);
        self.egress.end_tunnel(group);
        let place = &mut self.tunnels[at];
        (place.state, place.next_hop) = (PlaceState::Removed, None);
        if self.isolation.is_any() {
            self.refresh_plain(port);
        }
        self.retry_deferred(now);
        Ok(dropped_since(before, self.dropped_as(DropReason::Removed)))
    }

    /// Takes a tunnel out of the lists of all networks.
    fn leave_vnets(&mut self, tunnel: TunnelId) {
        let inputs = self.ingress.count();
        for at in 0..self.vnets.len() {
            if !self.vnets[at].has_tunnel(tunnel.0) {
                continue;
            }
            self.close_decap(at, tunnel.index());
            let others = self.vnets[at].tunnels.iter().filter(|of| **of != tunnel.0);
            let others: Vec<TunnelId> = others.copied().map(TunnelId).collect();
            let tunnels = &self.tunnels;
            self.vnets[at].set_tunnels(&others, inputs, |tunnel| tunnels[tunnel].port);
        }
    }

    /// Discards the events about frames of a tunnel.
    fn forget_events_of(&mut self, now: Nanos, tunnel: TunnelId) {
        let from_it = Destination::Tunnel(tunnel);
        let (fdb, egress) = (&mut self.fdb, &mut self.egress);
        self.control.retain_misses(|notice| {
            let Notice::Miss { vnet, mac, from, .. } = notice else { return true };
            if *from != Some(from_it) {
                return true;
            }
            // Frames of others may wait for the same address: the miss is reported again.
            if let Some(group) = fdb.pending(mac_table::key(vnet.0, *mac)) {
                egress.punt_again(group, now);
            }
            false
        });
        self.forget_notices_that(|notice| match notice {
            Notice::Punt { from, .. } => *from == from_it,
            Notice::Decap { tunnel: of, .. } | Notice::PathMtu { tunnel: of, .. } => *of == tunnel,
            _ => false,
        });
    }
}
