//! Ingress: classifies a frame, charges it to the buffer in which it will wait, and puts it into
//! its queue.

use core::net::Ipv4Addr;

use sluice_base::{Batch, Buf, DropReason, InputId, Mac, Nanos, Priority, PriorityMask};
use sluice_wire::ethernet;

use crate::classify::{self, Classified, Marking, OuterVerdict, Verdict};
use crate::config::{PortRole, Tags};
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::{Full, Held};
use crate::slots::{BufferOwner, List};
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
        let p = self.egress.port(usize::from(port));
        match p.role() {
            PortRole::Access { vnet } if p.is_careful() => {
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
        let p = self.egress.port(usize::from(port));
        match p.role() {
            PortRole::Access { vnet } if p.is_careful() => {
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
        let port = self.egress.port(usize::from(port));
        Marking {
            trust: port.trust(),
            default: port.default_priority(),
            dscp_to_priority: self.dscp.priorities(),
        }
    }

    /// Classifies a frame of an access port.
    #[inline]
    pub(crate) fn classify_access(&self, input: u16, port: u16, buf: &B) -> Verdict {
        let (head, size, marking) = (buf.head(), buf.size(), self.marking(port));
        let verdict = if self.egress.port(usize::from(port)).tags() == Tags::Kept {
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
                let default = self.egress.port(usize::from(port)).default_priority();
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
        self.egress.hear_pause(port, now, message);
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
        if self.egress.lossless().contains(Priority::from_low_bits(priority)) {
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
            Full::Drop => !self.egress.lossless().is_empty(),
            Full::Pause(priorities) => !self.egress.lossless().without(priorities).is_empty(),
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
        if self.egress.group(group).is_plain() {
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
        let group = match self.egress.group(group).kind() {
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
        let (port, priority) = (self.egress.group(group).port(), s.priority);
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
        let l = self.egress.group(group);
        let input = &self.inputs[usize::from(s.input)];
        if l.port() == input.port {
            let is_tunnel = l.is_behind_tunnel();
            return Some(if is_tunnel { DropReason::SplitHorizon } else { DropReason::SamePort });
        }
        if l.is_behind_tunnel() && input.from_underlay {
            return Some(DropReason::SplitHorizon);
        }
        if self.egress.port(usize::from(l.port())).is_detached() {
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
        self.egress.room(group, self.slots.to_spare())
    }

    /// Puts a frame at the end of its queue group's common queue or of its (source, queue group,
    /// priority) queue.
    #[inline]
    pub(crate) fn enqueue(&mut self, slot: u32, group: u32) {
        let input = self.slots.get(slot).input;
        debug_assert!(!self.is_handoff(input), "nothing would know the reference any more");
        let vnet = self.inputs[usize::from(input)].vnet;
        if !self.egress.join_common(&mut self.slots, slot, group, vnet) {
            self.enqueue_leaf(slot, group);
        }
    }

    /// Puts a frame at the end of its (source, queue group, priority) queue.
    #[inline]
    pub(crate) fn enqueue_leaf(&mut self, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let (queue, owner) = ((group, s.source, s.priority), s.owner);
        let sum = Held { frames: 1, bytes: s.bytes.into() };
        let list = self.slots.single(slot);
        self.push_queue(queue, list, sum, owner);
    }

    /// Puts frames with one buffer owner at the end of a (source, queue group, priority) queue.
    #[inline]
    pub(crate) fn push_queue(
        &mut self,
        queue: (u32, u16, u8),
        list: List,
        sum: Held,
        owner: BufferOwner,
    ) {
        let leaf = self.egress.push_queue(&mut self.slots, queue, list, sum, owner);
        if self.pair_share.may_be_passed_by(self.egress.queue(leaf)) {
            self.note_share(list.head, leaf);
        }
    }

    /// Moves frames that wait for a queue group in common queues into queues of their sources, in
    /// front of the frames there, which are younger.
    pub(crate) fn leave_common(&mut self, group: u32) {
        let at = usize::from(self.egress.group(group).port());
        for priority in Priority::all() {
            let taken = self
                .egress
                .take_common(at, priority, |egress, tag| egress.group_of_tag(at, tag) == group);
            let slots = taken.map(|frame| {
                let (buf, tag) = frame?;
                let source = self.egress.source_of_tag(at, tag);
                let (vnet, strip) = (self.inputs[usize::from(tag.input)].vnet, tag.strip.into());
                let arrival = Arrival { source, vnet, strip, priority, ecn: None };
                Some(self.new_slot(tag.input, &arrival, tag.owner, buf))
            });
            for slot in slots.into_iter().rev().flatten() {
                let leaf = self.egress.put_first(&mut self.slots, slot, group);
                self.note_share(slot, leaf);
            }
        }
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
