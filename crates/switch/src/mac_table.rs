//! Forwarding table (FDB): a bounded table from (network, MAC) to a number. It evicts the least
//! recently used entry, approximated by a clock hand (second chance).
//!
//! Open addressing with linear probing over twice as many places as entries, so that a lookup
//! mostly stays in one cache line. Deletion shifts the following entries back; there are no
//! tombstones and the cost of a lookup does not rise with age.
//!
//! Some entries are *flows*, which have a limit of their own beside that of all entries. A new flow
//! that finds no room evicts a flow; any other entry evicts any entry. So a change of flows never
//! evicts a local address. Each of the two evictions has its own hand.
//!
//! An entry has three marks of use, each with its own reader: one for the hands, and two for
//! [`MacTable::walk_used`], for a use as destination and as source. So one reader does not disturb
//! the other.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Mac, VnetId};

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Network in the top 16 bits, MAC below; [`EMPTY`] if the place is free.
    key: u64,
    value: u32,
    /// [`SINCE_HAND`] and [`SINCE_WALK`].
    used: u8,
    /// True if it was seen as a source since the walk last passed.
    met: bool,
    flow: bool,
}

/// Mark: the entry was looked up since a hand last passed.
const SINCE_HAND: u8 = 1;
/// Mark: the entry was looked up as a destination since the walk last passed.
const SINCE_WALK: u8 = 2;
/// Marks that a lookup sets.
const USED: u8 = SINCE_HAND | SINCE_WALK;

/// Key of a free place: no network has this number together with an entry for the broadcast
/// address.
const EMPTY: u64 = u64::MAX;

const FREE: Entry = Entry { key: EMPTY, value: 0, used: 0, met: false, flow: false };

/// The table. The fields that a lookup reads come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct MacTable {
    places: Box<[Entry]>,
    multiplier: u64,
    count: usize,
    limit: usize,
    flows: usize,
    flows_max: usize,
    hand: usize,
    flow_hand: usize,
    /// Place at which [`Self::walk_used`] continues.
    walk: usize,
    /// Evicted entries: others, and flows.
    evicted: [u64; 2],
}

/// Use of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// A frame went to it.
    pub as_destination: bool,
    /// A frame from it came in at a port, or through a foreign tunnel, whose sources are checked.
    pub as_source: bool,
}

/// Values that an insertion replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// The value that the entry had before.
    pub(crate) before: Option<u32>,
    /// Another entry that was evicted, with its value.
    pub(crate) evicted: Option<(u64, u32)>,
}

/// Returns (network, MAC) as one number.
#[inline]
pub(crate) fn key(vnet: u16, mac: Mac) -> u64 {
    key_of(vnet, mac.to_u64())
}

/// Returns (network, MAC as a number) as one number.
#[inline]
pub(crate) fn key_of(vnet: u16, mac: u64) -> u64 {
    (u64::from(vnet) << 48) | mac
}

pub(crate) fn unkey(key: u64) -> (VnetId, Mac) {
    let vnet = (key >> 48) as u16;
    (VnetId(vnet), Mac::from_u64(key))
}

