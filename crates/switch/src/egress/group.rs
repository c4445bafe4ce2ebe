//! Queue groups: their limits, and what they wait for.
//!
//! ```text
//!   OPEN ── its rate does not allow the next frame ──> TIMED ── the rate allows it ──> OPEN
//!   OPEN, TIMED ── its tunnel lost its next hop ──> CLOSED ── next hop ──> OPEN
//!   FREE ── a destination is not known, or held ──> CLOSED ── resolved, rejected, let go ──> FREE
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use sluice_base::{ByteCount, Mac, Nanos, PortId, TunnelId, VnetId};

use crate::config::{Limit, PortConfig, PortRole, SwitchConfig};
use crate::inspect::{Counter, Marks};
use crate::place::{Held, NO_PORT};
use crate::shaper::Shaper;
use crate::sizes::{first_hold_group, holds_max, plain_size_max};
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;

use super::{EgressTables, GROUPS_MAX, Gate, QueueGroup};

/// Room of an output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room(Held);

impl Room {
    /// Takes the place of a frame, if there is room for it; the output is full otherwise.
    #[inline]
    pub(crate) fn takes(&mut self, bytes: u32) -> bool {
        let bytes = u64::from(bytes);
        if self.0.frames == 0 || self.0.bytes < bytes {
            return false;
        }
        self.0.frames -= 1;
        self.0.bytes -= bytes;
        true
    }
}

impl QueueGroup {
    /// Returns a queue group that is open and empty.
    pub(crate) fn new(kind: QueueGroupKind, port: u16, limit: Limit, shaper: Shaper) -> Self {
        Self {
            port,
            gate: Gate::Open,
            plain: matches!(kind, QueueGroupKind::Port(_)) && !shaper.is_limited(),
            plain_size_max: 0,
            frames: 0,
            bytes: 0,
            room: Held { frames: limit.frames, bytes: limit.bytes.0 },
            marks: Marks::default(),
            kind,
            parked: NIL,
            copies: 0,
            shaper,
            deadline: Nanos::MAX,
            punt_at: Nanos::MAX,
            asker: 0,
        }
    }

    /// Returns a queue group that is not in use.
    pub(crate) fn free() -> Self {
        let unlimited = Limit { frames: u32::MAX, bytes: ByteCount(u64::MAX) };
        Self::new(QueueGroupKind::Free, NO_PORT, unlimited, Shaper::new(None))
    }

    /// Returns the own queue group of a port.
    pub(crate) fn of_port(id: PortId, port: &PortConfig) -> Self {
        let shaper = Shaper::new(port.group_rate);
        let mut group = Self::new(QueueGroupKind::Port(id), id.0, port.output, shaper);
        group.plain &= matches!(port.role, PortRole::Access { .. });
        // Larger frames are checked one by one: they may have a tag, which does not count.
        group.plain_size_max = plain_size_max(port.mtu);
        group
    }

    /// Returns the queue group of a tunnel that leads through a port, for packets up to `mtu`.
    pub(crate) fn of_tunnel(tunnel: TunnelId, id: PortId, port: &PortConfig, mtu: u16) -> Self {
        let (kind, shaper) = (QueueGroupKind::Tunnel(tunnel), Shaper::new(port.group_rate));
        let mut group = Self::new(kind, id.0, port.output, shaper);
        group.plain_size_max = plain_size_max(mtu);
        group
    }

    /// Returns its port; [`NO_PORT`] without one.
    #[inline]
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    #[inline]
    pub(crate) const fn kind(&self) -> QueueGroupKind {
        self.kind
    }

