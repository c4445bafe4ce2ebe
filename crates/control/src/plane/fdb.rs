//! Model of the switch's forwarding table (FDB), as far as this host filled it.
//!
//! The forwarding table is a cache of the vport table: an endpoint comes in when a frame needs it,
//! follows the vport table while it is there, and goes when it was not used for its life or when
//! there are more remote endpoints than may be. The switch may evict on its own; an evicted
//! endpoint misses again.

use alloc::collections::BTreeMap;

use sluice_base::Nanos;

use super::surface::Location;
use crate::vport::Key;

#[derive(Clone, Copy, Debug)]
struct Entry {
    way: Location,
    /// Time of the last use, and a number that tells equal times apart.
    used: (Nanos, u64),
}

/// Endpoints that are installed.
#[derive(Debug)]
pub(super) struct Fdb {
    entries: BTreeMap<Key, Entry>,
    /// Endpoints by last use; remote and local ones apart, because only remote ones are bounded by
    /// flows.
    remote: BTreeMap<(Nanos, u64), Key>,
    local: BTreeMap<(Nanos, u64), Key>,
    next: u64,
    remote_max: usize,
    local_max: usize,
    life: Nanos,
}

impl Fdb {
    pub(super) fn new(remote_max: usize, local_max: usize, life: Nanos) -> Self {
        assert!(remote_max > 0 && local_max > 0, "something may be installed");
        Self {
            entries: BTreeMap::new(),
            remote: BTreeMap::new(),
            local: BTreeMap::new(),
            next: 0,
            remote_max,
            local_max,
            life,
        }
    }

    const fn order(&mut self, location: Location) -> &mut BTreeMap<(Nanos, u64), Key> {
        match location {
            Location::Port(_) => &mut self.local,
            Location::Host(_) => &mut self.remote,
        }
    }

    pub(super) fn way(&self, key: Key) -> Option<Location> {
        self.entries.get(&key).map(|entry| entry.way)
    }

    pub(super) fn used_at(&self, key: Key) -> Option<Nanos> {
        self.entries.get(&key).map(|entry| entry.used.0)
    }

    /// Returns the endpoint that has to go before another one can come in: the least recently used
    /// one.
    pub(super) fn in_the_way(&self, location: Location) -> Option<Key> {
        let (order, most) = match location {
            Location::Port(_) => (&self.local, self.local_max),
            Location::Host(_) => (&self.remote, self.remote_max),
        };
        let first = order.first_key_value().map(|(_, key)| *key);
        first.filter(|_| order.len() >= most)
    }

    /// Installs an endpoint, or moves it; it counts as used.
    pub(super) fn put(&mut self, now: Nanos, key: Key, location: Location) {
        self.remove(key);
        let used = (now, self.next);
        self.next += 1;
        self.entries.insert(key, Entry { way: location, used });
        self.order(location).insert(used, key);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Location> {
        let Entry { way: location, used } = self.entries.remove(&key)?;
        self.order(location).remove(&used);
        Some(location)
    }

    /// Notes that an endpoint was used. False if it is not installed.
    pub(super) fn touch(&mut self, now: Nanos, key: Key) -> bool {
        let location = self.way(key);
        if let Some(location) = location {
            self.put(now, key, location);
        }
        location.is_some()
    }

    /// Returns an endpoint whose life is over.
    pub(super) fn expired(&self, now: Nanos) -> Option<Key> {
        let firsts = [self.remote.first_key_value(), self.local.first_key_value()];
        let over = |((used, _), _): &(&(Nanos, u64), &Key)| used.after(self.life) <= now;
        firsts.into_iter().flatten().find(over).map(|(_, key)| *key)
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        let firsts = [self.remote.first_key_value(), self.local.first_key_value()];
        firsts.into_iter().flatten().map(|((used, _), _)| used.after(self.life)).min()
    }

    /// Iterates over all endpoints in order, each with its location and its last use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Location, Nanos)> + '_ {
        self.entries.iter().map(|(key, entry)| (*key, entry.way, entry.used.0))
    }

    pub(super) fn flow_count(&self) -> usize {
        self.remote.len()
    }
}