impl MacTable {
    /// Returns a table for at most `limit` entries, of which `flows` may be flows. The seed makes
    /// collisions hard to provoke.
    pub(crate) fn new(limit: u32, flows: u32, seed: u64) -> Self {
        let limit = (limit as usize).max(1);
        let size = (limit * 2).next_power_of_two();
        Self {
            places: vec![FREE; size].into(),
            count: 0,
            limit,
            flows: 0,
            flows_max: (flows as usize).max(1),
            hand: 0,
            flow_hand: 0,
            walk: 0,
            evicted: [0; 2],
            multiplier: (seed ^ 0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Returns the mask of a place: the number of places is a power of two.
    #[inline]
    const fn mask(&self) -> usize {
        self.places.len() - 1
    }

    #[inline]
    fn place_of(&self, key: u64) -> usize {
        // Multiplies and folds: the high half depends on every bit of the key.
        let product = u128::from(key ^ (key >> 29)) * u128::from(self.multiplier);
        #[expect(clippy::cast_possible_truncation, reason = "folding keeps 64 of 128 bits")]
        let folded = (product >> 64) as u64 ^ product as u64;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table")]
        let place = folded as usize & self.mask();
        place
    }

    /// Returns the value of an entry, which counts as a use.
    #[inline]
    pub(crate) fn lookup(&mut self, key: u64) -> Option<u32> {
        let mut place = self.place_of(key);
        loop {
            let entry = &mut self.places[place];
            if entry.key == key {
                // Written only if it changes, so that the cache line stays clean.
                if entry.used != USED {
                    entry.used = USED;
                }
                return Some(entry.value);
            }
            if entry.key == EMPTY {
                return None;
            }
            place = (place + 1) & self.mask();
        }
    }

    /// Returns the value of an entry, for inspection: it does not count as a use.
    pub(crate) fn peek(&self, key: u64) -> Option<u32> {
        self.find(key).ok().map(|place| self.places[place].value)
    }

    fn find(&self, key: u64) -> Result<usize, usize> {
        let mut place = self.place_of(key);
        loop {
            match self.places[place].key {
                k if k == key => return Ok(place),
                EMPTY => return Err(place),
                _ => place = (place + 1) & self.mask(),
            }
        }
    }

    /// Returns the value of a source's entry, which counts as a use as source.
    pub(crate) fn meet(&mut self, key: u64) -> Option<u32> {
        let place = self.find(key).ok()?;
        let entry = &mut self.places[place];
        entry.met = true;
        entry.used |= SINCE_HAND;
        Some(entry.value)
    }

    /// Adds an entry or changes it.
    pub(crate) fn insert(&mut self, key: u64, value: u32, flow: bool) -> Inserted {
        let old = self.find(key).ok().map(|place| self.places[place]);
        let is_new_flow = flow && !old.is_some_and(|old| old.flow);
        let evicted = if is_new_flow && self.flows == self.flows_max {
            Some(self.evict_flow())
        } else if old.is_none() && self.count == self.limit {
            // Another entry is evicted for a flow only if there is no flow at all.
            Some(if flow && self.flows > 0 { self.evict_flow() } else { self.evict() })
        } else {
            None
        };
        // The eviction may have moved the entry.
        let place = self.find(key).unwrap_or_else(|free| free);
        self.flows -= usize::from(old.is_some_and(|old| old.flow));
        self.flows += usize::from(flow);
        self.count += usize::from(old.is_none());
        self.places[place] = match old {
            Some(old) => Entry { value, flow, ..old },
            None => Entry { key, value, flow, used: SINCE_HAND, met: false },
        };
        Inserted { before: old.map(|old| old.value), evicted }
    }

    /// Evicts the entry that was not used for longest.
    fn evict(&mut self) -> (u64, u32) {
        loop {
            self.hand = (self.hand + 1) & self.mask();
            if let Some(out) = self.pass(self.hand) {
                return out;
            }
        }
    }

    /// Evicts the flow that was not used for longest. There must be one.
    fn evict_flow(&mut self) -> (u64, u32) {
        loop {
            self.flow_hand = (self.flow_hand + 1) & self.mask();
            if !self.places[self.flow_hand].flow {
                continue;
            }
            if let Some(out) = self.pass(self.flow_hand) {
                return out;
            }
        }
    }

    /// Moves a hand over a place: its entry loses its mark, or is evicted if it has none.
    fn pass(&mut self, place: usize) -> Option<(u64, u32)> {
        let entry = &mut self.places[place];
        if entry.key == EMPTY {
            return None;
        }
        if entry.used & SINCE_HAND != 0 {
            entry.used &= !SINCE_HAND;
            return None;
        }
        let Entry { key, value, flow, .. } = *entry;
        self.evicted[usize::from(flow)] += 1;
        self.remove(key);
        Some((key, value))
    }

    /// Walks the next `places` places, at most all, and passes `each` the key, value and use of
    /// every entry there that was used since the walk last passed it. Returns true at the end of
    /// the table; the next call starts again. An entry that moves while others are removed is
    /// reported later.
    pub(crate) fn walk_used(&mut self, places: u32, mut each: impl FnMut(u64, u32, Used)) -> bool {
        for _ in 0..(places as usize).min(self.places.len()) {
            let entry = &mut self.places[self.walk];
            let used = Used { as_destination: entry.used & SINCE_WALK != 0, as_source: entry.met };
            if entry.key != EMPTY && used != Used::default() {
                entry.used &= !SINCE_WALK;
                entry.met = false;
                each(entry.key, entry.value, used);
            }
            self.walk = (self.walk + 1) & self.mask();
            if self.walk == 0 {
                return true;
            }
        }
        false
    }

    /// Removes an entry and returns its value.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut hole = self.find(key).ok()?;
        let Entry { value, flow, .. } = self.places[hole];
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask();
            let entry = self.places[place];
            if entry.key == EMPTY {
                break;
            }
            // An entry may move back only to a place that its own probing passes.
            let home = self.place_of(entry.key);
            let to_hole = hole.wrapping_sub(home) & self.mask();
            let to_place = place.wrapping_sub(home) & self.mask();
            if to_hole <= to_place {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole] = FREE;
        self.count -= 1;
        self.flows -= usize::from(flow);
        Some(value)
    }

    /// Removes every entry whose key and value `goes` selects. Walks the whole table.
    pub(crate) fn remove_where(&mut self, mut goes: impl FnMut(u64, u32) -> bool) {
        let mut place = 0;
        while let Some(&Entry { key, value, .. }) = self.places.get(place) {
            if key != EMPTY && goes(key, value) {
                // The entry that moves into the hole is checked next.
                self.remove(key);
            } else {
                place += 1;
            }
        }
    }

    /// Returns all entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VnetId, Mac, u32)> + '_ {
        self.places.iter().filter(|e| e.key != EMPTY).map(|e| {
            let (vnet, mac) = unkey(e.key);
            (vnet, mac, e.value)
        })
    }

    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of flows.
    pub(crate) const fn flows(&self) -> usize {
        self.flows
    }

    /// Returns the limits of entries and of flows.
    pub(crate) const fn limits(&self) -> (usize, usize) {
        (self.limit, self.flows_max)
    }

    /// Returns the number of evicted entries: others, and flows.
    pub(crate) const fn evicted(&self) -> [u64; 2] {
        self.evicted
    }
}

#[cfg(test)]
mod tests;
