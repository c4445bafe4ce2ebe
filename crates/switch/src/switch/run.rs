//! Egress fast path: successive frames of one source, with the counters updated once for all of
//! them; and frames for tunnels in a common queue.
//!
//! The loops are never inlined, and neither is the function that they call rarely (`serve`): each
//! has the registers to itself, and sums stay out of memory.

use sluice_base::{Buf, DropReason, Nanos, Priority};

use crate::egress::{QUANTUM_BYTES, Reach, Run, Tag};
use crate::inspect::Counter;
use crate::place::Held;
use crate::slots::{BufferOwner, List, NIL};
use crate::surface::{Egress, Head, Sink, Taken};
use crate::switch::Switch;
use crate::switch::account::Ends;
use crate::switch::transmit::Served;
use crate::tunnel::{OUTER_BYTES, OUTER_SIZE, Wrap};

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
        let class = self.egress.class_of(at, priority);
        let alone = self.egress.port(at).is_alone();
        let urgency = priority_of(priority);
        let mut run = Run::default();
        let mut served = Served::Taken;
        while let Some((buf, &tag)) = self.egress.common_head(class) {
            let (bytes, strip) = (u32::from(tag.bytes()), u16::from(tag.strip()));
            let size = bytes - u32::from(strip);
            let buf = Some(buf);
            let egress =
                Egress { header: &[], buf, strip, size, first: 0, priority: urgency, tunnel: None };
            match sink.offer(&egress) {
                Taken::No => {
                    served = Served::Refused;
                    break;
                }
                Taken::Later => {
                    served = Served::Skipped;
                    break;
                }
                Taken::All | Taken::Segments(_) => {}
            }
            let Some(buf) = self.egress.pop_common(class) else { break };
            run.add_loose(tag.owner(), bytes, size);
            self.deliver(buf, tag, urgency.get());
            if !alone {
                break;
            }
        }
        *taken += run.frames;
        let group = self.egress.port(at).group();
        self.egress.book_run(now, at, priority, group, &run);
        if let Served::Skipped = served {
            // The frame is offered again, from the queue of its source.
            self.leave_common(group);
        }
        self.egress.mark_idle(at, priority);
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
        let class = self.egress.class_of(at, priority);
        let alone = self.egress.port(at).is_alone();
        let urgency = priority_of(priority);
        let mut header = [0; OUTER_SIZE];
        let mut served = Served::Taken;
        while let Some((buf, &tag)) = self.egress.common_head(class) {
            if sink.is_full() {
                served = Served::Refused;
                break;
            }
            let (group, bytes) = (u32::from(tag.source_or_group()), u32::from(tag.bytes()));
            let Some(tunnel) = self.egress.group(group).tunnel() else {
                unreachable!("only frames for tunnels stand in an underlay port's common queue");
            };
            let vnet = self.ingress.input(tag.input()).vnet();
            let made = self.encapsulate(tunnel, vnet, urgency, buf, bytes, &mut header);
            if let Err(reason) = made {
                self.drop_common(now, class, tag, urgency, reason);
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
            if matches!(sink.offer(&egress), Taken::No | Taken::Later) {
                served = Served::Refused;
                break;
            }
            let Some(buf) = self.egress.pop_common(class) else { break };
            *taken += 1;
            self.egress.add_sent(class, size);
            self.networks.add_sent(tunnel, Counter::of(size));
            self.egress.uncharge(group, bytes, tag.owner());
            self.deliver(buf, tag, urgency.get());
            if !alone {
                self.egress.charge_port(now, at, priority, size);
                break;
            }
        }
        self.egress.mark_idle(at, priority);
        served
    }

    /// Ends the first frame of a common queue of an underlay port.
    #[cold]
    fn drop_common(
        &mut self,
        now: Nanos,
        class: usize,
        tag: Tag,
        priority: Priority,
        reason: DropReason,
    ) {
        if let Some(buf) = self.egress.pop_common(class) {
            let group = tag.source_or_group().into();
            if reason == DropReason::Oversize {
                let from = (tag.input(), self.ingress.input(tag.input()).vnet());
                let head = Head::copy_of(&buf.head()[usize::from(tag.strip())..]);
                self.tell_too_big_of(now, from, group, head);
            }
            self.egress.uncharge(group, tag.bytes().into(), tag.owner());
            self.drop_loose(buf, tag, priority.get(), reason);
        }
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
        let group = self.egress.queue(leaf).group();
        let (mut list, mut reach) = self.egress.begin_run(at, priority, leaf);
        let mut run = Run::default();
        let mut served = Served::Taken;
        while !list.is_empty() {
            let (ends, refused) = self.send_alike(group, &mut list, &mut reach, priority, sink);
            if ends.frames > 0 {
                let sum = Held { frames: ends.frames, bytes: ends.bytes };
                run.add(ends.owner, sum, ends.sent_bytes);
                self.book_delivered(&ends, priority_of(priority).get());
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
        list.close();
        if let Some(tunnel) = self.egress.group(group).tunnel() {
            self.networks.add_sent(tunnel, run.sent());
        }
        self.egress.end_run(now, (at, priority, leaf), list, &reach, &run);
        served
    }

    /// Sends successive frames of one queue group, input and buffer owner, from the first one of a
    /// list on. Sends none if the first one has to take the slow path. The flag is true if the
    /// driver refused a frame.
    #[inline]
    fn send_alike(
        &mut self,
        group: u32,
        list: &mut List,
        reach: &mut Reach,
        priority: usize,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        let priority = priority_of(priority);
        match self.egress.group(group).tunnel() {
            Some(tunnel) => {
                let vnet = self.slots.get(list.head()).vnet();
                let wrap = self.wrap(tunnel, vnet, priority);
                self.send_wrapped(list, reach, priority, wrap, sink)
            }
            None => self.send_as_they_are(list, reach, priority, sink),
        }
    }

    #[inline(never)]
    fn send_as_they_are(
        &mut self,
        list: &mut List,
        reach: &mut Reach,
        priority: Priority,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        self.send_run(list, reach, priority, None, sink)
    }

    #[inline(never)]
    fn send_wrapped(
        &mut self,
        list: &mut List,
        reach: &mut Reach,
        priority: Priority,
        wrap: Option<Wrap>,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        if wrap.is_none() {
            reach.size_max = 0;
        }
        self.send_run(list, reach, priority, wrap.as_ref(), sink)
    }

    #[inline(always)]
    fn send_run(
        &mut self,
        list: &mut List,
        reach: &mut Reach,
        priority: Priority,
        wrap: Option<&Wrap>,
        sink: &mut impl Sink<B>,
    ) -> (Ends, bool) {
        let first = self.slots.get(list.head());
        let (input, owner, vnet) = (first.input(), first.owner(), first.vnet());
        let mut ends = Ends::new(input, owner);
        let mut deficit = reach.deficit;
        let mut outer = [0; OUTER_SIZE];
        let refused = loop {
            let index = list.head();
            if index == NIL || ends.frames >= reach.frames_max {
                break false;
            }
            let slot = self.slots.get(index);
            let (inner_size, strip) = (slot.bytes() - u32::from(slot.strip()), slot.strip());
            if slot.input() != ends.input || slot.owner() != owner || slot.ecn().is_some() {
                break false;
            }
            if slot.is_super() || owner == BufferOwner::Copy || inner_size > reach.size_max {
                break false;
            }
            let Some(buf) = slot.buf() else { break false };
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
                if slot.vnet() != vnet || strip != 0 {
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
            let taken = sink.offer(&egress);
            if matches!(taken, Taken::No | Taken::Later) {
                break taken == Taken::No;
            }
            list.advance_to(slot.next());
            ends.frames += 1;
            ends.bytes += u64::from(slot.bytes());
            ends.sent_bytes += u64::from(size);
            deficit -= charge;
            if owner == BufferOwner::Pool {
                ends.shared_cursor |= index == reach.shared_cursor;
                self.pool.push_ended(&mut self.slots, index);
            } else {
                self.ingress.hand_back_slot(&mut self.slots, ends.input, index);
            }
        };
        reach.deficit = deficit;
        (ends, refused)
    }
}

#[inline]
pub(crate) fn priority_of(index: usize) -> Priority {
    Priority::from_low_bits(u8::try_from(index).expect("below eight"))
}
