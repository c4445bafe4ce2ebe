//! Endpoints of hosts that do not speak the protocol.
//!
//! No host publishes them: each member learns them for itself from the frames of their hosts, and
//! forgets them when no frame has been punted for the life of a learned endpoint. Frames to an
//! endpoint do not prolong its life. A MAC is at one foreign host at a time: the last one.

use alloc::collections::BTreeMap;

use sluice_base::{HostId, Nanos, PortId, Vni};

use super::Plane;
use super::agenda::Agenda;
use super::surface::{Event, Full};
use crate::frame::Frame;
use crate::learn;
use crate::mobility::Why;
use crate::vport::{Claim, Ips, Key, Origin};

/// Foreign endpoints, with their hosts and ages.
#[derive(Debug)]
pub(super) struct Foreign {
    owners: BTreeMap<Key, HostId>,
    ages: Agenda<Key>,
    max: usize,
    life: Nanos,
}

impl Foreign {
    pub(super) const fn new(max: usize, life: Nanos) -> Self {
        Self { owners: BTreeMap::new(), ages: Agenda::new(), max, life }
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.ages.deadline()
    }

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

    pub(super) fn forget(&mut self, key: Key, host: HostId) {
        if self.owners.get(&key) == Some(&host) {
            self.owners.remove(&key);
            self.ages.remove(key);
        }
    }
}

impl Plane {
    /// Learns from a frame that a foreign host sent.
    pub(super) fn learn_foreign(&mut self, now: Nanos, host: HostId, vni: Vni, frame: &Frame<'_>) {
        let key = Key { vni, mac: frame.src };
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

    fn drop_claim(&mut self, now: Nanos, owner: HostId, key: Key, why: Why) {
        let change = self.table.withdraw(now, owner, key);
        self.follow(now, &change, why);
    }
}
