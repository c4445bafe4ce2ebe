//! The receiving end of a link: the buffer, and the enqueue into the next queue.

use sluice_base::{DropReason, Nanos, Priority, PriorityMask};

use super::frames::{Ecn, Frame, LinkIndex, State};
use super::{Buffering, Net, NetConfig, Overflow, Payload};
use crate::event::{Event, Events};
use crate::ids::FrameId;
use crate::topology::{LinkId, Node, Topology};

/// Returns, for each switch, true if all links into it have the same delay, so that frames arrive
/// in the order in which they were sent.
pub(super) fn uniform_inputs(topology: &Topology) -> Vec<bool> {
    let mut delay: Vec<Option<Nanos>> = vec![None; topology.switches as usize];
    let mut uniform = vec![true; topology.switches as usize];
    for (link, cable) in topology.links() {
        if let Node::Switch(s) = topology.ends(link).1 {
            let first = delay[s as usize].get_or_insert(cable.delay);
            uniform[s as usize] &= *first == cable.delay;
        }
    }
    uniform
}

/// Returns true if the length of a queue at an arrival matters to frames that pass no threshold
/// themselves. Then the queue must not count frames that are still on a cable. That holds for a
/// queue that marks, and for a queue of lossless and lossy frames: lossless ones always fit, and
/// lossy ones may find it full.
pub(super) fn queues_are_measured(config: &NetConfig) -> bool {
    let mixed = !config.lossless.is_empty() && config.lossless != PriorityMask::ALL;
    config.mark.is_some() || (mixed && config.buffering == Buffering::Output)
}

/// Returns, for each switch, the number of bytes that may be on their way into it at a time.
pub(super) fn bytes_on_links(topology: &Topology, frame_max: u32) -> Vec<u32> {
    let mut sums = vec![0_u32; topology.switches as usize];
    for (link, cable) in topology.links() {
        if let Node::Switch(s) = topology.ends(link).1 {
            let travelling = u32::try_from(cable.rate.bytes_in(cable.delay).0).unwrap_or(u32::MAX);
            let sum = &mut sums[s as usize];
            *sum = sum.saturating_add(travelling).saturating_add(2 * frame_max);
        }
    }
    sums
}

impl<P: Payload> Net<P> {
    /// Frees the place of a frame in the buffer behind it, when its last bit has left.
    #[inline]
    pub(super) fn release(&mut self, events: &mut Events, id: FrameId) {
        let Frame { input: Some(index), priority, size, .. } = *self.frames.get(id) else {
            return;
        };
        let link = index.link();
        let input = &mut self.inputs[link.index()];
        let held = &mut input.held[priority.index()];
        *held -= u32::from(size);
        if self.config.lossless.contains(priority) {
            if !input.sender.pausing().is_empty() {
                input.sender.fell(priority, u64::from(*held));
                if input.sender.is_due(events.now()) {
                    self.pause_is_due(events, link);
                }
            }
        } else {
            input.held_lossy -= u32::from(size);
        }
    }

    /// Sends a frame that has left a link on to the end of that link.
    #[inline]
    pub(super) fn go_on(&mut self, events: &mut Events, id: LinkId, frame: FrameId) {
        let link = &self.links[id.index()];
        let there = events.now().after(Nanos(u64::from(link.delay)));
        let ready = there.after(Nanos(u64::from(link.latency)));
        if matches!(link.to, Node::Host(_)) {
            events.push_from(ready, Event::Arrive(frame), id);
            return;
        }
        let late = link.late;
        let f = self.frames.get_mut(frame);
        f.input = Some(LinkIndex::new(id));
        f.ready = ready;
        f.hop += 1;
        if late {
            events.push_from(there, Event::Enter(frame), id);
        } else {
            self.enter_at(events, frame, there);
        }
    }

    /// Lets a frame enter a switch whose cables differ in delay, at its time.
    pub(super) fn enter(&mut self, events: &mut Events, frame: FrameId) {
        self.enter_at(events, frame, events.now());
    }

    /// Lets a frame enter a switch at `there`, which may be later than now: it is put into its
    /// queue, and counted now if the result is the same as at that time.
    #[inline]
    fn enter_at(&mut self, events: &mut Events, id: FrameId, there: Nanos) {
        let f = *self.frames.get(id);
        let from = f.input.expect("set when it left its link").link();
        let to = self.ways[f.path.0 as usize].path.link(f.hop);
        let lossless = self.config.lossless.contains(f.priority);
        if self.counts_at_once(from, to, &f, lossless) {
            let input = &mut self.inputs[from.index()];
            let held = &mut input.held[f.priority.index()];
            *held += u32::from(f.size);
            input.held_max = input.held_max.max(*held);
            if !lossless {
                input.held_lossy += u32::from(f.size);
            }
        } else {
            self.inputs[from.index()].open += 1;
            events.push_from(there, Event::Settle(id), from);
            if !lossless {
                self.frames.get_mut(id).state = State::Open;
            }
        }
        self.enqueue(to, id, f.shape());
        if self.frames.get(id).state == State::Settled {
            self.links[to.index()].queued += u32::from(f.size);
            self.reconsider(events, to, id);
        }
    }

