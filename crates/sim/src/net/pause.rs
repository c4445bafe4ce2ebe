//! Pause frames: sent before the next frame, applied when they arrive.

use sluice_base::PriorityMask;
use sluice_wire::mac_control::{FRAME_SIZE, Message};

use super::link::Link;
use super::{Net, Outcome, Payload};
use crate::event::{Event, Events};
use crate::topology::{LinkId, Node};

impl<P: Payload> Net<P> {
    /// Takes note that the buffer behind `input` has a pause frame for its neighbour.
    #[cold]
    pub(super) fn pause_is_due(&mut self, events: &mut Events, input: LinkId) {
        let back = input.reverse();
        let link = &mut self.links[back.index()];
        link.pause_due = true;
        // It goes before a frame that would begin at this moment, too.
        self.choose_again(events, back);
    }

    /// Sends a pause frame on an idle link.
    pub(super) fn begin_pause(&mut self, events: &mut Events, id: LinkId, message: Message) {
        let size = u16::try_from(FRAME_SIZE).expect("64 bytes");
        let link = &mut self.links[id.index()];
        link.current = Link::PAUSE;
        link.start_at = events.now();
        link.end_at = events.now().after(link.time_for(size));
        let end = link.end_at;
        let effect = end.0 + u64::from(link.delay) + self.config.pause_response.0;
        events.push(end, Event::LinkEnd(id));
        let at = self.messages.insert((id, message));
        events.push_from(sluice_base::Nanos(effect), Event::Pause(at), id);
    }

    #[inline(never)]
    pub(super) fn pause_arrives(&mut self, events: &mut Events, at: u32) -> Outcome<P> {
        let (on, message) = self.messages.remove(at);
        if let Node::Host(host) = self.links[on.index()].to
            && self.hosts_are_switches
        {
            return Outcome::Paused { host, message };
        }
        let link = on.reverse();
        let receiver = &mut self.receivers[link.index()];
        receiver.receive(events.now(), &message);
        if let Some(end) = receiver.deadline(PriorityMask::ALL) {
            events.push(end, Event::PauseEnd(link));
        }
        self.apply_pause(events, link);
        Outcome::Nothing
    }

    /// Ends a pause that has run out, unless it was renewed.
    #[inline(never)]
    pub(super) fn pause_ends(&mut self, events: &mut Events, link: LinkId) {
        self.receivers[link.index()].expire(events.now());
        self.apply_pause(events, link);
    }

    /// Follows the set of paused priorities of a link, if it has changed.
    fn apply_pause(&mut self, events: &mut Events, id: LinkId) {
        let paused = self.receivers[id.index()].paused();
        let link = &mut self.links[id.index()];
        if paused == link.paused {
            return;
        }
        link.paused = paused;
        // A frame that has begun goes on; a frame that was only chosen does not begin. A higher
        // priority that may send again goes before it, too.
        if link.has_not_begun(events.now()) && link.current != Link::PAUSE {
            self.put_back(id);
        }
        if self.links[id.index()].is_idle() {
            self.start_next(events, id);
        }
    }

    /// Schedules the renewal of standing pauses before they lapse.
    pub(super) fn renew_later(&mut self, events: &mut Events, on: LinkId) {
        let input = &mut self.inputs[on.reverse().index()];
        if !input.renewing
            && let Some(at) = input.sender.deadline()
        {
            input.renewing = true;
            events.push(at.max(events.now()), Event::PauseAgain(on));
        }
    }

    /// Renews pauses, if they still stand.
    #[inline(never)]
    pub(super) fn pause_again(&mut self, events: &mut Events, on: LinkId) {
        let input = &mut self.inputs[on.reverse().index()];
        input.renewing = false;
        if input.sender.is_due(events.now()) {
            self.pause_is_due(events, on.reverse());
        } else {
            self.renew_later(events, on);
        }
    }
}
