//! Bounds on the claims of a member, by this host's own configuration: its networks, a quota, and
//! moves that are no leap.
//!
//! | claim | result |
//! |---|---|
//! | in a network that the member is not in | set aside |
//! | beyond its quota | refused; its session asks for a snapshot later, as if the table were full |
//! | more moves than any other's claim and [`LEAP_MAX`] | kept with none: it loses to the others |
//! | more than [`MOVES_MAX`] moves, without another claim | kept with [`MOVES_MAX`] |
//!
//! So a host can always outbid another claim for its endpoint: the effective moves are at most
//! [`LEAP_MAX`] ahead of a claim that others knew, or far from the largest number there is. Honest
//! hosts never leap: each outbids the best claim by one, and the loser withdraws.
//!
//! Claims that the table has differently, or not at all, are remembered beside the table as they
//! were received, so that digests of both sides agree and no host asks for the same snapshot again
//! and again. The quota bounds that memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_base::Vni;

use crate::digest::Digest;
use crate::vport::{Claim, Key};

/// Largest lead of the moves of a claim over those of any other host's claim.
pub const LEAP_MAX: u32 = 1024;
/// Most moves of a claim beside which there is no other.
pub const MOVES_MAX: u32 = 1 << 24;

/// Reason why a claim is not taken as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Its owner is not in the network.
    Network,
    /// Its owner claims as many endpoints as it may.
    Quota,
    /// Its moves leap.
    Moves,
}

impl Bound {
    /// Returns the reason in words.
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
    /// True if the claim was named since the last snapshot began.
    named: bool,
}

/// Claims of a member that the table has differently, or not at all.
#[derive(Debug, Default)]
pub struct RefusedClaims {
    entries: BTreeMap<Key, Entry>,
    told: Digest,
    kept: Digest,
    /// The first claim of each reason since the last snapshot began, for people.
    news: [Option<Key>; 3],
    said: [bool; 3],
}

impl RefusedClaims {
    pub(super) fn begin_snapshot(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.named = false);
        self.said = [false; 3];
    }

    pub(super) fn end_snapshot(&mut self) {
        let gone: Vec<Key> =
            self.entries.iter().filter(|(_, entry)| !entry.named).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(key));
    }

    /// Remembers a claim as it was received, and as it is in the table, if it is.
    pub(super) fn put(&mut self, told: Claim, kept: Option<Claim>) {
        self.forget(told.key);
        self.told.add(&told);
        if let Some(kept) = &kept {
            self.kept.add(kept);
        }
        self.entries.insert(told.key, Entry { told, kept, named: true });
    }

    /// Forgets the claim for an endpoint: the table has it as it was received.
    pub(super) fn forget(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.told.remove(&entry.told);
        if let Some(kept) = &entry.kept {
            self.kept.remove(kept);
        }
    }

    /// Returns the claims that the table does not have, in networks of a list.
    pub(crate) fn missing_in(&self, vnets: &[Vni]) -> Vec<Claim> {
        let missing = self.entries.values().filter(|entry| entry.kept.is_none());
        let claims = missing.map(|entry| entry.told);
        claims.filter(|claim| vnets.contains(&claim.key.vni)).collect()
    }

    /// Returns the claim for an endpoint as it was received, if the table has another.
    pub(crate) fn told(&self, key: Key) -> Option<Claim> {
        self.entries.get(&key).map(|entry| entry.told)
    }

    /// Forgets all claims.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// Returns the digest of all received claims, given the digest of the table.
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

    /// Returns the next claim to report to people.
    pub fn news(&mut self) -> Option<(Bound, Key)> {
        [Bound::Network, Bound::Quota, Bound::Moves]
            .into_iter()
            .find_map(|bound| self.news[bound as usize].take().map(|key| (bound, key)))
    }
}

/// Bounds of one member.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// The networks of the member.
    pub vnets: &'a [Vni],
    /// Number of endpoints that the member may claim.
    pub quota: u64,
    /// Claims of the member beyond its bounds.
    pub aside: &'a mut RefusedClaims,
}
