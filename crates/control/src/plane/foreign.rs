//! Endpoints of hosts that do not speak the protocol.
//!
//! No host publishes them: each member knows them for itself.
//!
//! - **Learned** from frames of its host; forgotten when no frame has been punted for the life of a
//!   learned endpoint.
//! - **Told** by another protocol, EVPN; forgotten when that says so.
//!
//! Frames to an endpoint do not prolong its life. Of either kind, a MAC is at one foreign host at a
//! time: the last one. If it is there by both, the order of claims decides, and a learned one that
//! goes leaves the told one. Frames of a host teach nothing in a network for which it is told.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, PortId, Vni};

use super::Plane;
use super::agenda::Agenda;
use super::surface::{Event, Full, Kind};
use crate::frame::Frame;
use crate::learn;
use crate::mobility::Why;
use crate::vport::{Claim, Ips, Key, Origin};

/// Place of an endpoint at a foreign host, as another protocol tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The host.
    pub host: HostId,
    /// Its known addresses.
    pub ips: Ips,
    /// [`Origin::Sticky`] if it is to stay there, otherwise [`Origin::Learned`].
    pub origin: Origin,
    /// Number of its moves.
    pub moves: u32,
}

/// Foreign endpoints, with their hosts and ages.
#[derive(Debug)]
pub(super) struct Foreign {
    /// Learned endpoints.
    owners: BTreeMap<Key, HostId>,
    ages: Agenda<Key>,
    max: usize,
    life: Nanos,
    /// Endpoints that were told.
    told: BTreeMap<Key, HostId>,
    told_max: usize,
    /// Networks of hosts whose endpoints are told.
    told_of: BTreeSet<(HostId, Vni)>,
}

impl Foreign {
    /// At most `max` endpoints are learned, and `told_max` are told.
    pub(super) const fn new(max: usize, told_max: usize, life: Nanos) -> Self {
        Self {
            owners: BTreeMap::new(),
            ages: Agenda::new(),
            max,
            life,
            told: BTreeMap::new(),
            told_max,
            told_of: BTreeSet::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.ages.deadline()
    }

    /// Number of learned endpoints.
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    fn due(&self, now: Nanos) -> Option<(Key, HostId)> {
        self.ages.due(now).map(|key| (key, self.owners[&key]))
    }

    /// Returns the endpoint that has to go before another one can come in.
    fn in_the_way(&self, key: Key) -> Option<(Key, HostId)> {
        let full = self.owners.len() >= self.max && !self.owners.contains_key(&key);
        let first = self.ages.first().filter(|_| full)?;
        Some((first, self.owners[&first]))
    }

    /// Forgets a learned endpoint, if this host has it.
    fn forget(&mut self, key: Key, host: HostId) {
        if self.owners.get(&key) == Some(&host) {
            self.owners.remove(&key);
            self.ages.remove(key);
        }
    }

    /// Forgets an endpoint of a host, learned or told.
    pub(super) fn lost(&mut self, key: Key, host: HostId) {
        self.forget(key, host);
        if self.told.get(&key) == Some(&host) {
            self.told.remove(&key);
        }
    }

    /// Notes that a host is removed.
    pub(super) fn host_gone(&mut self, host: HostId) {
        self.told_of.retain(|(there, _)| *there != host);
    }
}

impl Plane {
    /// Learns from a frame that a foreign host sent.
    pub(super) fn learn_foreign(&mut self, now: Nanos, host: HostId, vni: Vni, frame: &Frame<'_>) {
        if self.foreign.told_of.contains(&(host, vni)) {
            return;
        }
        let key = Key { vni, mac: frame.src };
        if self.foreign.told.get(&key) == Some(&host) {
            // Two kinds of knowledge of one host would be one claim.
            return;
        }
        let Ok(ip) = learn::taught(frame) else { return };
        let there = self.table.claims(key).find(|vport| vport.owner == host);
        let mut ips: Ips = there.map_or(Ips::default(), |vport| vport.claim.ips);
        if let Some(ip) = ip
            && ips.insert(ip).is_err()
        {
            // The address in use is worth more than former ones.
            ips = [ip].into_iter().collect::<Ips>();
        }
        let claim = Claim { key, port: PortId(0), ips, origin: Origin::Learned, moves: 0 };
        let learned = match self.mobility.learn(now, &self.table, host, &claim) {
            Ok(claim) => self.with_sequences(&claim, learn::announced(frame)),
            Err(why) => return self.held(PortId(0), key, why),
        };
        self.make_room(now, key);
        let before = self.foreign.owners.insert(key, host);
        self.foreign.ages.set(key, now.after(self.foreign.life));
        if let Some(before) = before.filter(|before| *before != host) {
            self.drop_claim(now, before, key, Why::Withdrawn);
        }
        match self.table.claim(now, host, &learned) {
            Ok(change) => self.follow(now, &change, Why::Announced),
            Err(_full) => {
                self.foreign.forget(key, host);
                self.claims_full();
            }
        }
    }

