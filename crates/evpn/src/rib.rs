//! Routes of the neighbors (Adj-RIB-In, RFC 4271 section 3.2), and for each MAC the VTEP that has
//! it.
//!
//! ```text
//!   UPDATE ── targets, label, loops ──> Adj-RIB-In of the neighbor ──> paths of each MAC ──> best
//!                  └──> kept out, counted                          └──> VTEPs of each network
//! ```
//!
//! **Epochs.** A route carries the epoch of its neighbor in which it was heard last. A new epoch
//! begins when the session ends and when the neighbor begins a refresh (RFC 7313); at its end
//! (End-of-RIB, EoRR) routes of older epochs go. Routes of a neighbor whose session ended come
//! behind those of any other one until they are repeated.
//!
//! **Changes** are a set of names, not a queue: a caller gets the present state of each, so that a
//! neighbor that changes its mind a thousand times makes nothing grow.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::Vni;

use crate::config::{Limits, Network, RouteTarget};
use crate::route::{Attributes, Distinguisher, MacKey, Mobility, Nlri, RemoteMac, Route};
use crate::wire::Update;

/// Number of routes of a neighbor that are not in use, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptOut {
    /// None of their targets is that of a network here, or their label is another network's.
    pub not_ours: u64,
    /// Their path has this speaker in it already.
    pub looped: u64,
    /// Their tunnel is not VXLAN to an IPv4 address.
    pub other_tunnel: u64,
    /// Their type is neither 2 nor 3.
    pub other_type: u64,
    /// They cannot be read, or name no machine's address.
    pub malformed: u64,
    /// Their MAC has as many routes as it may have.
    pub too_many: u64,
}

/// The neighbor advertises more routes than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyRoutes;

/// A route that is in use.
#[derive(Clone, Copy, Debug)]
struct Held {
    vni: Vni,
    vtep: Ipv4Addr,
    epoch: u64,
}

/// Routes of one neighbor.
#[derive(Debug, Default)]
struct AdjIn {
    routes: BTreeMap<Nlri, Held>,
    epoch: u64,
    /// Routes of older epochs are from before the session.
    live_from: u64,
    kept_out: KeptOut,
}

/// A route for a MAC.
#[derive(Clone, Copy, Debug)]
struct Path {
    neighbor: usize,
    rd: Distinguisher,
    tag: u32,
    ip: Option<IpAddr>,
    vtep: Ipv4Addr,
    mobility: Mobility,
    epoch: u64,
}

impl Path {
    fn is(&self, neighbor: usize, nlri: &Nlri) -> bool {
        let Nlri::MacIp { rd, tag, ip, .. } = nlri else { return false };
        (self.neighbor, &self.rd, &self.tag, &self.ip) == (neighbor, rd, tag, ip)
    }
}

/// All routes of all neighbors.
#[derive(Debug)]
pub(crate) struct Rib {
    own: Own,
    limits: Limits,
    targets: BTreeSet<(RouteTarget, Vni)>,
    neighbors: Vec<AdjIn>,
    macs: BTreeMap<MacKey, Vec<Path>>,
    /// VTEPs that take frames to all of a network, with the number of their routes.
    vteps: BTreeMap<(Vni, Ipv4Addr), usize>,
    changed_macs: BTreeSet<MacKey>,
    changed_vteps: BTreeSet<(Vni, Ipv4Addr)>,
}

/// This speaker, as it recognises itself in routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) local_as: u32,
    pub(crate) router_id: Ipv4Addr,
    pub(crate) vtep: Ipv4Addr,
}

impl Own {
    /// Returns true if a route has been here before.
    fn is_in(&self, attributes: &Attributes) -> bool {
        attributes.as_path.contains(&self.local_as)
            || attributes.originator == Some(self.router_id)
            || attributes.next_hop == Some(self.vtep)
    }
}

impl Rib {
    pub(crate) fn new(own: Own, limits: Limits, neighbors: usize) -> Self {
        Self {
            own,
            limits,
            targets: BTreeSet::new(),
            neighbors: (0..neighbors).map(|_| AdjIn::default()).collect(),
            macs: BTreeMap::new(),
            vteps: BTreeMap::new(),
            changed_macs: BTreeSet::new(),
            changed_vteps: BTreeSet::new(),
        }
    }

    /// Imports a network from now on. Routes that came before are to be asked for again.
    pub(crate) fn add_network(&mut self, network: Network) {
        self.targets.insert((network.target, network.vni));
    }

    /// Forgets a network and its routes.
    pub(crate) fn remove_network(&mut self, vni: Vni) {
        self.targets.retain(|(_, there)| *there != vni);
        for neighbor in 0..self.neighbors.len() {
            self.drop_routes(neighbor, |held| held.vni == vni);
        }
    }

