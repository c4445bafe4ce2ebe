//! The fast way out: frames of a local port that leave as they are, one after the other, with the
//! books kept once for all of them.

use sluice_base::{Buf, Nanos, Priority};

use crate::account::Ends;
use crate::place::Held;
use crate::queues::QUANTUM_BYTES;
use crate::slots::{Home, NIL};
use crate::surface::{Egress, Sink, Taken};
use crate::switch::Switch;
use crate::transmit::Served;

/// What a queue sent in its turn, before it is booked.
#[derive(Default)]
struct Run {
    frames: u32,
    bytes: u64,
    sent_bytes: u64,
    ring_frames: u32,
    output: Held,
}

impl Run {
    /// Adds frames of one input and home.
    #[inline]
    fn add(&mut self, ends: &Ends) {
        self.frames += ends.frames;
        self.bytes += ends.bytes;
        match ends.home {
            Home::Ring => self.ring_frames += ends.frames,
            Home::Output => {
                self.output.frames += ends.frames;
                self.output.bytes += ends.bytes;
            }
            Home::Pool | Home::Copy => {}
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Serves the common queue of a local port until it is empty.
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
        let mut ends = Ends::NONE;
        let mut served = Served::Taken;
        while let Some(entry) = self.classes[class].common.head() {
            let (bytes, strip) = (u32::from(entry.bytes), u16::from(entry.strip));
            let size = bytes - u32::from(strip);
            let buf = Some(&entry.buf);
            let egress = Egress { header: &[], buf, strip, size, priority: urgency, tunnel: None };
            if sink.offer(&egress) == Taken::No {
                served = Served::Refused;
                break;
            }
            let Some(entry) = self.classes[class].common.pop() else { break };
            if !ends.takes(entry.input, entry.home) {
                self.book_ends(&ends, urgency.get());
                run.add(&ends);
                ends = Ends { input: entry.input, home: entry.home, ..Ends::NONE };
            }
            ends.add(bytes);
            run.sent_bytes += u64::from(size);
            self.end_loose(entry.input, entry.buf);
            if !alone {
                break;
            }
        }
        self.book_ends(&ends, urgency.get());
        run.add(&ends);
        *taken += run.frames;
        self.book_run(now, at, priority, &run);
        self.mark_idle(at, priority);
        served
    }

    /// Serves a source's queue of a local port until its quantum is used up: as [`Self::serve`],
    /// for frames that leave as they are, with the sums booked once.
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
        let (mut list, mut deficit) = (node.list, node.deficit);
        let alone = self.is_alone(at);
        let urgency = priority_of(priority);
        let size_max = u32::from(self.lanes[self.ports[at].lane as usize].plain_size_max);
        let mut run = Run::default();
        let mut ends = Ends::NONE;
        let mut served = Served::Taken;
        while list.head != NIL {
            let index = list.head;
            let slot = self.slots.get(index);
            let size = slot.bytes - u32::from(slot.strip);
            if slot.home == Home::Copy || slot.ecn.is_some() || size > size_max {
                if run.frames + ends.frames == 0 {
                    return self.serve(now, at, priority, sink, taken);
                }
                break;
            }
            let (buf, strip) = (slot.buf.as_ref(), slot.strip);
            let egress = Egress { header: &[], buf, strip, size, priority: urgency, tunnel: None };
            if sink.offer(&egress) == Taken::No {
                served = Served::Refused;
                break;
            }
            let (bytes, input, home) = (slot.bytes, slot.input, slot.home);
            list.head = slot.next;
            if !ends.takes(input, home) {
                self.book_ends(&ends, urgency.get());
                run.add(&ends);
                ends = Ends { input, home, ..Ends::NONE };
            }
            ends.add(bytes);
            run.sent_bytes += u64::from(size);
            deficit -= i32::try_from(size).unwrap_or(i32::MAX);
            if home == Home::Pool {
                self.slots.stack_push(&mut self.pool_ended, index);
            } else {
                self.end_slot(index, input);
            }
            if !alone || deficit <= 0 {
                break;
            }
        }
        self.book_ends(&ends, urgency.get());
        run.add(&ends);
        *taken += run.frames;
        if list.head == NIL {
            list.tail = NIL;
        }
        let node = self.queues.get_mut(leaf);
        node.list = list;
        node.deficit = deficit;
        self.book_run(now, at, priority, &run);
        self.end_turn(at, priority, leaf, &run);
        served
    }

    /// Whether nothing but its deficit ends the turn of a queue. With a rate, or another priority
    /// waiting, one frame may change whose turn it is.
    #[inline]
    fn is_alone(&self, at: usize) -> bool {
        let port = &self.ports[at];
        !port.restrained && !port.has_rivals()
    }

    /// Books what a queue of a local port sent.
    #[inline]
    fn book_run(&mut self, now: Nanos, at: usize, priority: usize, run: &Run) {
        let class = self.class_of(at, priority);
        let sent = &mut self.classes[class].sent;
        sent.frames += u64::from(run.frames);
        sent.bytes += run.sent_bytes;
        if run.frames > 0 && !self.is_alone(at) {
            let size = u32::try_from(run.sent_bytes).expect("one frame");
            self.ports[at].shaper.charge(now, size);
            self.charge_class(at, priority, size);
        }
        let lane = &mut self.lanes[self.ports[at].lane as usize];
        lane.frames -= run.frames;
        lane.bytes -= run.bytes;
        lane.room.frames += run.output.frames;
        lane.room.bytes += run.output.bytes;
    }

    /// Takes what was sent off the sums of a source's queue, and gives the turn on.
    #[inline]
    fn end_turn(&mut self, at: usize, priority: usize, leaf: u32, run: &Run) {
        let class = self.class_of(at, priority);
        let node = self.queues.get_mut(leaf);
        node.frames -= run.frames;
        node.bytes -= run.bytes;
        node.ring_frames -= run.ring_frames;
        let ring = &mut self.classes[class].ring;
        if node.frames == 0 {
            self.queues.ring_pop(ring);
            self.queues.unbind(leaf);
            self.mark_idle(at, priority);
        } else if node.deficit <= 0 {
            node.deficit += QUANTUM_BYTES;
            *ring = self.queues.ring_head(*ring);
        }
    }
}

#[inline]
fn priority_of(index: usize) -> Priority {
    Priority::from_low_bits(u8::try_from(index).expect("below eight"))
}
