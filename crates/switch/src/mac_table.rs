//! A bounded table from (network, MAC) to a number, which evicts the entry that was not used for
//! longest, as far as a clock hand can tell (second chance).
//!
//! Open addressing with linear probing over twice as many places as entries, so that a lookup
//! mostly stays in one cache line. Deletion shifts the following entries back; there are no
//! tombstones and the cost of a lookup does not rise with age.

use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Mac, VnetId};

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Network in the top 16 bits, MAC below; [`EMPTY`] if the place is free.
    key: u64,
    value: u32,
    /// Whether it was looked up since the hand last passed.
    used: u32,
}

/// No network has this number together with the broadcast address as a destination entry.
const EMPTY: u64 = u64::MAX;

/// The table.
#[derive(Debug)]
pub(crate) struct MacTable {
    places: Vec<Entry>,
    mask: usize,
    count: usize,
    limit: usize,
    hand: usize,
    multiplier: u64,
}

/// (network, MAC) as one number.
#[inline]
pub(crate) fn key(vnet: u16, mac: Mac) -> u64 {
    key_of(vnet, mac.to_u64())
}

/// (network, MAC as a number) as one number.
#[inline]
pub(crate) fn key_of(vnet: u16, mac: u64) -> u64 {
    (u64::from(vnet) << 48) | mac
}

fn unkey(key: u64) -> (VnetId, Mac) {
    let vnet = (key >> 48) as u16;
    (VnetId(vnet), Mac::from_u64(key))
}

impl MacTable {
    /// A table for at most `limit` entries. The seed makes collisions hard to provoke.
    pub(crate) fn new(limit: u32, seed: u64) -> Self {
        let limit = (limit as usize).max(1);
        let size = (limit * 2).next_power_of_two();
        Self {
            places: vec![Entry { key: EMPTY, value: 0, used: 0 }; size],
            mask: size - 1,
            count: 0,
            limit,
            hand: 0,
            multiplier: (seed ^ 0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    #[inline]
    fn place_of(&self, key: u64) -> usize {
        // Multiply and fold: the high half depends on every bit of the key.
        let product = u128::from(key ^ (key >> 29)) * u128::from(self.multiplier);
        #[expect(clippy::cast_possible_truncation, reason = "folding keeps 64 of 128 bits")]
        let folded = (product >> 64) as u64 ^ product as u64;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table")]
        let place = folded as usize & self.mask;
        place
    }

    /// The value of an entry, which counts as a use.
    #[inline]
    pub(crate) fn lookup(&mut self, key: u64) -> Option<u32> {
        let mut place = self.place_of(key);
        loop {
            let entry = &mut self.places[place];
            if entry.key == key {
                // Written only when it changes, so that the line stays clean.
                if entry.used == 0 {
                    entry.used = 1;
                }
                return Some(entry.value);
            }
            if entry.key == EMPTY {
                return None;
            }
            place = (place + 1) & self.mask;
        }
    }

    fn find(&self, key: u64) -> Result<usize, usize> {
        let mut place = self.place_of(key);
        loop {
            match self.places[place].key {
                k if k == key => return Ok(place),
                EMPTY => return Err(place),
                _ => place = (place + 1) & self.mask,
            }
        }
    }

    /// Puts an entry in or changes it. Returns the key that was evicted, if one was.
    pub(crate) fn insert(&mut self, key: u64, value: u32) -> Option<u64> {
        if let Ok(place) = self.find(key) {
            self.places[place].value = value;
            return None;
        }
        let evicted = (self.count == self.limit).then(|| self.evict());
        let place = self.find(key).unwrap_or_else(|free| free);
        self.places[place] = Entry { key, value, used: 1 };
        self.count += 1;
        evicted
    }

    fn evict(&mut self) -> u64 {
        loop {
            self.hand = (self.hand + 1) & self.mask;
            let entry = &mut self.places[self.hand];
            if entry.key == EMPTY {
                continue;
            }
            if entry.used == 0 {
                let key = entry.key;
                self.remove(key);
                return key;
            }
            entry.used = 0;
        }
    }

    /// Takes an entry out and returns its value.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut hole = self.find(key).ok()?;
        let value = self.places[hole].value;
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask;
            let entry = self.places[place];
            if entry.key == EMPTY {
                break;
            }
            // An entry may move back only to a place that its own probing passes.
            let home = self.place_of(entry.key);
            let to_hole = hole.wrapping_sub(home) & self.mask;
            let to_place = place.wrapping_sub(home) & self.mask;
            if to_hole <= to_place {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole].key = EMPTY;
        self.count -= 1;
        Some(value)
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (VnetId, Mac, u32)> + '_ {
        self.places.iter().filter(|e| e.key != EMPTY).map(|e| {
            let (vnet, mac) = unkey(e.key);
            (vnet, mac, e.value)
        })
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests;
