//! Routes of this host, and those of them that a neighbor does not know yet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sluice_base::{Mac, Vni};

use crate::config::{Network, RouteTarget};
use crate::route::{Endpoint, MacKey, Mobility};

/// Numbers of networks that were removed are kept up to this many: their routes may still have to
/// be withdrawn.
const NUMBERS_MAX: usize = 1 << 15;

/// Name of a route of this host. Routes of type 3 come first: a neighbor knows the VTEP before its
/// MACs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnRoute {
    /// Type 3.
    Network(Vni),
    /// Type 2.
    Mac(MacKey, Option<IpAddr>),
}

impl OwnRoute {
    pub(crate) const fn vni(&self) -> Vni {
        match self {
            Self::Network(vni) => *vni,
            Self::Mac(key, _) => key.vni,
        }
    }
}

/// All that the routes of one UPDATE have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) vni: Vni,
    pub(crate) target: RouteTarget,
    /// `None`: routes of type 3.
    pub(crate) mobility: Option<Mobility>,
}

/// The routes of this host.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    networks: BTreeMap<Vni, RouteTarget>,
    endpoints: BTreeMap<MacKey, Endpoint>,
    /// Numbers of networks in route distinguishers (RFC 7432 section 7.9).
    numbers: BTreeMap<Vni, u16>,
}

impl Exports {
    /// Adds a network, or changes its target. Returns the routes to be sent.
    pub(crate) fn add_network(&mut self, network: Network) -> Vec<OwnRoute> {
        let Network { vni, target } = network;
        if self.networks.insert(vni, target) == Some(target) {
            return Vec::new();
        }
        self.number(vni);
        self.routes_in(vni)
    }

    /// Removes a network with its endpoints. Returns the routes to be withdrawn.
    pub(crate) fn remove_network(&mut self, vni: Vni) -> Vec<OwnRoute> {
        let routes = self.routes_in(vni);
        self.networks.remove(&vni);
        self.endpoints.retain(|key, _| key.vni != vni);
        routes
    }

    /// Gives a network its number: its VNI, or the next number that is free.
    fn number(&mut self, vni: Vni) {
        if self.numbers.contains_key(&vni) {
            return;
        }
        if self.numbers.len() >= NUMBERS_MAX {
            self.numbers.retain(|there, _| self.networks.contains_key(there));
        }
        let [_, _, high, low] = vni.get().to_be_bytes();
        let mut number = u16::from_be_bytes([high, low]);
        while self.numbers.values().any(|taken| *taken == number) {
            number = number.wrapping_add(1);
        }
        self.numbers.insert(vni, number);
    }

    /// Returns the number of a network in route distinguishers.
    pub(crate) fn number_of(&self, vni: Vni) -> u16 {
        self.numbers.get(&vni).copied().unwrap_or_default()
    }

    /// Returns true if the network is exported.
    pub(crate) fn has_network(&self, vni: Vni) -> bool {
        self.networks.contains_key(&vni)
    }