    fn make_room(&mut self, now: Nanos, key: Key) {
        if let Some((first, owner)) = self.foreign.in_the_way(key) {
            self.outbox.counts.foreign_evicted += 1;
            self.outbox.event(Event::Full(Full::Foreign));
            self.drop_claim(now, owner, first, Why::Withdrawn);
            self.foreign.forget(first, owner);
        }
    }

    /// Forgets endpoints whose life is over.
    pub(super) fn age_foreign(&mut self, now: Nanos) {
        while let Some((key, owner)) = self.foreign.due(now) {
            self.drop_claim(now, owner, key, Why::Withdrawn);
            self.foreign.forget(key, owner);
        }
    }

    /// Notes that another protocol tells all endpoints of a foreign host in a network from now on,
    /// or does not any more. Those that its frames have taught are forgotten.
    pub fn set_told(&mut self, now: Nanos, host: HostId, vni: Vni, is_told: bool) {
        let now = self.clock.at(now);
        if !is_told {
            self.foreign.told_of.remove(&(host, vni));
        } else if self.is_foreign(host) && self.foreign.told_of.insert((host, vni)) {
            let learned = self.foreign.owners.iter();
            let learned = learned.filter(|(key, owner)| key.vni == vni && **owner == host);
            for key in learned.map(|(key, _)| *key).collect::<Vec<_>>() {
                self.drop_claim(now, host, key, Why::Withdrawn);
                self.foreign.forget(key, host);
            }
        }
    }

    fn is_foreign(&self, host: HostId) -> bool {
        self.peers.get(host).is_some_and(|peer| peer.kind == Kind::Foreign)
    }

    /// Takes over the place of an endpoint, as another protocol tells it; `None`: it is at no
    /// foreign host. A place at a host that is not foreign is none.
    pub fn place_foreign(&mut self, now: Nanos, key: Key, place: Option<Told>) {
        let now = self.clock.at(now);
        let mut place = place.filter(|told| self.is_foreign(told.host));
        let before = self.foreign.told.get(&key).copied();
        let is_new = |host| before != Some(host);
        if place.is_some_and(|to| is_new(to.host) && !self.may_have(to.host, before.is_none())) {
            place = None;
            self.claims_full();
        }
        if let Some(Told { host, ips, origin, moves }) = place {
            let claim = Claim { key, port: PortId(0), ips, origin, moves };
            match self.table.claim(now, host, &claim) {
                Ok(change) => {
                    self.foreign.forget(key, host);
                    self.foreign.told.insert(key, host);
                    self.follow(now, &change, Why::Announced);
                }
                Err(_full) => {
                    place = None;
                    self.claims_full();
                }
            }
        }
        let after = place.map(|told| told.host);
        if let Some(before) = before.filter(|before| Some(*before) != after) {
            if after.is_none() {
                self.foreign.told.remove(&key);
            }
            self.drop_claim(now, before, key, Why::Withdrawn);
        }
    }

    /// Returns true if a host may have one more endpoint, which is one more in all or not: no host,
    /// and not all together, may leave no room for those of this one.
    fn may_have(&self, host: HostId, is_more: bool) -> bool {
        let has_room = !is_more || self.foreign.told.len() < self.foreign.told_max;
        has_room && self.table.digest(host).count < u64::from(self.claims_per_host)
    }

    /// Withdraws the own claim for an endpoint that the other protocol has given to another host,
    /// unless it has more than so many moves: a later claim is about to be told there. False if it
    /// is bound, and stays.
    pub fn give_up(&mut self, now: Nanos, key: Key, moves: u32) -> bool {
        let now = self.clock.at(now);
        let Some(own) = self.own_claim(key) else { return true };
        if own.origin != Origin::Bound && own.moves <= moves {
            self.yield_claim(now, key);
        }
        own.origin != Origin::Bound
    }

    /// Forgets all that another protocol has told.
    pub fn forget_told(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        self.foreign.told_of.clear();
        for (key, host) in core::mem::take(&mut self.foreign.told) {
            self.drop_claim(now, host, key, Why::Withdrawn);
        }
    }

    fn drop_claim(&mut self, now: Nanos, owner: HostId, key: Key, why: Why) {
        let change = self.table.withdraw(now, owner, key);
        self.follow(now, &change, why);
    }
}

#[cfg(test)]
mod tests;
