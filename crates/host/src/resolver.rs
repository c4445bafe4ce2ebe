//! Addresses that are known from configuration, before any learning.

use alloc::vec::Vec;

use sluice_base::{Mac, VnetId};
use sluice_switch::Destination;

/// A table of (network, address) with destinations, read on a miss only: the forwarding table (FDB)
/// caches the answer.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    rows: Vec<((VnetId, Mac), Destination)>,
}

impl Resolver {
    /// Returns a table of these rows. The first one of several for one address counts.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = (VnetId, Mac, Destination)>) -> Self {
        let rows = addresses.into_iter().map(|(vnet, mac, to)| ((vnet, mac), to));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| row.0);
        rows.dedup_by_key(|row| row.0);
        Self { rows }
    }

    /// Returns the destination of an address; `None` if it is not known.
    #[must_use]
    pub fn find(&self, vnet: VnetId, mac: Mac) -> Option<Destination> {
        let at = self.rows.binary_search_by_key(&(vnet, mac), |row| row.0).ok()?;
        Some(self.rows[at].1)
    }
}
