//! Adapters between the vport table, the sessions that fill it and the punts that read it.
//!
//! The table knows nothing of messages or frames, and sessions and punts know nothing of its slots.
//! Sessions use the trait [`Replica`], punts use [`Directory`]; this module implements both for the
//! table.

mod bounds;

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, Nanos, Vni};

pub use self::bounds::{Bound, Bounds, LEAP_MAX, MOVES_MAX, RefusedClaims};

use crate::digest::Digest;
use crate::directory::{Directory, Found, State};
use crate::session::{NoRoom, Replica};
use crate::table::{Change, OwnerState, Progress, Table, Vport};
use crate::vport::{Claim, Key};

/// Number of claims that are swept in one step.
const SWEEP: usize = 1024;

/// Access of a session to the table at one moment. It appends its changes to `changes`.
#[derive(Debug)]
pub struct Intake<'a> {
    /// The table.
    pub table: &'a mut Table,
    /// The time.
    pub now: Nanos,
    /// Changes to be followed by other modules, in order. Changes without a visible effect are left
    /// out.
    pub changes: &'a mut Vec<Change>,
    /// Bounds on the claims of the member.
    pub bounds: Bounds<'a>,
}

impl Intake<'_> {
    fn note(&mut self, change: Change) {
        if !change.is_nothing() {
            self.changes.push(change);
        }
    }

    /// Returns true if the owner may claim one endpoint more, or claims this one already.
    fn has_room(&self, owner: HostId, key: Key) -> bool {
        self.digest(owner).count < self.bounds.quota
            || self.bounds.aside.has(key)
            || self.table.claims(key).any(|vport| vport.owner == owner)
    }

    /// Follows a change of the owner's networks: claims of networks that it left are set aside, and
    /// claims of networks that it has entered are taken.
    ///
    /// # Errors
    /// [`NoRoom`]: some claims are still set aside.
    pub fn follow_networks(&mut self, owner: HostId) -> Result<(), NoRoom> {
        let vnets = self.bounds.vnets;
        let claims = self.table.claims_of(owner);
        let left: Vec<Claim> = claims.filter(|claim| !vnets.contains(&claim.key.vni)).collect();
        for claim in left {
            let told = self.bounds.aside.told(claim.key).unwrap_or(claim);
            let change = self.table.withdraw(self.now, owner, claim.key);
            self.bounds.aside.put(told, None);
            self.note(change);
        }
        let entered = self.bounds.aside.missing_in(vnets);
        entered.iter().try_for_each(|claim| self.claim(owner, claim))
    }

    /// Returns the effective moves of a claim: the claimed ones, unless they leap.
    fn moves(&self, owner: HostId, claim: &Claim) -> u32 {
        if claim.moves <= LEAP_MAX {
            return claim.moves;
        }
        let (mut own, mut others) = (0, None);
        for vport in self.table.claims(claim.key) {
            let moves = vport.claim.moves;
            if vport.owner == owner {
                own = moves;
            } else {
                others = others.max(Some(moves));
            }
        }
        match others {
            Some(most) if claim.moves <= most.saturating_add(LEAP_MAX).max(own) => claim.moves,
            Some(_) => 0,
            None => claim.moves.min(MOVES_MAX.max(own)),
        }
    }
}

impl Replica for Intake<'_> {
    fn begin_snapshot(&mut self, owner: HostId) {
        self.bounds.aside.begin_snapshot();
        self.table.begin_snapshot(owner);
    }

    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom> {
        let key = claim.key;
        if !self.has_room(owner, key) {
            self.bounds.aside.note(Bound::Quota, key);
            return Err(NoRoom);
        }
        if !self.bounds.vnets.contains(&key.vni) {
            self.bounds.aside.note(Bound::Network, key);
            self.bounds.aside.put(*claim, None);
            return Ok(());
        }
        let kept = Claim { moves: self.moves(owner, claim), ..*claim };
        let change = self.table.claim(self.now, owner, &kept).map_err(|_| NoRoom)?;
        if kept.moves == claim.moves {
            self.bounds.aside.forget(key);
        } else {
            self.bounds.aside.note(Bound::Moves, key);
            self.bounds.aside.put(*claim, Some(kept));
        }
        self.note(change);
        Ok(())
    }

    fn withdraw(&mut self, owner: HostId, key: Key) {
        self.bounds.aside.forget(key);
        let change = self.table.withdraw(self.now, owner, key);
        self.note(change);
    }

    fn end_snapshot(&mut self, owner: HostId) {
        let Self { table, now, changes, bounds } = self;
        bounds.aside.end_snapshot();
        let mut tell = |change: Change| {
            if !change.is_nothing() {
                changes.push(change);
            }
        };
        while let Progress::More = table.end_snapshot(*now, owner, SWEEP, &mut tell) {}
    }

    fn digest(&self, owner: HostId) -> Digest {
        self.bounds.aside.digest(self.table.digest(owner))
    }
}

/// The table as host `me` sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, F> {
    /// The table.
    pub table: &'a Table,
    /// This host: its own claims are confirmed by definition.
    pub me: HostId,
    /// Returns true if an endpoint said lately that it has an address.
    pub confirmed: F,
}

impl<F> View<'_, F> {
    fn found(&self, vport: Vport) -> Found {
        let state = match vport.state {
            _ if vport.owner == self.me => State::Own,
            OwnerState::Live => State::Authoritative,
            OwnerState::Stale => State::Stale,
        };
        Found { claim: vport.claim, owner: vport.owner, state }
    }
}

impl<F: Fn(Key, IpAddr) -> bool> Directory for View<'_, F> {
    fn find(&self, key: Key) -> Option<Found> {
        self.table.find(key).map(|vport| self.found(vport))
    }

    fn find_ip(&self, vni: Vni, ip: IpAddr) -> Option<Found> {
        self.table.find_ip(vni, ip).map(|vport| self.found(vport))
    }

    fn is_confirmed(&self, key: Key, ip: IpAddr) -> bool {
        (self.confirmed)(key, ip)
    }
}

#[cfg(test)]
mod tests;
