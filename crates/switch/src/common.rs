//! One priority of a port: its scheduler's state, and the common queue in front of its other
//! queues.
//!
//! While few frames wait for a port they stand in one queue, in order of arrival. Beyond
//! [`COMMON_FRAMES_MAX`] every source gets a queue of its own, until all of those are empty again.
//! Frames in the common queue are older than those in the queues of sources, and are sent first.
//!
//! A frame in a common queue has no slot: its handle and its metadata (a [`Tag`]) are an entry of a
//! small ring, next to the entries of the frames before and behind it. Nearly every frame of an
//! output that is not congested waits like this, and so costs less than a cache line between
//! ingress and egress. A frame with more metadata (a copy, one whose ECN field changes, one in the
//! host pool, a very large one) takes a slot and a queue of its source.
//!
//! On an underlay port the frames of a common queue go to different lanes. Only frames of local
//! ports stand there. Their source is their input, so that a tag needs no more room to hold the
//! lane.

use crate::inspect::Counter;
use crate::slots::{Home, NIL};

/// Number of frames that may wait in a common queue: the most by which a source can be ahead of its
/// share when an output becomes congested.
pub(crate) const COMMON_FRAMES_MAX: u32 = PLACES as u32;

const PLACES: u8 = 16;
const _: () = assert!(PLACES.is_power_of_two(), "a place is found by masking");

/// Metadata of a frame in a common queue. The priority is that of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    /// Size of the frame as received.
    pub(crate) bytes: u16,
    pub(crate) input: u16,
    /// In the queue of a local port, the source of the frame (its lane is the port's); in that of
    /// an underlay port, its lane (its source is its input).
    pub(crate) way: u16,
    /// Bytes in front of the tenant's frame (the outer headers it came in).
    pub(crate) strip: u8,
    /// [`Home::Ring`] or [`Home::Output`].
    pub(crate) home: Home,
}

/// A place in a common queue. It is free if it has no handle, so that removing a frame is one
/// store; the tag of a free place is stale.
#[derive(Debug)]
struct Entry<B> {
    buf: Option<B>,
    tag: Tag,
}

/// A ring of entries. Its fields stand in this order so that the counts and the first entry share
/// a cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Common<B> {
    first: u8,
    count: u8,
    entries: [Entry<B>; PLACES as usize],
}

impl<B> Common<B> {
    fn new() -> Self {
        let tag = Tag { bytes: 0, input: 0, way: 0, strip: 0, home: Home::Ring };
        let entries = core::array::from_fn(|_| Entry { buf: None, tag });
        Self { first: 0, count: 0, entries }
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.count as u32
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a frame at the end. There must be room.
    #[inline]
    pub(crate) fn push(&mut self, buf: B, tag: Tag) {
        debug_assert!(self.len() < COMMON_FRAMES_MAX, "an entry would be overwritten");
        let place = usize::from((self.first + self.count) % PLACES);
        self.entries[place] = Entry { buf: Some(buf), tag };
        self.count += 1;
    }

    /// Returns the frame whose turn it is.
    #[inline]
    pub(crate) fn head(&self) -> Option<(&B, Tag)> {
        let entry = &self.entries[usize::from(self.first % PLACES)];
        Some((entry.buf.as_ref()?, entry.tag))
    }

    /// Takes the first frame out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(B, Tag)> {
        let entry = &mut self.entries[usize::from(self.first % PLACES)];
        let taken = (entry.buf.take()?, entry.tag);
        self.count -= 1;
        // An empty queue begins again at its first place, which was used last and is in cache.
        let next = (self.first + 1) % PLACES;
        self.first = if self.count == 0 { 0 } else { next };
        Some(taken)
    }

    /// Returns the frames, first one first.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> {
        let (front, back) = self.entries.split_at(usize::from(self.first));
        back.iter().chain(front).filter(|entry| entry.buf.is_some()).map(|entry| entry.tag)
    }
}

/// One priority of a port.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Class<B> {
    /// Tail of the ring of queues (or bundles) with frames.
    pub(crate) ring: u32,
    pub(crate) deficit: i32,
    pub(crate) sent: Counter,
    pub(crate) common: Common<B>,
}

impl<B> Class<B> {
    pub(crate) fn new() -> Self {
        Self { ring: NIL, deficit: 0, sent: Counter::default(), common: Common::new() }
    }

    /// Returns true if nothing waits.
    #[inline]
    pub(crate) const fn is_idle(&self) -> bool {
        self.ring == NIL && self.common.is_empty()
    }

    /// Returns the number of frames that its common queue takes before it holds `frames_max`. Zero
    /// while a source has a queue of its own, whose frames would be overtaken.
    #[inline]
    pub(crate) const fn common_room(&self, frames_max: u32) -> u32 {
        if self.ring == NIL { frames_max.saturating_sub(self.common.len()) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
