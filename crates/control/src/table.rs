//! The vport table: the claims of every host of the fabric, and the host of each endpoint.
//!
//! Aim: 1.2 million claims and more in at most 200 bytes each, found by endpoint and by address
//! within a few cache misses. Sessions put claims in; each call returns a [`Change`] to follow.
//!
//! ```text
//!   key index (VNI, MAC) ──> slot, the winner ──> slot of another host's claim ──> …
//!                              │ addresses
//!                              v
//!   IP index (VNI, IP) ────> IP slot ──> IP slot of another vport with the same address ──> …
//!
//!   owner ──> list of its claims, in the order in which they were named
//!   VNI   ──> list of its claims
//! ```
//!
//! **Winner.** All claims for one endpoint are kept, as a chain in order. A claim of a live host
//! comes before one of a stale host; claims of hosts in the same state are ordered by
//! [`Claim::beats`]. Liveness is no part of a claim: tables agree when they know the same claims
//! **and** the same states of hosts. A host that comes back regains its endpoints only by claims.
//!
//! **A stale claim** ([`OwnerState::Stale`]) wins if no live host claims the same: its frames are
//! forwarded, and no host answers ARP for it. A change of the owner's state touches only those of
//! its claims which another host claims too.
//!
//! **Addresses.** Only addresses of winners are in the index. Two vports of a network with one
//! address are both found ([`Table::all_with_ip`]), the better one answers ([`Table::find_ip`]),
//! and the duplicate is reported when the second one comes.
//!
//! **Snapshots.** Each claim knows the snapshot in which its owner named it last, and moves to the
//! front of its owner's list when it is named again. Claims that were not named lie at the tail
//! when the snapshot ends, and are taken off there. A snapshot that begins while another one is
//! open replaces it, and nothing goes.
//!
//! **Limits.** The number of claims is bounded, beyond it [`Full`]. Slots come in chunks of 1024,
//! and an index grows by segments of about as many entries: no call takes or copies more than that,
//! for any size (most of its longest stop is the kernel's work on new memory; measured below a
//! millisecond). A call that touches many claims of one owner works in steps ([`Progress`]). Only
//! [`Table::set_owner`] takes time in proportion to the number of endpoints that several hosts
//! claim. The length of a chain is the number of hosts that claim one endpoint, or of vports that
//! claim one address; the chain is walked on a change, and on a look-up by address. Memory does not
//! shrink when claims go.

mod arena;
mod change;
mod index;
mod owners;
mod slot;

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use sluice_base::{HostId, Mac, Nanos, Vni};

pub use self::change::{Change, Full, Holder, OwnerState, Progress, Vport};

use self::change::only;

use self::arena::{Arena, NONE};
use self::index::Index;
use self::owners::Owner;
use self::slot::{IpSlot, List, Of, Slot};
use crate::digest::Digest;
use crate::hash::Hasher;
use crate::vport::{Claim, IPS_MAX, Ips, Key, Precedence};

/// The table.
#[derive(Debug)]
pub struct Table {
    limit: u32,
    hasher: Hasher,
    slots: Arena<Slot>,
    by_key: Index,
    ip_slots: Arena<IpSlot>,
    by_ip: Index,
    /// Hosts by number.
    owners: Vec<Owner>,
    vnets: BTreeMap<Vni, Vnet>,
    /// Digest of the claims of each host in each network.
    shares: BTreeMap<(Vni, HostId), Digest>,
    /// Endpoints that more than one host claims.
    contested: BTreeSet<Key>,
    vports: u32,
}

#[derive(Debug)]
struct Vnet {
    claims: List,
    vports: u32,
}

/// First claim of a chain, as [`Change`] reports it.
#[derive(Clone, Copy)]
struct Front {
    holder: Holder,
    ips: Ips,
    moves: u32,
}

