//! Index from a hash to the place of its item.
//!
//! The index is cut into segments by high bits of the hash; each is an open-addressing table of its
//! own with linear probing and deletion by shifting back (no tombstones), which doubles when it is
//! three quarters full. So no call rehashes more than one segment. The bits of the hash that a
//! place may need lie beside the number of the item, so that growth and deletion do not touch
//! items.
//!
//! ```text
//!   hash:  | high word: which segment | low word, the tag: first place in the segment |
//! ```

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::arena::NONE;

#[derive(Clone, Copy, Debug)]
struct Place {
    tag: u32,
    /// The item; [`NONE`] if the place is free.
    item: u32,
}

const FREE: Place = Place { tag: 0, item: NONE };

/// Smallest number of places of a segment that has any.
const PLACES_MIN: usize = 8;

#[derive(Debug)]
struct Segment {
    /// No place, or a power of two of them, at least a quarter free.
    places: Box<[Place]>,
    count: usize,
}

/// Items of one segment when the index is full, on average.
const SEGMENT_ITEMS: u32 = 1024;

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    segments: Vec<Segment>,
}

impl Index {
    /// Creates an index whose segments are made for `limit` items; it takes more.
    pub(super) fn new(limit: u32) -> Self {
        let count = (limit / SEGMENT_ITEMS).max(1).next_power_of_two();
        let segments = (0..count).map(|_| Segment { places: Box::default(), count: 0 }).collect();
        Self { segments }
    }

    /// Returns the segment and the tag of a hash.
    #[expect(clippy::cast_possible_truncation, reason = "the two words of a hash")]
    fn split(&self, hash: u64) -> (usize, u32) {
        ((hash >> 32) as usize & (self.segments.len() - 1), hash as u32)
    }

    /// Returns the item with this hash for which `is_it` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (segment, tag) = self.split(hash);
        let segment = &self.segments[segment];
        let at = segment.find(tag, is_it)?;
        Some(segment.places[at].item)
    }

    /// Adds an item that is not in the index.
    pub(super) fn insert(&mut self, hash: u64, item: u32) {
        let (segment, tag) = self.split(hash);
        self.segments[segment].insert(Place { tag, item });
    }

    /// Puts one item into another's place. Panics if the old item is not there.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let (segment, tag) = self.split(hash);
        let segment = &mut self.segments[segment];
        let at = segment.find(tag, |item| item == old).expect("the item is in the index");
        segment.places[at].item = new;
    }

    /// Takes an item out. Panics if it is not there.
    pub(super) fn remove(&mut self, hash: u64, item: u32) {
        let (segment, tag) = self.split(hash);
        self.segments[segment].remove(tag, item);
    }

    /// Number of bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let places: usize = self.segments.iter().map(|segment| segment.places.len()).sum();
        places * size_of::<Place>() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Number of items of the largest segment: the most that one call rehashes.
    #[cfg(test)]
    pub(super) fn segment_items_max(&self) -> usize {
        self.segments.iter().map(|segment| segment.count).max().unwrap_or(0)
    }

    /// Number of items of all segments.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.count).sum()
    }
}

impl Segment {
    const fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = tag as usize & self.mask();
        loop {
            let place = self.places[at];
            if place.item == NONE {
                return None;
            }
            if place.tag == tag && is_it(place.item) {
                return Some(at);
            }
            at = (at + 1) & self.mask();
        }
    }

    fn insert(&mut self, place: Place) {
        if (self.count + 1) * 4 > self.places.len() * 3 {
            let size = (self.places.len() * 2).max(PLACES_MIN);
            let old = core::mem::replace(&mut self.places, vec![FREE; size].into_boxed_slice());
            for place in old.into_iter().filter(|place| place.item != NONE) {
                self.put(place);
            }
        }
        self.put(place);
        self.count += 1;
    }

    fn put(&mut self, place: Place) {
        let mut at = place.tag as usize & self.mask();
        while self.places[at].item != NONE {
            at = (at + 1) & self.mask();
        }
        self.places[at] = place;
    }

    fn remove(&mut self, tag: u32, item: u32) {
        let mut hole = self.find(tag, |found| found == item).expect("the item is in the index");
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask();
            let place = self.places[at];
            if place.item == NONE {
                break;
            }
            // A place may move back only to a place that its own probing passes.
            let bucket = place.tag as usize & self.mask();
            let to_hole = hole.wrapping_sub(bucket) & self.mask();
            let to_place = at.wrapping_sub(bucket) & self.mask();
            if to_hole <= to_place {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = FREE;
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests;
