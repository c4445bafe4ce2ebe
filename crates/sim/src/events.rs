//! The event queue, in the order of (time, sequence).
//!
//! A timing wheel of short slots holds near events; later events wait in a heap and move into the
//! wheel when their time comes near. A slot is a list without order; it is sorted when the clock
//! reaches it, on time and sequence, so that the wheel gives the same order as one big sorted list
//! would. A data centre draws nearly all its events within a few microseconds, so a slot holds few
//! of them and sorting is cheap.
//!
//! ```text
//!  push ──> open slot (sorted)      slots of 64 ns, 8,192 of them          heap
//!           │ earliest first   <──  list, list, list, ... bitmap    <──  beyond 524 us
//!           v
//!          pop
//! ```
//!
//! Events at the same time come in the order in which they were pushed; or in an order that a seed
//! permutes, to see if a result depends on it; or by a rank that each is given.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sluice_base::Nanos;

/// Bits of a slot's length: 64 ns, shorter than the smallest frame takes on a 10 Gbit/s link.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << 13;
const WORDS: usize = SLOTS / 64;
/// Bits of a key that hold the sequence; above them is the time within the slot.
const SEQUENCE_BITS: u32 = 64 - SLOT_BITS;
const NIL: u32 = u32::MAX;

/// Order of several events at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// In the order of pushing.
    #[default]
    Fifo,
    /// In an order that this seed draws.
    Permuted(u64),
    /// The lowest rank first: by kind and place, not by the time of pushing. Two runs whose events
    /// are the same at every time can be compared with it, in any order of pushing.
    ByPlace,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Time within the slot, then sequence.
    key: u64,
    what: u32,
    next: u32,
}

/// The queue. An event is a number with a meaning to its owner.
#[derive(Debug)]
pub struct EventQueue {
    nodes: Vec<Node>,
    free: u32,
    heads: Vec<u32>,
    occupied: [u64; WORDS],
    /// Number of the open slot, counted from the origin of time.
    open: u64,
    /// Events of the open slot, the earliest last.
    current: Vec<(u64, u32)>,
    far: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    sequence: u64,
    ties: Ties,
    now: Nanos,
    popped: u64,
}