impl Table {
    /// Creates an empty table for at most `limit` claims of all hosts. The seed makes collisions
    /// hard to provoke; no visible behaviour of the table depends on it.
    #[must_use]
    pub fn new(limit: u32, seed: u64) -> Self {
        let ips_max = u32::try_from(IPS_MAX).expect("a few");
        assert!(limit < NONE / ips_max, "each address has a number");
        Self {
            limit,
            hasher: Hasher::new(seed),
            slots: Arena::new(),
            by_key: Index::new(limit),
            ip_slots: Arena::new(),
            by_ip: Index::new(limit),
            owners: Vec::new(),
            vnets: BTreeMap::new(),
            shares: BTreeMap::new(),
            contested: BTreeSet::new(),
            vports: 0,
        }
    }

    /// Puts in a claim of `owner`, in place of its earlier claim for the same endpoint.
    ///
    /// # Errors
    /// [`Full`] if there is no earlier claim and no room: nothing is changed.
    pub fn claim(&mut self, now: Nanos, owner: HostId, claim: &Claim) -> Result<Change, Full> {
        let hash = self.hasher.of_key(claim.key);
        let head = self.head(hash, claim.key);
        let own = head.and_then(|head| self.claim_in_chain(head, owner));
        if let Some(at) = own
            && self.claim_at(at) == *claim
        {
            self.refresh(at);
            return Ok(Change::between(claim.key, None, None, Ips::default()));
        }
        if own.is_none() && self.slots.count() == self.limit {
            return Err(Full);
        }
        let before = head.map(|head| self.demote(head));
        let at = if let Some(at) = own {
            self.unchain(hash, at);
            self.account(at, false);
            self.rewrite(at, claim);
            self.refresh(at);
            at
        } else {
            self.take(now, owner, claim)
        };
        self.account(at, true);
        self.enchain(hash, at);
        Ok(self.promote(now, hash, claim.key, before))
    }

    /// Takes out the claim of `owner` for an endpoint. Nothing happens if there is none.
    pub fn withdraw(&mut self, now: Nanos, owner: HostId, key: Key) -> Change {
        let hash = self.hasher.of_key(key);
        let own = self.head(hash, key).and_then(|head| self.claim_in_chain(head, owner));
        match own {
            Some(at) => self.remove(now, at),
            None => Change::between(key, None, None, Ips::default()),
        }
    }

