//! Egress fast path: successive frames of one source, with the counters updated once for all of
//! them; and frames for tunnels in a common queue.
//!
//! The loops are never inlined, and neither is the function that they call rarely (`serve`): each
//! has the registers to itself, and sums stay out of memory.

use sluice_base::{Buf, DropReason, Nanos, Priority};

use crate::account::Ends;
use crate::inspect::Counter;
use crate::place::Held;
use crate::queues::QUANTUM_BYTES;
use crate::slots::{BufferOwner, NIL};
use crate::surface::{Egress, Head, QueueGroupKind, Sink, Taken};
use crate::switch::Switch;
use crate::transmit::Served;
use crate::tunnel::{OUTER_BYTES, OUTER_SIZE, Wrap};

/// Sums of the frames that a queue sent in its turn, before they are counted.
#[derive(Default)]
struct Run {
    frames: u32,
    bytes: u64,
    /// Bytes of the frames on the wire.
    sent_bytes: u64,
    ring: Held,
    output: Held,
}

impl Run {
    /// Adds frames with one buffer owner.
    #[inline]
    fn add(&mut self, owner: BufferOwner, sum: Held, sent_bytes: u64) {
        self.frames += sum.frames;
        self.bytes += sum.bytes;
        self.sent_bytes += sent_bytes;
        match owner {
            BufferOwner::Ring => {
                self.ring.frames += sum.frames;
                self.ring.bytes += sum.bytes;
            }
            BufferOwner::Output => {
                self.output.frames += sum.frames;
                self.output.bytes += sum.bytes;
            }
            BufferOwner::Pool | BufferOwner::Copy => {}
        }
    }
}

/// Limits of the turn of a queue.
struct Reach {
    frames_max: u32,
    /// The deficit: no frame goes beyond it.
    deficit: i32,
    /// True if no other queue waits, so that a deficit that is too small is filled up at once.
    lone: bool,
    /// A larger frame takes the slow path.
    size_max: u32,
    /// The last of the frames at the start of the queue that are in the pool.
    shared_cursor: u32,
}

impl<B: Buf> Switch<B> {
    /// Serves the common queue of a local port until it is empty.
    #[inline(never)]
    pub(crate) fn serve_common(
        &mut self,
        now: Nanos,
        at: usize,
        priority: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let class = self.class_of(at, priority);
        let alone = self.is_alone(at);
        let urgency = priority_of(priority);
        let mut run = Run::default();
        let mut served = Served::Taken;
        while let Some((buf, tag)) = self.classes[class].common.head() {
            let (bytes, strip) = (u32::from(tag.bytes), u16::from(tag.strip));
            let size = bytes - u32::from(strip);
            let buf = Some(buf);
            let egress =
                Egress { header: &[], buf, strip, size, first: 0, priority: urgency, tunnel: None };
            if sink.offer(&egress) == Taken::No {
                served = Served::Refused;
                break;
            }
            let Some((buf, tag)) = self.classes[class].common.pop() else { break };
            run.frames += 1;
            run.bytes += u64::from(bytes);
            run.sent_bytes += u64::from(size);
            if tag.owner == BufferOwner::Output {
                run.output.frames += 1;
                run.output.bytes += u64::from(bytes);
            }
            self.deliver(buf, tag, urgency.get());
            if !alone {
                break;
            }
        }
        *taken += run.frames;
        self.book_run(now, at, priority, self.ports[at].group, &run);
        self.mark_idle(at, priority);
        served
    }

    /// Serves the common queue of an underlay port until it is empty. Of the port's restraints only
    /// its rate can change meanwhile.
    #[inline(never)]
    pub(crate) fn serve_tunnels(
        &mut self,
        now: Nanos,
        at: usize,
        priority: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let class = self.class_of(at, priority);
        let alone = self.is_alone(at);
        let urgency = priority_of(priority);
        let mut header = [0; OUTER_SIZE];
        let mut served = Served::Taken;
        while let Some((buf, tag)) = self.classes[class].common.head() {
            if sink.is_full() {
                served = Served::Refused;
                break;
            }
            let (group, bytes) = (u32::from(tag.source_or_group), u32::from(tag.bytes));
            let QueueGroupKind::Tunnel(tunnel) = self.groups[group as usize].kind else {
                unreachable!("only frames for tunnels stand in an underlay port's common queue");
            };
            let (number, vnet) = (tunnel.index(), self.inputs[usize::from(tag.input)].vnet);
            let made = self.encapsulate(number, vnet, urgency, buf, bytes, &mut header);
            if let Err(reason) = made {
                self.drop_common(now, class, group, urgency, reason);
                served = Served::Skipped;
                continue;
            }
            let size = bytes + OUTER_BYTES;
            let (header, buf, through) = (&header[..], Some(buf), Some(tunnel));
            let egress = Egress {
                header,
                buf,
                strip: 0,
                size,
                first: 0,
                priority: urgency,
                tunnel: through,
            };
            if sink.offer(&egress) == Taken::No {
                served = Served::Refused;
                break;
            }
            let Some((buf, tag)) = self.classes[class].common.pop() else { break };
            *taken += 1;
            self.classes[class].sent.add(size);
            self.tunnels[number].sent.add(size);
            self.uncharge_group(group, bytes, tag.owner);
            self.deliver(buf, tag, urgency.get());
            if !alone {
                self.charge_port(now, at, priority, size);
                break;
            }
        }
        self.mark_idle(at, priority);
        served
    }

