//! The endpoints that a host has learned: a slab of fixed size, an index by key and two orders.
//!
//! Every entry stands in up to two lists. The list of all entries is sorted by the time they were
//! last seen, so that entries which are too old are at its front. The list of a port lets all its
//! entries go at once. Lists are links inside of the entries; nothing is allocated after the start.
//!
//! The index is open addressing with linear probing over twice as many places as entries. Removal
//! of an entry moves the entries behind it back, so that a search ends at the first free place.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Mac, Nanos, PortId, Vni};

use crate::hash::Hasher;
use crate::vport::{Ips, Key};

/// No entry.
pub(super) const NIL: u32 = u32::MAX;

/// The two lists of an entry.
#[derive(Clone, Copy)]
pub(super) enum By {
    Age = 0,
    Port = 1,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

const UNLINKED: [Link; 2] = [Link { before: NIL, behind: NIL }; 2];

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NIL, last: NIL };
}

/// A learned endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) port: PortId,
    /// The epoch of its port to which the entry belongs.
    pub(super) epoch: u32,
    pub(super) ips: Ips,
    pub(super) seen: Nanos,
    /// Time at which the endpoint was asked for its addresses, if it was silent since.
    pub(super) asked: Option<Nanos>,
    /// True if the entry stays for good, and so has no age.
    pub(super) sticky: bool,
    links: [Link; 2],
}

/// The slab and its index.
#[derive(Debug)]
pub(super) struct Entries {
    slab: Vec<Entry>,
    free: Vec<u32>,
    limit: usize,
    places: Box<[u32]>,
    hasher: Hasher,
}

impl Entries {
    /// Creates a table with room for `limit` entries. The seed makes collisions hard to provoke.
    pub(super) fn new(limit: u32, seed: u64) -> Self {
        assert!(limit < NIL, "entries are numbered in 32 bits");
        let limit = limit as usize;
        Self {
            slab: Vec::with_capacity(limit),
            free: Vec::with_capacity(limit),
            limit,
            places: vec![NIL; (limit * 2).next_power_of_two()].into(),
            hasher: Hasher::new(seed),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len() == self.limit
    }

    #[inline]
    fn bucket_of(&self, key: Key) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "masked to the index")]
        let bucket = self.hasher.of_key(key) as usize & (self.places.len() - 1);
        bucket
    }

    /// Returns the place of the entry of `key`, or the free one at which the search ends.
    #[inline]
    fn place_of(&self, key: Key) -> Result<usize, usize> {
        let mut place = self.bucket_of(key);
        loop {
            match self.places[place] {
                NIL => return Err(place),
                at if self.slab[at as usize].key == key => return Ok(place),
                _ => place = (place + 1) & (self.places.len() - 1),
            }
        }
    }

    /// Returns the entry of `key`.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        self.place_of(key).ok().map(|place| self.places[place])
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Entry {
        &self.slab[at as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.slab[at as usize]
    }

    /// Inserts an entry, which stands in no list yet. The caller has checked that there is room,
    /// and no entry of that key.
    pub(super) fn insert(&mut self, key: Key, port: PortId, now: Nanos) -> u32 {
        debug_assert!(!self.is_full(), "the caller has looked for room");
        let place = self.place_of(key).expect_err("the caller has looked for the key");
        let links = UNLINKED;
        let ips = Ips::default();
        let entry =
            Entry { key, port, epoch: 0, ips, seen: now, asked: None, sticky: false, links };
        let at = match self.free.pop() {
            Some(at) => {
                self.slab[at as usize] = entry;
                at
            }
            None => {
                self.slab.push(entry);
                u32::try_from(self.slab.len() - 1).expect("the limit has 32 bits")
            }
        };
        self.places[place] = at;
        at
    }

    /// Removes an entry, which stands in no list any more.
    pub(super) fn remove(&mut self, at: u32) {
        let key = self.get(at).key;
        let mut hole = self.place_of(key).expect("an entry has its place");
        let mask = self.places.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let moved = self.places[place];
            if moved == NIL {
                break;
            }
            // An entry may move back only to a place that its own search passes.
            let bucket = self.bucket_of(self.get(moved).key);
            if hole.wrapping_sub(bucket) & mask <= place.wrapping_sub(bucket) & mask {
                self.places[hole] = moved;
                hole = place;
            }
        }
        self.places[hole] = NIL;
        // A key that cannot come from a frame, so that a corrupt list shows.
        self.get_mut(at).key = Key { vni: Vni::new(0).expect("it fits"), mac: Mac::BROADCAST };
        self.free.push(at);
    }

    /// Puts an entry at the end of a list.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, by: By, at: u32) {
        let link = Link { before: list.last, behind: NIL };
        self.get_mut(at).links[by as usize] = link;
        match list.last {
            NIL => list.first = at,
            last => self.get_mut(last).links[by as usize].behind = at,
        }
        list.last = at;
    }

    /// Takes an entry out of the list in which it stands.
    #[inline]
    pub(super) fn unlink(&mut self, list: &mut List, by: By, at: u32) {
        let Link { before, behind } = self.get(at).links[by as usize];
        match before {
            NIL => list.first = behind,
            before => self.get_mut(before).links[by as usize].behind = behind,
        }
        match behind {
            NIL => list.last = before,
            behind => self.get_mut(behind).links[by as usize].before = before,
        }
    }

    /// Puts all of `from` at the end of `to`, in one step.
    pub(super) fn append(&mut self, to: &mut List, by: By, from: &mut List) {
        let moved = core::mem::replace(from, List::EMPTY);
        if moved.first == NIL {
            return;
        }
        match to.last {
            NIL => to.first = moved.first,
            last => {
                self.get_mut(last).links[by as usize].behind = moved.first;
                self.get_mut(moved.first).links[by as usize].before = last;
            }
        }
        to.last = moved.last;
    }
}

#[cfg(test)]
mod tests;