    /// Takes the routes of an UPDATE.
    ///
    /// # Errors
    /// The neighbor has too many.
    pub(crate) fn update(&mut self, neighbor: usize, update: &Update) -> Result<(), TooManyRoutes> {
        for nlri in &update.withdrawn {
            self.withdraw(neighbor, nlri);
        }
        let adj = &mut self.neighbors[neighbor];
        adj.kept_out.other_type += u64::from(update.other_types);
        adj.kept_out.malformed += u64::from(update.malformed);
        if update.reach.is_empty() {
            return Ok(());
        }
        let networks = self.networks_of(&update.attributes);
        for route in &update.reach {
            self.announce(neighbor, route, &update.attributes, &networks)?;
        }
        Ok(())
    }

    /// Returns the networks whose target is among the attributes.
    fn networks_of(&self, attributes: &Attributes) -> Vec<Vni> {
        let communities = attributes.communities.iter().copied();
        let ours = communities.filter_map(RouteTarget::of_community).flat_map(|target| {
            let [first, last] = [0, Vni::MAX].map(|vni| Vni::new(vni).expect("24 bits"));
            self.targets.range((target, first)..=(target, last)).map(|(_, vni)| *vni)
        });
        ours.collect()
    }

    fn announce(
        &mut self,
        neighbor: usize,
        route: &Route,
        attributes: &Attributes,
        networks: &[Vni],
    ) -> Result<(), TooManyRoutes> {
        let label = route.label.or(attributes.replication).and_then(Vni::new);
        let vni = label.filter(|vni| networks.contains(vni));
        let kept_out = &mut self.neighbors[neighbor].kept_out;
        let reason = if matches!(route.nlri, Nlri::MacIp { mac, .. } if !mac.is_individual()) {
            Some(&mut kept_out.malformed)
        } else if self.own.is_in(attributes) {
            Some(&mut kept_out.looped)
        } else if attributes.next_hop.is_none() || !attributes.is_vxlan() || label.is_none() {
            Some(&mut kept_out.other_tunnel)
        } else if vni.is_none() {
            Some(&mut kept_out.not_ours)
        } else {
            None
        };
        let (None, Some(vni), Some(vtep)) = (&reason, vni, attributes.next_hop) else {
            if let Some(count) = reason {
                *count += 1;
            }
            // It is in place of an earlier one.
            self.withdraw(neighbor, &route.nlri);
            return Ok(());
        };
        let adj = &mut self.neighbors[neighbor];
        let held = Held { vni, vtep, epoch: adj.epoch };
        let before = adj.routes.insert(route.nlri, held);
        if adj.routes.len() > self.limits.routes_per_neighbor {
            adj.routes.remove(&route.nlri);
            return Err(TooManyRoutes);
        }
        self.place(neighbor, &route.nlri, before, held, attributes.mobility());
        Ok(())
    }

    /// Puts a route where its MAC or network is looked up, in place of an earlier one.
    fn place(
        &mut self,
        neighbor: usize,
        nlri: &Nlri,
        before: Option<Held>,
        held: Held,
        mobility: Mobility,
    ) {
        let Held { vni, vtep, epoch } = held;
        let Nlri::MacIp { rd, tag, mac, ip } = *nlri else {
            if let Some(before) = before {
                self.unplace(neighbor, nlri, before);
            }
            *self.vteps.entry((vni, vtep)).or_default() += 1;
            self.changed_vteps.insert((vni, vtep));
            return;
        };
        if let Some(before) = before.filter(|before| before.vni != vni) {
            self.unplace(neighbor, nlri, before);
        }
        let key = MacKey { vni, mac };
        let path = Path { neighbor, rd, tag, ip, vtep, mobility, epoch };
        let paths = self.macs.entry(key).or_default();
        if let Some(there) = paths.iter_mut().find(|there| there.is(neighbor, nlri)) {
            *there = path;
        } else if paths.len() < self.limits.routes_per_mac {
            paths.push(path);
        } else {
            let adj = &mut self.neighbors[neighbor];
            adj.kept_out.too_many += 1;
            adj.routes.remove(nlri);
            return;
        }
        self.changed_macs.insert(key);
    }

    fn withdraw(&mut self, neighbor: usize, nlri: &Nlri) {
        if let Some(held) = self.neighbors[neighbor].routes.remove(nlri) {
            self.unplace(neighbor, nlri, held);
        }
    }