    /// Ends the first frame of a common queue of an underlay port.
    #[cold]
    fn drop_common(
        &mut self,
        now: Nanos,
        class: usize,
        group: u32,
        priority: Priority,
        reason: DropReason,
    ) {
        if let Some((buf, tag)) = self.classes[class].common.pop() {
            if reason == DropReason::Oversize {
                let from = (tag.input, self.inputs[usize::from(tag.input)].vnet);
                let head = Head::copy_of(&buf.head()[usize::from(tag.strip)..]);
                self.tell_too_big_of(now, from, group, head);
            }
            self.uncharge_group(group, tag.bytes.into(), tag.owner);
            self.drop_loose(buf, tag, priority.get(), reason);
        }
    }

    /// Returns the queue of a node of a port's ring, if it is the only one and its queue group is
    /// plain, so that it may be served in runs.
    #[inline]
    pub(crate) fn plain_leaf(&self, node: u32) -> Option<u32> {
        let leaf = self.queues.only_leaf(node)?;
        self.groups[self.queues.get(leaf).group as usize].plain.then_some(leaf)
    }

    /// Serves a source's queue of a plain queue group until its deficit is used up: as
    /// [`Self::serve`], with the sums counted once. The queue has the turn, or is the only one of
    /// the bundle that has the turn.
    pub(crate) fn serve_leaf(
        &mut self,
        now: Nanos,
        at: usize,
        priority: usize,
        leaf: u32,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let node = self.queues.get(leaf);
        let (group, mut list) = (node.group, node.list);
        let turn = self.queues.in_ring(leaf);
        let mut reach = Reach {
            frames_max: if self.is_alone(at) { u32::MAX } else { 1 },
            deficit: self.queues.get(turn).deficit,
            lone: self.classes[self.class_of(at, priority)].ring == turn,
            size_max: self.groups[group as usize].plain_size_max.into(),
            shared_cursor: node.shared_cursor,
        };
        let mut run = Run::default();
        let mut served = Served::Taken;
        while list.head != NIL {
            let (ends, refused) =
                self.send_alike(group, &mut list.head, &mut reach, priority, sink);
            if ends.frames > 0 {
                let sum = Held { frames: ends.frames, bytes: ends.bytes };
                run.add(ends.owner, sum, ends.sent_bytes);
                self.book_ends(&ends, priority_of(priority).get());
                if ends.shared_cursor {
                    reach.shared_cursor = NIL;
                }
            }
            if refused {
                served = Served::Refused;
                break;
            }
            if ends.frames == 0 {
                if run.frames == 0 {
                    return self.serve(now, at, priority, sink, taken);
                }
                break;
            }
            if run.frames >= reach.frames_max {
                break;
            }
        }
        *taken += run.frames;
        if list.head == NIL {
            list.tail = NIL;
        }
        let node = self.queues.get_mut(leaf);
        node.list = list;
        node.shared_cursor = reach.shared_cursor;
        self.queues.get_mut(turn).deficit = reach.deficit;
        self.book_run(now, at, priority, group, &run);
        self.end_turn(at, priority, leaf, &run);
        served
    }

    /// Sends successive frames of one queue group, input and buffer owner, from the first one of a
    /// list on. Sends none if the first one has to take the slow path. The flag is true if the
    /// driver refused a frame.
    #[inline]
    fn send_alike(
        &mut self,
        group: u32,
        head: &mut u32,
        reach: &mut Reach,
        priority: usize,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        let priority = priority_of(priority);
        match self.groups[group as usize].kind {
            QueueGroupKind::Tunnel(tunnel) => {
                let vnet = self.slots.get(*head).vnet;
                let wrap = self.wrap(tunnel, vnet, priority);
                self.send_wrapped(head, reach, priority, wrap, sink)
            }
            _ => self.send_as_they_are(head, reach, priority, sink),
        }
    }

    #[inline(never)]
    fn send_as_they_are(
        &mut self,
        head: &mut u32,
        reach: &mut Reach,
        priority: Priority,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        self.send_run(head, reach, priority, None, sink)
    }

