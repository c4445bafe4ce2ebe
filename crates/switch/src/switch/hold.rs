//! Destinations behind tunnels that are held at this end, as their host asked: the receiver does
//! not take its frames.
//!
//! ```text
//!            Hold(some priorities)        Hold(none), or not repeated within the lease
//!   (none) ───────────────────────> HELD ─────────────────────────> (none): queues move to the
//!                                    │ stuck: `receiver_stuck`   tunnel's queue group, order kept
//! ```
//!
//! Frames of a held priority wait in a queue group of their own, in the inputs of their senders.
//! They are never copied to the shared buffer, since a receiver that holds others up has no claim
//! on the pool. Frames of other priorities, and of lossy ones, take the tunnel's queue group as
//! usual. Frames that already stand in that queue group are sent before held ones, so that the
//! order of a pair is kept.
//!
//! A hold is a lease: a control plane that dies cannot hold a sender for ever.

use alloc::vec::Vec;

use sluice_base::{
    Buf, Destination, DropReason, Mac, Nanos, Priority, PriorityMask, TunnelId, VnetId,
};

use crate::config::SwitchConfig;
use crate::mac_table;
use crate::sizes::{first_hold_group, holds_max};
use crate::surface::CommandError;
use crate::switch::Switch;

/// Lifetime of a hold that is not repeated.
pub const HOLD_LEASE: Nanos = Nanos::from_millis(2_000);

/// One held destination.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: u64,
    tunnel: u16,
    group: u32,
    held: PriorityMask,
    stuck: PriorityMask,
    until: Nanos,
}

/// All held destinations.
#[derive(Debug)]
pub(crate) struct Holds {
    entries: Vec<Held>,
    free_groups: Vec<u32>,
}

impl Holds {
    /// Returns an empty list, with the queue groups that the configuration has for held
    /// destinations.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        let (first, count) = (first_hold_group(config), holds_max(config));
        let index_of = |at: usize| u32::try_from(at).expect("fewer than 2^20 queue groups");
        Self {
            entries: Vec::with_capacity(count),
            free_groups: (first..first + count).rev().map(index_of).collect(),
        }
    }

    fn of_group(&self, group: u32) -> Option<&Held> {
        self.entries.iter().find(|entry| entry.group == group)
    }

    /// Returns the queue group of a destination that is held behind this tunnel.
    pub(crate) fn group_of(&self, key: u64, tunnel: TunnelId) -> Option<u32> {
        let of = |entry: &&Held| entry.key == key && entry.tunnel == tunnel.0;
        self.entries.iter().find(of).map(|entry| entry.group)
    }

    /// Returns the moment at which the first lease ends.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.entries.iter().map(|entry| entry.until).min()
    }
}

impl<B: Buf> Switch<B> {
    /// Executes [`Command::Hold`](crate::Command::Hold).
    pub(crate) fn hold(
        &mut self,
        now: Nanos,
        (vnet, mac, tunnel): (VnetId, Mac, TunnelId),
        held: PriorityMask,
        stuck: PriorityMask,
    ) -> Result<(), CommandError> {
        let to = self.group_of(vnet, Destination::Tunnel(tunnel))?;
        let key = mac_table::key(vnet.0, mac);
        let (held, stuck) =
            (held.and(self.egress.lossless()), stuck.and(held).and(self.egress.lossless()));
        let mut at = self.holds.entries.iter().position(|entry| entry.key == key);
        if let Some(other) = at.filter(|&at| self.holds.entries[at].tunnel != tunnel.0) {
            if held.is_empty() {
                return Ok(());
            }
            self.let_go(other);
            at = None;
        }
        let at = match at {
            Some(at) => at,
            None if held.is_empty() => return Ok(()),
            None => self.begin_hold(key, tunnel, to)?,
        };
        let entry = &mut self.holds.entries[at];
        (entry.held, entry.stuck, entry.until) = (held, stuck, now.after(HOLD_LEASE));
        if held.is_empty() {
            self.let_go(at);
        } else {
            self.sort_held(at);
        }
        Ok(())
    }