impl EventQueue {
    /// Creates an empty queue at the origin of time.
    #[must_use]
    pub fn new(ties: Ties) -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            heads: vec![NIL; SLOTS],
            occupied: [0; WORDS],
            open: 0,
            current: Vec::new(),
            far: BinaryHeap::new(),
            sequence: 0,
            ties,
            now: Nanos::ZERO,
            popped: 0,
        }
    }

    /// Returns the time of the event that was popped last.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Number of events that were popped.
    #[must_use]
    pub const fn popped(&self) -> u64 {
        self.popped
    }

    /// Adds an event, which is its own rank.
    ///
    /// # Panics
    /// In debug builds, if `at` is in the past.
    #[inline]
    pub fn push(&mut self, at: Nanos, what: u32) {
        self.push_ranked(at, what, what);
    }

    /// Adds an event with a rank, which counts with [`Ties::ByPlace`] only.
    ///
    /// # Panics
    /// In debug builds, if `at` is in the past.
    #[inline]
    pub fn push_ranked(&mut self, at: Nanos, what: u32, rank: u32) {
        debug_assert!(at >= self.now, "an event for {at}, and it is {} already", self.now);
        let sequence = self.next_sequence(rank);
        let slot = at.0 >> SLOT_BITS;
        if slot == self.open {
            let key = key_of(at, sequence);
            let later = self.current.iter().rev().take_while(|(k, _)| *k < key).count();
            self.current.insert(self.current.len() - later, (key, what));
        } else if slot - self.open < SLOTS as u64 {
            self.push_near(slot, key_of(at, sequence), what);
        } else {
            self.far.push(Reverse((at, sequence, what)));
        }
    }

    #[inline]
    fn next_sequence(&mut self, rank: u32) -> u64 {
        self.sequence += 1;
        match self.ties {
            Ties::Fifo => self.sequence,
            // An odd factor permutes the numbers below a power of two; the shift lets high bits
            // of the product count.
            Ties::Permuted(seed) => {
                let mask = (1 << SEQUENCE_BITS) - 1;
                let mixed = (self.sequence ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
                (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask
            }
            Ties::ByPlace => {
                let bits = SEQUENCE_BITS - u32::BITS;
                u64::from(rank) << bits | self.sequence & ((1 << bits) - 1)
            }
        }
    }

    #[inline]
    fn push_near(&mut self, slot: u64, key: u64, what: u32) {
        let place = place_of(slot);
        let node = Node { key, what, next: self.heads[place] };
        let index = if self.free == NIL {
            self.nodes.push(node);
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 events")
        } else {
            let index = self.free;
            let free = &mut self.nodes[index as usize];
            self.free = free.next;
            *free = node;
            index
        };
        self.heads[place] = index;
        self.occupied[place / 64] |= 1 << (place % 64);
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Nanos, u32)> {
        self.pop_until(Nanos::MAX)
    }

    /// Takes the next event unless it is later than `end`; then `end` becomes the present time.
    #[inline]
    pub fn pop_until(&mut self, end: Nanos) -> Option<(Nanos, u32)> {
        if self.current.is_empty() && !self.open_next(end) {
            self.wait_until(end);
            return None;
        }
        let &(key, what) = self.current.last()?;
        let at = Nanos((self.open << SLOT_BITS) + (key >> SEQUENCE_BITS));
        if at > end {
            self.wait_until(end);
            return None;
        }
        self.current.pop();
        self.now = at;
        self.popped += 1;
        Some((at, what))
    }

    fn wait_until(&mut self, end: Nanos) {
        if end != Nanos::MAX {
            self.now = end;
        }
    }

    /// Opens the next slot that has events; false if there is none that begins by `end`. A slot
    /// that begins later must stay closed: an event may still be pushed before it.
    fn open_next(&mut self, end: Nanos) -> bool {
        let near = self.next_occupied();
        let slot = match (near, self.far.peek()) {
            (Some(slot), _) => slot,
            (None, Some(Reverse((at, _, _)))) => at.0 >> SLOT_BITS,
            (None, None) => return false,
        };
        if slot > end.0 >> SLOT_BITS {
            return false;
        }
        self.open = slot;
        self.take_slot(slot);
        if !self.far.is_empty() {
            self.bring_near();
        }
        self.current.sort_unstable_by_key(|event| Reverse(event.0));
        true
    }

    /// Moves events from the heap that are within the wheel now, even into the slot just opened.
    #[inline(never)]
    fn bring_near(&mut self) {
        while let Some(Reverse((at, sequence, what))) = self.far.peek().copied() {
            let slot = at.0 >> SLOT_BITS;
            if slot - self.open >= SLOTS as u64 {
                break;
            }
            self.far.pop();
            if slot == self.open {
                self.current.push((key_of(at, sequence), what));
            } else {
                self.push_near(slot, key_of(at, sequence), what);
            }
        }
    }

    fn take_slot(&mut self, slot: u64) {
        let place = place_of(slot);
        let mut index = core::mem::replace(&mut self.heads[place], NIL);
        self.occupied[place / 64] &= !(1 << (place % 64));
        while index != NIL {
            let node = &mut self.nodes[index as usize];
            self.current.push((node.key, node.what));
            let next = core::mem::replace(&mut node.next, self.free);
            self.free = index;
            index = next;
        }
    }

    /// Returns the number of the next slot of the wheel that has events.
    #[inline]
    fn next_occupied(&self) -> Option<u64> {
        let first = place_of(self.open + 1);
        let mut word = first / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (first % 64));
        // One word more than there are: the first word is looked at again for its lower bits.
        for _ in 0..=WORDS {
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (place.wrapping_sub(first)) % SLOTS;
                return Some(self.open + 1 + ahead as u64);
            }
            word = (word + 1) % WORDS;
            bits = self.occupied[word];
        }
        None
    }
}

#[inline]
fn key_of(at: Nanos, sequence: u64) -> u64 {
    (at.0 & ((1 << SLOT_BITS) - 1)) << SEQUENCE_BITS | sequence
}

#[inline]
fn place_of(slot: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    let place = (slot % SLOTS as u64) as usize;
    place
}

#[cfg(test)]
mod tests;
