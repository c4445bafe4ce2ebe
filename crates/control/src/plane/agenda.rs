//! Keys with a time each, found by key and by time.

use alloc::collections::{BTreeMap, BTreeSet};

use sluice_base::Nanos;

/// Keys with their times. Each key has one time; equal times go by key.
#[derive(Debug)]
pub(super) struct Agenda<K> {
    by_key: BTreeMap<K, Nanos>,
    by_time: BTreeSet<(Nanos, K)>,
}

impl<K: Ord + Copy> Agenda<K> {
    pub(super) const fn new() -> Self {
        Self { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Sets the time of a key, and returns its time before.
    pub(super) fn set(&mut self, key: K, at: Nanos) -> Option<Nanos> {
        let before = self.by_key.insert(key, at);
        if before != Some(at) {
            if let Some(before) = before {
                self.by_time.remove(&(before, key));
            }
            self.by_time.insert((at, key));
        }
        before
    }

    /// Sets the time of a key, or removes the key.
    pub(super) fn put(&mut self, key: K, at: Option<Nanos>) {
        match at {
            Some(at) => _ = self.set(key, at),
            None => _ = self.remove(key),
        }
    }

    /// Removes a key. False if it is not there.
    pub(super) fn remove(&mut self, key: K) -> bool {
        let at = self.by_key.remove(&key);
        at.is_some_and(|at| self.by_time.remove(&(at, key)))
    }

    pub(super) fn clear(&mut self) {
        self.by_key.clear();
        self.by_time.clear();
    }

    /// Returns the first key whose time has come.
    pub(super) fn due(&self, now: Nanos) -> Option<K> {
        let (at, key) = self.by_time.first()?;
        (*at <= now).then_some(*key)
    }

    /// Returns the first key, whenever its time is.
    pub(super) fn first(&self) -> Option<K> {
        self.by_time.first().map(|(_, key)| *key)
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn contains(&self, key: K) -> bool {
        self.by_key.contains_key(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Iterates in the order of keys, from one on.
    pub(super) fn from(&self, key: K) -> impl Iterator<Item = (K, Nanos)> + '_ {
        self.by_key.range(key..).map(|(key, at)| (*key, *at))
    }
}