    /// Returns true if counting this frame now gives the same result as counting it at its arrival:
    /// bytes can only become fewer until then, so a frame that passes no threshold now passes none
    /// then.
    #[inline]
    fn counts_at_once(&self, from: LinkId, to: LinkId, f: &Frame, lossless: bool) -> bool {
        let input = &self.inputs[from.index()];
        if input.open > 0 || (self.config.mark.is_some() && f.ecn == Ecn::Capable) {
            return false;
        }
        if lossless {
            let held = u64::from(input.held[f.priority.index()] + u32::from(f.size));
            return held < self.config.xoff.0 && input.sender.pausing().is_empty();
        }
        match self.config.buffering {
            Buffering::Input => input.held_lossy + u32::from(f.size) <= input.limit,
            // Other inputs send to this queue as well: their frames until then must not matter
            // either.
            Buffering::Output => {
                let link = &self.links[to.index()];
                u64::from(link.queued) + u64::from(link.may_come) <= self.config.buffer.0
            }
        }
    }

    /// Counts a frame at its arrival; returns its payload if it is dropped.
    #[cold]
    pub(super) fn settle(&mut self, events: &mut Events, id: FrameId) -> Option<P> {
        let f = *self.frames.get(id);
        let from = f.input.expect("set when it left its link").link();
        let to = self.ways[f.path.0 as usize].path.link(f.hop);
        self.inputs[from.index()].open -= 1;
        self.mark(id, to);
        if self.config.lossless.contains(f.priority) {
            self.count_lossless(events, from, &f);
            return None;
        }
        let full = match self.config.buffering {
            Buffering::Input => {
                let input = &self.inputs[from.index()];
                (input.held_lossy + u32::from(f.size) > input.limit)
                    .then_some(DropReason::InputFull)
            }
            Buffering::Output => {
                let queued = u64::from(self.links[to.index()].queued + u32::from(f.size));
                (queued > self.config.buffer.0).then_some(DropReason::OutputFull)
            }
        };
        if let Some(reason) = full {
            let payload = self.drop_frame(id, from, reason);
            // Frames behind it may go.
            self.choose_again(events, to);
            return Some(payload);
        }
        self.frames.get_mut(id).state = State::Settled;
        self.links[to.index()].queued += u32::from(f.size);
        let input = &mut self.inputs[from.index()];
        input.held[f.priority.index()] += u32::from(f.size);
        input.held_lossy += u32::from(f.size);
        input.held_max = input.held_max.max(input.held[f.priority.index()]);
        self.reconsider(events, to, id);
        None
    }

    fn count_lossless(&mut self, events: &mut Events, from: LinkId, f: &Frame) {
        let input = &mut self.inputs[from.index()];
        let held = &mut input.held[f.priority.index()];
        *held += u32::from(f.size);
        input.held_max = input.held_max.max(*held);
        if *held > input.limit {
            let (held, limit) = (*held, input.limit);
            self.broken = Some(Overflow { link: from, priority: f.priority, held, limit });
            return;
        }
        input.sender.rose(f.priority, u64::from(*held));
        if input.sender.is_due(events.now()) {
            self.pause_is_due(events, from);
        }
    }

    /// Marks a frame that finds a long queue (RFC 3168; DCTCP marks on the queue at arrival).
    fn mark(&mut self, id: FrameId, to: LinkId) {
        if let Some(threshold) = self.config.mark
            && u64::from(self.links[to.index()].queued) > threshold.0
        {
            let frame = self.frames.get_mut(id);
            if frame.ecn == Ecn::Capable {
                frame.ecn = Ecn::Marked;
            }
        }
    }

    /// Returns the counters of one link.
    pub(crate) fn counters(&self, id: LinkId, now: Nanos) -> super::LinkCounters {
        let input = &self.inputs[id.index()];
        let sum = |of: fn((u64, u64)) -> u64| -> u64 {
            Priority::all().map(|p| of(input.sender.sent_count(p))).sum()
        };
        super::LinkCounters {
            frames: self.links[id.index()].sent_frames,
            input_full: input.drops.input_full,
            output_full: input.drops.output_full,
            pauses: (sum(|c| c.0), sum(|c| c.1)),
            held_max: sluice_base::ByteCount(u64::from(input.held_max)),
            paused: Priority::all()
                .map(|p| self.receivers[id.index()].paused_time(now, p))
                .max()
                .unwrap_or(Nanos::ZERO),
        }
    }
}
