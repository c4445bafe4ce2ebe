//! Memory of recent events, of fixed size.
//!
//! A [`Recent`] remembers marks for a time each. Its places are in sets of four, and a mark belongs
//! to one set. A new mark takes a place of its set that is free or whose time is over, else the
//! place whose time ends first. So a mark may be forgotten early, but is never kept for too long,
//! and nothing is ever allocated or walked.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{Mac, Nanos, Vni};

use crate::hash::{fold, halves};

/// An event to remember, as numbers. Different events have different marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark([u64; 4]);

impl Mark {
    /// Returns the mark of a network, an address of each kind and 16 bits of the caller's.
    #[inline]
    pub(crate) fn new(vni: Vni, mac: Mac, ip: Option<IpAddr>, own: u16) -> Self {
        // An address of version 4 is mapped (RFC 4291 clause 2.5.5.2), and its version is kept, so
        // that it differs from the mapped one itself.
        let (version, ip) = match ip {
            None => (0, 0),
            Some(IpAddr::V4(ip)) => (4, u128::from(ip.to_ipv6_mapped())),
            Some(IpAddr::V6(ip)) => (6, u128::from(ip)),
        };
        let [high, low] = halves(ip);
        let first = u64::from(vni.get()) << 32 | u64::from(own) << 8 | version;
        Self([first, mac.to_u64(), high, low])
    }
}

const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    mark: Mark,
    /// Time until which the mark is remembered; zero: the place was never used.
    until: Nanos,
}

/// The memory.
#[derive(Debug)]
pub(crate) struct Recent {
    sets: Vec<[Place; WAYS]>,
    life: Nanos,
    multiplier: u64,
}

impl Recent {
    /// Creates a memory with room for at least `marks` marks, each for the time `life`. The seed
    /// makes collisions hard to provoke.
    pub(crate) fn new(marks: u32, life: Nanos, seed: u64) -> Self {
        let sets = (marks as usize).div_ceil(WAYS).max(1).next_power_of_two();
        let multiplier = (seed ^ 0x9e37_79b9_7f4a_7c15) | 1;
        Self { sets: vec![[Place::default(); WAYS]; sets], life, multiplier }
    }

    /// Sets the time for which marks are remembered from now on.
    pub(crate) const fn set_life(&mut self, life: Nanos) {
        self.life = life;
    }

    #[inline]
    fn set_of(&self, mark: &Mark) -> usize {
        let mut hash = 0;
        for word in mark.0 {
            hash = fold(hash ^ word ^ self.multiplier.rotate_left(29), self.multiplier);
        }
        #[expect(clippy::cast_possible_truncation, reason = "masked to the sets")]
        let set = (hash ^ hash >> 32) as usize & (self.sets.len() - 1);
        set
    }

    /// Returns true if `mark` is remembered at `now`.
    #[inline]
    pub(crate) fn contains(&self, now: Nanos, mark: &Mark) -> bool {
        let set = &self.sets[self.set_of(mark)];
        set.iter().any(|place| place.mark == *mark && now < place.until)
    }

    /// Remembers `mark` from `now` on.
    #[inline]
    pub(crate) fn insert(&mut self, now: Nanos, mark: Mark) {
        let until = now.after(self.life);
        let set = self.set_of(&mark);
        let set = &mut self.sets[set];
        let same = set.iter().position(|place| place.mark == mark);
        // A place whose time is over ends before every other.
        let first = || (0..WAYS).min_by_key(|&at| set[at].until).unwrap_or(0);
        let at = same.unwrap_or_else(first);
        set[at] = Place { mark, until };
    }

    /// Forgets `mark`; true if it was there.
    pub(crate) fn remove(&mut self, mark: &Mark) -> bool {
        let set = self.set_of(mark);
        let found = self.sets[set].iter_mut().find(|place| place.mark == *mark);
        let there = found.map(|place| core::mem::take(&mut place.until));
        there.is_some_and(|until| until != Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests;
