//! Egress: the scheduler of a port picks among priorities and sources and offers frames to the
//! port's driver until no frame may go or the driver has no room.
//!
//! Priorities: strict ones first, highest number first; the others by deficit round robin in bytes,
//! with their weights; there a deficit may fall below zero by one frame; a priority keeps this debt
//! when it is empty. Sources within a priority: deficit round robin in bytes as in its paper
//! (Shreedhar and Varghese, SIGCOMM 1995), one quantum each. A frame goes when the deficit covers
//! it, and a queue that empties has no deficit and no debt: queues are unbound then, so a debt
//! would be lost, and a source that sends little at a time would get more than its share.
//!
//! A queue is only served at its head. A driver that refuses a frame ends the walk, at least for
//! the priorities that it has no room for: an output that was found full stays full, and no frame
//! overtakes another.

use sluice_base::{Buf, DropReason, Nanos, PortId, Priority, PriorityMask, TunnelId};
use sluice_wire::mac_control;

use crate::classify;
use crate::inspect::Counter;
use crate::place::{Gate, Port, Tunnel, Vnet};
use crate::queues::QUANTUM_BYTES;
use crate::slots::{BufferOwner, NIL};
use crate::surface::{Egress, QueueGroupKind, Sink, Taken};
use crate::switch::Switch;
use crate::tunnel::{self, Outer, Wrap};

/// Upper bound of the bytes that the switch puts in front of a frame.
const HEADER_SIZE_MAX: usize = 128;

/// The size of the outer headers, in the type of frame sizes.
#[expect(clippy::cast_possible_truncation, reason = "50")]
const OUTER_SIZE: u32 = tunnel::OUTER_SIZE as u32;

/// Size of the Ethernet header in front of a layer-3 packet.
const ETHERNET_BYTES: u32 = 14;

/// Outcome of the frame whose turn it was.
pub(crate) enum Served {
    /// The driver took it.
    Taken,
    /// The frame could not go and does not block others any more.
    Skipped,
    /// The driver has no room.
    Refused,
}

/// The frame whose turn it is.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) port: usize,
    pub(crate) priority: usize,
    /// The node in the port's ring: the leaf, or its bundle.
    pub(crate) node: u32,
    pub(crate) leaf: u32,
    pub(crate) group: u32,
    pub(crate) slot: u32,
}

impl<B: Buf> Switch<B> {
    /// Offers frames of `port` to its driver: first a pause frame that is due, then frames that
    /// wait, in the order of the scheduler. Returns the number of frames that the driver took.
    pub fn transmit(&mut self, now: Nanos, port: PortId, sink: &mut impl Sink<B>) -> u32 {
        let at = port.index();
        let mut taken = 0;
        if self.ports[at].restrained && !self.ask_restraints(now, at, sink, &mut taken) {
            return 0;
        }
        let mut refused = PriorityMask::NONE;
        while !sink.is_full() && self.may_send(now, at) {
            let Some(priority) = self.next_priority(at, refused) else { break };
            let served = if self.classes[self.class_of(at, priority)].common.is_empty() {
                let node = self.next_node(at, priority);
                match self.plain_leaf(node) {
                    Some(leaf) => self.serve_leaf(now, at, priority, leaf, sink, &mut taken),
                    None => self.serve(now, at, priority, sink, &mut taken),
                }
            } else if self.ports[at].has_bundles {
                self.serve_tunnels(now, at, priority, sink, &mut taken)
            } else {
                self.serve_common(now, at, priority, sink, &mut taken)
            };
            if let Served::Refused = served {
                // Frames of other priorities that the driver takes do not wait for this one.
                refused = sink.refuses();
                if refused.0 >> priority & 1 == 0 {
                    break;
                }
            }
        }
        let port = &self.ports[at];
        let silent = || !port.pause_out.as_ref().is_some_and(|p| p.is_due(now));
        if port.active == 0 && (!port.restrained || silent()) {
            self.busy.remove(at);
        }
        taken
    }

    /// Returns true if a frame waits and the rate allows one.
    #[inline]
    fn may_send(&self, now: Nanos, at: usize) -> bool {
        let port = &self.ports[at];
        port.active != 0 && (!port.restrained || port.shaper.is_ready(now))
    }

