//! The claims of this host, as a log that every peer reads at its own pace.
//!
//! Each change gets the next **sequence** of this incarnation and one entry at the end of the log.
//! An entry names a slot, the slot names its last change, and an entry that is not the last change
//! of its slot is void. So changes of one vport coalesce by themselves, the log read from its
//! beginning is a snapshot, and the state of a peer is one number: its position in the log.
//!
//! ```text
//!   log     1:a  2:b  3:c  4:b  5:a         void: 1:a and 2:b
//!   slots   a = 5 gone   b = 4   c = 3
//!            a reader at 0 gets c, b         (snapshot: withdrawn vports are not named)
//!            a reader at 3 gets b, a gone    (delta)
//! ```
//!
//! A withdrawal stays in the log as a **tombstone** until every peer that counts has acknowledged
//! it. The number of tombstones is bounded; beyond, the oldest is forgotten. When a tombstone is
//! forgotten, the **horizon** rises to its sequence: a reader below it may have missed a
//! withdrawal, and only a snapshot helps.
//!
//! Costs: a change is one search in a tree, and a log entry of 16 bytes. When more than half of the
//! log is void it is compacted, which looks at each entry once and leaves none void. A change voids
//! at most two entries (the one before it, and its own when it is a withdrawal that is forgotten),
//! so that it comes to at most four entries looked at per change. The longest stop is one
//! such pass over all claims. Reading costs a search in the log and then one look per entry, void
//! ones included.
//!
//! Limits: 2^32 - 1 slots. Sequences do not run out: 64 bits last 584 years at one per nanosecond.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluice_base::HostId;

use crate::digest::Digest;
use crate::vport::{Claim, Key};

/// Size below which a log is not worth compacting.
const LOG_SMALL: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    sequence: u64,
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Sequence of the last change.
    sequence: u64,
    key: Key,
    /// The claim; `None`: withdrawn.
    claim: Option<Claim>,
}

/// Change of a vport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The vport is there, like this.
    Claimed(&'a Claim),
    /// The vport is not there any more.
    Withdrawn(Key),
}

/// The claims of this host.
#[derive(Debug)]
pub struct Publisher {
    incarnation: u64,
    last: u64,
    horizon: u64,
    log: Vec<Entry>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: BTreeMap<Key, u32>,
    /// Slots of withdrawn vports, by the sequence of the withdrawal.
    tombstones: BTreeMap<u64, u32>,
    tombstones_max: usize,
    digest: Digest,
    /// Digest of the claims without the sequences of addresses.
    plain_digest: Digest,
    /// The peers that count, and the sequence that each has acknowledged.
    peers: BTreeMap<HostId, u64>,
}

impl Publisher {
    /// Creates a log without claims. An incarnation is above zero, and above every one this host
    /// has had.
    ///
    /// # Panics
    /// If the incarnation is zero.
    #[must_use]
    pub fn new(incarnation: u64, tombstones_max: usize) -> Self {
        assert!(incarnation > 0, "zero stands for an incarnation that was never heard of");
        Self {
            incarnation,
            last: 0,
            horizon: 0,
            log: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            tombstones_max,
            digest: Digest::default(),
            plain_digest: Digest::default(),
            peers: BTreeMap::new(),
        }
    }

    /// Changes the incarnation. To every peer all claims are new.
    pub(crate) fn reincarnate(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
    }

    /// Claims a vport, or changes its claim. Returns the sequence of the last change of the vport;
    /// if the claim is the same, that is an old one.
    ///
    /// # Panics
    /// If the address is a group address: no endpoint has it, and a peer that believed the claim
    /// would send all broadcasts of the network here.
    pub fn claim(&mut self, claim: &Claim) -> u64 {
        assert!(!claim.key.mac.is_group(), "{} is no endpoint", claim.key.mac);
        let index = match self.by_key.get(&claim.key) {
            Some(&index) => index,
            None => self.new_slot(claim.key),
        };
        let slot = &mut self.slots[at(index)];
        match slot.claim.replace(*claim) {
            Some(before) if before == *claim => return slot.sequence,
            Some(before) => {
                self.digest.remove(&before);
                self.plain_digest.remove_plain(&before);
            }
            None => drop(self.tombstones.remove(&slot.sequence)),
        }
        self.digest.add(claim);
        self.plain_digest.add_plain(claim);
        self.changed(index)
    }

