//! The host as a BGP speaker.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_api::config::{Evpn, UnderlayKind};
use sluice_evpn::RouteTarget;

use super::{At, Check, Key};

impl Check<'_> {
    pub(super) fn evpn(&mut self) {
        let config = self.config;
        let Some(evpn) = &config.evpn else { return };
        let Some(underlay) = config.underlay.as_ref().filter(|_| config.fabric.is_some()) else {
            self.problem(
                &[Key("evpn")],
                "only a member of a fabric learns endpoints, and this host is in none",
                "Add a `[fabric]` and an `[underlay]`, or take it out.",
            );
            return;
        };
        if underlay.kind == UnderlayKind::VhostUser {
            self.problem(
                &[Key("evpn")],
                "over a vhost-user underlay each peer has the MAC of its next hop, and the VTEPs \
                 that EVPN names have none",
                "Use `kind = \"l2\"` or `\"udp\"`, or list the peers instead.",
            );
        }
        self.evpn_numbers(evpn);
        let own = evpn.address.unwrap_or(underlay.address.into());
        self.evpn_neighbors(evpn, own);
        for (vnet, text) in &evpn.targets {
            let at = [Key("evpn"), Key("targets"), Key(vnet)];
            if self.known(&at, "vnet", vnet).is_some()
                && let Err(why) = text.parse::<RouteTarget>()
            {
                self.problem(&at, why.to_string(), "Change it, or take it out for AS:VNI.");
            }
        }
    }

    fn evpn_numbers(&mut self, evpn: &Evpn) {
        if evpn.local_as == 0 {
            self.problem(
                &[Key("evpn"), Key("as")],
                "0 is no AS (RFC 7607)",
                "Use the number of your AS, or a private one like 65000.",
            );
        }
        if evpn.router_id.is_some_and(|id| id.is_unspecified()) {
            self.problem(
                &[Key("evpn"), Key("router_id")],
                "0.0.0.0 is no BGP identifier (RFC 6286)",
                "Leave the key out for the address of the VTEP.",
            );
        }
        if (1..3).contains(&evpn.hold_s) {
            self.problem(
                &[Key("evpn"), Key("hold_s")],
                format!("a neighbor refuses a hold time of {} s (RFC 4271)", evpn.hold_s),
                "Use 3 or more, or 0 for none; the default is 9.",
            );
        }
        if evpn.port == 0 {
            self.problem(
                &[Key("evpn"), Key("port")],
                "no neighbor could be reached",
                "Leave the key out for the default of 179.",
            );
        }
    }

    fn evpn_neighbors(&mut self, evpn: &Evpn, own: IpAddr) {
        if evpn.neighbors.is_empty() {
            self.problem(
                &[Key("evpn")],
                "there is nobody to speak to",
                "Add an `[[evpn.neighbor]]` with `address` and `as`, or take it out.",
            );
        }
        let mut seen = BTreeMap::new();
        for (index, neighbor) in evpn.neighbors.iter().enumerate() {
            let at = [Key("evpn"), Key("neighbor"), At(index), Key("address")];
            let address = neighbor.address;
            if address == own {
                self.problem(
                    &at,
                    format!("{address} is this host's own"),
                    "Name the address of another speaker.",
                );
            } else if let Some(first) = seen.insert(address, index) {
                self.problem(
                    &at,
                    format!("neighbor {address} is there twice, first as number {}", first + 1),
                    "Take one of the two out.",
                );
            }
            if neighbor.remote_as == 0 {
                self.problem(
                    &[Key("evpn"), Key("neighbor"), At(index), Key("as")],
                    "0 is no AS (RFC 7607)",
                    "Use the number of the neighbor's AS.",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
