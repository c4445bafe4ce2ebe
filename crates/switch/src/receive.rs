//! Ingress: classifies a frame, charges it to the buffer in which it will wait, and puts it into
//! its queue.

use core::net::Ipv4Addr;

use sluice_base::{Batch, Buf, DropReason, InputId, Mac, Nanos, Priority, PriorityMask};
use sluice_wire::ethernet;

use crate::classify::{self, Classified, Marking, OuterVerdict, Verdict};
use crate::common::{COMMON_FRAMES_MAX, Tag};
use crate::config::{PortRole, Tags};
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::{Full, Gate, Held};
use crate::queues::Key;
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

const BY_HANDOFF: &str = "what another switch hands over is taken by `receive_handoff`";

/// The port number of a queue group without a port.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// Metadata of a frame when it gets its slot.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) source: u16,
    pub(crate) vnet: u16,
    pub(crate) strip: u16,
    pub(crate) priority: Priority,
    pub(crate) ecn: Option<u8>,
}

impl<B: Buf> Switch<B> {
    /// Takes all frames of a batch. The batch must not be larger than the window that
    /// [`Self::window`] last promised for this input.
    ///
    /// # Panics
    /// If the window did not promise the frames a place, or the input does not exist.
    pub fn receive(&mut self, now: Nanos, input: InputId, batch: &mut Batch<B>) {
        let at = input.index();
        debug_assert!(batch.len() <= self.window(input).frames as usize, "beyond the window");
        // Looking ahead is worthwhile from two frames on.
        if batch.len() < 2 {
            if let Some(buf) = batch.pop() {
                self.receive_one(now, input, buf);
            }
            return;
        }
        self.slots.enter(u32::try_from(batch.len()).expect("fewer than handles in the switch"));
        let port = self.inputs[at].port;
        match self.ports[usize::from(port)].role {
            PortRole::Access { vnet } if self.ports[usize::from(port)].careful => {
                self.receive_validated(now, input.0, port, vnet.0, batch);
            }
            PortRole::Access { vnet } => self.receive_batch(now, input.0, port, vnet.0, batch),
            PortRole::Underlay { local, mac } => {
                for buf in batch.drain() {
                    self.receive_outer(now, input.0, port, (local, mac), buf);
                }
            }
            PortRole::Handoff => debug_assert!(false, "{BY_HANDOFF}"),
        }
    }

    /// Takes one frame as [`Self::receive`], for a driver that reads one at a time. The window must
    /// not be empty.
    ///
    /// # Panics
    /// As [`Self::receive`].
    #[inline]
    pub fn receive_one(&mut self, now: Nanos, input: InputId, buf: B) {
        let at = input.index();
        self.slots.enter(1);
        let port = self.inputs[at].port;
        match self.ports[usize::from(port)].role {
            PortRole::Access { vnet } if self.ports[usize::from(port)].careful => {
                self.receive_one_validated(now, input.0, port, vnet.0, buf);
            }
            PortRole::Access { vnet } => {
                if let Err(buf) = self.receive_plain(input.0, port, vnet.0, buf) {
                    self.receive_access(now, input.0, port, vnet.0, buf);
                }
            }
            PortRole::Underlay { local, mac } => {
                self.receive_outer(now, input.0, port, (local, mac), buf);
            }
            PortRole::Handoff => debug_assert!(false, "{BY_HANDOFF}"),
        }
    }