    /// Withdraws a vport. Returns the sequence of the withdrawal; `None` if the vport was not
    /// claimed.
    pub fn withdraw(&mut self, key: Key) -> Option<u64> {
        let index = *self.by_key.get(&key)?;
        let before = self.slots[at(index)].claim.take()?;
        self.digest.remove(&before);
        self.plain_digest.remove_plain(&before);
        let sequence = self.changed(index);
        self.tombstones.insert(sequence, index);
        self.forget_tombstones();
        Some(sequence)
    }

    fn new_slot(&mut self, key: Key) -> u32 {
        let slot = Slot { sequence: 0, key, claim: None };
        let index = if let Some(index) = self.free.pop() {
            self.slots[at(index)] = slot;
            index
        } else {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("a host has less than 2^32 vports")
        };
        self.by_key.insert(key, index);
        index
    }

    fn changed(&mut self, index: u32) -> u64 {
        self.last += 1;
        self.slots[at(index)].sequence = self.last;
        self.log.push(Entry { sequence: self.last, slot: index });
        self.compact();
        self.last
    }

    /// Removes the void entries if they are more than half.
    fn compact(&mut self) {
        if self.log.len() > 2 * self.by_key.len() + LOG_SMALL {
            self.log.retain(|entry| self.slots[at(entry.slot)].sequence == entry.sequence);
        }
    }

    /// Returns the lowest sequence that a peer that counts has acknowledged.
    fn acked_by_all(&self) -> u64 {
        self.peers.values().copied().min().unwrap_or(u64::MAX)
    }

    fn forget_tombstones(&mut self) {
        let acked = self.acked_by_all();
        while let Some(oldest) = self.tombstones.first_entry() {
            if *oldest.key() > acked && self.tombstones.len() <= self.tombstones_max {
                break;
            }
            let (sequence, index) = self.tombstones.pop_first().expect("there is an oldest");
            self.horizon = self.horizon.max(sequence);
            let slot = &mut self.slots[at(index)];
            slot.sequence = 0;
            self.by_key.remove(&slot.key);
            self.free.push(index);
        }
        self.compact();
    }

    /// Iterates over the changes above `cursor` that no later one replaces, oldest first, each with
    /// its sequence. From zero on, these are all claims. A reader may stop anywhere and go on from
    /// there after more changes; it has missed nothing unless [`Self::horizon`] has passed it.
    pub fn after(&self, cursor: u64) -> impl Iterator<Item = (u64, Change<'_>)> {
        let first = self.log.partition_point(|entry| entry.sequence <= cursor);
        self.log[first..].iter().filter_map(|entry| {
            let slot = &self.slots[at(entry.slot)];
            let change = slot.claim.as_ref().map_or(Change::Withdrawn(slot.key), Change::Claimed);
            (slot.sequence == entry.sequence).then_some((entry.sequence, change))
        })
    }

    /// Counts a peer from now on, which has everything up to `sequence`. Tombstones wait for its
    /// acknowledgements. Also lowers the acknowledged sequence of a peer.
    pub fn set_peer(&mut self, peer: HostId, sequence: u64) {
        self.peers.insert(peer, sequence);
        self.forget_tombstones();
    }

    /// Notes that a peer has applied everything up to `sequence`. Nothing happens if the peer does
    /// not count.
    pub fn acked(&mut self, peer: HostId, sequence: u64) {
        let Some(acked) = self.peers.get_mut(&peer) else { return };
        let before = core::mem::replace(acked, sequence.max(*acked));
        // Only the slowest peers hold tombstones.
        if self.tombstones.first_key_value().is_some_and(|(&oldest, _)| oldest > before) {
            self.forget_tombstones();
        }
    }

    /// Ceases to count a peer: it is no member, or was away for too long.
    pub fn forget(&mut self, peer: HostId) {
        self.peers.remove(&peer);
        self.forget_tombstones();
    }

    /// Returns the sequence that a peer has acknowledged; `None` if it does not count.
    #[must_use]
    pub fn acked_by(&self, peer: HostId) -> Option<u64> {
        self.peers.get(&peer).copied()
    }

    /// Returns the incarnation: the number of this run of the host's control plane.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the sequence of the last change; zero before the first.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the highest sequence of a withdrawal that was forgotten. A peer that has read less
    /// needs a snapshot.
    #[must_use]
    pub const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Returns the digest of the claims.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest of the claims for a peer whose version has no sequences of addresses.
    #[must_use]
    pub const fn plain_digest(&self) -> Digest {
        self.plain_digest
    }

    /// Number of entries of the log: at most two per claim and tombstone, and a few.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Number of withdrawals that are remembered.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.tombstones.len()
    }
}

fn at(index: u32) -> usize {
    index as usize
}

#[cfg(test)]
mod tests;
