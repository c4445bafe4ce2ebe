//! Inter-worker handoff: frames between the switches of one host. Each switch has a thread of its
//! own.
//!
//! ```text
//!   the switch that has the input              the switch that has the output
//!   receive ─> queue ─> hand_over ── Handoff ──> receive_handoff ─> queue ─> transmit
//!      ^                                                                        │
//!   reclaim <────── handed_back <── (handle, RemoteRef) ── reclaim_handoff <────┘
//! ```
//!
//! All of them have the same ports, networks and tunnels under the same numbers. One switch reads
//! and writes a port; the port is *elsewhere* for the others. A frame is classified, and waits, in
//! the switch that it came in at. Handing a frame over creates a **remote reference**: the other
//! switch holds the frame remotely. At most [`refs_max`](crate::HandoffConfig::refs_max) frames of
//! a priority have a remote reference for a port at a time. A full output therefore holds its
//! frames back at their ingress, and does not block frames that are handed off for another output.
//! The [`HandoffSink`] has room for all frames that may have a remote reference, and never refuses
//! one.
//!
//! A quarter of an input's own memory may be held remotely. Frames beyond that are first copied to
//! the shared buffer (the host pool), so that full ports elsewhere leave the input open for others.
//!
//! **A frame with a remote reference stays charged** to the memory that it is in: its slot remains,
//! without its handle, until [`Switch::handed_back`]. So windows, flow control and the pool need no
//! knowledge of other switches. **The order of a pair is kept**, since all its frames go the same
//! way. The audit of the first switch counts a frame as resident until it is back, then as
//! delivered; the second switch counts its outcome under the input of the handoff port.

use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Buf, Destination, DropReason, InputId, PortId, Priority, PriorityMask};

use crate::config::{HandoffConfig, PortRole};
use crate::egress::{Tag, Turn};
use crate::pool::part_of;
use crate::slots::{Arrival, BufferOwner, NIL, Slot};
use crate::switch::Switch;
use crate::switch::run::priority_of;
use crate::tunnel;

/// A remote reference: the number of the referenced frame in the switch that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRef(u32);

/// A frame on its way to the switch that has its output.
#[derive(Debug)]
#[must_use = "a frame that is dropped is lost to the driver of its input"]
pub struct Handoff<B> {
    buf: B,
    remote: RemoteRef,
    to: Destination,
    source: u16,
    vnet: u16,
    strip: u16,
    priority: Priority,
    ecn: Option<u8>,
    /// Segments and bytes of a super-frame that a driver took before the port migrated.
    sent: (u16, u32),
}

/// Counts of remote references; the lists are empty if no port is elsewhere.
#[derive(Debug)]
pub(crate) struct RemoteRefs {
    /// Frames with a remote reference, by priority and port.
    by_class: Vec<u16>,
    class_max: u16,
    /// By priority and port: frames that left a class and are not in its own count, since they were
    /// handed off, or the port took that count along. The count wraps.
    beside: Vec<u64>,
    /// By input: frames in its own memory that are held remotely.
    own: Vec<u32>,
    /// The ports that may migrate.
    movable: Vec<PortId>,
}

impl RemoteRefs {
    pub(crate) fn new(config: &HandoffConfig, ports: usize, inputs: usize) -> Self {
        let some = usize::from(config.remote_refs_max() > 0);
        Self {
            by_class: vec![0; some * ports * Priority::COUNT],
            class_max: config.refs_max,
            beside: vec![0; some * ports * Priority::COUNT],
            own: vec![0; some * inputs],
            movable: config.movable.clone(),
        }
    }

    /// Returns the frames that left a class and are not in its own count.
    pub(crate) fn left_beside(&self, class: usize) -> u64 {
        self.beside.get(class).copied().unwrap_or(0)
    }

    /// Adds the own count of a class, which migrates with its port: the sum of frames that left
    /// here stays the same.
    pub(crate) fn add_beside(&mut self, class: usize, frames: u64) {
        self.beside[class] = self.beside[class].wrapping_add(frames);
    }

    /// Subtracts the count of a class that a port brings along.
    pub(crate) fn take_beside(&mut self, class: usize, frames: u64) {
        self.beside[class] = self.beside[class].wrapping_sub(frames);
    }

    /// Returns true if a port may migrate.
    pub(crate) fn is_movable(&self, port: PortId) -> bool {
        self.movable.contains(&port)
    }

