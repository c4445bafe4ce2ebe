//! Own claims, for a speaker of another protocol (EVPN).
//!
//! Changes are names and not a queue: who asks gets the present claim, so that an endpoint which
//! changes a thousand times makes nothing grow.

use alloc::collections::BTreeSet;

use sluice_base::Nanos;

use super::Plane;
use crate::vport::{Claim, Key, Origin};

/// Own endpoints whose claims have changed.
#[derive(Debug, Default)]
pub(super) struct OwnChanges {
    /// `None`: nobody asks.
    keys: Option<BTreeSet<Key>>,
}

impl OwnChanges {
    pub(super) fn note(&mut self, key: Key) {
        if let Some(keys) = &mut self.keys {
            keys.insert(key);
        }
    }
}

impl Plane {
    /// Begins to note changes of own claims, with all that there are; or ceases to.
    pub fn watch_own(&mut self, is_watched: bool) {
        let keys = self.table.claims_of(self.own).map(|claim| claim.key);
        self.own_changes.keys = is_watched.then(|| keys.collect());
    }

    /// Returns the next endpoint whose own claim may have changed, with the claim; `None` in its
    /// place: there is none any more.
    pub fn own_change(&mut self) -> Option<(Key, Option<Claim>)> {
        let key = self.own_changes.keys.as_mut()?.pop_first()?;
        Some((key, self.own_claim(key)))
    }

    /// Raises the number of moves of an own claim, if it is lower: another protocol counted moves
    /// that were not known here. Nothing happens to a binding, which later claims do not beat.
    pub fn raise_own(&mut self, now: Nanos, key: Key, moves: u32) {
        let now = self.clock.at(now);
        let own = self.own_claim(key).filter(|own| own.origin != Origin::Bound);
        if let Some(claim) = own.filter(|own| own.moves < moves) {
            self.publish(now, &Claim { moves, ..claim });
        }
    }
}