    /// Returns the endpoint as its winner claims it.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<Vport> {
        self.head(self.hasher.of_key(key), key).map(|at| self.vport_at(at))
    }

    /// Returns the host and port of the endpoint, and the state of that host. Faster than
    /// [`find`](Self::find).
    #[must_use]
    pub fn holder(&self, key: Key) -> Option<(Holder, OwnerState)> {
        let at = self.head(self.hasher.of_key(key), key)?;
        Some((self.holder_at(at), self.state_at(at)))
    }

    /// Returns the vport of a network with which to answer a question for an address. Of several
    /// vports that have it: one of a live host before one of a stale host, then by [`Precedence`],
    /// then the higher sequence of the address, then the lower MAC; all hosts agree on it.
    #[must_use]
    pub fn find_ip(&self, vni: Vni, ip: IpAddr) -> Option<Vport> {
        let best = self.ip_chain(vni, ip).min_by_key(|at| {
            let IpSlot { slot, sequence, .. } = self.ip_slots[*at];
            let is_stale = self.state_at(slot) == OwnerState::Stale;
            let slot = &self.slots[slot];
            (is_stale, Reverse((Precedence::of(slot.origin, sequence), sequence)), slot.mac)
        });
        best.map(|at| self.vport_at(self.ip_slots[at].slot))
    }

    /// Iterates over all vports of a network that have an address, mostly one at most, in no order.
    pub fn all_with_ip(&self, vni: Vni, ip: IpAddr) -> impl Iterator<Item = Vport> + '_ {
        self.ip_chain(vni, ip).map(|at| self.vport_at(self.ip_slots[at].slot))
    }

    fn ip_chain(&self, vni: Vni, ip: IpAddr) -> impl Iterator<Item = u32> + '_ {
        let hash = self.hasher.of_ip(vni, ip);
        let first = self.by_ip.find(hash, |at| self.is_ip(at, vni, ip));
        core::iter::successors(first, |at| some(self.ip_slots[*at].next_same))
    }

    /// Iterates over every host's claim for an endpoint, the winner's first.
    pub fn claims(&self, key: Key) -> impl Iterator<Item = Vport> + '_ {
        self.chain(self.head(self.hasher.of_key(key), key)).map(|at| self.vport_at(at))
    }

    /// Iterates over all claims of a host, winning or not: the last named first.
    pub fn claims_of(&self, owner: HostId) -> impl Iterator<Item = Claim> + '_ {
        let list = self.owners.get(owner.index()).map_or(List::EMPTY, |owner| owner.claims);
        list.iter(&self.slots, Of::Owner).map(|at| self.claim_at(at))
    }

    /// Returns the endpoints of a network in the order of their MAC addresses: the first `count`
    /// after `after`. Walks all endpoints of the network; for people and for copies by pages.
    #[must_use]
    pub fn list(&self, vni: Vni, after: Option<Mac>, count: usize) -> Vec<Vport> {
        let list = self.vnets.get(&vni).map_or(List::EMPTY, |vnet| vnet.claims);
        let mut lowest = BinaryHeap::new();
        for at in list.iter(&self.slots, Of::Vnet) {
            let slot = &self.slots[at];
            if slot.winner && after.is_none_or(|after| slot.mac > after) {
                lowest.push((slot.mac, at));
                if lowest.len() > count {
                    lowest.pop();
                }
            }
        }
        lowest.into_sorted_vec().into_iter().map(|(_mac, at)| self.vport_at(at)).collect()
    }

    /// Iterates over the networks in order, each with its number of endpoints.
    pub fn vnets(&self) -> impl Iterator<Item = (Vni, u32)> + '_ {
        self.vnets.iter().map(|(vni, vnet)| (*vni, vnet.vports))
    }

    /// Iterates over the hosts with claims in a network, in order, each with its number of claims.
    pub fn hosts_of(&self, vni: Vni) -> impl Iterator<Item = (HostId, u64)> + '_ {
        let all = (vni, HostId(0))..=(vni, HostId(u16::MAX));
        self.shares.range(all).map(|((_vni, owner), share)| (*owner, share.count))
    }

    /// Iterates over the endpoints that more than one host claims, in order.
    pub fn contested(&self) -> impl Iterator<Item = Key> + '_ {
        self.contested.iter().copied()
    }

    /// Counts a use of an endpoint by `frames`. False if no host claims it.
    pub fn used(&mut self, now: Nanos, key: Key, frames: u64) -> bool {
        let Some(at) = self.head(self.hasher.of_key(key), key) else { return false };
        let slot = &mut self.slots[at];
        slot.used = now;
        slot.frames = slot.frames.saturating_add(frames);
        true
    }

    /// Returns the digest of all claims of a host.
    #[must_use]
    pub fn digest(&self, owner: HostId) -> Digest {
        self.owners.get(owner.index()).map_or(Digest::default(), |owner| owner.digest)
    }

    /// Returns the digest of the claims of a host in one network.
    #[must_use]
    pub fn digest_in(&self, owner: HostId, vni: Vni) -> Digest {
        self.shares.get(&(vni, owner)).copied().unwrap_or_default()
    }

    /// Number of claims.
    #[must_use]
    pub const fn claim_count(&self) -> u32 {
        self.slots.count()
    }

    /// Number of endpoints.
    #[must_use]
    pub const fn vport_count(&self) -> u32 {
        self.vports
    }

    /// Returns the bytes of memory: exact but for the ordered maps (networks, digests of hosts in
    /// networks, contested endpoints), for which it is an upper bound.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let places = self.slots.bytes() + self.ip_slots.bytes();
        let indices = self.by_key.bytes() + self.by_ip.bytes();
        let owners = self.owners.capacity() * size_of::<Owner>();
        let maps = map_bytes(self.vnets.len(), size_of::<(Vni, Vnet)>())
            + map_bytes(self.shares.len(), size_of::<((Vni, HostId), Digest)>())
            + map_bytes(self.contested.len(), size_of::<Key>());
        places + indices + owners + maps
    }
}

