//! A small fixed table from numbers of 32 bits to indices: tunnels by the address of their far end,
//! networks by their VNI. Every frame from the underlay looks up both.
//!
//! Open addressing with linear probing over twice as many places as entries. Removal shifts the
//! following entries back, so that a lookup costs the same however often networks come and go.

use alloc::boxed::Box;
use alloc::vec;

/// The table.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Key above, index below, and a bit between them that is set if the place is taken.
    places: Box<[u64]>,
}

const KEY_SHIFT: u32 = 32;
const TAKEN: u64 = 1 << 16;

impl Numbers {
    /// Returns a table with room for so many entries.
    pub(crate) fn new(entries: usize) -> Self {
        Self { places: vec![0; (entries * 2).next_power_of_two().max(2)].into() }
    }

    /// Adds an entry. Of equal keys the first one counts.
    pub(crate) fn insert(&mut self, key: u32, index: u16) {
        let mut place = self.place_of(key);
        while self.places[place] != 0 {
            place = (place + 1) & self.mask();
        }
        self.places[place] = u64::from(key) << KEY_SHIFT | TAKEN | u64::from(index);
    }

    /// Removes an entry, if it is there.
    pub(crate) fn remove(&mut self, key: u32) {
        let mut hole = self.place_of(key);
        while self.places[hole] >> KEY_SHIFT != u64::from(key) || self.places[hole] == 0 {
            if self.places[hole] == 0 {
                return;
            }
            hole = (hole + 1) & self.mask();
        }
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask();
            let entry = self.places[place];
            if entry == 0 {
                break;
            }
            // An entry may move back only to a place that its own probing passes.
            let home = self.place_of((entry >> KEY_SHIFT) as u32);
            if (hole.wrapping_sub(home) & self.mask()) <= (place.wrapping_sub(home) & self.mask()) {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole] = 0;
    }

    /// Returns the mask of a place: the number of places is a power of two.
    #[inline]
    const fn mask(&self) -> usize {
        self.places.len() - 1
    }

    #[inline]
    fn place_of(&self, key: u32) -> usize {
        // The upper half of the product depends on every bit of the key.
        let product = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (product >> KEY_SHIFT) as usize & self.mask()
    }

    /// Returns the index of a key.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<u16> {
        let mut place = self.place_of(key);
        loop {
            let entry = self.places[place];
            if entry >> KEY_SHIFT == u64::from(key) && entry != 0 {
                return Some((entry & 0xffff) as u16);
            }
            if entry == 0 {
                return None;
            }
            place = (place + 1) & self.mask();
        }
    }
}

#[cfg(test)]
mod tests;