    /// Returns its tunnel, if frames that wait for it go through one.
    #[inline]
    pub(crate) const fn tunnel(&self) -> Option<TunnelId> {
        match self.kind {
            QueueGroupKind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    /// Returns true if its frames are sent through a tunnel, now or once they are held no more.
    #[inline]
    pub(crate) const fn is_behind_tunnel(&self) -> bool {
        matches!(self.kind, QueueGroupKind::Tunnel(_) | QueueGroupKind::Held(_))
    }

    /// Returns true if a frame may be queued without further checks.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the size up to which a tenant's frame needs no check, if it is plain.
    #[inline]
    pub(crate) const fn plain_size_max(&self) -> u32 {
        self.plain_size_max as u32
    }

    /// Returns the frames that wait, with their bytes.
    pub(crate) const fn queued(&self) -> Counter {
        Counter { frames: self.frames as u64, bytes: self.bytes }
    }

    /// Returns the number of frames that wait.
    pub(crate) const fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the copies that wait.
    pub(crate) const fn copies(&self) -> u32 {
        self.copies
    }

    /// Returns true if it has parked queues.
    pub(crate) const fn has_parked(&self) -> bool {
        self.parked != NIL
    }

    /// Returns the moment at which its frames end, if it is closed.
    pub(crate) const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Returns the moment from which its miss may be reported.
    pub(crate) const fn punt_at(&self) -> Nanos {
        self.punt_at
    }

    /// Returns the input whose frame was the first for an unknown destination.
    pub(crate) const fn asker(&self) -> u16 {
        self.asker
    }
}

impl<B> EgressTables<B> {
    #[inline]
    pub(crate) fn group(&self, group: u32) -> &QueueGroup {
        &self.groups[group as usize]
    }

    /// Returns the number of queue groups, in use or not.
    pub(crate) const fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the queue groups of a port.
    pub(crate) fn groups_of(&self, port: u16) -> impl Iterator<Item = &QueueGroup> {
        self.groups.iter().filter(move |group| group.port == port)
    }

    /// Returns the high-water marks of a port: the sums of the marks of its queue groups.
    pub(crate) fn marks_of(&self, port: u16) -> Marks {
        let mut sum = Marks::default();
        for group in self.groups_of(port) {
            sum.frames_max += group.marks.frames_max;
            sum.bytes_max += group.marks.bytes_max;
        }
        sum
    }

    /// Returns the queue groups of unresolved destinations.
    #[inline]
    pub(crate) fn waiting(&self) -> &[u32] {
        self.lists.waiting()
    }

    /// Returns the queue groups of tunnels without a next hop.
    #[inline]
    pub(crate) fn closed(&self) -> &[u32] {
        self.lists.closed()
    }

    /// Returns the number of unresolved destinations that may still come.
    #[inline]
    pub(crate) const fn free_count(&self) -> usize {
        self.lists.free_count()
    }

    /// Returns true if a queue group waits for its rate.
    #[inline]
    pub(crate) fn has_timed(&self) -> bool {
        !self.lists.timed().is_empty()
    }

    /// Returns the next moment at which a rate or the flow control of a port has work; `None` if no
    /// frame waits for such a moment.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let first = self.ports.iter().position(|port| !port.is_timeless());
        if first.is_none() && !self.has_timed() {
            return None;
        }
        self.deadline_from(first.unwrap_or(self.ports.len()))
    }

    /// Returns the deadline as [`Self::deadline`]; no port before `from` has one.
    #[inline(never)]
    fn deadline_from(&self, from: usize) -> Option<Nanos> {
        let ports = self.ports[from..].iter().filter(|port| !port.is_timeless());
        let timed = self.lists.timed().iter();
        let ready_at = |group: &u32| self.group(*group).shaper.ready_at();
        ports.filter_map(|port| port.deadline()).chain(timed.map(ready_at)).min()
    }

    /// Takes a free queue group for an unknown destination, which an input asked for.
    pub(crate) fn start_waiting(
        &mut self,
        now: Nanos,
        (vnet, mac): (VnetId, Mac),
        asker: u16,
        deadline: Nanos,
    ) -> Option<u32> {
        let group = self.lists.start_waiting()?;
        let l = &mut self.groups[group as usize];
        l.kind = QueueGroupKind::Unresolved(vnet, mac);
        l.gate = Gate::Closed;
        (l.deadline, l.punt_at, l.asker) = (deadline, now, asker);
        Some(group)
    }

    /// Sets the moment from which a miss may be reported again.
    pub(crate) fn punt_again(&mut self, group: u32, at: Nanos) {
        self.groups[group as usize].punt_at = at;
    }

    /// Frees the empty queue group of a destination that is resolved or given up.
    pub(crate) fn end_waiting(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        debug_assert!(l.frames == 0 && l.parked == NIL, "a queue group is freed when it is empty");
        l.kind = QueueGroupKind::Free;
        (l.deadline, l.punt_at) = (Nanos::MAX, Nanos::MAX);
        self.lists.end_waiting(group);
    }

    /// Makes a free queue group that of a held destination behind a tunnel.
    pub(crate) fn begin_hold(&mut self, group: u32, tunnel: TunnelId, port: u16) {
        let l = &mut self.groups[group as usize];
        l.kind = QueueGroupKind::Held(tunnel);
        l.gate = Gate::Closed;
        l.port = port;
    }

    /// Frees the empty queue group of a destination that is held no more.
    pub(crate) fn end_hold(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        debug_assert!(l.frames == 0 && l.parked == NIL, "a queue group is freed when it is empty");
        l.kind = QueueGroupKind::Free;
        l.port = NO_PORT;
    }

    /// Makes a free queue group that of a tunnel. Its next hop is not known yet.
    pub(crate) fn begin_tunnel(&mut self, group: u32, tunnel: TunnelId, port: u16) {
        debug_assert!(self.group(group).kind == QueueGroupKind::Free, "the place is free");
        let of = self.underlays.iter().find(|underlay| underlay.port == port);
        let of = of.expect("the caller checks that the port is an underlay");
        let (kind, shaper) = (QueueGroupKind::Tunnel(tunnel), Shaper::new(of.rate));
        self.groups[group as usize] = QueueGroup::new(kind, port, of.output, shaper);
    }

    /// Frees the empty queue group of a tunnel that is removed.
    pub(crate) fn end_tunnel(&mut self, group: u32) {
        self.end_timed(group);
        self.lists.remove_closed(group);
        let l = &mut self.groups[group as usize];
        debug_assert!(l.frames == 0 && l.parked == NIL, "a queue group is freed when it is empty");
        *l = QueueGroup::free();
    }

    /// Closes the queue group of a tunnel that lost its next hop: its frames end at `deadline`.
    pub(crate) fn close(&mut self, group: u32, deadline: Nanos) {
        self.end_timed(group);
        let l = &mut self.groups[group as usize];
        (l.gate, l.deadline) = (Gate::Closed, deadline);
        self.lists.add_closed(group);
    }

    /// Opens the queue group of a tunnel that has a next hop, if it is closed.
    pub(crate) fn open_closed(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        l.deadline = Nanos::MAX;
        if l.gate == Gate::Closed {
            self.lists.remove_closed(group);
            self.open(group);
        }
    }

    /// Returns true if the queues of a queue group stand in their port's ring.
    pub(crate) fn is_open(&self, group: u32) -> bool {
        self.group(group).gate == Gate::Open
    }

    /// Makes a queue group that waits for its rate wait no more; its queues stay parked.
    pub(super) fn end_timed(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        if l.gate == Gate::Timed {
            l.gate = Gate::Open;
            self.lists.remove_timed(group);
            self.ports[usize::from(l.port)].timed_groups -= 1;
        }
    }

    /// Opens the queue groups whose rate allows a frame again.
    pub(crate) fn open_timed(&mut self, now: Nanos) {
        let mut at = 0;
        while let Some(&group) = self.lists.timed().get(at) {
            let l = &self.groups[group as usize];
            if l.shaper.is_ready(now) {
                self.lists.remove_timed_at(at);
                self.ports[usize::from(l.port)].timed_groups -= 1;
                self.open(group);
            } else {
                at += 1;
            }
        }
    }

    /// Puts the parked queues of a queue group back into their port's rings.
    fn open(&mut self, group: u32) {
        self.groups[group as usize].gate = Gate::Open;
        let mut parked = self.take_parked(group);
        while let Some(leaf) = self.next_parked(&mut parked) {
            self.place_leaf(leaf);
        }
    }

    /// Puts the queues of an open queue group that were set aside back into their port's ring.
    /// Returns false if there was none.
    pub(crate) fn reopen(&mut self, group: u32) -> bool {
        let l = self.group(group);
        let has_some = l.gate == Gate::Open && l.parked != NIL;
        if has_some {
            self.open(group);
        }
        has_some
    }

    /// Makes a queue group wait for its rate, if it does not yet.
    pub(super) fn start_timed(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        if l.gate == Gate::Open {
            l.gate = Gate::Timed;
            self.lists.add_timed(group);
            self.ports[usize::from(l.port)].timed_groups += 1;
        }
    }

    /// Sets whether frames may be queued for a queue group without further checks, unless it has a
    /// rate.
    pub(crate) fn set_plain(&mut self, group: u32, may: bool) {
        let l = &mut self.groups[group as usize];
        l.plain = may && !l.shaper.is_limited();
    }

    /// Recomputes which queue groups of a port are plain. `is_isolated` tells that a receiver
    /// behind the port is, `is_up` that a tunnel has a next hop.
    pub(crate) fn refresh_plain(
        &mut self,
        port: u16,
        is_isolated: bool,
        is_up: impl Fn(TunnelId) -> bool,
    ) {
        let p = &self.ports[usize::from(port)];
        let (detached, is_access) = (p.detached, matches!(p.role, PortRole::Access { .. }));
        for (at, group) in
            self.groups.iter_mut().enumerate().filter(|(_, group)| group.port == port)
        {
            let may = match group.kind {
                // A frame would overtake those in queues that are set aside.
                QueueGroupKind::Port(_) => is_access && group.parked == NIL,
                // The tag of a frame in a common queue has 16 bits for a queue group.
                QueueGroupKind::Tunnel(tunnel) => is_up(tunnel) && u16::try_from(at).is_ok(),
                QueueGroupKind::Unresolved(..) | QueueGroupKind::Held(_) | QueueGroupKind::Free => {
                    continue;
                }
            };
            group.plain = may && !detached && !is_isolated && !group.shaper.is_limited();
        }
    }

    /// Sets the largest packet for which a tunnel needs no further checks.
    pub(crate) fn fit(&mut self, group: u32, mtu: u16) {
        self.groups[group as usize].plain_size_max = plain_size_max(mtu);
    }

    /// Takes the ring of the parked queues out of a queue group.
    pub(crate) fn take_parked(&mut self, group: u32) -> u32 {
        mem::replace(&mut self.groups[group as usize].parked, NIL)
    }

    /// Takes the next queue out of a ring of parked ones.
    pub(crate) fn next_parked(&mut self, ring: &mut u32) -> Option<u32> {
        (*ring != NIL).then(|| self.queues.ring_pop(ring))
    }

    /// Returns the parked queue of a queue group that would be the next one.
    pub(crate) fn first_parked(&self, group: u32) -> Option<u32> {
        let parked = self.group(group).parked;
        (parked != NIL).then(|| self.queues.ring_head(parked))
    }

    /// Parks a queue that stands in no ring at its queue group.
    pub(crate) fn push_parked(&mut self, leaf: u32) {
        let group = self.queues.get(leaf).group();
        self.queues.ring_push(&mut self.groups[group as usize].parked, leaf);
    }

    /// Charges frames to their queue group when they are queued.
    #[inline]
    pub(crate) fn charge(&mut self, group: u32, sum: Held, owner: BufferOwner) {
        let group = &mut self.groups[group as usize];
        group.frames += sum.frames;
        group.bytes += sum.bytes;
        group.marks.rise(group.frames, group.bytes);
        if owner == BufferOwner::Output {
            group.room.frames -= sum.frames;
            group.room.bytes -= sum.bytes;
        } else if owner == BufferOwner::Copy {
            group.copies += sum.frames;
        }
    }

    /// Takes the charge of a frame back when it is dequeued.
    #[inline]
    pub(crate) fn uncharge(&mut self, group: u32, bytes: u32, owner: BufferOwner) {
        let group = &mut self.groups[group as usize];
        group.frames -= 1;
        group.bytes -= u64::from(bytes);
        if owner == BufferOwner::Output {
            group.room.frames += 1;
            group.room.bytes += u64::from(bytes);
        } else if owner == BufferOwner::Copy {
            group.copies -= 1;
        }
    }

    /// Returns the room of an output for frames of one buffer owner: without limit, unless they
    /// wait in the output's own buffer. At most `to_spare` frames find a slot there.
    #[inline]
    pub(crate) fn room(&self, group: u32, owner: BufferOwner, to_spare: u32) -> Room {
        if owner != BufferOwner::Output {
            return Room(Held::MAX);
        }
        let room = self.group(group).room;
        Room(Held { frames: room.frames.min(to_spare), bytes: room.bytes })
    }

    /// Returns the queue group at a place in the list of those that wait, and its destination.
    pub(crate) fn unresolved_at(&self, at: usize) -> Option<(u32, VnetId, Mac)> {
        let group = *self.lists.waiting().get(at)?;
        match self.group(group).kind {
            QueueGroupKind::Unresolved(vnet, mac) => Some((group, vnet, mac)),
            _ => unreachable!("waiting queue groups are unresolved"),
        }
    }
}

/// Returns the queue groups of a configuration: of ports, of tunnels, and of unresolved and held
/// destinations.
pub(super) fn make_groups(config: &SwitchConfig) -> Box<[QueueGroup]> {
    let unresolved = usize::from(config.unresolved.destinations);
    let count = first_hold_group(config) + holds_max(config);
    let mut groups = Vec::with_capacity(count);
    for (at, port) in config.ports.iter().enumerate() {
        groups.push(QueueGroup::of_port(PortId::from_index(at), port));
    }
    let vnet_mtu_min = config.vnets.iter().map(|vnet| vnet.mtu).min().unwrap_or(0);
    assert!(count <= GROUPS_MAX, "checked by `validate`");
    groups.resize_with(config.ports.len() + config.tunnel_places(), QueueGroup::free);
    for (at, tunnel) in config.numbered_tunnels() {
        let port = &config.ports[tunnel.port.index()];
        let mtu = port.mtu.saturating_sub(50).min(vnet_mtu_min);
        groups[config.ports.len() + at] =
            QueueGroup::of_tunnel(TunnelId::from_index(at), tunnel.port, port, mtu);
    }
    debug_assert_eq!(groups.len() + unresolved + holds_max(config), count);
    groups.resize_with(count, QueueGroup::free);
    groups.into()
}
