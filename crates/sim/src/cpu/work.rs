//! Pieces of softirq work.

/// A segment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) flow: usize,
    /// Counted per flow.
    pub(crate) datagram: u64,
    /// Counted per datagram.
    pub(crate) index: u64,
}

/// What a core does for the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Receives a segment, and delivers the datagram that it completes, here or on another core.
    Receive(Segment, Option<usize>),
    /// Delivers a datagram that another core put together.
    Deliver(Segment),
}

impl Item {
    pub(crate) const fn segment(self) -> Segment {
        match self {
            Self::Receive(segment, _) | Self::Deliver(segment) => segment,
        }
    }
}
