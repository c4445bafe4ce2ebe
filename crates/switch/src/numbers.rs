//! A small fixed table from numbers of 32 bits to indices: tunnels by the address of their far end,
//! networks by their VNI. Every frame from the underlay looks up both.
//!
//! Open addressing with linear probing over twice as many places as entries. The table is filled
//! when the switch is made and never changes.

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
    /// Returns a table of these entries. Of equal keys the first one counts.
    pub(crate) fn new(entries: impl Iterator<Item = (u32, u16)> + Clone) -> Self {
        let size = (entries.clone().count() * 2).next_power_of_two().max(2);
        let mut table = Self { places: vec![0; size].into() };
        for (key, index) in entries {
            let mut place = table.place_of(key);
            while table.places[place] != 0 {
                place = (place + 1) & table.mask();
            }
            table.places[place] = u64::from(key) << KEY_SHIFT | TAKEN | u64::from(index);
        }
        table
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
