//! Events, packed into the number that the event queue carries: four bits for the kind, the rest
//! for its subject.

use sluice_base::Nanos;

use crate::events::{EventQueue, Ties};
use crate::ids::FrameId;
use crate::topology::LinkId;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A link has sent the last bit of a frame.
    LinkEnd(LinkId),
    /// A frame has reached its host.
    Arrive(FrameId),
    /// A frame has reached a switch whose cables differ in delay.
    Enter(FrameId),
    /// A frame is counted at its arrival, because it may pass a threshold.
    Settle(FrameId),
    /// A pause frame has arrived and takes effect.
    Pause(u32),
    /// A pause that was not renewed may have ended.
    PauseEnd(LinkId),
    /// A pause may have to be renewed.
    PauseAgain(LinkId),
    /// A timer of a TCP endpoint has come.
    Timer(u32),
    /// A host has something to do.
    Host(u32),
    /// The first packet on its way to this VM has reached it.
    Packet(u32),
    /// The workload has something to do.
    App(u32),
}

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

impl Event {
    #[inline]
    fn pack(self) -> u32 {
        let (kind, index) = match self {
            Self::LinkEnd(link) => (0, link.0),
            Self::Arrive(frame) => (1, frame.0),
            Self::Enter(frame) => (2, frame.0),
            Self::Settle(frame) => (3, frame.0),
            Self::Pause(at) => (4, at),
            Self::PauseEnd(link) => (5, link.0),
            Self::PauseAgain(link) => (6, link.0),
            Self::Timer(endpoint) => (7, endpoint),
            Self::Host(host) => (8, host),
            Self::Packet(station) => (9, station),
            Self::App(at) => (10, at),
        };
        debug_assert!(index <= INDEX_MASK, "more than 2^28 of a kind");
        kind << INDEX_BITS | index
    }

    /// Returns the order among events at one time, if it is decided by place: events that enter a
    /// switch go before events that leave one, by the link on which they came. The number of a
    /// frame is no criterion; one frame at a time ends on a link.
    #[inline]
    fn rank(self, link: LinkId) -> u32 {
        let kind = match self {
            Self::Enter(_) | Self::Settle(_) => 0,
            Self::Arrive(_) => 2,
            Self::Pause(_) => 3,
            other => return other.pack() + (1 << INDEX_BITS),
        };
        kind << INDEX_BITS | link.0
    }

    #[inline]
    fn unpack(packed: u32) -> Self {
        let index = packed & INDEX_MASK;
        match packed >> INDEX_BITS {
            0 => Self::LinkEnd(LinkId(index)),
            1 => Self::Arrive(FrameId(index)),
            2 => Self::Enter(FrameId(index)),
            3 => Self::Settle(FrameId(index)),
            4 => Self::Pause(index),
            5 => Self::PauseEnd(LinkId(index)),
            6 => Self::PauseAgain(LinkId(index)),
            7 => Self::Timer(index),
            8 => Self::Host(index),
            9 => Self::Packet(index),
            _ => Self::App(index),
        }
    }
}

/// The event queue, packed.
#[derive(Debug)]
pub(crate) struct Events {
    queue: EventQueue,
}

impl Events {
    pub(crate) fn new(ties: Ties) -> Self {
        Self { queue: EventQueue::new(ties) }
    }

    #[inline]
    pub(crate) const fn now(&self) -> Nanos {
        self.queue.now()
    }

    pub(crate) const fn popped(&self) -> u64 {
        self.queue.popped()
    }

    #[inline]
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        self.queue.push_ranked(at, event.pack(), event.rank(LinkId(0)));
    }

    /// Adds an event of a frame, or of a pause frame, that has travelled on `link`.
    #[inline]
    pub(crate) fn push_from(&mut self, at: Nanos, event: Event, link: LinkId) {
        self.queue.push_ranked(at, event.pack(), event.rank(link));
    }

    #[inline]
    pub(crate) fn pop_until(&mut self, end: Nanos) -> Option<Event> {
        self.queue.pop_until(end).map(|(_, packed)| Event::unpack(packed))
    }
}