    fn begin_hold(&mut self, key: u64, tunnel: TunnelId, to: u32) -> Result<usize, CommandError> {
        let group = self.holds.free_groups.pop().ok_or(CommandError::TooManyHeld)?;
        self.egress.begin_hold(group, tunnel, self.networks.tunnel(tunnel.0).port());
        if self.fdb.peek(key) == Some(to) {
            self.install(key, group);
        }
        let (held, stuck) = (PriorityMask::NONE, PriorityMask::NONE);
        let until = Nanos::MAX;
        self.holds.entries.push(Held { key, tunnel: tunnel.0, group, held, stuck, until });
        Ok(self.holds.entries.len() - 1)
    }

    /// Releases the queues that are not held any more, and ends the frames of stuck priorities.
    fn sort_held(&mut self, at: usize) {
        let Held { group, held, stuck, tunnel, .. } = self.holds.entries[at];
        let to = self.networks.tunnel(tunnel).group();
        let mut parked = self.egress.take_parked(group);
        while let Some(leaf) = self.egress.next_parked(&mut parked) {
            let priority = Priority::from_low_bits(self.egress.queue(leaf).priority());
            if stuck.contains(priority) {
                let reason = DropReason::ReceiverStuck;
                self.take_frames(leaf, |switch, slot| switch.drop_frame(slot, reason));
            } else if held.contains(priority) {
                self.egress.push_parked(leaf);
            } else {
                self.move_leaf(leaf, to);
            }
        }
    }

    /// Ends a hold and releases its frames.
    fn let_go(&mut self, at: usize) {
        let entry = &mut self.holds.entries[at];
        (entry.held, entry.stuck) = (PriorityMask::NONE, PriorityMask::NONE);
        self.sort_held(at);
        let Held { key, group, tunnel, .. } = self.holds.entries.swap_remove(at);
        if self.fdb.peek(key) == Some(group) {
            self.install(key, self.networks.tunnel(tunnel).group());
        }
        self.egress.end_hold(group);
        self.holds.free_groups.push(group);
    }

    /// Ends the holds that `goes` selects by key and tunnel, with the frames that wait for them.
    pub(crate) fn end_holds_of(&mut self, goes: impl Fn(u64, u16) -> bool) {
        let goes = |entry: &Held| goes(entry.key, entry.tunnel);
        while let Some(at) = self.holds.entries.iter().position(goes) {
            let Held { key, group, .. } = self.holds.entries.swap_remove(at);
            self.drop_parked(group, DropReason::Removed);
            if self.fdb.peek(key) == Some(group) {
                self.uninstall(key);
            }
            self.egress.end_hold(group);
            self.holds.free_groups.push(group);
        }
    }

    /// Ends the hold of a destination that has moved away from its tunnel.
    pub(crate) fn end_holds_elsewhere(&mut self, key: u64, to: Destination) {
        let is_elsewhere =
            |entry: &Held| entry.key == key && to != Destination::Tunnel(TunnelId(entry.tunnel));
        if let Some(at) = self.holds.entries.iter().position(is_elsewhere) {
            self.let_go(at);
        }
    }

    /// Ends the holds whose lease is over.
    pub(crate) fn advance_holds(&mut self, now: Nanos) {
        let is_over = |entry: &Held| entry.until <= now;
        while let Some(at) = self.holds.entries.iter().position(is_over) {
            self.let_go(at);
        }
    }

    /// Returns the queue group that a frame for a held destination takes.
    pub(crate) fn group_beyond_hold(&self, slot: u32, group: u32) -> Result<u32, DropReason> {
        let priority = Priority::from_low_bits(self.slots.get(slot).priority());
        match self.holds.of_group(group) {
            Some(entry) if entry.stuck.contains(priority) => Err(DropReason::ReceiverStuck),
            Some(entry) if entry.held.contains(priority) => Ok(group),
            Some(entry) => Ok(self.networks.tunnel(entry.tunnel).group()),
            None => Ok(group),
        }
    }

    /// Returns the destinations that are held here.
    pub fn holds(&self) -> impl Iterator<Item = (VnetId, Mac, TunnelId)> + '_ {
        self.holds.entries.iter().map(|entry| {
            let (vnet, mac) = mac_table::unkey(entry.key);
            (vnet, mac, TunnelId(entry.tunnel))
        })
    }
}
