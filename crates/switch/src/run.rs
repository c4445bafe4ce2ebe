//! The fast way out: frames of a local port that leave as they are, one after the other, with the
//! books kept once for all of them.

use sluice_base::{Buf, Nanos, Priority};

use crate::account::{Ends, row};
use crate::place::Held;
use crate::queues::QUANTUM_BYTES;
use crate::slots::{Home, List, NIL};
use crate::surface::{Egress, Sink, Taken};
use crate::switch::Switch;
use crate::transmit::Served;

/// What a queue sent in its turn, before it is booked.
struct Run {
    list: List,
    deficit: i32,
    frames: u32,
    bytes: u64,
    sent_bytes: u64,
    ring_frames: u32,
    output: Held,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            list: List::EMPTY,
            deficit: 0,
            frames: 0,
            bytes: 0,
            sent_bytes: 0,
            ring_frames: 0,
            output: Held::default(),
        }
    }
}

impl Run {
    /// The head of the list was taken; `next` is the new one.
    #[inline]
    fn add(&mut self, next: u32, bytes: u32, size: u32, home: Home) {
        self.list.head = next;
        if next == NIL {
            self.list.tail = NIL;
        }
        self.frames += 1;
        self.bytes += u64::from(bytes);
        self.sent_bytes += u64::from(size);
        self.deficit -= i32::try_from(size).unwrap_or(i32::MAX);
        self.ring_frames += u32::from(home == Home::Ring);
        if home == Home::Output {
            self.output.frames += 1;
            self.output.bytes += u64::from(bytes);
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Serves a queue of a local port until its quantum is used up, or its common queue (`None`)
    /// until it is empty: as [`Self::serve`], for frames that leave as they are, with the sums
    /// booked once.
    pub(crate) fn serve_plain(
        &mut self,
        now: Nanos,
        at: usize,
        priority: usize,
        leaf: Option<u32>,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let port = &self.ports[at];
        let (list, deficit) = match leaf {
            Some(leaf) => (self.queues.get(leaf).list, self.queues.get(leaf).deficit),
            None => (port.classes[priority].common.list, i32::MAX),
        };
        let mut run = Run { list, deficit, ..Run::default() };
        // With a rate, or another priority waiting, one frame may change whose turn it is.
        let size_max = self.lanes[port.lane as usize].frame_size_max;
        let alone = !port.restrained && !port.has_rivals();
        let mut served = Served::Taken;
        let mut ends = Ends::new(0, 0);
        while run.list.head != NIL {
            let slot = self.slots.get(run.list.head);
            let size = slot.bytes - u32::from(slot.strip);
            if slot.home == Home::Copy || slot.ecn.is_some() || size > size_max {
                if run.frames == 0 {
                    return self.serve(now, at, priority, sink, taken);
                }
                break;
            }
            let egress = Egress {
                header: &[],
                buf: slot.buf.as_ref(),
                strip: slot.strip,
                size,
                priority: Priority::from_low_bits(slot.priority),
                tunnel: None,
            };
            if sink.offer(&egress) == Taken::No {
                served = Served::Refused;
                break;
            }
            let (index, bytes, input, priority) =
                (run.list.head, slot.bytes, slot.input, slot.priority);
            let home = slot.home;
            run.add(slot.next, bytes, size, home);
            let alone_of_its_input = ends.is_empty() && !self.follows(&run, input, priority);
            if home == Home::Pool || alone_of_its_input {
                self.rows[row(input, priority)].delivered.add(bytes);
                self.end(index);
            } else {
                if input != ends.input || priority != ends.priority {
                    self.end_all(&ends);
                    ends = Ends::new(input, priority);
                }
                ends.add(&mut self.slots, index, bytes, home);
            }
            if !alone || run.deficit <= 0 {
                break;
            }
        }
        self.end_all(&ends);
        *taken += run.frames;
        self.book_run(now, at, priority, leaf, &run);
        served
    }

    /// Whether the next frame of a run came from the same input in the same priority.
    #[inline]
    fn follows(&self, run: &Run, input: u16, priority: u8) -> bool {
        run.list.head != NIL && {
            let next = self.slots.get(run.list.head);
            next.input == input && next.priority == priority
        }
    }

    /// Books what a queue of a local port sent, and gives the turn on.
    #[inline]
    fn book_run(&mut self, now: Nanos, at: usize, priority: usize, leaf: Option<u32>, run: &Run) {
        let port = &mut self.ports[at];
        let sent = &mut port.classes[priority].sent;
        sent.frames += u64::from(run.frames);
        sent.bytes += run.sent_bytes;
        if run.frames > 0 && (port.restrained || port.has_rivals()) {
            // One frame at most: see `alone`.
            let size = u32::try_from(run.sent_bytes).expect("one frame");
            port.shaper.charge(now, size);
            port.charge_class(priority, size, self.strict);
        }
        let lane = &mut self.lanes[port.lane as usize];
        lane.frames -= run.frames;
        lane.bytes -= run.bytes;
        lane.buffered.frames -= run.output.frames;
        lane.buffered.bytes -= run.output.bytes;
        let Some(leaf) = leaf else {
            let common = &mut port.classes[priority].common;
            common.list = run.list;
            common.frames -= run.frames;
            self.mark_idle(at, priority);
            return;
        };
        let node = self.queues.get_mut(leaf);
        node.list = run.list;
        node.frames -= run.frames;
        node.bytes -= run.bytes;
        node.ring_frames -= run.ring_frames;
        node.deficit = run.deficit;
        let ring = &mut port.classes[priority].ring;
        if node.frames == 0 {
            self.queues.ring_pop(ring);
            self.queues.unbind(leaf);
            self.mark_idle(at, priority);
        } else if run.deficit <= 0 {
            node.deficit += QUANTUM_BYTES;
            *ring = self.queues.ring_head(*ring);
        }
    }
}
