//! A look at links from outside: the frames that wait, and the frame that leaves. Nothing here
//! changes the network.

use sluice_base::{Nanos, Priority};

use super::frames::State;
use super::link::Link;
use super::{Net, Payload};
use crate::ids::FrameId;
use crate::topology::LinkId;

/// Frames that wait for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of frames.
    pub frames: u64,
    /// Their bytes, from the destination address to the end of the payload.
    pub bytes: u64,
}

impl Waiting {
    fn add(&mut self, size: u16) {
        self.frames += 1;
        self.bytes += u64::from(size);
    }
}

impl<P: Payload> Net<P> {
    /// Returns the frame whose last bit leaves a link now: the time for which it waited before its
    /// first bit left, its size and its payload. `None` for a pause frame, and if the event of the
    /// link is void.
    pub(crate) fn ending(&self, id: LinkId, now: Nanos) -> Option<(Nanos, u16, &P)> {
        let link = &self.links[id.index()];
        if link.end_at != now || link.is_idle() || link.current == Link::PAUSE {
            return None;
        }
        let frame = self.frames.get(link.current);
        Some((link.start_at.since(frame.ready), frame.size, self.frames.payload(link.current)))
    }

    /// Returns the frames that wait for a link just before the moment `at`, which no event has
    /// passed yet: they could leave, and have not begun to. Frames that are put into a queue while
    /// they are on their cable, and frames that find no room, do not count.
    pub(crate) fn waiting(&self, id: LinkId, at: Nanos) -> Waiting {
        let mut waiting = Waiting::default();
        let link = &self.links[id.index()];
        if !link.is_idle() && link.current != Link::PAUSE && link.start_at >= at {
            let chosen = self.frames.get(link.current);
            if chosen.ready < at {
                waiting.add(chosen.size);
            }
        }
        for priority in Priority::all() {
            let mut next = self.queues[self.queue_of(id, priority)].head;
            while next != FrameId::NIL {
                let frame = self.frames.get(next);
                if frame.ready < at && frame.state != State::Dropped {
                    waiting.add(frame.size);
                }
                next = frame.next;
            }
        }
        waiting
    }
}
