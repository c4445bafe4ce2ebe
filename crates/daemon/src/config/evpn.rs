//! The EVPN part of a configuration, ready for the speaker.

use std::net::SocketAddr;

use sluice_api::config::{Evpn, HostConfig};
use sluice_base::{Nanos, Vni};
use sluice_evpn::{Config, Limits, NeighborConfig, Network, ParseTargetError, RouteTarget};

/// The host as a BGP speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvpnPlan {
    /// The speaker.
    pub speaker: Config,
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// The networks that are exported and imported.
    pub networks: Vec<Network>,
}

/// Returns the EVPN part of a configuration that passed every check.
pub(super) fn plan(config: &HostConfig) -> Option<EvpnPlan> {
    let (evpn, underlay) = (config.evpn.as_ref()?, config.underlay.as_ref()?);
    let neighbors = evpn.neighbors.iter().map(|neighbor| NeighborConfig {
        address: neighbor.address,
        remote_as: neighbor.remote_as,
        is_passive: neighbor.passive,
    });
    let networks = config.vnets.iter().filter_map(|vnet| {
        let vni = Vni::new(vnet.vni?)?;
        Some(Network { vni, target: target(evpn, &vnet.name, vni).ok()? })
    });
    Some(EvpnPlan {
        speaker: Config {
            local_as: evpn.local_as,
            router_id: evpn.router_id.unwrap_or(underlay.address),
            vtep: underlay.address,
            hold_s: evpn.hold_s,
            stale_max: Nanos::from_millis(u64::from(evpn.stale_s) * 1_000),
            neighbors: neighbors.collect(),
            limits: Limits::default(),
        },
        listen: SocketAddr::new(evpn.address.unwrap_or(underlay.address.into()), evpn.port),
        networks: networks.collect(),
    })
}

/// Returns the route target of a network.
///
/// # Errors
/// If the configured text is none.
fn target(evpn: &Evpn, vnet: &str, vni: Vni) -> Result<RouteTarget, ParseTargetError> {
    match evpn.targets.get(vnet) {
        Some(text) => text.parse(),
        None => Ok(RouteTarget::of_as(evpn.local_as, vni.get())),
    }
}