    /// Returns true if a port may have one more remote reference in a priority.
    fn may(&self, class: usize) -> bool {
        self.by_class[class] < self.class_max
    }
}

/// Carrier of frames to the switch that has the port.
pub trait HandoffSink<B> {
    /// Copies a frame that several ports send into the pool of the switch that it belongs to, and
    /// returns the handle. `None` if the pool has no room now.
    fn copy(&mut self, buf: &B) -> Option<B>;

    /// Takes a frame to the other switch. There must be room for as many as may have a remote
    /// reference.
    fn take(&mut self, frame: Handoff<B>);
}

/// Returns the size of the outer headers in front of a frame, in bytes.
fn outer_size(to: Destination) -> u32 {
    match to {
        Destination::Tunnel(_) => u32::try_from(tunnel::OUTER_SIZE).expect("50"),
        Destination::Port(_) => 0,
    }
}

impl<B: Buf> Switch<B> {
    /// Hands over frames that wait for a port that is elsewhere, in the order of the scheduler, as
    /// many as may have a remote reference. Returns their number.
    pub fn hand_over(&mut self, port: PortId, sink: &mut impl HandoffSink<B>) -> u32 {
        let at = port.index();
        debug_assert!(self.egress.port(at).is_elsewhere(), "the port has a driver here");
        let (mut refused, mut count) = (PriorityMask::NONE, 0);
        while let Some(priority) = self.egress.next_priority(at, refused) {
            let class = self.egress.class_of(at, priority);
            if self.remote_refs.may(class) && self.hand_over_next(at, priority, sink) {
                self.remote_refs.by_class[class] += 1;
                self.remote_refs.add_beside(class, 1);
                count += 1;
            } else {
                self.leave_common_of(at, class);
                refused.insert(priority_of(priority));
            }
        }
        self.egress.rest_elsewhere(at);
        count
    }

    /// Returns true if [`Self::hand_over`] has a frame that may have a remote reference.
    #[must_use]
    pub fn has_handoff(&self, port: PortId) -> bool {
        let at = port.index();
        let active = self.egress.port(at).active();
        let may = |p: Priority| self.remote_refs.may(self.egress.class_of(at, p.index()));
        Priority::all().any(|p| active.contains(p) && may(p))
    }

    /// Hands over the frame whose turn it is. Returns false if it has to be copied and cannot be
    /// now.
    fn hand_over_next(
        &mut self,
        at: usize,
        priority: usize,
        sink: &mut impl HandoffSink<B>,
    ) -> bool {
        let class = self.egress.class_of(at, priority);
        if let Some((_, &tag)) = self.egress.common_head(class) {
            if tag.owner() == BufferOwner::Output || self.may_reference_own(tag.input()) {
                self.hand_over_common(at, priority, tag, sink);
                return true;
            }
            // The frame is to be copied, which needs a queue of its source.
            self.leave_common_of(at, class);
        }
        let node = self.egress.next_node(&self.slots, at, priority);
        let turn = self.egress.turn_of(at, priority, node);
        let slot = self.slots.get(turn.slot);
        if slot.owner() == BufferOwner::Ring && !self.may_reference_own(slot.input()) {
            return self.copy_first(&turn, sink) && self.hand_over_next(at, priority, sink);
        }
        let mut copied = None;
        if slot.owner() == BufferOwner::Copy {
            let body = self.slots.body_of(slot).buf();
            let body = body.expect("copies wait no longer than their body has its handle");
            let Some(buf) = sink.copy(body) else { return false };
            copied = Some(buf);
        }
        let to = self.destination_of_group(at, turn.group);
        let slot = self.slots.get(turn.slot);
        let size = slot.bytes_left() + outer_size(to) * u32::from(slot.segments_left());
        self.egress.charge_class(at, priority, size);
        self.egress.charge_node(turn.node, size);
        let index = self.egress.dequeue(&mut self.slots, &turn);
        self.pass_on(index, at, to, sink, copied);
        true
    }

    /// Moves frames that have to wait from a common queue into queues of their sources, from which
    /// they can be copied to the shared buffer: frames with a remote reference and a common queue
    /// together would take too much of an input.
    fn leave_common_of(&mut self, at: usize, class: usize) {
        while let Some((_, &tag)) = self.egress.common_head(class) {
            self.leave_common(self.egress.group_of_tag(at, tag));
        }
    }

