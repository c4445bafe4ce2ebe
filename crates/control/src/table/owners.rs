//! Hosts that claim endpoints: their states, their snapshots, their end.

use alloc::vec::Vec;
use core::ops::Bound;

use sluice_base::{HostId, Nanos};

use super::change::{Change, OwnerState, Progress};
use super::slot::{List, Of};
use super::{NONE, Table};
use crate::digest::Digest;

#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) claims: List,
    pub(super) digest: Digest,
    /// Number of the host's snapshots. A claim of this epoch lies before all older ones in
    /// `claims`.
    pub(super) epoch: u32,
    /// True if a snapshot is open.
    in_snapshot: bool,
    pub(super) state: OwnerState,
}

const UNKNOWN: Owner = Owner {
    claims: List::EMPTY,
    digest: Digest { count: 0, sum: 0 },
    epoch: 0,
    in_snapshot: false,
    state: OwnerState::Live,
};

/// Returns the record of a host, made when the host is first named.
pub(super) fn of(owners: &mut Vec<Owner>, owner: HostId) -> &mut Owner {
    if owners.len() <= owner.index() {
        owners.resize(owner.index() + 1, UNKNOWN);
    }
    &mut owners[owner.index()]
}

impl Table {
    /// Returns the state of a host; [`OwnerState::Live`] if it was never set.
    #[must_use]
    pub fn owner(&self, owner: HostId) -> OwnerState {
        self.owners.get(owner.index()).map_or(OwnerState::Live, |owner| owner.state)
    }

    /// Sets the state of a host. `each` is called with every change of an endpoint's winner.
    pub fn set_owner(
        &mut self,
        now: Nanos,
        owner: HostId,
        state: OwnerState,
        mut each: impl FnMut(Change),
    ) {
        let record = of(&mut self.owners, owner);
        if record.state == state {
            return;
        }
        record.state = state;
        if record.digest.count == 0 {
            return;
        }
        // The state decides only the order of this host's claims among the claims of others.
        let mut last = Bound::Unbounded;
        while let Some(&key) = self.contested.range((last, Bound::Unbounded)).next() {
            last = Bound::Excluded(key);
            let hash = self.hasher.of_key(key);
            let head = self.head(hash, key).expect("it is contested");
            let Some(at) = self.claim_in_chain(head, owner) else { continue };
            let before = self.demote(head);
            self.unchain(hash, at);
            self.enchain(hash, at);
            let change = self.promote(now, hash, key, Some(before));
            if !change.is_nothing() {
                each(change);
            }
        }
    }

    /// Forgets a host, up to `count` claims in one call. `each` is called with the change of every
    /// endpoint that the host claimed. The host counts as live again when it is done.
    pub fn evict(
        &mut self,
        now: Nanos,
        owner: HostId,
        count: usize,
        each: impl FnMut(Change),
    ) -> Progress {
        let progress = self.take_off_tail(now, owner, count, |_epoch| true, each);
        if progress == Progress::Done {
            let record = of(&mut self.owners, owner);
            debug_assert_eq!(record.digest, Digest::default(), "no claim, no digest");
            record.in_snapshot = false;
            record.state = OwnerState::Live;
        }
        progress
    }

    /// Begins a snapshot of all claims of a host. An open snapshot ends without effect.
    pub fn begin_snapshot(&mut self, owner: HostId) {
        let record = of(&mut self.owners, owner);
        record.epoch = record.epoch.wrapping_add(1);
        record.in_snapshot = true;
    }

    /// Gives up an open snapshot: no claim goes.
    pub fn abort_snapshot(&mut self, owner: HostId) {
        of(&mut self.owners, owner).in_snapshot = false;
    }

    /// Ends the snapshot of a host and takes out the claims that were not named since it began, up
    /// to `count` in one call; the snapshot is open until all have gone. No claim goes if no
    /// snapshot is open.
    pub fn end_snapshot(
        &mut self,
        now: Nanos,
        owner: HostId,
        count: usize,
        each: impl FnMut(Change),
    ) -> Progress {
        let record = of(&mut self.owners, owner);
        if !record.in_snapshot {
            return Progress::Done;
        }
        let epoch = record.epoch;
        let progress = self.take_off_tail(now, owner, count, |named| named != epoch, each);
        if progress == Progress::Done {
            of(&mut self.owners, owner).in_snapshot = false;
        }
        progress
    }

    /// Removes claims from the tail of a host's list as long as `goes` returns true for a claim's
    /// snapshot.
    fn take_off_tail(
        &mut self,
        now: Nanos,
        owner: HostId,
        count: usize,
        goes: impl Fn(u32) -> bool,
        mut each: impl FnMut(Change),
    ) -> Progress {
        for step in 0.. {
            let tail = of(&mut self.owners, owner).claims.tail;
            if tail == NONE || !goes(self.slots[tail].epoch) {
                break;
            }
            if step == count {
                return Progress::More;
            }
            each(self.remove(now, tail));
        }
        Progress::Done
    }

    /// Notes that a claim was named again: if a snapshot began since, it goes to the front.
    pub(super) fn refresh(&mut self, at: u32) {
        let owner = self.slots[at].owner;
        let record = of(&mut self.owners, owner);
        if self.slots[at].epoch == record.epoch {
            return;
        }
        self.slots[at].epoch = record.epoch;
        record.claims.remove(&mut self.slots, Of::Owner, at);
        record.claims.push(&mut self.slots, Of::Owner, at);
    }
}
