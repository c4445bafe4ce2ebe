//! The last hosts of endpoints that no host claims any more.
//!
//! A host withdraws an endpoint whose link goes down, mostly before another host learns it. RFC
//! 7432 clause 15 has the sequence go on, so that a host that has not heard of the withdrawal yet
//! takes the next claim for the later one. Withdrawal and claim are a move in either order.
//!
//! A sequence beyond [`LEAP_MAX`] begins anew: the peers would take the next one for a leap.

use alloc::collections::BTreeMap;

use sluice_base::HostId;

use crate::bridge::LEAP_MAX;
use crate::vport::Key;

/// Last host of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub(super) from: HostId,
    moves: u32,
}

impl Tombstone {
    /// Returns the moves of the next claim, if `owner` makes it.
    pub(super) fn moves_at(self, owner: HostId) -> u32 {
        let moves = self.moves + u32::from(owner != self.from);
        if moves > LEAP_MAX { 0 } else { moves }
    }
}

/// Departed endpoints, up to `max`; beyond, the one that departed first is forgotten.
#[derive(Debug, Default)]
pub(super) struct AllDeparted {
    max: usize,
    by_key: BTreeMap<Key, (Tombstone, u64)>,
    /// Endpoints in the order in which they departed.
    by_age: BTreeMap<u64, Key>,
    next: u64,
}

impl AllDeparted {
    pub(super) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    pub(super) fn get(&self, key: Key) -> Option<Tombstone> {
        self.by_key.get(&key).map(|(departed, _)| *departed)
    }

    pub(super) fn put(&mut self, key: Key, from: HostId, moves: u32) {
        self.take(key);
        if self.by_key.len() == self.max
            && let Some((_, first)) = self.by_age.pop_first()
        {
            self.by_key.remove(&first);
        }
        let departed = Tombstone { from, moves: moves.min(LEAP_MAX) };
        self.by_key.insert(key, (departed, self.next));
        self.by_age.insert(self.next, key);
        self.next += 1;
    }

    pub(super) fn take(&mut self, key: Key) -> Option<Tombstone> {
        let (departed, age) = self.by_key.remove(&key)?;
        self.by_age.remove(&age);
        Some(departed)
    }
}