    /// Hands over the first frame of a common queue, which gets a slot for that.
    fn hand_over_common(
        &mut self,
        at: usize,
        priority: usize,
        tag: Tag,
        sink: &mut impl HandoffSink<B>,
    ) {
        let class = self.egress.class_of(at, priority);
        let Some(buf) = self.egress.pop_common(class) else { return };
        let (input, source, group) =
            (tag.input(), self.egress.source_of_tag(at, tag), self.egress.group_of_tag(at, tag));
        let (vnet, strip) = (self.ingress.input(input).vnet(), tag.strip().into());
        self.egress.uncharge(group, tag.bytes().into(), tag.owner());
        self.egress.mark_idle(at, priority);
        let urgency = priority_of(priority);
        let arrival = Arrival { source, vnet, strip, priority: urgency, ecn: None };
        let index = self.slots.put(input, &arrival, tag.owner(), buf);
        let to = self.destination_of_group(at, group);
        self.egress.charge_class(
            at,
            priority,
            u32::from(tag.bytes()) - u32::from(strip) + outer_size(to),
        );
        self.pass_on(index, at, to, sink, None);
    }

    fn destination_of_group(&self, at: usize, group: u32) -> Destination {
        match self.egress.group(group).tunnel() {
            Some(tunnel) => Destination::Tunnel(tunnel),
            None => Destination::Port(PortId::from_index(at)),
        }
    }

    /// Passes the frame of a slot, or `copied`, to `sink`.
    fn pass_on(
        &mut self,
        index: u32,
        at: usize,
        to: Destination,
        sink: &mut impl HandoffSink<B>,
        copied: Option<B>,
    ) {
        let slot = self.slots.get_mut(index);
        slot.begin_remote(PortId::from_index(at).0);
        if slot.owner() == BufferOwner::Ring {
            self.remote_refs.own[usize::from(slot.input())] += 1;
        }
        let buf = copied.or_else(|| slot.take_buf());
        sink.take(Handoff {
            buf: buf.expect("a frame that is not a copy has its handle"),
            remote: RemoteRef(index),
            to,
            source: slot.source(),
            vnet: slot.vnet(),
            strip: slot.strip(),
            priority: Priority::from_low_bits(slot.priority()),
            ecn: slot.ecn(),
            sent: slot.sent(),
        });
    }

    /// Returns true if another frame in an input's own memory may have a remote reference.
    fn may_reference_own(&self, input: u16) -> bool {
        let limit = self.ingress.input(input).limit();
        self.remote_refs.own[usize::from(input)] < (limit.frames / 4).max(1)
    }

    /// Copies the frame whose turn it is into the pool. Returns false if the pool has no room.
    fn copy_first(&mut self, turn: &Turn, sink: &mut impl HandoffSink<B>) -> bool {
        let slot = self.slots.get(turn.slot);
        let (input, bytes, priority) = (slot.input(), slot.bytes(), slot.priority());
        let port = self.egress.group(turn.group).port();
        let pool_takes = self.pool.takes_of(self.ingress.input(input), priority);
        if !pool_takes || self.is_isolated(port, priority) {
            return false;
        }
        let own = slot.buf().expect("a frame in a ring has its handle");
        let Some(copy) = sink.copy(own) else { return false };
        let slot = self.slots.get_mut(turn.slot);
        let own = slot.take_buf();
        slot.put_buf(copy);
        self.pooled(turn.slot, part_of(self.ingress.input(input)));
        self.egress.left_input(turn.leaf, bytes);
        // There is one handle more until the driver has its own back.
        self.slots.enter(1);
        self.end_handle(input, own.expect("as before"));
        true
    }

    /// Takes back a frame with a remote reference, which was sent or dropped elsewhere. Its handle
    /// comes out of [`Self::reclaim`], unless [`HandoffSink::copy`] made it: such a handle is
    /// returned, for the owner of the pool.
    ///
    /// # Panics
    /// If there is no such remote reference.
    pub fn handed_back(&mut self, buf: B, remote: RemoteRef) -> Option<B> {
        let slot = self.slots.get_mut(remote.0);
        let port = slot.end_remote().expect("a frame came back that was not lent");
        let (input, priority, owner) = (slot.input(), slot.priority(), slot.owner());
        let mut copied = None;
        if owner == BufferOwner::Copy {
            copied = Some(buf);
        } else {
            slot.put_buf(buf);
        }
        let class = self.egress.class_of(port.into(), priority.into());
        self.remote_refs.by_class[class] -= 1;
        if owner == BufferOwner::Ring {
            self.remote_refs.own[usize::from(input)] -= 1;
        }
        self.deliver_slot(remote.0);
        copied
    }