    /// Handles pause frames and rates, which come before data, on a port that has them. Returns
    /// false if the driver has no room even for a pause frame.
    fn ask_restraints(
        &mut self,
        now: Nanos,
        at: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> bool {
        if self.ports[at].pause_out.as_ref().is_some_and(|p| p.is_due(now)) {
            if !self.transmit_pause(now, at, sink) {
                return false;
            }
            *taken += 1;
        }
        self.ports[at].pause_in.expire(now);
        if self.ports[at].timed_groups > 0 {
            self.open_timed_groups(now);
        }
        true
    }

    /// Returns the node whose turn it is in a priority that has frames: the first one whose deficit
    /// covers its next frame. A frame larger than a quantum takes several turns of saving.
    #[inline]
    pub(crate) fn next_node(&mut self, at: usize, priority: usize) -> u32 {
        let class = self.class_of(at, priority);
        let ring = &mut self.classes[class].ring;
        loop {
            let head = self.queues.ring_head(*ring);
            let is_bundle = self.queues.is_bundle(head);
            let leaf = if is_bundle { self.queues.child_head(head) } else { head };
            let leaf = self.queues.get(leaf);
            let slot = self.slots.get(leaf.list.head);
            let mut size = slot.bytes_left();
            if is_bundle && let QueueGroupKind::Tunnel(_) = self.groups[leaf.group as usize].kind {
                size += OUTER_SIZE * u32::from(slot.segments_left());
            }
            let size = i32::try_from(size).unwrap_or(i32::MAX);
            let node = self.queues.get_mut(head);
            if node.deficit >= size {
                return head;
            }
            // A node that is alone in the ring need not save over several turns.
            node.deficit =
                if head == *ring { size.max(QUANTUM_BYTES) } else { node.deficit + QUANTUM_BYTES };
            *ring = head;
        }
    }

    /// Returns true if [`Self::transmit`] would offer a frame now.
    #[must_use]
    pub fn has_work(&self, now: Nanos, port: PortId) -> bool {
        let p = &self.ports[port.index()];
        if p.pause_out.as_ref().is_some_and(|pause| pause.is_due(now)) {
            return true;
        }
        if !p.shaper.is_ready(now) {
            return false;
        }
        let open = |group: &u32| {
            let group = &self.groups[*group as usize];
            group.port == port.0 && group.shaper.is_ready(now)
        };
        if p.timed_groups > 0 && self.lists.timed().iter().any(open) {
            return true;
        }
        let paused = p.pause_in.paused();
        p.active & !paused.0 != 0
            || p.pause_in.deadline(paused).is_some_and(|until| until <= now && p.active != 0)
    }

    #[inline(never)]
    fn transmit_pause(&mut self, now: Nanos, at: usize, sink: &mut impl Sink<B>) -> bool {
        let (control, priority) = (self.control_input().0, 7);
        let port = &mut self.ports[at];
        let Some(pause) = &mut port.pause_out else { return true };
        let mut header = [0; mac_control::FRAME_SIZE];
        pause.frame(now, &mut header);
        let size = u32::try_from(header.len()).expect("60");
        let egress = Egress {
            header: &header,
            buf: None,
            strip: 0,
            size,
            first: 0,
            priority: Priority::from_low_bits(7),
            tunnel: None,
        };
        if sink.offer(&egress) == Taken::No {
            return false;
        }
        pause.sent(now);
        // A pause frame is charged to the rate, but never waits for it.
        port.shaper.charge(now, size);
        let class = self.class_of(at, 7);
        self.classes[class].sent.add(size);
        self.ledger.inject(control, priority, Counter::of(size));
        self.ledger.deliver(control, priority, Counter::of(size));
        true
    }

    /// Returns the priority that is served next; `None` if no frame may go.
    #[inline]
    pub(crate) fn next_priority(&mut self, at: usize, refused: PriorityMask) -> Option<usize> {
        let port = &mut self.ports[at];
        let paused = if port.restrained { port.pause_in.paused().0 } else { 0 };
        let eligible = port.active & !paused & !refused.0;
        if eligible == 0 {
            return None;
        }
        if eligible & eligible.wrapping_sub(1) == 0 {
            return Some(eligible.trailing_zeros() as usize);
        }
        let strict = self.services.strict(eligible);
        if strict != 0 {
            return Some(7 - strict.leading_zeros() as usize);
        }
        Some(self.next_weighted(at, eligible))
    }

    /// Picks the next of the weighted priorities of a port by deficit round robin.
    #[inline(never)]
    fn next_weighted(&mut self, at: usize, eligible: u8) -> usize {
        loop {
            let turn = usize::from(self.ports[at].class_turn);
            if eligible >> turn & 1 == 1 {
                let class = self.class_of(at, turn);
                let deficit = &mut self.classes[class].deficit;
                if *deficit > 0 {
                    return turn;
                }
                let share = i32::from(self.services.weight(turn)) * QUANTUM_BYTES;
                *deficit = deficit.saturating_add(share);
            }
            self.ports[at].class_turn = (self.ports[at].class_turn + 1) & 7;
        }
    }

    /// Charges a frame to the rate of its port and to its priority's share.
    #[inline(never)]
    pub(crate) fn charge_port(&mut self, now: Nanos, at: usize, priority: usize, size: u32) {
        self.ports[at].shaper.charge(now, size);
        self.charge_class(at, priority, size);
    }

    /// Charges a frame to its priority's share. Without another weighted priority that could have
    /// sent instead, nothing is charged.
    #[inline]
    pub(crate) fn charge_class(&mut self, at: usize, priority: usize, size: u32) {
        let port = &self.ports[at];
        let rivals = self.services.weighted(port.active & !port.pause_in.paused().0);
        if rivals & rivals.wrapping_sub(1) != 0 {
            let class = self.class_of(at, priority);
            let deficit = &mut self.classes[class].deficit;
            *deficit = deficit.saturating_sub(i32::try_from(size).unwrap_or(i32::MAX));
        }
    }

    #[inline(never)]
    pub(crate) fn serve(
        &mut self,
        now: Nanos,
        port: usize,
        priority: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let node = self.queues.ring_head(self.classes[self.class_of(port, priority)].ring);
        let turn = self.turn_of(port, priority, node);
        if self.groups[turn.group as usize].shaper.is_limited() && self.park_timed(now, &turn) {
            return Served::Skipped;
        }
        let mut header = [0; HEADER_SIZE_MAX];
        let offered = match self.egress(&turn, &mut header) {
            Ok(egress) => (sink.offer(&egress), egress.size),
            Err(reason) => {
                if reason == DropReason::Oversize {
                    self.tell_too_big(now, turn.slot, turn.group);
                }
                let slot = self.dequeue(&turn);
                self.drop_frame(slot, reason);
                return Served::Skipped;
            }
        };
        match offered {
            (Taken::No, _) => Served::Refused,
            (Taken::All, size) => {
                *taken += self.taken(now, &turn, size);
                Served::Taken
            }
            (Taken::Segments(count), size) => {
                *taken += self.taken_in_part(now, &turn, size, count);
                Served::Taken
            }
        }
    }

    /// Returns the frame at the head of a node's queue.
    #[inline]
    pub(crate) fn turn_of(&self, port: usize, priority: usize, node: u32) -> Turn {
        let leaf = if self.queues.is_bundle(node) { self.queues.child_head(node) } else { node };
        let queue = self.queues.get(leaf);
        Turn { port, priority, node, leaf, group: queue.group, slot: queue.list.head }
    }

    /// Returns the frame as the driver sees it, or the reason why it cannot go.
    #[inline]
    fn egress<'a>(
        &'a self,
        turn: &Turn,
        header: &'a mut [u8; HEADER_SIZE_MAX],
    ) -> Result<Egress<'a, B>, DropReason> {
        let slot = self.slots.get(turn.slot);
        let body = self.slots.body_of(slot);
        let buf = body.buf.as_ref().expect("a queued frame has its handle, or its body has");
        let priority = Priority::from_low_bits(slot.priority);
        // One segment has to fit.
        let size = if slot.is_super() { buf.segment_size() } else { slot.bytes_left() };
        let group = &self.groups[turn.group as usize];
        let (header_size, strip, tunnel) = match group.kind {
            QueueGroupKind::Tunnel(tunnel) => {
                let header = header.first_chunk_mut().expect("128 bytes");
                self.encapsulate(tunnel.index(), slot.vnet, priority, buf, size, header)?;
                (tunnel::OUTER_SIZE, 0, Some(tunnel))
            }
            _ => {
                let size_max = self.ports[turn.port].frame_size_max;
                if size > size_max && !fits_with_tag(buf, slot.strip, size, size_max) {
                    return Err(DropReason::Oversize);
                }
                match slot.ecn {
                    None => (0, slot.strip, None),
                    Some(ecn) => {
                        let inner = &buf.head()[usize::from(slot.strip)..];
                        let rewritten = classify::with_ecn(inner, ecn, header);
                        let skip = u16::try_from(rewritten).expect("at most 128");
                        (rewritten, slot.strip + skip, None)
                    }
                }
            }
        };
        let headers =
            u32::try_from(header_size).expect("at most 128") * u32::from(slot.segments_left());
        let size = slot.bytes - slot.sent_bytes - u32::from(strip) + headers;
        let (header, first) = (&header[..header_size], slot.sent);
        Ok(Egress { header, buf: Some(buf), strip, size, first, priority, tunnel })
    }

    /// Writes the outer headers of a tenant's frame, or returns the reason why it may not go
    /// through this tunnel.
    #[inline]
    pub(crate) fn encapsulate(
        &self,
        tunnel: usize,
        vnet: u16,
        priority: Priority,
        buf: &B,
        size: u32,
        header: &mut [u8; tunnel::OUTER_SIZE],
    ) -> Result<(), DropReason> {
        let vnet = &self.vnets[usize::from(vnet)];
        if size > vnet.frame_size_max && !fits_with_tag(buf, 0, size, vnet.frame_size_max) {
            return Err(DropReason::Oversize);
        }
        let t = &self.tunnels[tunnel];
        let port = &self.ports[usize::from(t.port)];
        // An inner tag counts here: it is payload of the outer packet.
        let outer = size + OUTER_SIZE;
        if outer > port.frame_size_max || outer > u32::from(t.path_mtu) + ETHERNET_BYTES {
            return Err(DropReason::Oversize);
        }
        let Some((outer, to)) = self.outer(t, vnet) else { return Err(DropReason::TunnelDown) };
        let dscp = self.dscp.of(priority);
        let size = u16::try_from(size).expect("checked against the MTU");
        outer.write(&to, dscp, buf.head(), size, header);
        Ok(())
    }

    /// Returns the outer headers of frames of a network through a tunnel, if they may go there.
    #[inline]
    pub(crate) fn wrap(&self, id: TunnelId, vnet: u16, priority: Priority) -> Option<Wrap> {
        let tunnel = &self.tunnels[id.index()];
        let (outer, to) = self.outer(tunnel, &self.vnets[usize::from(vnet)])?;
        let dscp = self.dscp.of(priority);
        Some(Wrap { outer: outer.clone(), to, dscp, tunnel: id })
    }

    #[inline]
    fn outer(&self, tunnel: &Tunnel, vnet: &Vnet) -> Option<(&Outer, tunnel::To)> {
        let outer = self.ports[usize::from(tunnel.port)].outer.as_ref()?;
        let (next_hop, vni) = (tunnel.next_hop?, vnet.vni?);
        Some((outer, tunnel::To { next_hop, remote: tunnel.remote, vni }))
    }

    /// Ends the frame of this turn, which the driver took whole or the rest of it. Returns the
    /// number of frames on the wire.
    #[inline]
    fn taken(&mut self, now: Nanos, turn: &Turn, size: u32) -> u32 {
        let frames = self.slots.get(turn.slot).segments_left().into();
        // Charges before the frame leaves, because its queue may end with it.
        self.charge_turn(now, turn, frames, size);
        let slot = self.dequeue(turn);
        let s = self.slots.get(slot);
        let (input, bytes, priority) = (s.input, s.bytes, s.priority);
        self.ledger.deliver(input, priority, Counter::of(bytes));
        self.end(slot);
        frames
    }

    /// Counts segments that the driver took of the super-frame of this turn, of which `size` bytes
    /// were offered. The frame stays in its queue, and charged to its input, until the last segment
    /// is taken. Returns the number of segments.
    #[cold]
    fn taken_in_part(&mut self, now: Nanos, turn: &Turn, size: u32, count: u16) -> u32 {
        let slot = self.slots.get(turn.slot);
        if count >= slot.segments_left() {
            debug_assert!(false, "a driver took more segments than there are, or all of them");
            return self.taken(now, turn, size);
        }
        let body = self.slots.body_of(slot);
        let each = body.buf.as_ref().expect("as when it was offered").segment_size();
        let inner = each * u32::from(count);
        let outer = match self.groups[turn.group as usize].kind {
            QueueGroupKind::Tunnel(_) => OUTER_SIZE * u32::from(count),
            _ => 0,
        };
        let slot = self.slots.get_mut(turn.slot);
        slot.sent += count;
        slot.sent_bytes += inner;
        self.charge_turn(now, turn, count.into(), inner + outer);
        count.into()
    }

    /// Charges the frames that the driver took in this turn to rates, deficits and counters.
    #[inline]
    fn charge_turn(&mut self, now: Nanos, turn: &Turn, frames: u32, size: u32) {
        let charge = i32::try_from(size).unwrap_or(i32::MAX);
        let sum = Counter { frames: frames.into(), bytes: size.into() };
        let port = &mut self.ports[turn.port];
        port.shaper.charge_all(now, frames, size);
        let class = self.class_of(turn.port, turn.priority);
        self.classes[class].sent.add_all(sum);
        self.charge_class(turn.port, turn.priority, size);
        let group = &mut self.groups[turn.group as usize];
        group.shaper.charge_all(now, frames, size);
        if let QueueGroupKind::Tunnel(tunnel) = group.kind {
            self.tunnels[tunnel.index()].sent.add_all(sum);
        }
        self.queues.get_mut(turn.node).deficit -= charge;
    }

    /// Takes the frame of this turn out of its queue, and passes the turn on.
    #[inline]
    pub(crate) fn dequeue(&mut self, turn: &Turn) -> u32 {
        let mut list = self.queues.get(turn.leaf).list;
        let slot = self.slots.pop(&mut list).expect("a queue in a ring has a frame");
        let s = self.slots.get(slot);
        let (bytes, owner) = (s.bytes, s.owner);
        let leaf = self.queues.get_mut(turn.leaf);
        leaf.list = list;
        if leaf.shared_cursor == slot {
            leaf.shared_cursor = NIL;
        }
        leaf.frames -= 1;
        leaf.bytes -= u64::from(bytes);
        if owner == BufferOwner::Ring {
            leaf.ring_sub(1, bytes.into());
        }
        let empty = leaf.frames == 0;
        self.uncharge_group(turn.group, bytes, owner);
        let class = self.class_of(turn.port, turn.priority);
        let ring = &mut self.classes[class].ring;
        if empty {
            self.queues.head_out(ring, turn.leaf);
            self.queues.unbind(turn.leaf);
            if *ring == NIL {
                self.mark_idle(turn.port, turn.priority);
                return slot;
            }
        } else if turn.node != turn.leaf {
            self.queues.child_rotate(turn.node);
        }
        slot
    }

    /// Takes a queue out of the port's ring if its queue group may not send yet.
    fn park_timed(&mut self, now: Nanos, turn: &Turn) -> bool {
        let group = &mut self.groups[turn.group as usize];
        if group.shaper.is_ready(now) {
            return false;
        }
        if group.gate == Gate::Open {
            group.gate = Gate::Timed;
            self.lists.add_timed(turn.group);
            self.ports[turn.port].timed_groups += 1;
        }
        self.park(turn.leaf);
        true
    }

    /// Moves a leaf from its port's ring to its queue group's.
    pub(crate) fn park(&mut self, leaf: u32) {
        let node = self.queues.get(leaf);
        let (group, priority) = (node.group, usize::from(node.priority));
        let at = usize::from(self.groups[group as usize].port);
        let class = self.class_of(at, priority);
        let ring = &mut self.classes[class].ring;
        self.queues.leaf_out(ring, leaf);
        if *ring == NIL {
            self.mark_idle(at, priority);
        }
        self.queues.ring_push(&mut self.groups[group as usize].parked, leaf);
    }

    /// Opens the queue groups whose rate allows a frame again.
    pub(crate) fn open_timed_groups(&mut self, now: Nanos) {
        let mut at = 0;
        while at < self.lists.timed().len() {
            let group = self.lists.timed()[at];
            if self.groups[group as usize].shaper.is_ready(now) {
                self.lists.remove_timed_at(at);
                let port = self.groups[group as usize].port;
                self.ports[usize::from(port)].timed_groups -= 1;
                self.open_group(group);
            } else {
                at += 1;
            }
        }
    }

    /// Puts the parked queues of a queue group back into their port's rings.
    pub(crate) fn open_group(&mut self, group: u32) {
        let l = &mut self.groups[group as usize];
        l.gate = Gate::Open;
        let mut parked = l.parked;
        l.parked = NIL;
        while parked != NIL {
            let leaf = self.queues.ring_pop(&mut parked);
            self.place_leaf(leaf);
        }
    }
}

impl Port {
    /// Returns true if more than one priority waits.
    #[inline]
    pub(crate) fn has_rivals(&self) -> bool {
        self.active & self.active.wrapping_sub(1) != 0
    }
}

/// Returns true if a frame fits without its 802.1Q tag, which does not count against the MTU (802.3
/// clause 3.2.7).
#[cold]
fn fits_with_tag<B: Buf>(buf: &B, strip: u16, size: u32, size_max: u32) -> bool {
    let tagged = buf.head()[usize::from(strip)..].get(12..14) == Some(&[0x81, 0x00]);
    tagged && size <= size_max + 4
}
