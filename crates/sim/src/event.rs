//! What can happen, packed into the number that the event queue carries: four bits say what, the
//! rest whom it concerns.

use sluice_base::Nanos;

use crate::events::{EventQueue, Ties};
use crate::net::FrameId;
use crate::topology::LinkId;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A link has sent the last bit of a frame.
    LinkEnd(LinkId),
    /// A frame is at its host.
    Arrive(FrameId),
    /// A frame is at a switch whose cables differ in delay.
    Enter(FrameId),
    /// A frame is counted where it may pass a threshold.
    Settle(FrameId),
    /// A pause frame has arrived and takes effect.
    Pause(u32),
    /// A pause that was not renewed may have ended.
    PauseEnd(LinkId),
    /// A pause may have to be renewed.
    PauseAgain(LinkId),
    /// A timer of a TCP endpoint.
    Timer(u32),
    /// A host has something to do.
    Host(u32),
    /// A packet has reached its VM.
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
            Self::Packet(packet) => (9, packet),
            Self::App(at) => (10, at),
        };
        debug_assert!(index <= INDEX_MASK, "more than 2^28 of a kind");
        kind << INDEX_BITS | index
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

/// The event queue, in words.
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
        self.queue.push(at, event.pack());
    }

    #[inline]
    pub(crate) fn pop_until(&mut self, end: Nanos) -> Option<Event> {
        self.queue.pop_until(end).map(|(_, packed)| Event::unpack(packed))
    }
}