    /// Iterates over the networks.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.networks.iter().map(|(vni, target)| Network { vni: *vni, target: *target })
    }

    /// Adds an endpoint, or changes it. Returns the routes to be sent or withdrawn.
    pub(crate) fn put(&mut self, mut endpoint: Endpoint) -> Vec<OwnRoute> {
        endpoint.ips.sort_unstable();
        endpoint.ips.dedup();
        let key = endpoint.key;
        let before = self.endpoints.insert(key, endpoint);
        let after = &self.endpoints[&key];
        let mut routes: BTreeSet<OwnRoute> = BTreeSet::new();
        if before.as_ref() != Some(after) {
            routes.extend(routes_of(after));
            routes.extend(before.iter().flat_map(routes_of));
        }
        routes.into_iter().collect()
    }

    /// Removes an endpoint. Returns the routes to be withdrawn.
    pub(crate) fn remove(&mut self, key: MacKey) -> Vec<OwnRoute> {
        self.endpoints.remove(&key).iter().flat_map(routes_of).collect()
    }

    /// Returns an endpoint of this host.
    pub(crate) fn endpoint(&self, key: MacKey) -> Option<&Endpoint> {
        self.endpoints.get(&key)
    }

    /// Returns what a route has in common with others; `None` if there is no such route any more.
    pub(crate) fn common(&self, route: &OwnRoute) -> Option<Common> {
        let vni = route.vni();
        let target = *self.networks.get(&vni)?;
        let mobility = match route {
            OwnRoute::Network(_) => None,
            OwnRoute::Mac(key, ip) => {
                let endpoint = self.endpoints.get(key)?;
                let is_there = ip.is_none_or(|ip| endpoint.ips.contains(&ip));
                Some(is_there.then_some(endpoint.mobility)?)
            }
        };
        Some(Common { vni, target, mobility })
    }

    fn routes_in(&self, vni: Vni) -> Vec<OwnRoute> {
        let network = self.has_network(vni).then_some(OwnRoute::Network(vni));
        let [first, last] = [Mac([0; 6]), Mac::BROADCAST].map(|mac| MacKey { vni, mac });
        let endpoints = self.endpoints.range(first..=last).map(|(_, endpoint)| endpoint);
        network.into_iter().chain(endpoints.flat_map(routes_of)).collect()
    }

    /// Iterates over all routes.
    pub(crate) fn all(&self) -> impl Iterator<Item = OwnRoute> + '_ {
        let networks = self.networks.keys().map(|vni| OwnRoute::Network(*vni));
        networks.chain(self.endpoints.values().flat_map(routes_of))
    }

    /// Number of routes.
    pub(crate) fn len(&self) -> usize {
        self.all().count()
    }
}

fn routes_of(endpoint: &Endpoint) -> impl Iterator<Item = OwnRoute> + '_ {
    let ips = endpoint.ips.iter().map(|ip| Some(*ip));
    std::iter::once(None).chain(ips).map(|ip| OwnRoute::Mac(endpoint.key, ip))
}

/// Routes that one neighbor does not know yet: names, so that a route which changes often is one
/// entry.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    routes: BTreeSet<OwnRoute>,
    end: Option<End>,
}

/// The marker behind the last route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// End-of-RIB (RFC 4724 section 2).
    Rib,
    /// The end of a refresh (RFC 7313 section 4).
    Refresh,
}

/// The next thing for a neighbor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Routes with the same attributes.
    Reach(Common, Vec<OwnRoute>),
    /// Routes that are no more.
    Unreach(Vec<OwnRoute>),
    /// There are no more routes at present.
    End(End),
}

impl Backlog {
    /// Takes note of all routes, and of the marker behind them. A marker that is due already is
    /// not replaced: the first one ends the first table.
    pub(crate) fn put_all(&mut self, exports: &Exports, end: Option<End>) {
        self.routes.extend(exports.all());
        self.end = self.end.or(end);
    }

    /// Takes note of changed routes.
    pub(crate) fn put(&mut self, routes: &[OwnRoute]) {
        self.routes.extend(routes);
    }

    /// Returns true if there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.end.is_none()
    }

    /// Number of routes.
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Takes the next routes that fit into one message, which has room for `most`.
    pub(crate) fn next(&mut self, exports: &Exports, most: usize) -> Option<Next> {
        let Some(first) = self.routes.pop_first() else { return self.end.take().map(Next::End) };
        let common = exports.common(&first);
        let mut batch = vec![first];
        while batch.len() < most
            && let Some(next) = self.routes.first().copied()
            && exports.common(&next) == common
        {
            self.routes.remove(&next);
            batch.push(next);
        }
        Some(match common {
            Some(common) => Next::Reach(common, batch),
            None => Next::Unreach(batch),
        })
    }
}

#[cfg(test)]
mod tests;
