//! The common queue of a (port, priority), in front of its other queues.
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
//! On an underlay port the frames of a common queue go to different queue groups. Only frames of
//! local ports stand there. Their source is their input, so that a tag needs no more room to hold
//! the queue group.

use crate::config::{Limit, PortRole};
use crate::slots::BufferOwner;

use super::Port;

/// Number of frames that may wait in a common queue: the most by which a source can be ahead of its
/// share when an output becomes congested.
pub(crate) const COMMON_FRAMES_MAX: u32 = PLACES as u32;

const PLACES: u8 = 16;
const _: () = assert!(PLACES.is_power_of_two(), "a place is found by masking");

/// Number of frames that may wait in a common queue: few, compared to the limit of any input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonMax(u32);

impl CommonMax {
    /// No frame.
    pub(crate) const ZERO: Self = Self(0);

    #[inline]
    pub(super) const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number for these ports and limits of inputs. A frame in a common queue cannot be
    /// copied to the shared buffer, so that it is at most a quarter of the limit of the smallest
    /// input, in frames and in bytes.
    pub(super) fn of(ports: &[Port], limits: impl Iterator<Item = Limit>) -> Self {
        let is_access = |p: &&Port| !p.detached && matches!(p.role, PortRole::Access { .. });
        let sizes = ports.iter().filter(is_access).map(|port| u64::from(port.frame_size_max));
        let size_max = sizes.max().unwrap_or(1);
        let least = |limit: Limit| u64::from(limit.frames).min(limit.bytes.0 / size_max) / 4;
        let least = limits.map(least).min().unwrap_or(0);
        Self(u32::try_from(least).unwrap_or(u32::MAX).min(COMMON_FRAMES_MAX))
    }
}

/// Metadata of a frame in a common queue. The priority is that of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    /// Size of the frame as received.
    bytes: u16,
    input: u16,
    /// In the queue of a local port, the source of the frame (its queue group is the port's); in
    /// that of an underlay port, its queue group (its source is its input).
    source_or_group: u16,
    /// Bytes in front of the tenant's frame (the outer headers it came in).
    strip: u8,
    /// [`BufferOwner::Ring`] or [`BufferOwner::Output`].
    owner: BufferOwner,
}

impl Tag {
    /// Returns the metadata of a frame of `bytes` bytes. The buffer is its driver's.
    #[inline]
    pub(crate) const fn new(
        bytes: u16,
        input: u16,
        source_or_group: u16,
        strip: u8,
        owner: BufferOwner,
    ) -> Self {
        Self { bytes, input, source_or_group, strip, owner }
    }

    /// Returns the size of the frame as received.
    #[inline]
    pub(crate) const fn bytes(self) -> u16 {
        self.bytes
    }

    #[inline]
    pub(crate) const fn input(self) -> u16 {
        self.input
    }

    /// Returns the source of a frame for a local port, or the queue group of a frame for a tunnel.
    #[inline]
    pub(crate) const fn source_or_group(self) -> u16 {
        self.source_or_group
    }

    /// Returns the number of bytes in front of the tenant's frame.
    #[inline]
    pub(crate) const fn strip(self) -> u8 {
        self.strip
    }

    #[inline]
    pub(crate) const fn owner(self) -> BufferOwner {
        self.owner
    }
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
    pub(super) fn new() -> Self {
        let tag = Tag::new(0, 0, 0, 0, BufferOwner::Ring);
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

    /// Returns the frame whose turn it is. The tag is a reference, so that no frame is a null
    /// pointer.
    #[inline]
    pub(crate) fn head(&self) -> Option<(&B, &Tag)> {
        let entry = &self.entries[usize::from(self.first % PLACES)];
        Some((entry.buf.as_ref()?, &entry.tag))
    }

    /// Takes the handle of the first frame out, whose tag is known from [`Self::head`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<B> {
        let entry = &mut self.entries[usize::from(self.first % PLACES)];
        let taken = entry.buf.take()?;
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

#[cfg(test)]
mod tests;