    #[inline(never)]
    fn send_wrapped(
        &mut self,
        head: &mut u32,
        reach: &mut Reach,
        priority: Priority,
        wrap: Option<Wrap>,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        if wrap.is_none() {
            reach.size_max = 0;
        }
        self.send_run(head, reach, priority, wrap.as_ref(), sink)
    }

    #[inline(always)]
    fn send_run(
        &mut self,
        head: &mut u32,
        reach: &mut Reach,
        priority: Priority,
        wrap: Option<&Wrap>,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        let first = self.slots.get(*head);
        let (input, owner, vnet) = (first.input, first.owner, first.vnet);
        let mut ends = Ends::new(input, owner);
        let mut deficit = reach.deficit;
        let mut outer = [0; OUTER_SIZE];
        let input = &mut self.inputs[usize::from(input)];
        let refused = loop {
            let index = *head;
            if index == NIL || ends.frames >= reach.frames_max {
                break false;
            }
            let slot = self.slots.get(index);
            let (inner_size, strip) = (slot.bytes - u32::from(slot.strip), slot.strip);
            if slot.input != ends.input || slot.owner != owner || slot.ecn.is_some() {
                break false;
            }
            if slot.is_super() || owner == BufferOwner::Copy || inner_size > reach.size_max {
                break false;
            }
            let Some(buf) = slot.buf.as_ref() else { break false };
            let size = inner_size + if wrap.is_some() { OUTER_BYTES } else { 0 };
            // The sum is little more than 64 KiB, since the queue group is plain.
            let charge = size.cast_signed();
            if charge > deficit {
                // As the scheduler would, which does not run if no frame is taken.
                if !reach.lone || sink.is_full() {
                    break false;
                }
                deficit = charge.max(QUANTUM_BYTES);
            }
            let (mut header, mut tunnel) = (&[][..], None);
            if let Some(wrap) = wrap {
                // A frame that control sends may be of any network.
                if slot.vnet != vnet || strip != 0 {
                    break false;
                }
                if sink.is_full() {
                    break true;
                }
                wrap.write(buf.head(), inner_size, &mut outer);
                (header, tunnel) = (&outer[..], Some(wrap.tunnel));
            }
            let buf = Some(buf);
            let egress = Egress { header, buf, strip, size, first: 0, priority, tunnel };
            if sink.offer(&egress) == Taken::No {
                break true;
            }
            *head = slot.next;
            ends.frames += 1;
            ends.bytes += u64::from(slot.bytes);
            ends.sent_bytes += u64::from(size);
            deficit -= charge;
            if owner == BufferOwner::Pool {
                ends.shared_cursor |= index == reach.shared_cursor;
                self.pool.push_ended(&mut self.slots, index);
            } else {
                self.slots.end(index, &mut input.ended, &mut input.ended_slots);
            }
        };
        reach.deficit = deficit;
        (ends, refused)
    }

    /// Returns true if only its deficit ends the turn of a queue. With a rate, or with another
    /// priority that waits, one frame may change the turn. A pause does not come meanwhile.
    #[inline]
    fn is_alone(&self, at: usize) -> bool {
        let port = &self.ports[at];
        !port.shaper.is_limited() && !port.has_rivals()
    }

    /// Counts the frames that a queue of a queue group of this port sent.
    #[inline]
    fn book_run(&mut self, now: Nanos, at: usize, priority: usize, group: u32, run: &Run) {
        let class = self.class_of(at, priority);
        let sum = Counter { frames: u64::from(run.frames), bytes: run.sent_bytes };
        self.classes[class].sent.add_all(sum);
        if let QueueGroupKind::Tunnel(tunnel) = self.groups[group as usize].kind {
            self.tunnels[tunnel.index()].sent.add_all(sum);
        }
        if run.frames > 0 && !self.is_alone(at) {
            let size = u32::try_from(run.sent_bytes).expect("one frame");
            self.charge_port(now, at, priority, size);
        }
        let group = &mut self.groups[group as usize];
        group.frames -= run.frames;
        group.bytes -= run.bytes;
        group.room.frames += run.output.frames;
        group.room.bytes += run.output.bytes;
    }

    /// Subtracts the frames that were sent from the sums of a source's queue.
    #[inline]
    fn end_turn(&mut self, at: usize, priority: usize, leaf: u32, run: &Run) {
        let class = self.class_of(at, priority);
        let node = self.queues.get_mut(leaf);
        node.frames -= run.frames;
        node.bytes -= run.bytes;
        node.ring_sub(run.ring.frames, run.ring.bytes);
        let ring = &mut self.classes[class].ring;
        if node.frames == 0 {
            self.queues.head_out(ring, leaf);
            self.queues.unbind(leaf);
            self.mark_idle(at, priority);
        }
    }
}

#[inline]
pub(crate) fn priority_of(index: usize) -> Priority {
    Priority::from_low_bits(u8::try_from(index).expect("below eight"))
}