/// The claims of one endpoint.
impl Table {
    #[inline]
    fn head(&self, hash: u64, key: Key) -> Option<u32> {
        self.by_key.find(hash, |at| self.slots[at].key() == key)
    }

    fn chain(&self, head: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(head, |at| some(self.slots[*at].chain_next))
    }

    fn claim_in_chain(&self, head: u32, owner: HostId) -> Option<u32> {
        self.chain(Some(head)).find(|at| self.slots[*at].owner == owner)
    }

    fn ip_slots_of(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let first = some(self.slots[at].first_ip);
        core::iter::successors(first, |at| some(self.ip_slots[*at].next_of_claim))
    }

    fn claim_at(&self, at: u32) -> Claim {
        let mut ips = Ips::default();
        for at in self.ip_slots_of(at) {
            let slot = &self.ip_slots[at];
            ips.set(slot.ip(), slot.sequence).expect("as many as a claim has");
        }
        Claim { ips, ..self.slots[at].bare_claim() }
    }

    fn holder_at(&self, at: u32) -> Holder {
        let slot = &self.slots[at];
        Holder { owner: slot.owner, port: slot.port }
    }

    fn state_at(&self, at: u32) -> OwnerState {
        self.owners[self.slots[at].owner.index()].state
    }

    fn vport_at(&self, at: u32) -> Vport {
        let slot = &self.slots[at];
        Vport {
            claim: self.claim_at(at),
            owner: slot.owner,
            state: self.state_at(at),
            since: slot.since,
            used: slot.used,
            frames: slot.frames,
        }
    }

    /// Returns true if the claim at `a` comes before that at `b` for the same endpoint.
    fn precedes(&self, a: u32, b: u32) -> bool {
        let (a_state, b_state) = (self.state_at(a), self.state_at(b));
        if a_state != b_state {
            return a_state == OwnerState::Live;
        }
        let (a, b) = (&self.slots[a], &self.slots[b]);
        a.bare_claim().beats(a.owner, &b.bare_claim(), b.owner)
    }

    /// Takes a slot for a new claim, which is not yet in a chain.
    fn take(&mut self, now: Nanos, owner: HostId, claim: &Claim) -> u32 {
        let at = self.slots.take(Slot::new(now, owner, claim));
        self.put_ips(at, &claim.ips);
        let record = owners::of(&mut self.owners, owner);
        self.slots[at].epoch = record.epoch;
        record.claims.push(&mut self.slots, Of::Owner, at);
        let empty = Vnet { claims: List::EMPTY, vports: 0 };
        let vnet = self.vnets.entry(claim.key.vni).or_insert(empty);
        vnet.claims.push(&mut self.slots, Of::Vnet, at);
        at
    }

    /// Writes a claim over an older one of the same host.
    fn rewrite(&mut self, at: u32, claim: &Claim) {
        self.give_ips(at);
        self.put_ips(at, &claim.ips);
        let slot = &mut self.slots[at];
        slot.port = claim.port;
        slot.origin = claim.origin;
        slot.moves = claim.moves;
    }

    /// Takes a claim out of all lists and indices.
    fn remove(&mut self, now: Nanos, at: u32) -> Change {
        let Slot { owner, .. } = self.slots[at];
        let key = self.slots[at].key();
        let hash = self.hasher.of_key(key);
        let before = self.head(hash, key).map(|head| self.demote(head));
        self.unchain(hash, at);
        self.account(at, false);
        owners::of(&mut self.owners, owner).claims.remove(&mut self.slots, Of::Owner, at);
        let vnet = self.vnets.get_mut(&key.vni).expect("it has a claim");
        vnet.claims.remove(&mut self.slots, Of::Vnet, at);
        self.give_ips(at);
        self.slots.give(at);
        self.promote(now, hash, key, before)
    }

