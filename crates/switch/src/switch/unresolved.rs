//! Unresolved destinations. Frames for a destination that the forwarding table (FDB) does not have
//! wait in order in a queue group of their own; the control plane only gets a copy of the first
//! one's head.
//!
//! ```text
//!            miss                 Install: queues move to the destination, order kept
//!   (none) ───────> WAITING ────> (none)
//!                      │ Reject, or no answer within the time: `unresolved`
//!                      └────────> (none)
//! ```
//!
//! When every such queue group is taken, a lossless frame is *deferred*: its input has no window
//! until a queue group is free, and frames that were promised before wait in order behind it.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Buf, Destination, DropReason, InputId, Mac, Nanos, Priority, SourceId, VnetId};

use crate::config::{SwitchConfig, UnresolvedConfig};
use crate::mac_table;
use crate::slots::BufferOwner;
use crate::surface::{Head, Notice, QueueGroupKind};
use crate::switch::Switch;
use crate::switch::dispose::Disposition;

/// Limits of unresolved destinations, and what counts against them.
#[derive(Debug)]
pub(crate) struct Unresolved {
    config: UnresolvedConfig,
    /// Number of lossy frames that wait for a destination.
    buffered: u32,
    waits: Waits,
}

impl Unresolved {
    /// Returns the state of a switch with so many inputs.
    pub(crate) fn new(config: &SwitchConfig, inputs: usize) -> Self {
        Self { config: config.unresolved, buffered: 0, waits: Waits::new(config, inputs) }
    }

    /// Returns the time for which frames wait for a destination.
    pub(crate) const fn timeout(&self) -> Nanos {
        self.config.timeout
    }
}

/// Unresolved destinations by network and input, each of which has a share of the queue groups.
#[derive(Debug)]
struct Waits {
    is_shared_out: bool,
    by_vnet: Box<[u16]>,
    by_input: Box<[u16]>,
}

impl Waits {
    fn new(config: &SwitchConfig, inputs: usize) -> Self {
        let is_shared_out = config.isolation.is_some();
        let some = usize::from(is_shared_out);
        Self {
            is_shared_out,
            by_vnet: vec![0; config.vnet_places() * some].into(),
            by_input: vec![0; inputs * some].into(),
        }
    }

    /// Takes a place for an input and a network, of `free` ones. An input may have as many as are
    /// still free, and one network of several three times as many, so that none takes them all.
    fn take(&mut self, free: usize, (input, vnet): (u16, u16), has_several_vnets: bool) -> bool {
        if !self.is_shared_out {
            return true;
        }
        let (by_input, by_vnet) =
            (&mut self.by_input[usize::from(input)], &mut self.by_vnet[usize::from(vnet)]);
        let is_full = usize::from(*by_input) >= free
            || (has_several_vnets && usize::from(*by_vnet) >= 3 * free);
        if !is_full {
            *by_input += 1;
            *by_vnet += 1;
        }
        !is_full
    }

