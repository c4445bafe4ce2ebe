//! The frames: data for every hop in 32 bytes, data for the ends beside it.

use sluice_base::{Nanos, Priority};

use super::PathId;
use crate::ids::FrameId;
use crate::topology::LinkId;

/// Content of a frame from end to end. The network never looks at it.
pub(crate) trait Payload: std::fmt::Debug {}

impl<P: std::fmt::Debug> Payload for P {}

/// Properties of a frame that the network needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its size in bytes, from the destination address to the end of the payload.
    pub size: u16,
    /// Its priority.
    pub priority: Priority,
    /// ECN state: if switches may mark the frame (ECT), and if one did (CE).
    pub ecn: Ecn,
}

/// Explicit congestion notification of a frame (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The ends do not speak ECN.
    #[default]
    NotCapable,
    /// The ends speak ECN, and no switch marked the frame.
    Capable,
    /// A switch saw congestion.
    Marked,
}

/// Certainty that a frame stays in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The frame stays.
    Settled,
    /// The frame was not counted yet; it may find no room then.
    Open,
    /// The frame found no room; it is taken out when its turn comes.
    Dropped,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Time from which the frame may leave the node where it is.
    pub(super) ready: Nanos,
    /// The next frame in its queue, or in the list of free places.
    pub(super) next: FrameId,
    pub(super) path: PathId,
    /// The link behind which the frame occupies a buffer; `None` while it is at its sender.
    pub(super) input: Option<LinkIndex>,
    pub(super) size: u16,
    /// The hop of its path that the frame waits for or is on.
    pub(super) hop: u8,
    pub(super) priority: Priority,
    pub(super) ecn: Ecn,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Frame>() == 32);

/// A link number that fits into four bytes even when it is optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkIndex(std::num::NonZeroU32);

impl LinkIndex {
    pub(super) fn new(link: LinkId) -> Self {
        Self(std::num::NonZeroU32::new(link.0 + 1).expect("one more than zero"))
    }

    pub(super) fn link(self) -> LinkId {
        LinkId(self.0.get() - 1)
    }
}

impl Frame {
    pub(super) fn shape(&self) -> Shape {
        Shape { size: self.size, priority: self.priority, ecn: self.ecn }
    }
}

/// All frames of the network.
#[derive(Debug)]
pub(super) struct Frames<P> {
    hot: Vec<Frame>,
    payloads: Vec<Option<P>>,
    free: FrameId,
}

impl<P> Default for Frames<P> {
    fn default() -> Self {
        Self { hot: Vec::new(), payloads: Vec::new(), free: FrameId::NIL }
    }
}

impl<P> Frames<P> {
    pub(super) fn take(&mut self, path: PathId, ready: Nanos, shape: Shape, payload: P) -> FrameId {
        let frame = Frame {
            ready,
            next: FrameId::NIL,
            path,
            input: None,
            size: shape.size,
            hop: 0,
            priority: shape.priority,
            ecn: shape.ecn,
            state: State::Settled,
        };
        let id = self.free;
        if id == FrameId::NIL {
            return self.grow(frame, payload);
        }
        let place = &mut self.hot[id.0 as usize];
        self.free = place.next;
        *place = frame;
        self.payloads[id.0 as usize] = Some(payload);
        id
    }

    #[cold]
    fn grow(&mut self, frame: Frame, payload: P) -> FrameId {
        self.hot.push(frame);
        self.payloads.push(Some(payload));
        FrameId(u32::try_from(self.hot.len() - 1).expect("fewer than 2^32 frames"))
    }

    pub(super) fn give_back(&mut self, id: FrameId) -> P {
        self.free_place(id);
        self.end(id)
    }

    /// Takes out the payload of a frame; its place stays.
    pub(super) fn end(&mut self, id: FrameId) -> P {
        self.payloads[id.0 as usize].take().expect("a frame that is there has its payload")
    }

    /// Frees the place of a frame that has ended.
    pub(super) fn free_place(&mut self, id: FrameId) {
        self.hot[id.0 as usize].next = self.free;
        self.free = id;
    }

    #[inline]
    pub(super) fn get(&self, id: FrameId) -> &Frame {
        &self.hot[id.0 as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.hot[id.0 as usize]
    }

    /// Returns the payload of a frame that has not ended.
    pub(super) fn payload(&self, id: FrameId) -> &P {
        let payload = self.payloads[id.0 as usize].as_ref();
        payload.expect("a frame that is there has its payload")
    }

    /// Number of places, free ones included.
    pub(super) fn places(&self) -> usize {
        self.hot.len()
    }

    /// Iterates over the frames that have not ended, by a look at every place.
    pub(super) fn resident(&self) -> impl Iterator<Item = (FrameId, &Frame)> {
        let frames = (0_u32..).map(FrameId).zip(&self.hot).zip(&self.payloads);
        frames.filter(|(_, payload)| payload.is_some()).map(|(frame, _)| frame)
    }
}