    fn put_ips(&mut self, at: u32, ips: &Ips) {
        for ip in ips.with_sequences() {
            let next = self.slots[at].first_ip;
            self.slots[at].first_ip = self.ip_slots.take(IpSlot::new(ip, at, next));
        }
    }

    fn give_ips(&mut self, at: u32) {
        while let Some(first) = some(self.slots[at].first_ip) {
            self.slots[at].first_ip = self.ip_slots[first].next_of_claim;
            self.ip_slots.give(first);
        }
    }

    /// Adds a claim to its owner's digests, or removes it from them.
    fn account(&mut self, at: u32, there: bool) {
        let (claim, owner) = (self.claim_at(at), self.slots[at].owner);
        let whole = &mut owners::of(&mut self.owners, owner).digest;
        let share = self.shares.entry((claim.key.vni, owner)).or_default();
        for digest in [whole, &mut *share] {
            if there {
                digest.add(&claim);
            } else {
                digest.remove(&claim);
            }
        }
        if share.count == 0 {
            self.shares.remove(&(claim.key.vni, owner));
        }
    }

    /// Inserts a claim into its chain, in order.
    fn enchain(&mut self, hash: u64, at: u32) {
        let key = self.slots[at].key();
        let Some(head) = self.head(hash, key) else {
            self.slots[at].chain_next = NONE;
            self.by_key.insert(hash, at);
            return;
        };
        self.contested.insert(key);
        if self.precedes(at, head) {
            self.slots[at].chain_next = head;
            self.by_key.replace(hash, head, at);
            return;
        }
        let last_before = self
            .chain(Some(head))
            .take_while(|there| self.precedes(*there, at))
            .last()
            .expect("the head comes before it");
        self.slots[at].chain_next = self.slots[last_before].chain_next;
        self.slots[last_before].chain_next = at;
    }

    /// Takes a claim out of its chain.
    fn unchain(&mut self, hash: u64, at: u32) {
        let key = self.slots[at].key();
        let head = self.head(hash, key).expect("it is in a chain");
        let next = self.slots[at].chain_next;
        if head != at {
            let prev = self
                .chain(Some(head))
                .find(|there| self.slots[*there].chain_next == at)
                .expect("it is in the chain");
            self.slots[prev].chain_next = next;
        } else if next == NONE {
            self.by_key.remove(hash, at);
        } else {
            self.by_key.replace(hash, at, next);
        }
        let head = if head == at { next } else { head };
        if head != NONE && self.slots[head].chain_next == NONE {
            self.contested.remove(&key);
        }
    }
}

/// Parts of the table that only the winner of a chain has: addresses in the index.
impl Table {
    fn front(&self, head: u32) -> Front {
        let Claim { ips, moves, .. } = self.claim_at(head);
        Front { holder: self.holder_at(head), ips, moves }
    }

    /// Demotes the first claim of a chain and returns its state.
    fn demote(&mut self, head: u32) -> Front {
        let front = self.front(head);
        self.slots[head].winner = false;
        let mut at = self.slots[head].first_ip;
        while at != NONE {
            self.unindex_ip(at);
            at = self.ip_slots[at].next_of_claim;
        }
        front
    }

