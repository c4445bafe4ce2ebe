//! Pieces of softirq work.

/// A segment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) flow: usize,
    /// Number of the datagram in its flow.
    pub(crate) datagram: u64,
    /// Number of the segment in its datagram.
    pub(crate) index: u64,
}

/// Work of a core for the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Receives a segment, and delivers the datagram that it completes, here or on another core.
    Receive(Segment, Option<usize>),
    /// Delivers a datagram that another core reassembled.
    Deliver(Segment),
}

impl Item {
    pub(crate) const fn segment(self) -> Segment {
        match self {
            Self::Receive(segment, _) | Self::Deliver(segment) => segment,
        }
    }
}