    /// Returns the number of handles of an input that are held remotely. Its driver may want them
    /// back.
    #[must_use]
    pub fn remote_refs(&self, input: InputId) -> usize {
        if self.remote_refs.by_class.iter().all(|&count| count == 0) {
            return 0;
        }
        let is_own = |slot: &&Slot<B>| slot.input() == input.0 && slot.is_with_driver();
        self.slots.remote().filter(is_own).count()
    }

    /// Returns the number of frames that have a remote reference for a port.
    #[must_use]
    pub fn remote_refs_to(&self, port: PortId) -> u32 {
        let remote = |priority: Priority| {
            let class = self.egress.class_of(port.index(), priority.index());
            u32::from(self.remote_refs.by_class.get(class).copied().unwrap_or(0))
        };
        Priority::all().map(remote).sum()
    }

    /// Takes a frame that another switch hands over, at the input of the handoff port for that
    /// switch.
    pub fn receive_handoff(&mut self, input: InputId, frame: Handoff<B>) {
        let Handoff { buf, remote, to, source, vnet, strip, priority, ecn, sent } = frame;
        self.slots.enter(1);
        let arrival = Arrival { source, vnet, strip, priority, ecn };
        let index = self.arrive(input.0, &arrival, buf);
        let slot = self.slots.get_mut(index);
        slot.set_remote_number(remote.0);
        slot.set_sent(sent);
        let (group, is_removed) = match to {
            Destination::Port(port) => (self.egress.port(port.index()).group(), false),
            Destination::Tunnel(tunnel) => {
                let tunnel = self.networks.tunnel(tunnel.0);
                (tunnel.group(), !tunnel.is_in_use())
            }
        };
        if self.egress.owner_of(priority) == BufferOwner::Ring {
            self.hold_at_input(index);
        }
        if is_removed {
            self.drop_frame(index, DropReason::Removed);
            return;
        }
        if let Some(reason) = self.refusal(index, group) {
            self.drop_frame(index, reason);
            return;
        }
        // Never uses the common queue, whose frames have no slot for the remote reference.
        self.enqueue_leaf(index, group);
    }

    /// Returns true if an input is that of a handoff port: its frames belong to another switch.
    #[inline]
    pub(crate) fn is_handoff(&self, input: u16) -> bool {
        let port = self.ingress.input(input).port();
        let port = self.egress.ports().get(usize::from(port));
        port.is_some_and(|port| port.role() == PortRole::Handoff)
    }

    /// Returns a handle that has to go back to the other switch, with its remote reference.
    pub fn reclaim_handoff(&mut self, input: InputId) -> Option<(B, RemoteRef)> {
        let index = self.ingress.input(input.0).ended_slot();
        if index == NIL {
            return None;
        }
        let remote = RemoteRef(self.slots.get(index).remote_number());
        self.reclaim_one(input).map(|buf| (buf, remote))
    }

    /// Revokes the remote references to frames in the memory of input `of` of their switch. Frames
    /// that wait are moved into the pool of this switch or end under `stopped`, as in
    /// [`Self::migrate_buffers`]. Other frames with a remote reference stay as they are. `copy`
    /// hands the handle that it gets back to the other switch, if it copies the frame. Returns the
    /// number of frames that ended.
    pub fn revoke(
        &mut self,
        input: InputId,
        of: InputId,
        mut copy: impl FnMut(B, RemoteRef) -> Result<B, B>,
    ) -> u32 {
        let of_tunnels = self.ingress.input(of.0).is_from_underlay();
        let tunnels_from = self.ingress.count();
        // Inputs and sources have the same numbers in all switches.
        let is_meant = |source: u16| match of_tunnels {
            true => usize::from(source) >= tunnels_from,
            false => source == of.0,
        };
        self.migrate_queues(input, is_meant, |buf, remote| copy(buf, RemoteRef(remote)))
    }
}