    /// Gives a place of an input and a network back.
    fn give_back(&mut self, input: u16, vnet: VnetId) {
        if self.is_shared_out {
            self.by_vnet[vnet.index()] -= 1;
            self.by_input[usize::from(input)] -= 1;
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Decides about a frame whose destination is not in the forwarding table.
    #[cold]
    pub(crate) fn miss(&mut self, now: Nanos, slot: u32, dst: Mac) -> Disposition {
        let vnet = self.slots.get(slot).vnet();
        let lossy = self.slots.get(slot).owner() == BufferOwner::Output;
        let full =
            self.unresolved.buffered >= self.unresolved.config.frames || self.slots.are_short();
        if lossy && full {
            return Disposition::Drop(DropReason::UnresolvedFull);
        }
        let key = mac_table::key(vnet, dst);
        let group = match self.fdb.pending(key) {
            Some(group) => group,
            None => match self.take_group(now, (VnetId(vnet), dst), slot) {
                Some(group) => {
                    self.fdb.add_pending(key, group);
                    self.punt(now, group, slot);
                    group
                }
                None if lossy => return Disposition::Drop(DropReason::UnresolvedFull),
                // A frame that waits at a shared input blocks all other frames there.
                None if self.unresolved.waits.is_shared_out
                    && self.ingress.input(self.slots.get(slot).input()).is_shared() =>
                {
                    return Disposition::Drop(DropReason::Unresolved);
                }
                None => return Disposition::Defer,
            },
        };
        Disposition::Wait(group)
    }

    /// Returns a queue group for an unknown destination.
    fn take_group(&mut self, now: Nanos, to: (VnetId, Mac), slot: u32) -> Option<u32> {
        let (asker, vnet) = (self.slots.get(slot).input(), to.0.0);
        let (free, several) = (self.egress.free_count(), self.networks.has_several());
        if !self.unresolved.waits.take(free, (asker, vnet), several) {
            return None;
        }
        self.egress.start_waiting(now, to, asker, now.after(self.unresolved.config.timeout))
    }

    /// Reports a miss with the head of a waiting frame, if the event fits; otherwise it is reported
    /// later.
    fn punt(&mut self, now: Nanos, group: u32, slot: u32) {
        let l = self.egress.group(group);
        let QueueGroupKind::Unresolved(vnet, mac) = l.kind() else { return };
        if now < l.punt_at() || self.control.is_full_of_misses() {
            return;
        }
        let s = self.slots.get(slot);
        let from = match self.source_tunnel(SourceId(s.source())) {
            Some(tunnel) => Some(Destination::Tunnel(tunnel)),
            None => self.port_of(InputId(s.input())).map(Destination::Port),
        };
        let Some(buf) = s.buf() else { return };
        let head = Head::copy_of(&buf.head()[usize::from(s.strip())..]);
        self.egress.punt_again(group, now.after(self.unresolved.config.punt_gap));
        self.control.tell_miss(Notice::Miss { vnet, mac, from, head });
    }

    /// Resolves a destination: the queues of its waiting queue group move to the destination's
    /// queue group.
    pub(crate) fn resolve(&mut self, now: Nanos, vnet: VnetId, mac: Mac, to: u32) {
        if let Some(from) = self.fdb.take_pending(mac_table::key(vnet.0, mac)) {
            let mut parked = self.egress.take_parked(from);
            while let Some(leaf) = self.egress.next_parked(&mut parked) {
                self.move_leaf(leaf, to);
            }
            self.free_group(from);
        }
        self.retry_deferred(now);
    }

    /// Moves the frames of a leaf that stands in no ring to another queue group, behind its frames.
    pub(crate) fn move_leaf(&mut self, leaf: u32, to: u32) {
        let queue = self.egress.queue(leaf);
        let (first, priority) = (queue.list().head(), Priority::from_low_bits(queue.priority()));
        let refused = self.refused_by_group(first, to);
        let lossy = !self.egress.lossless().contains(priority);
        if lossy || refused {
            // Admits each frame by itself: it may not go there, or may find the output full.
            self.take_frames(leaf, |switch, slot| switch.settle(slot, switch.admit(slot, to)));
            return;
        }
        let leaf = self.egress.move_leaf(&mut self.slots, leaf, to);
        // The queue may have outgrown its share under its old key.
        self.note_share(first, leaf);
    }

    fn refused_by_group(&self, slot: u32, to: u32) -> bool {
        let s = self.slots.get(slot);
        let group = self.egress.group(to);
        let input = self.ingress.input(s.input());
        group.port() == input.port()
            || (input.is_from_underlay() && group.is_behind_tunnel())
            || self.is_offloaded(input.port(), group.port())
            || self.egress.port(usize::from(group.port())).is_detached()
            || matches!(group.kind(), QueueGroupKind::Held(_))
            || self.is_isolated(group.port(), s.priority())
    }

    /// Puts a frame at the end of a queue of a queue group, which may have no destination yet: the
    /// opposite of [`Self::take_frames`]. The frame keeps its slot, since a common queue has no
    /// room for a remote reference.
    pub(crate) fn put_frame(&mut self, slot: u32, group: u32) {
        let owner = self.slots.get(slot).owner();
        self.unresolved.buffered += self.counts_as_unresolved(group, owner);
        self.enqueue_leaf(slot, group);
    }

    /// Returns 1 if a frame counts as a lossy one that waits for a destination, else 0.
    fn counts_as_unresolved(&self, group: u32, owner: BufferOwner) -> u32 {
        let waits = matches!(self.egress.group(group).kind(), QueueGroupKind::Unresolved(..));
        u32::from(waits && owner == BufferOwner::Output)
    }

    /// Empties a leaf that stands in no ring, passes each frame to `each`, and unbinds the leaf.
    pub(crate) fn take_frames(&mut self, leaf: u32, mut each: impl FnMut(&mut Self, u32)) {
        let queue = self.egress.take_leaf(leaf);
        let (group, mut list) = (queue.group(), queue.list());
        while let Some(slot) = self.slots.pop(&mut list) {
            let s = self.slots.get(slot);
            let (bytes, owner) = (s.bytes(), s.owner());
            self.egress.uncharge(group, bytes, owner);
            self.unresolved.buffered -= self.counts_as_unresolved(group, owner);
            each(self, slot);
        }
    }

    /// Ends all frames that wait for a destination.
    pub(crate) fn reject(&mut self, now: Nanos, vnet: VnetId, mac: Mac) {
        if let Some(group) = self.fdb.take_pending(mac_table::key(vnet.0, mac)) {
            self.drop_parked(group, DropReason::Unresolved);
            self.free_group(group);
        }
        self.retry_deferred(now);
    }

    /// Drops every frame of the queues that are parked in a queue group.
    pub(crate) fn drop_parked(&mut self, group: u32, reason: DropReason) {
        let mut parked = self.egress.take_parked(group);
        while let Some(leaf) = self.egress.next_parked(&mut parked) {
            self.take_frames(leaf, |switch, slot| switch.drop_frame(slot, reason));
        }
    }

    pub(crate) fn free_group(&mut self, group: u32) {
        let l = self.egress.group(group);
        if let QueueGroupKind::Unresolved(vnet, _) = l.kind() {
            self.unresolved.waits.give_back(l.asker(), vnet);
        }
        self.egress.end_waiting(group);
    }

    /// Tries to queue deferred frames again, input by input, in order.
    pub(crate) fn retry_deferred(&mut self, now: Nanos) {
        for input in 0..self.ingress.count() {
            let mut list = self.ingress.take_deferred(InputId::from_index(input).0);
            while let Some(slot) = self.slots.pop(&mut list) {
                let dst = self.destination_of(slot);
                let disposition = self.route(now, slot, dst);
                self.settle(slot, disposition);
            }
        }
    }

    /// Ends frames that waited too long, and reports the misses again for which frames still wait.
    pub(crate) fn advance_unresolved(&mut self, now: Nanos) {
        let mut at = 0;
        while let Some((group, vnet, mac)) = self.egress.unresolved_at(at) {
            let l = self.egress.group(group);
            if l.deadline() <= now {
                // `reject` takes the queue group out of the list, so `at` is the next one.
                self.reject(now, vnet, mac);
                continue;
            }
            if l.punt_at() <= now
                && let Some(leaf) = self.egress.first_parked(group)
            {
                let first = self.egress.queue(leaf).list().head();
                self.punt(now, group, first);
            }
            at += 1;
        }
        self.advance_closed_tunnels(now);
    }

    fn advance_closed_tunnels(&mut self, now: Nanos) {
        for at in 0..self.egress.closed().len() {
            let group = self.egress.closed()[at];
            if self.egress.group(group).deadline() <= now {
                self.drop_parked(group, DropReason::TunnelDown);
            }
        }
    }

    /// Returns the next moment at which [`Self::advance_unresolved`] has work.
    pub(crate) fn unresolved_deadline(&self) -> Option<Nanos> {
        let waiting = self.egress.waiting().iter().map(|&group| {
            let l = self.egress.group(group);
            // Without frames (their port was detached) there is no miss to report.
            if l.has_parked() { l.deadline().min(l.punt_at()) } else { l.deadline() }
        });
        let closed = self.egress.closed().iter().filter_map(|&group| {
            let l = self.egress.group(group);
            l.has_parked().then_some(l.deadline())
        });
        waiting.chain(closed).min()
    }
}
