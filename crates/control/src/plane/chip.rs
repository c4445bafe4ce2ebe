//! What is in the chip, as far as this host put it there.
//!
//! The chip is a cache of the vport table: an endpoint comes in when a frame needs it, follows the
//! table while it is there, and goes when it was not used for its life or when there are more
//! remote ones than may be. The switch may evict on its own; what it evicted misses again.

use alloc::collections::BTreeMap;

use sluice_base::Nanos;

use super::surface::Way;
use crate::vport::Key;

#[derive(Clone, Copy, Debug)]
struct Entry {
    way: Way,
    /// When it was used last, and a number that tells equal times apart.
    used: (Nanos, u64),
}

/// What is installed.
#[derive(Debug)]
pub(super) struct Chip {
    entries: BTreeMap<Key, Entry>,
    /// By last use; remote endpoints and local ones apart, for only the former are bounded by
    /// flows.
    remote: BTreeMap<(Nanos, u64), Key>,
    local: BTreeMap<(Nanos, u64), Key>,
    next: u64,
    remote_max: usize,
    local_max: usize,
    life: Nanos,
}

impl Chip {
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

    const fn order(&mut self, way: Way) -> &mut BTreeMap<(Nanos, u64), Key> {
        match way {
            Way::Port(_) => &mut self.local,
            Way::Host(_) => &mut self.remote,
        }
    }

    pub(super) fn way(&self, key: Key) -> Option<Way> {
        self.entries.get(&key).map(|entry| entry.way)
    }

    pub(super) fn used_at(&self, key: Key) -> Option<Nanos> {
        self.entries.get(&key).map(|entry| entry.used.0)
    }

    /// Who has to go before another one can come in: the one that was not used for longest.
    pub(super) fn in_the_way(&self, way: Way) -> Option<Key> {
        let (order, most) = match way {
            Way::Port(_) => (&self.local, self.local_max),
            Way::Host(_) => (&self.remote, self.remote_max),
        };
        let first = order.first_key_value().map(|(_, key)| *key);
        first.filter(|_| order.len() >= most)
    }

    /// Puts an endpoint in, or to another place; it counts as used.
    pub(super) fn put(&mut self, now: Nanos, key: Key, way: Way) {
        self.remove(key);
        let used = (now, self.next);
        self.next += 1;
        self.entries.insert(key, Entry { way, used });
        self.order(way).insert(used, key);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Way> {
        let Entry { way, used } = self.entries.remove(&key)?;
        self.order(way).remove(&used);
        Some(way)
    }

    /// An endpoint was used. False if it is not in the chip.
    pub(super) fn touch(&mut self, now: Nanos, key: Key) -> bool {
        let way = self.way(key);
        if let Some(way) = way {
            self.put(now, key, way);
        }
        way.is_some()
    }

    /// An endpoint whose life is over.
    pub(super) fn expired(&self, now: Nanos) -> Option<Key> {
        let firsts = [self.remote.first_key_value(), self.local.first_key_value()];
        let over = |((used, _), _): &(&(Nanos, u64), &Key)| used.after(self.life) <= now;
        firsts.into_iter().flatten().find(over).map(|(_, key)| *key)
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        let firsts = [self.remote.first_key_value(), self.local.first_key_value()];
        firsts.into_iter().flatten().map(|((used, _), _)| used.after(self.life)).min()
    }

    /// Everything, in order, from a key on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Way, Nanos)> + '_ {
        self.entries.iter().map(|(key, entry)| (*key, entry.way, entry.used.0))
    }

    pub(super) fn flow_count(&self) -> usize {
        self.remote.len()
    }
}
