//! Networks and tunnels that come and go while the switch runs.
//!
//! ```text
//!             add                       remove
//!    FREE ───────────> IN USE ────────────────────────> REMOVED
//!     ^                                                    │
//!     └── no frame in the switch names it any more ────────┘
//! ```
//!
//! **Places.** [`Switch::new`] makes the tables with the spare places of the configuration
//! ([`SparePlaces`](crate::SparePlaces)). A network or tunnel that comes takes the place that the
//! caller names, and may allocate memory for its own rows; no frame does.
//!
//! **Removal.** The frames that can only go to what is removed end under `removed`
//! ([`DropReason::Removed`](sluice_base::DropReason::Removed)), and every reference goes: addresses
//! in the forwarding table (FDB), holds, decap flows, events. Frames that came in through a tunnel
//! before it was removed are delivered. A place is taken again only when they have left, since
//! their queues have its number.
//!
//! **Several switches of a host.** Each of them executes every change. Frames on their way between
//! two switches name places of both: add a place in all switches before any frame can name it, and
//! take one again only when all switches have removed it and every frame that was handed off before
//! that has been received.

use sluice_base::{Buf, PortId, Priority, TunnelId, VnetId};

use crate::config::{ConfigError, Service};
use crate::networks::PlaceState;
use crate::switch::Switch;

/// Reason why a network or tunnel cannot come, go or change. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeError {
    /// No place of that number, or no network there.
    NoSuchVnet(VnetId),
    /// No place of that number, or no tunnel there.
    NoSuchTunnel(TunnelId),
    /// The place of the network is not free.
    VnetTaken(VnetId, PlaceState),
    /// The place of the tunnel is not free.
    TunnelTaken(TunnelId, PlaceState),
    /// A local port is in the network.
    HasPort(VnetId, PortId),
    /// No port of that number, or none whose values change.
    NoSuchPort(PortId),
    /// The configuration is invalid.
    Config(ConfigError),
}

impl<B: Buf> Switch<B> {
    /// Returns the number of places for networks.
    #[must_use]
    pub const fn vnet_places(&self) -> usize {
        self.networks.vnets().len()
    }

    /// Returns the number of places for tunnels.
    #[must_use]
    pub const fn tunnel_places(&self) -> usize {
        self.networks.tunnels().len()
    }

    /// Sets the service of a priority at all ports.
    ///
    /// # Errors
    /// A weight of zero; nothing was changed.
    pub fn set_service(&mut self, priority: Priority, service: Service) -> Result<(), ChangeError> {
        if service == Service::Weighted(0) {
            return Err(ChangeError::Config(ConfigError::ZeroWeight { priority }));
        }
        self.egress.set_service(priority, service);
        Ok(())
    }

    /// Recomputes the sums over networks, and the sizes up to which frames fit into tunnels.
    pub(crate) fn places_changed(&mut self) {
        if !self.networks.sum_up() {
            return;
        }
        for tunnel in 0..self.tunnel_places() {
            if self.networks.tunnels()[tunnel].is_in_use() {
                self.fit_tunnel(tunnel);
            }
        }
    }
}
