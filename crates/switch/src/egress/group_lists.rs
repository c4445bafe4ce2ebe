//! Lists of the queue groups that the switch has to visit as time passes, and of those that are
//! free.

use alloc::vec::Vec;

use crate::config::SwitchConfig;
use crate::sizes::holds_max;

/// Queue groups by the event that they wait for. Every turn reads whether the first three lists are
/// empty.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GroupLists {
    /// Queue groups that wait for their rate.
    timed: Vec<u32>,
    /// Queue groups of unresolved destinations. Each of them is either here or free.
    waiting: Vec<u32>,
    /// Queue groups of tunnels without a next hop.
    closed: Vec<u32>,
    /// Queue groups for unresolved destinations that have none now.
    free: Vec<u32>,
}

impl GroupLists {
    /// Creates the lists of a switch with so many queue groups.
    pub(crate) fn new(config: &SwitchConfig, groups: usize) -> Self {
        Self {
            timed: Vec::with_capacity(groups),
            waiting: Vec::with_capacity(groups),
            closed: Vec::with_capacity(config.tunnel_places()),
            free: unresolved_groups(config, groups),
        }
    }

    /// Returns the queue groups that wait for their rate.
    #[inline]
    pub(crate) fn timed(&self) -> &[u32] {
        &self.timed
    }

    /// Adds a queue group that waits for its rate.
    #[inline]
    pub(crate) fn add_timed(&mut self, group: u32) {
        self.timed.push(group);
    }

    /// Removes the queue group at a place; the last one takes its place.
    #[inline]
    pub(crate) fn remove_timed_at(&mut self, at: usize) {
        self.timed.swap_remove(at);
    }

    /// Removes a queue group that may wait for its rate.
    pub(crate) fn remove_timed(&mut self, group: u32) {
        self.timed.retain(|&timed| timed != group);
    }

    /// Returns the queue groups of unresolved destinations.
    #[inline]
    pub(crate) fn waiting(&self) -> &[u32] {
        &self.waiting
    }

    /// Returns the number of unresolved destinations that may still come.
    #[inline]
    pub(crate) const fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Takes a free queue group for an unresolved destination.
    pub(crate) fn start_waiting(&mut self) -> Option<u32> {
        let group = self.free.pop()?;
        self.waiting.push(group);
        Some(group)
    }

    /// Frees the queue group of a destination that is resolved or given up; the last one that waits
    /// takes its place.
    pub(crate) fn end_waiting(&mut self, group: u32) {
        if let Some(at) = self.waiting.iter().position(|&w| w == group) {
            self.waiting.swap_remove(at);
        }
        self.free.push(group);
    }

    /// Returns the queue groups of tunnels without a next hop.
    #[inline]
    pub(crate) fn closed(&self) -> &[u32] {
        &self.closed
    }

    /// Adds the queue group of a tunnel that has no next hop.
    pub(crate) fn add_closed(&mut self, group: u32) {
        self.closed.push(group);
    }

    /// Removes the queue group of a tunnel that has a next hop.
    pub(crate) fn remove_closed(&mut self, group: u32) {
        self.closed.retain(|&closed| closed != group);
    }
}

/// Returns the queue groups for unresolved destinations, the first one on top.
fn unresolved_groups(config: &SwitchConfig, groups: usize) -> Vec<u32> {
    let first = config.ports.len() + config.tunnel_places();
    let groups = groups - holds_max(config);
    let index_of = |at: usize| u32::try_from(at).expect("fewer than 2^20 queue groups");
    (first..groups).rev().map(index_of).collect()
}
