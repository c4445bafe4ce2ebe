//! Changes of the configuration while the plane runs, beside members and networks that come and go.

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Vni};

use super::Plane;
use super::hosts::why_of;
use super::surface::{Command, Config, End};
use crate::bridge::{Bounds, Intake};

impl Plane {
    /// Takes over what a running plane can change of its configuration: the quota of claims, rates
    /// of punts and questions, thresholds of moves, and the life of confirmed addresses. All else
    /// of the configuration stays as it was.
    pub fn reconfigure(&mut self, config: &Config) {
        self.claims_per_host = config.claims_per_host;
        self.policer.set_rates(&config.punt);
        self.resolver.set_rate(config.resolve.asks);
        self.mobility.set_thresholds(&config.mobility);
        self.doubts.set_confirmed_life(config.confirmed_life);
    }

    /// Begins to end the session with a host that is a member no more. Its connection is to be
    /// written to once more, so that the host hears why, and closed; [`Self::remove_host`] follows.
    pub fn dismiss(&mut self, now: Nanos, host: HostId) {
        let now = self.clock.at(now);
        if let Some(session) = self.session(host) {
            session.dismiss();
            self.looked_at(now, host);
        }
    }

    /// Has the switch report waiting decap flows again, of those that `which` names.
    pub(super) fn report_again(&mut self, which: impl Fn(Vni, HostId) -> bool) {
        for (vni, host) in self.tunnels.take_waiting(which) {
            self.outbox.command(Command::ForgetDecap { vni, host });
        }
    }

    /// Follows a change of a host's networks.
    pub(super) fn networks_changed(&mut self, now: Nanos, host: HostId) {
        let Some(peer) = self.peers.get_mut(host) else { return };
        let mut changes = Vec::new();
        let (vnets, aside) = (&peer.vnets, &mut peer.aside);
        let bounds = Bounds { vnets, quota: self.claims_per_host.into(), aside };
        let mut intake = Intake { table: &mut self.table, now, changes: &mut changes, bounds };
        let is_full = intake.follow_networks(host).is_err();
        let flows = self.tunnels.decaps_from(host).take_while(|(_, from, _)| *from == host);
        let left = flows.map(|(vni, ..)| vni).filter(|vni| !peer.vnets.contains(vni));
        let left: Vec<_> = left.collect();
        self.follow_all(now, &changes, |change| why_of(change, host));
        for vni in left {
            self.end_decap(now, vni, host, End::Removed);
        }
        let vnets = self.peers.get(host).map_or_else(Vec::new, |peer| peer.vnets.clone());
        self.report_again(|vni, from| from == host && vnets.contains(&vni));
        if is_full {
            self.claims_full();
        }
    }
}

#[cfg(test)]
mod tests;