    #[inline]
    pub(crate) fn marking(&self, port: u16) -> Marking<'_> {
        let port = &self.ports[usize::from(port)];
        Marking {
            trust: port.trust,
            default: port.default_priority,
            dscp_to_priority: self.dscp.priorities(),
        }
    }

    /// Classifies a frame of an access port.
    #[inline]
    pub(crate) fn classify_access(&self, input: u16, port: u16, buf: &B) -> Verdict {
        let (head, size, marking) = (buf.head(), buf.size(), self.marking(port));
        let verdict = if self.ports[usize::from(port)].tags == Tags::Kept {
            classify::access(head, size, marking)
        } else {
            classify::behind_driver(head, size, marking, buf.vlan_tag())
        };
        match verdict {
            Verdict::Forward(c) => {
                let priority = self.inputs[usize::from(input)].priorities.nearest(c.priority);
                Verdict::Forward(Classified { priority, ..c })
            }
            verdict => verdict,
        }
    }

    #[inline(never)]
    pub(crate) fn receive_access(&mut self, now: Nanos, input: u16, port: u16, vnet: u16, buf: B) {
        let verdict = self.classify_access(input, port, &buf);
        let mut arrival =
            Arrival { source: input, vnet, strip: 0, priority: Priority::ZERO, ecn: None };
        match verdict {
            Verdict::Forward(c) => {
                arrival.priority = c.priority;
                let slot = self.arrive(input, &arrival, buf);
                if !self.control.is_attached() || !self.punt_neighbors(now, slot, c.dst) {
                    self.forward(now, slot, c.dst);
                }
            }
            Verdict::Pause(message) => self.consume_pause(now, input, port, &message, buf),
            Verdict::Drop(reason) => {
                let priorities = self.inputs[usize::from(input)].priorities;
                let default = self.ports[usize::from(port)].default_priority;
                arrival.priority = priorities.nearest(default);
                let slot = self.arrive(input, &arrival, buf);
                self.drop_frame(slot, reason);
            }
        }
    }

    #[inline]
    fn receive_outer(&mut self, now: Nanos, input: u16, port: u16, ends: (Ipv4Addr, Mac), buf: B) {
        if let Err(buf) = self.receive_plain_underlay(input, port, ends, buf) {
            self.receive_underlay(now, input, port, ends, buf);
        }
    }

    /// Receives any frame from the underlay on the slow path. `local` and `mac` are the addresses
    /// of the port.
    #[inline(never)]
    fn receive_underlay(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        (local, mac): (Ipv4Addr, Mac),
        mut buf: B,
    ) {
        let verdict = classify::underlay(buf.head(), buf.size(), local, mac, self.marking(port));
        let mut arrival =
            Arrival { source: input, vnet: 0, strip: 0, priority: Priority::ZERO, ecn: None };
        let frame = match verdict {
            OuterVerdict::Forward(frame) => frame,
            OuterVerdict::Pause(message) => {
                self.consume_pause(now, input, port, &message, buf);
                return;
            }
            OuterVerdict::Drop(reason, priority) => {
                arrival.priority = priority;
                let heard =
                    reason == DropReason::NotForUs && self.hear_too_big(now, port, local, &buf);
                let slot = self.arrive(input, &arrival, buf);
                if heard {
                    self.consume(slot)
                } else {
                    self.drop_frame(slot, reason)
                }
                return;
            }
        };
        if frame.size < buf.size() {
            buf.truncate(frame.size);
        }
        arrival.priority = frame.inner.priority;
        arrival.strip = frame.strip;
        arrival.ecn = frame.ecn;
        let tunnel = self.tunnel_from(frame.remote.to_bits(), port);
        let vnet = self.fdb.vnet_of(frame.vni);
        let (tunnel, vnet) = match (tunnel, vnet) {
            (None, _) => return self.refuse(input, &arrival, buf, DropReason::UnknownVtep),
            (_, None) => return self.refuse(input, &arrival, buf, DropReason::UnknownVni),
            (Some(tunnel), Some(vnet)) => (tunnel, vnet),
        };
        // A peer may use only the networks that it has.
        if !self.vnets[usize::from(vnet)].has_tunnel(tunnel) {
            return self.refuse(input, &arrival, buf, DropReason::UnknownVni);
        }
        if let Some(reason) = frame.own_tag.filter(|_| !self.vnets[usize::from(vnet)].own_tags) {
            return self.refuse(input, &arrival, buf, reason);
        }
        arrival.vnet = vnet;
        arrival.source = self.tunnels[usize::from(tunnel)].source;
        self.count_decap(vnet, tunnel, frame.inner.dst, buf.size());
        let slot = self.arrive(input, &arrival, buf);
        if self.is_watched(tunnel) {
            self.watch_tunnel(slot, tunnel);
        }
        self.forward(now, slot, frame.inner.dst);
    }

    pub(crate) fn refuse(&mut self, input: u16, arrival: &Arrival, buf: B, reason: DropReason) {
        let slot = self.arrive(input, arrival, buf);
        self.drop_frame(slot, reason);
    }

    /// Returns a slot for a new frame, charged to nothing yet.
    #[inline]
    fn arrive(&mut self, input: u16, arrival: &Arrival, buf: B) -> u32 {
        let bytes = buf.size();
        self.ledger.receive(input, arrival.priority.get(), Counter::of(bytes));
        self.new_slot(input, arrival, BufferOwner::Output, buf)
    }

    #[inline]
    pub(crate) fn new_slot(
        &mut self,
        input: u16,
        arrival: &Arrival,
        owner: BufferOwner,
        buf: B,
    ) -> u32 {
        let index = self.slots.take();
        let slot = self.slots.get_mut(index);
        slot.bytes = buf.size();
        slot.segments = buf.segments();
        (slot.sent, slot.sent_bytes) = (0, 0);
        slot.buf = Some(buf);
        slot.input = input;
        slot.source = arrival.source;
        slot.vnet = arrival.vnet;
        slot.strip = arrival.strip;
        slot.priority = arrival.priority.get();
        slot.owner = owner;
        slot.ecn = arrival.ecn;
        index
    }

    /// Puts a frame that control made into a slot of the control input.
    pub(crate) fn injected_slot(&mut self, vnet: u16, priority: Priority, buf: B) -> u32 {
        let input = self.control_input().0;
        let bytes = buf.size();
        self.ledger.inject(input, priority.get(), Counter::of(bytes));
        self.slots.enter(1);
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        self.new_slot(input, &arrival, BufferOwner::Output, buf)
    }

    fn consume_pause(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        message: &sluice_wire::mac_control::Message,
        buf: B,
    ) {
        self.ports[usize::from(port)].pause_in.receive(now, message);
        let arrival =
            Arrival { source: input, vnet: 0, strip: 0, priority: Priority::ZERO, ecn: None };
        let slot = self.arrive(input, &arrival, buf);
        self.consume(slot);
    }

    /// Ends a frame that was for the switch itself.
    fn consume(&mut self, slot: u32) {
        let s = self.slots.get(slot);
        self.ledger.consume(s.input, s.priority, Counter::of(s.bytes));
        self.end(slot);
    }

    /// Forwards a tenant's frame, whose slot is charged to nothing yet.
    #[inline]
    pub(crate) fn forward(&mut self, now: Nanos, slot: u32, dst: Mac) {
        if dst.is_group() {
            if dst == Mac::BROADCAST && self.is_storm(now, slot) {
                self.drop_frame(slot, DropReason::StormLimit);
                return;
            }
            self.hold_for_replication(slot);
            return;
        }
        let priority = self.slots.get(slot).priority;
        if self.services.lossless().contains(Priority::from_low_bits(priority)) {
            if self.input_is_full(slot) {
                self.drop_frame(slot, DropReason::InputFull);
                return;
            }
            self.slots.get_mut(slot).owner = BufferOwner::Ring;
            self.charge_input(slot);
        }
        self.route(now, slot, dst);
    }

    /// Returns true if a lossless frame may find its input full: the input reads on without pausing
    /// the sender.
    #[inline]
    pub(crate) fn may_be_full(&self, input: usize) -> bool {
        match self.inputs[input].full {
            Full::Wait => false,
            Full::Drop => !self.services.lossless().is_empty(),
            Full::Pause(priorities) => !self.services.lossless().without(priorities).is_empty(),
        }
    }

    /// Returns true if a frame finds the buffer of its input full and must be dropped there. Only
    /// inputs that read on can be found full; the others were never read beyond their window.
    #[inline]
    pub(crate) fn input_is_full(&self, slot: u32) -> bool {
        let s = self.slots.get(slot);
        let input = &self.inputs[usize::from(s.input)];
        let held = match input.full {
            Full::Wait => return false,
            Full::Drop => input.held,
            Full::Pause(paused) if paused.contains(Priority::from_low_bits(s.priority)) => {
                return false;
            }
            Full::Pause(paused) => self.held_unpaused(s.input, paused),
        };
        held.frames >= input.limit.frames || held.bytes + u64::from(s.bytes) > input.limit.bytes.0
    }

    /// Returns the sum of the frames without flow control at an input that pauses other priorities.
    #[cold]
    fn held_unpaused(&self, input: u16, paused: PriorityMask) -> Held {
        let mut sum = Held::default();
        for priority in Priority::all().filter(|p| !paused.contains(*p)) {
            let held = self.ledger.held(input.into(), priority.index());
            sum.frames += held.frames;
            sum.bytes += held.bytes;
        }
        sum
    }

    /// Finds the queue group of a frame and queues it there.
    #[inline]
    pub(crate) fn route(&mut self, now: Nanos, slot: u32, dst: Mac) {
        let s = self.slots.get(slot);
        let (vnet, input) = (s.vnet, s.input);
        // No frame may pass one that could not be queued: both might be of the same pair.
        if !self.inputs[usize::from(input)].deferred.is_empty() {
            self.defer(slot);
            return;
        }
        match self.fdb.lookup(mac_table::key(vnet, dst)) {
            Some(group) => self.admit(slot, group),
            None => self.miss(now, slot, dst),
        }
    }

    /// Queues a frame for a queue group with a destination, or drops it if it may not go there or a
    /// lossy output is full.
    #[inline]
    pub(crate) fn admit(&mut self, slot: u32, group: u32) {
        if self.groups[group as usize].plain {
            match self.refusal(slot, group) {
                Some(reason) => self.drop_frame(slot, reason),
                None => self.enqueue(slot, group),
            }
        } else {
            self.admit_slowly(slot, group);
        }
    }

    /// Admits a frame as [`Self::admit`], for a queue group that is not plain: its receiver may be
    /// isolated, here or at its own host.
    fn admit_slowly(&mut self, slot: u32, group: u32) {
        let group = match self.groups[group as usize].kind {
            QueueGroupKind::Held(_) => self.group_beyond_hold(slot, group),
            _ => Ok(group),
        };
        let group = match group {
            Ok(group) => group,
            Err(reason) => return self.drop_frame(slot, reason),
        };
        if let Some(reason) = self.refusal(slot, group) {
            return self.drop_frame(slot, reason);
        }
        let s = self.slots.get(slot);
        let (port, priority) = (self.groups[group as usize].port, s.priority);
        let (input, source) = (s.input, s.source);
        if !self.is_isolated(port, priority) {
            return self.enqueue(slot, group);
        }
        if let Some(reason) = self.refused_by_isolation(slot, group) {
            return self.drop_frame(slot, reason);
        }
        self.enqueue(slot, group);
        self.joined_isolated(port, priority, input, source);
    }

    #[inline]
    pub(crate) fn refusal(&self, slot: u32, group: u32) -> Option<DropReason> {
        let s = self.slots.get(slot);
        let l = &self.groups[group as usize];
        let input = &self.inputs[usize::from(s.input)];
        if l.port == input.port {
            return Some(match l.kind {
                QueueGroupKind::Tunnel(_) | QueueGroupKind::Held(_) => DropReason::SplitHorizon,
                _ => DropReason::SamePort,
            });
        }
        if matches!(l.kind, QueueGroupKind::Tunnel(_) | QueueGroupKind::Held(_))
            && input.from_underlay
        {
            return Some(DropReason::SplitHorizon);
        }
        if self.ports[usize::from(l.port)].detached {
            return Some(DropReason::Stopped);
        }
        let full = s.owner == BufferOwner::Output && self.output_is_full(group, s.bytes);
        full.then_some(DropReason::OutputFull)
    }

    /// Returns true if a lossy output has no room for a frame of this size.
    #[inline]
    pub(crate) fn output_is_full(&self, group: u32, bytes: u32) -> bool {
        let room = self.output_room(group);
        room.frames == 0 || room.bytes < u64::from(bytes)
    }

    /// Returns the room of a lossy output.
    #[inline]
    pub(crate) fn output_room(&self, group: u32) -> Held {
        let l = &self.groups[group as usize];
        Held { frames: l.room.frames.min(self.slots.to_spare()), bytes: l.room.bytes }
    }

    /// Puts a frame at the end of its queue group's common queue or of its (source, queue group,
    /// priority) queue.
    #[inline]
    pub(crate) fn enqueue(&mut self, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let (bytes, owner) = (s.bytes, s.owner);
        self.charge_group(group, bytes, owner);
        if self.join_common(slot, group) {
            return;
        }
        self.enqueue_leaf(slot, group);
    }

    /// Puts a frame that is charged to its queue group at the end of its (source, queue group,
    /// priority) queue.
    #[inline]
    pub(crate) fn enqueue_leaf(&mut self, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let (source, priority, bytes, owner) = (s.source, s.priority, s.bytes, s.owner);
        let leaf = self.leaf_of(group, source, priority);
        let node = self.queues.get_mut(leaf);
        node.add(1, bytes.into(), owner);
        let may_be_over = self.pair_share.may_be_passed_by(node);
        self.slots.push(&mut node.list, slot);
        if may_be_over {
            self.note_share(slot, leaf);
        }
    }

    /// Puts a frame at the end of the common queue of its queue group's port, and frees its slot,
    /// if the queue has room and takes such frames.
    #[inline]
    fn join_common(&mut self, index: u32, group: u32) -> bool {
        let is_remote = || self.is_handoff(self.slots.get(index).input);
        debug_assert!(!is_remote(), "nothing would know the reference any more");
        let l = &self.groups[group as usize];
        let slot = self.slots.get_mut(index);
        if !l.plain
            || slot.ecn.is_some()
            || slot.is_super()
            || !matches!(slot.owner, BufferOwner::Ring | BufferOwner::Output)
        {
            return false;
        }
        let (port, priority) = (usize::from(l.port), usize::from(slot.priority));
        let (Ok(bytes), Ok(strip)) = (u16::try_from(slot.bytes), u8::try_from(slot.strip)) else {
            return false;
        };
        let input = &self.inputs[usize::from(slot.input)];
        // The network of a frame that control sends to an address does not follow from its input.
        if matches!(l.kind, QueueGroupKind::Tunnel(_)) && slot.vnet != input.vnet {
            return false;
        }
        let at = priority * self.ports.len() + port;
        let class = &mut self.classes[at];
        let size = bytes - u16::from(strip);
        if size > l.plain_size_max || class.common_room(self.common_max) == 0 {
            return false;
        }
        let buf = slot.buf.take().expect("a frame that is not a copy has its handle");
        #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
        let source_or_group =
            if matches!(l.kind, QueueGroupKind::Tunnel(_)) { group as u16 } else { slot.source };
        class
            .common
            .push(buf, Tag { bytes, input: slot.input, source_or_group, strip, owner: slot.owner });
        self.slots.give_back(index);
        self.mark_active(port, priority);
        true
    }

    /// Moves frames that wait for a queue group in common queues into queues of their sources, in
    /// front of the frames there, which are younger.
    pub(crate) fn leave_common(&mut self, group: u32) {
        let at = usize::from(self.groups[group as usize].port);
        for priority in Priority::all() {
            let class = self.class_of(at, priority.index());
            let mut slots = [NIL; COMMON_FRAMES_MAX as usize];
            // Goes around once, so that frames that stay keep their order.
            for slot in slots.iter_mut().take(self.classes[class].common.len() as usize) {
                let Some((buf, tag)) = self.classes[class].common.pop() else { break };
                if self.group_of_tag(at, tag) == group {
                    let (input, source) = (tag.input, self.source_of_tag(at, tag));
                    let (vnet, strip) = (self.inputs[usize::from(input)].vnet, tag.strip.into());
                    let arrival = Arrival { source, vnet, strip, priority, ecn: None };
                    *slot = self.new_slot(input, &arrival, tag.owner, buf);
                } else {
                    self.classes[class].common.push(buf, tag);
                }
            }
            for slot in slots.into_iter().rev().filter(|slot| *slot != NIL) {
                self.put_first(slot, group);
            }
            self.mark_idle(at, priority.index());
        }
    }

    /// Puts a frame that is charged to its queue group in front of its (source, queue group,
    /// priority) queue.
    fn put_first(&mut self, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let (source, priority, bytes, owner) = (s.source, s.priority, s.bytes, s.owner);
        let leaf = self.leaf_of(group, source, priority);
        let node = self.queues.get_mut(leaf);
        node.add(1, bytes.into(), owner);
        node.shared_cursor = NIL;
        self.slots.push_front(&mut node.list, slot);
        self.note_share(slot, leaf);
    }

    /// Returns the queue of a (source, queue group, priority), bound now if it is not.
    #[inline]
    pub(crate) fn leaf_of(&mut self, group: u32, source: u16, priority: u8) -> u32 {
        match self.queues.find(Key::leaf(group, source, priority)) {
            Some(leaf) => leaf,
            None => {
                let leaf = self.queues.bind_leaf(group, source, priority);
                self.place_leaf(leaf);
                leaf
            }
        }
    }

    /// Puts a leaf into its port's ring, or, if its queue group is not open, into the queue group's
    /// ring of parked leaves.
    pub(crate) fn place_leaf(&mut self, leaf: u32) {
        let node = self.queues.get(leaf);
        let (group, priority) = (node.group, node.priority);
        let l = &mut self.groups[group as usize];
        if l.gate != Gate::Open {
            self.queues.ring_push(&mut l.parked, leaf);
            return;
        }
        let number = l.port;
        let class = self.class_of(usize::from(number), usize::from(priority));
        let ring = &mut self.classes[class].ring;
        if self.ports[usize::from(number)].has_bundles {
            self.queues.bundle_push(ring, number, leaf);
        } else {
            self.queues.ring_push(ring, leaf);
        }
        self.mark_active(usize::from(number), usize::from(priority));
    }

    /// Reads the destination of a frame that waits.
    pub(crate) fn destination_of(&self, slot: u32) -> Mac {
        let s = self.slots.get(slot);
        let buf = s.buf.as_ref().expect("a frame that is not a copy has its handle");
        ethernet::Frame::new_checked(&buf.head()[usize::from(s.strip)..])
            .expect("checked when it came in")
            .dst()
    }
}