    fn unplace(&mut self, neighbor: usize, nlri: &Nlri, held: Held) {
        let Held { vni, vtep, .. } = held;
        match *nlri {
            Nlri::MacIp { mac, .. } => {
                let key = MacKey { vni, mac };
                let Some(paths) = self.macs.get_mut(&key) else { return };
                paths.retain(|path| !path.is(neighbor, nlri));
                if paths.is_empty() {
                    self.macs.remove(&key);
                }
                self.changed_macs.insert(key);
            }
            Nlri::Multicast { .. } => {
                let Some(count) = self.vteps.get_mut(&(vni, vtep)) else { return };
                *count -= 1;
                if *count == 0 {
                    self.vteps.remove(&(vni, vtep));
                }
                self.changed_vteps.insert((vni, vtep));
            }
        }
    }

    /// Notes the end of a session: the routes stay, behind those of other neighbors.
    pub(crate) fn down(&mut self, neighbor: usize) {
        self.begin_refresh(neighbor);
        let adj = &mut self.neighbors[neighbor];
        adj.live_from = adj.epoch;
        for (key, paths) in &self.macs {
            if paths.len() > 1 && paths.iter().any(|path| path.neighbor == neighbor) {
                self.changed_macs.insert(*key);
            }
        }
    }

    /// Begins an epoch: routes that are not repeated until its end go then.
    pub(crate) fn begin_refresh(&mut self, neighbor: usize) {
        self.neighbors[neighbor].epoch += 1;
    }

    /// Drops the routes that were not repeated in this epoch.
    pub(crate) fn end_refresh(&mut self, neighbor: usize) {
        let epoch = self.neighbors[neighbor].epoch;
        self.drop_routes(neighbor, |held| held.epoch < epoch);
    }

    /// Drops all routes of a neighbor.
    pub(crate) fn clear(&mut self, neighbor: usize) {
        self.drop_routes(neighbor, |_| true);
    }

    fn drop_routes(&mut self, neighbor: usize, which: impl Fn(&Held) -> bool) {
        let routes = self.neighbors[neighbor].routes.extract_if(.., |_, held| which(held));
        for (nlri, held) in routes.collect::<Vec<_>>() {
            self.unplace(neighbor, &nlri, held);
        }
    }

    /// Returns the VTEP that has a MAC, by the neighbors' word.
    pub(crate) fn best(&self, key: MacKey) -> Option<RemoteMac> {
        let paths = self.macs.get(&key)?;
        let is_live = |path: &Path| path.epoch >= self.neighbors[path.neighbor].live_from;
        let rank = |path: &&Path| {
            let Mobility { is_sticky, sequence } = path.mobility;
            (is_live(path), is_sticky, sequence, Reverse(path.vtep))
        };
        let best = paths.iter().max_by_key(rank)?;
        let same = paths.iter().filter(|path| path.vtep == best.vtep);
        let ips: BTreeSet<IpAddr> = same.filter_map(|path| path.ip).collect();
        Some(RemoteMac { vtep: best.vtep, ips: ips.into_iter().collect(), mobility: best.mobility })
    }

    /// Returns the highest standing of a MAC over all its routes.
    pub(crate) fn mobility_max(&self, key: MacKey) -> Option<Mobility> {
        let paths = self.macs.get(&key)?.iter().map(|path| path.mobility);
        paths.max_by_key(|mobility| (mobility.is_sticky, mobility.sequence))
    }

    /// Returns true if a VTEP takes frames to all of a network.
    pub(crate) fn has_vtep(&self, vni: Vni, vtep: Ipv4Addr) -> bool {
        self.vteps.contains_key(&(vni, vtep))
    }

    /// Takes the next MAC that may be elsewhere now.
    pub(crate) fn changed_mac(&mut self) -> Option<MacKey> {
        self.changed_macs.pop_first()
    }

    /// Notes that a MAC is to be looked at.
    pub(crate) fn touch(&mut self, key: MacKey) {
        self.changed_macs.insert(key);
    }

    /// Notes that everything is to be looked at.
    pub(crate) fn touch_all(&mut self) {
        self.changed_macs.extend(self.macs.keys());
        self.changed_vteps.extend(self.vteps.keys());
    }

    /// Returns the number of MACs.
    pub(crate) fn macs(&self) -> usize {
        self.macs.len()
    }

    /// Takes the next VTEP that may have come to a network or left it.
    pub(crate) fn changed_vtep(&mut self) -> Option<(Vni, Ipv4Addr)> {
        self.changed_vteps.pop_first()
    }

    /// Returns the number of routes of a neighbor.
    pub(crate) fn len(&self, neighbor: usize) -> usize {
        self.neighbors[neighbor].routes.len()
    }

    /// Returns the number of routes of a neighbor that are not in use.
    pub(crate) fn kept_out(&self, neighbor: usize) -> KeptOut {
        self.neighbors[neighbor].kept_out
    }
}

#[cfg(test)]
mod tests;
