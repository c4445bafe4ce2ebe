//! A sender and its datagrams under way.

use std::collections::VecDeque;

use sluice_base::Prng;

use super::scenario::Flow;
use super::work::Segment;

/// Datagrams, counted since the begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) lost_descriptor: u64,
    pub(crate) lost_delivery: u64,
    pub(crate) lost_guest: u64,
}

impl Counts {
    pub(crate) const fn lost(&self) -> u64 {
        self.lost_descriptor + self.lost_delivery + self.lost_guest
    }

    /// Returns the number of datagrams that were sent, and neither received nor lost.
    pub(crate) const fn under_way(&self) -> u64 {
        self.offered - self.delivered - self.lost()
    }
}

/// A sender.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) flow: Flow,
    pub(crate) segments: u64,
    pub(crate) gap: u64,
    pub(crate) counts: Counts,
    /// Segments on the wire, the first one first.
    pub(crate) wire: VecDeque<Segment>,
    /// True if the first segment on the wire waits for room, or for its entry's move.
    pub(crate) is_blocked: bool,
    /// True if the next datagram waits in the sender.
    pub(crate) is_held: bool,
    /// The datagram of which a segment was lost last, plus one.
    pub(crate) broken: u64,
    /// The datagram that is being reassembled, and its number of segments so far.
    pub(crate) partial: (u64, u64),
    interval: u64,
    random: Prng,
}

impl Sender {
    pub(crate) fn new(flow: Flow, gap: u64, seed: u64, at: usize) -> Self {
        Self {
            segments: flow.segments(),
            interval: flow.interval().0,
            gap,
            counts: Counts::default(),
            wire: VecDeque::new(),
            is_blocked: false,
            is_held: false,
            broken: 0,
            partial: (0, 0),
            random: Prng::stream(seed, &format!("sender {at}")),
            flow,
        }
    }

    /// Returns the time until the next datagram: uniform over the mean and the jitter around it.
    pub(crate) const fn next_in(&mut self, jitter_percent: u64) -> u64 {
        let width = self.interval * jitter_percent / 100;
        self.interval - width + self.random.below(2 * width + 1)
    }

    /// Returns the time of the first datagram: anywhere in the first interval.
    pub(crate) const fn first_in(&mut self) -> u64 {
        self.random.below(self.interval + 1)
    }

    /// Takes a received segment. True if its datagram is complete.
    pub(crate) const fn receive(&mut self, segment: Segment) -> bool {
        let (datagram, count) = self.partial;
        let is_next = datagram == segment.datagram && count == segment.index;
        self.partial = match (segment.index == 0, is_next) {
            (true, _) => (segment.datagram, 1),
            (false, true) => (datagram, count + 1),
            (false, false) => (segment.datagram, u64::MAX),
        };
        self.partial.1 == self.segments
    }

    /// Notes a segment that found no descriptor. True if it is the first one of its datagram.
    pub(crate) const fn is_first_loss(&mut self, datagram: u64) -> bool {
        let is_first = self.broken != datagram + 1;
        self.broken = datagram + 1;
        is_first
    }
}