    /// Promotes the first claim of the chain, if any; returns the change since `before`.
    fn promote(&mut self, now: Nanos, hash: u64, key: Key, before: Option<Front>) -> Change {
        let head = self.head(hash, key);
        let mut shared = Ips::default();
        let after = head.map(|head| {
            let holder = self.holder_at(head);
            self.slots[head].winner = true;
            if before.is_some_and(|before| before.holder != holder) {
                self.slots[head].since = now;
            }
            let mut at = self.slots[head].first_ip;
            while at != NONE {
                if self.index_ip(at) {
                    shared.insert(self.ip_slots[at].ip()).expect("as many as a claim has");
                }
                at = self.ip_slots[at].next_of_claim;
            }
            self.front(head)
        });
        match (&before, &after) {
            (None, Some(_)) => {
                self.vports += 1;
                self.vnets.get_mut(&key.vni).expect("it has a claim").vports += 1;
            }
            (Some(_), None) => {
                self.vports -= 1;
                let vnet = self.vnets.get_mut(&key.vni).expect("it had a claim");
                vnet.vports -= 1;
                if vnet.vports == 0 {
                    self.vnets.remove(&key.vni);
                }
            }
            _ => {}
        }
        Change::between(key, before, after, shared)
    }

    fn is_ip(&self, at: u32, vni: Vni, ip: IpAddr) -> bool {
        let there = &self.ip_slots[at];
        there.ip() == ip && self.slots[there.slot].vni == vni
    }

    /// Puts an address of a winner into the index. True if another vport has the address as well.
    fn index_ip(&mut self, at: u32) -> bool {
        let (vni, ip) = (self.slots[self.ip_slots[at].slot].vni, self.ip_slots[at].ip());
        let hash = self.hasher.of_ip(vni, ip);
        let first = self.by_ip.find(hash, |there| self.is_ip(there, vni, ip));
        self.ip_slots[at].prev_same = NONE;
        self.ip_slots[at].next_same = first.unwrap_or(NONE);
        match first {
            None => self.by_ip.insert(hash, at),
            Some(first) => {
                self.ip_slots[first].prev_same = at;
                self.by_ip.replace(hash, first, at);
            }
        }
        first.is_some()
    }

    /// Takes an address out of the index.
    fn unindex_ip(&mut self, at: u32) {
        let IpSlot { slot, prev_same, next_same, .. } = self.ip_slots[at];
        if next_same != NONE {
            self.ip_slots[next_same].prev_same = prev_same;
        }
        if prev_same != NONE {
            self.ip_slots[prev_same].next_same = next_same;
            return;
        }
        let hash = self.hasher.of_ip(self.slots[slot].vni, self.ip_slots[at].ip());
        if next_same == NONE {
            self.by_ip.remove(hash, at);
        } else {
            self.by_ip.replace(hash, at, next_same);
        }
    }
}

impl Change {
    fn between(key: Key, before: Option<Front>, after: Option<Front>, shared: Ips) -> Self {
        let ips = |front: Option<Front>| front.map_or(Ips::default(), |front| front.ips);
        let (had, has) = (ips(before), ips(after));
        let is_news = |(ip, sequence): &(IpAddr, u32)| had.sequence(*ip) < Some(*sequence);
        let come = only(&has, is_news);
        Self {
            key,
            before: before.map(|front| front.holder),
            moves: before.map_or(0, |front| front.moves),
            after: after.map(|front| front.holder),
            gone: only(&had, |(ip, _)| !has.contains(*ip)),
            come,
            duplicates: only(&come, |(ip, _)| shared.contains(*ip)),
        }
    }
}

/// Returns a link as an option.
const fn some(at: u32) -> Option<u32> {
    if at == NONE { None } else { Some(at) }
}

/// Returns the most bytes that an ordered map of `count` entries takes: its nodes have room for 11
/// entries, and all but the root hold five or more; links take a sixth of a node or less.
const fn map_bytes(count: usize, entry_bytes: usize) -> usize {
    const NODE_ENTRIES: usize = 11;
    const NODE_ENTRIES_MIN: usize = 5;
    const NODE_LINKS_BYTES: usize = 48;
    count.div_ceil(NODE_ENTRIES_MIN) * (NODE_ENTRIES * entry_bytes + NODE_LINKS_BYTES)
}

#[cfg(test)]
mod tests;
