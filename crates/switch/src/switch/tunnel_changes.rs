//! Tunnels that come and go ([`crate::switch::changes`]).

use sluice_base::{Buf, Destination, DropReason, Nanos, TunnelId};

use crate::config::{ConfigError, PortRole, TunnelConfig};
use crate::mac_table;
use crate::networks::PlaceState;
use crate::surface::Notice;
use crate::switch::Switch;
use crate::switch::changes::ChangeError;
use crate::switch::detach::dropped_since;

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
        self.networks.begin_tunnel(tunnel, config);
        let group = self.networks.tunnel(tunnel.0).group();
        self.egress.begin_tunnel(group, tunnel, config.port.0);
        self.fdb.add_vtep(config.remote.to_bits(), tunnel.0);
        self.fit_tunnel(at);
        self.change_next_hop(now, at, config.next_hop);
        Ok(())
    }

    fn may_add_tunnel(&self, tunnel: TunnelId, config: &TunnelConfig) -> Result<(), ChangeError> {
        if tunnel.index() >= self.networks.tunnels().len() {
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
        let place = self.networks.tunnels().get(tunnel.index());
        let Some(place) = place.filter(|place| place.is_in_use()) else {
            return Err(ChangeError::NoSuchTunnel(tunnel));
        };
        let (group, port, remote) = (place.group(), place.port(), place.remote());
        let before = self.ledger.dropped_as(DropReason::Removed);
        self.fdb.remove_vtep(remote.to_bits());
        self.networks.leave_all(tunnel, self.ingress.count());
        self.end_holds_of(|_, of| of == tunnel.0);
        self.fdb.remove_group(group);
        self.drop_queued(|_, _, to| to == group);
        self.drop_common_of(group, |_, _| true);
        self.forget_events_of(now, tunnel);
        self.paths.forget_tunnel(tunnel.0);
        self.isolation.forget_sender(tunnel);
        self.egress.end_tunnel(group);
        self.networks.remove_tunnel(tunnel);
        if self.isolation.is_any() {
            self.refresh_plain(port);
        }
        self.retry_deferred(now);
        Ok(dropped_since(before, self.ledger.dropped_as(DropReason::Removed)))
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
