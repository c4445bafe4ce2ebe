//! What a member is believed of, by this host's own list: claims in its networks, so many, and moves
//! that are no leap.
//!
//! | claim | what becomes of it |
//! |---|---|
//! | in a network that the member is not in | set aside |
//! | beyond its quota | refused; its session asks for a snapshot later, as if the table were full |
//! | more moves than any other host's claim and [`LEAP_MAX`] | kept with none: it loses to the others |
//! | more than [`MOVES_MAX`] moves, and nobody else claims it | kept with so many |
//!
//! So a host can outbid whoever claims its endpoint: what counts is at most [`LEAP_MAX`] ahead of a
//! claim that others knew, or far from the largest number there is. Honest hosts leap nowhere:
//! each outbids the best claim by one, and the loser withdraws.
//!
//! What was told is remembered beside the table, as far as that has something else, so that digests
//! of both sides agree and nobody asks for the same again and again. The quota bounds that memory.

use alloc::collections::BTreeMap;

use sluice_base::Vni;

use crate::digest::Digest;
use crate::vport::{Claim, Key};

/// How far the moves of a claim may be ahead of those of any other host's claim.
pub const LEAP_MAX: u32 = 1024;
/// The most moves of a claim beside which there is no other.
pub const MOVES_MAX: u32 = 1 << 24;

/// Why a claim is not taken as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Its owner is not in the network.
    Network,
    /// Its owner claims as many as it may.
    Quota,
    /// It leaps.
    Moves,
}

impl Bound {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "claims an endpoint of a network that it is not in here",
            Self::Quota => "claims more endpoints than `claims_per_host` allows",
            Self::Moves => "claims an endpoint with a leap of its moves",
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    told: Claim,
    kept: Option<Claim>,
    /// Since the last snapshot began.
    named: bool,
}

/// What a member told and the table has otherwise, or not at all.
#[derive(Debug, Default)]
pub struct Aside {
    entries: BTreeMap<Key, Entry>,
    told: Digest,
    kept: Digest,
    /// The first of each kind since the last snapshot began, for people.
    news: [Option<Key>; 3],
    said: [bool; 3],
}

impl Aside {
    pub(super) fn begin_snapshot(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.named = false);
        self.said = [false; 3];
    }

    pub(super) fn end_snapshot(&mut self) {
        let gone: alloc::vec::Vec<Key> =
            self.entries.iter().filter(|(_, entry)| !entry.named).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(key));
    }

    /// Remembers what was told of an endpoint, and what is in the table instead.
    pub(super) fn put(&mut self, told: Claim, kept: Option<Claim>) {
        self.forget(told.key);
        self.told.add(&told);
        if let Some(kept) = &kept {
            self.kept.add(kept);
        }
        self.entries.insert(told.key, Entry { told, kept, named: true });
    }

    /// The table has what was told.
    pub(super) fn forget(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.told.remove(&entry.told);
        if let Some(kept) = &entry.kept {
            self.kept.remove(kept);
        }
    }

    /// Nothing that was told counts any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// All that was told, by what the table has of it.
    pub(super) fn digest(&self, table: Digest) -> Digest {
        Digest {
            count: table.count + self.told.count - self.kept.count,
            sum: table.sum.wrapping_add(self.told.sum).wrapping_sub(self.kept.sum),
        }
    }

    pub(super) fn note(&mut self, bound: Bound, key: Key) {
        let at = bound as usize;
        if !core::mem::replace(&mut self.said[at], true) {
            self.news[at] = Some(key);
        }
    }

    /// The next thing to tell people.
    pub fn news(&mut self) -> Option<(Bound, Key)> {
        [Bound::Network, Bound::Quota, Bound::Moves]
            .into_iter()
            .find_map(|bound| self.news[bound as usize].take().map(|key| (bound, key)))
    }
}

/// What bounds one member.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// The networks that it has.
    pub vnets: &'a [Vni],
    /// How many endpoints it may claim.
    pub quota: u64,
    /// What it told beyond that.
    pub aside: &'a mut Aside,
}
