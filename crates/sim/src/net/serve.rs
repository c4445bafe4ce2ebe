//! The sending end of a link: the choice of the next frame, and its time.

use sluice_base::{Nanos, Priority};

use super::frames::{Shape, State};
use super::link::Link;
use super::{Net, Outcome, Payload};
use crate::event::{Event, Events};
use crate::ids::FrameId;
use crate::topology::{LinkId, Node};

impl<P: Payload> Net<P> {
    /// Returns the index of the queue of a (link, priority).
    #[inline]
    pub(super) fn queue_of(&self, link: LinkId, priority: Priority) -> usize {
        priority.index() * self.links.len() + link.index()
    }

    /// Puts a frame at the end of its queue.
    #[inline]
    pub(super) fn enqueue(&mut self, link: LinkId, id: FrameId, shape: Shape) {
        let at = self.queue_of(link, shape.priority);
        let queue = &mut self.queues[at];
        if queue.head == FrameId::NIL {
            queue.head = id;
        } else {
            self.frames.get_mut(queue.tail).next = id;
        }
        queue.tail = id;
        self.links[link.index()].backlog.insert(shape.priority);
    }

    /// Handles the event that a link may have sent its frame.
    #[inline]
    pub(super) fn link_end(&mut self, events: &mut Events, id: LinkId) -> Outcome<P> {
        let link = &mut self.links[id.index()];
        // The event of a frame that was put back is void.
        if link.end_at != events.now() || link.is_idle() {
            return Outcome::Nothing;
        }
        let frame = std::mem::replace(&mut link.current, FrameId::NIL);
        link.end_at = Nanos::MAX;
        if frame != Link::PAUSE {
            link.sent_frames += 1;
            self.release(events, frame);
            self.go_on(events, id, frame);
        }
        self.start_next(events, id);
        if let Some(overflow) = self.broken.take() {
            return Outcome::Broken(overflow);
        }
        self.ask(id)
    }

    /// Asks the host at the beginning of an idle link for a frame, if it has said that it has one
    /// ([`Self::want`]).
    #[inline]
    fn ask(&mut self, id: LinkId) -> Outcome<P> {
        let link = &mut self.links[id.index()];
        if link.is_wanted
            && link.is_idle()
            && let Node::Host(host) = self.links[id.reverse().index()].to
        {
            self.links[id.index()].is_wanted = false;
            return Outcome::Free { host };
        }
        Outcome::Nothing
    }

    /// Starts the next frame of an idle link, or schedules it.
    pub(super) fn start_next(&mut self, events: &mut Events, id: LinkId) {
        if self.links[id.index()].pause_due && self.start_pause(events, id) {
            return;
        }
        let Some((priority, frame)) = self.choose(id, events.now()) else { return };
        self.dequeue(id, priority, frame);
        let (ready, size) = {
            let frame = self.frames.get(frame);
            (frame.ready, frame.size)
        };
        let link = &mut self.links[id.index()];
        link.queued -= u32::from(size);
        link.current = frame;
        link.start_at = ready.max(events.now());
        link.end_at = link.start_at.after(link.time_for(size));
        events.push(link.end_at, Event::LinkEnd(id));
    }

    /// Starts the pause frame that an idle link owes, if it is still due.
    #[cold]
    fn start_pause(&mut self, events: &mut Events, id: LinkId) -> bool {
        self.links[id.index()].pause_due = false;
        let input = &mut self.inputs[id.reverse().index()];
        if !input.sender.is_due(events.now()) {
            return false;
        }
        let message = input.sender.message(events.now());
        input.sender.sent(events.now());
        self.renew_later(events, id);
        self.begin_pause(events, id, message);
        true
    }

    /// Takes note of a frame that may go on `id` now. It may go before the chosen one: of frames
    /// that may leave at the same moment the highest priority goes first, in any order of arrival.
    #[inline]
    pub(super) fn reconsider(&mut self, events: &mut Events, id: LinkId, new: FrameId) {
        let link = &self.links[id.index()];
        if link.is_idle() {
            self.start_next(events, id);
        } else if link.has_sent_nothing(events.now()) {
            let new = self.frames.get(new);
            let ready = new.ready.max(events.now());
            let chosen = self.frames.get(link.current).priority;
            if ready < link.start_at || (ready == link.start_at && new.priority > chosen) {
                self.choose_again(events, id);
            }
        }
    }

    /// Chooses again if the chosen frame has sent nothing: another frame may go first now.
    pub(super) fn choose_again(&mut self, events: &mut Events, id: LinkId) {
        if self.links[id.index()].has_sent_nothing(events.now()) {
            self.put_back(id);
        }
        if self.links[id.index()].is_idle() {
            self.start_next(events, id);
        }
    }

    /// Returns the highest priority that may send now; else the frame that may leave first.
    #[inline]
    fn choose(&mut self, id: LinkId, now: Nanos) -> Option<(Priority, FrameId)> {
        let link = &self.links[id.index()];
        let mut mask = link.backlog.without(link.paused).0;
        let mut best = None;
        let mut best_ready = Nanos::MAX;
        while mask != 0 {
            let at = 7 - mask.leading_zeros();
            mask &= !(1 << at);
            let priority = Priority::from_low_bits(u8::try_from(at).expect("below eight"));
            let Some(head) = self.settled_head(id, priority) else { continue };
            let ready = self.frames.get(head).ready;
            if ready <= now {
                return Some((priority, head));
            }
            if ready < best_ready {
                best_ready = ready;
                best = Some((priority, head));
            }
        }
        best
    }

    /// Returns the first frame of a queue, if it is settled; dropped ones before it end here.
    #[inline]
    fn settled_head(&mut self, link: LinkId, priority: Priority) -> Option<FrameId> {
        loop {
            let head = self.queues[self.queue_of(link, priority)].head;
            if head == FrameId::NIL {
                return None;
            }
            match self.frames.get(head).state {
                State::Settled => return Some(head),
                State::Open => return None,
                State::Dropped => self.end_dropped(link, priority, head),
            }
        }
    }

    /// Ends a dropped frame whose turn has come.
    #[cold]
    fn end_dropped(&mut self, link: LinkId, priority: Priority, head: FrameId) {
        self.dequeue(link, priority, head);
        let path = self.frames.get(head).path;
        self.leave_path(path);
        self.frames.free_place(head);
    }

    /// Takes the first frame out of its queue.
    #[inline]
    fn dequeue(&mut self, link: LinkId, priority: Priority, id: FrameId) {
        let next = self.frames.get(id).next;
        let at = self.queue_of(link, priority);
        let queue = &mut self.queues[at];
        queue.head = next;
        if next == FrameId::NIL {
            queue.tail = FrameId::NIL;
            self.links[link.index()].backlog.remove(priority);
        }
        self.frames.get_mut(id).next = FrameId::NIL;
    }

    /// Puts back the frame that was chosen but has not begun: another frame comes first.
    pub(super) fn put_back(&mut self, id: LinkId) {
        let link = &mut self.links[id.index()];
        let frame = std::mem::replace(&mut link.current, FrameId::NIL);
        link.end_at = Nanos::MAX;
        let (size, priority) = {
            let frame = self.frames.get(frame);
            (frame.size, frame.priority)
        };
        link.queued += u32::from(size);
        link.backlog.insert(priority);
        let at = self.queue_of(id, priority);
        let queue = &mut self.queues[at];
        self.frames.get_mut(frame).next = queue.head;
        queue.head = frame;
        if queue.tail == FrameId::NIL {
            queue.tail = frame;
        }
    }
}
