//! Handles of frames, in a pool or in a guest's memory.
//!
//! ```text
//!   FrameBuf ──▶ slot of a pool:      | frame ................................ |
//!   FrameBuf ──▶ record of a guest's: | head: a copy | pieces ──▶ guest memory |
//!                                     | more ──▶ offloads, and more pieces |
//! ```
//!
//! A frame with offloads still to be performed ([`Offload`]) has a flag in its handle. A
//! super-frame also has a reserved size there; its real size stands with the offloads.
//!
//! A frame in a [`Pool`](crate::Pool) is frozen: nobody writes to it before its handle came back. A
//! guest may write to its memory at any time, so no code gets a reference into it. The first bytes,
//! by which the switch decides, are copied once when the frame is read ([`Record::head`]), and this
//! copy is sent; the rest is copied once, on its way out. A guest that writes meanwhile changes its
//! own payload and nothing else.
//!
//! A handle is a pointer without a lifetime, so that the switch can keep it. It stays valid because
//! its maker unmaps nothing before every handle came back; see [`crate::Pool`] for slots and
//! [`crate::vhost_user`] for records.
#![allow(unsafe_code, reason = "handles are pointers into shared memory; see above")]

use std::ptr::NonNull;

use sluice_base::{Buf, VlanTag};
use sluice_switch::Egress;
use sluice_wire::vlan;

use crate::offload::Offload;

/// Tag values of a handle for a tag that the driver left alone, and for a tag that no VLAN may
/// have: tag control information of the reserved VID (802.1Q table 9-2).
const TAG_AS_IS: u16 = 0xffff;
const TAG_NOT_ALLOWED: u16 = 0x0fff;

/// Bit of [`FrameBuf::slot`]: the frame lies in a guest's memory.
pub(crate) const IN_GUEST: u32 = 1 << 31;
/// Bit: the frame has offloads to be performed.
const UNFINISHED: u32 = 1 << 30;
/// Value of [`FrameBuf::size16`] for a super-frame.
const SUPER: u16 = u16::MAX;
/// Size of the largest frame that is no super-frame.
pub(crate) const PLAIN_SIZE_MAX: usize = SUPER as usize - 1;
/// Distance of the offloads of an unfinished frame in a pool, in front of the frame.
pub(crate) const OFFLOAD_ROOM: usize = 64;
const _: () = assert!(size_of::<Offload>() <= OFFLOAD_ROOM);

/// Bytes of a guest's frame that are copied when it is read.
pub(crate) const HEAD_SIZE: usize = FrameBuf::HEAD_SIZE_MAX;

/// Maximum of pieces behind the head of a guest's frame that is not copied. Linux needs two for a
/// frame without TSO: the remains of the first page, and the rest.
pub(crate) const PIECES_MAX: usize = 6;

/// Maximum of pieces of an unfinished frame: Linux has 17 fragments at most, and the linear part.
pub(crate) const MORE_PIECES_MAX: usize = 20;

/// A part of a frame in a guest's memory, mapped as long as its record has a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) at: *const u8,
    pub(crate) size: u32,
}

impl Piece {
    const NONE: Self = Self { at: std::ptr::null(), size: 0 };
}

// SAFETY: a place in a mapping, which is not bound to a thread.
unsafe impl Send for Piece {}

/// A driver's record of a guest's frame while its handle is out.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) head: [u8; HEAD_SIZE],
    /// Number of pieces.
    pub(crate) count: u8,
    /// Head of the descriptor chain of the frame.
    pub(crate) chain: u16,
    /// Pieces behind the head of a finished frame.
    pub(crate) pieces: [Piece; PIECES_MAX],
    /// Offloads and pieces of an unfinished frame.
    pub(crate) more: NonNull<More>,
}

impl Record {
    pub(crate) const EMPTY: Self = Self {
        head: [0; HEAD_SIZE],
        count: 0,
        chain: 0,
        pieces: [Piece::NONE; PIECES_MAX],
        more: NonNull::dangling(),
    };
}

/// Offloads and pieces of an unfinished frame.
#[derive(Debug)]
pub(crate) struct More {
    pub(crate) offload: Offload,
    pub(crate) pieces: [Piece; MORE_PIECES_MAX],
}

impl More {
    pub(crate) const EMPTY: Self =
        Self { offload: Offload::NOTHING, pieces: [Piece::NONE; MORE_PIECES_MAX] };
}

/// A frame in a slot of a pool or in a guest's memory. It has one owner, which must give it back to
/// the port or the pool that it came from.
#[derive(Debug)]
#[must_use = "a handle that is dropped is lost to its pool"]
pub struct FrameBuf {
    /// The frame, or its [`Record`].
    start: NonNull<u8>,
    /// See [`about`].
    about: u64,
}

const _: () = assert!(size_of::<FrameBuf>() <= 16 && size_of::<Option<FrameBuf>>() <= 16);

/// Packs slot, size and tag of a handle into one word: it is made in one store and moved on by one
/// load. A load that spans several smaller stores waits until they are in the cache.
#[inline]
const fn about(slot: u32, size: u16, tag: u16) -> u64 {
    slot as u64 | (size as u64) << SIZE_SHIFT | (tag as u64) << TAG_SHIFT
}

const SIZE_SHIFT: u32 = u32::BITS;
const TAG_SHIFT: u32 = SIZE_SHIFT + u16::BITS;

// SAFETY: a handle has one owner, and only reads.
unsafe impl Send for FrameBuf {}

#[expect(clippy::cast_possible_truncation, reason = "each is its part of the word")]
impl FrameBuf {
    /// Slot of a pool or number of a guest's frame, with the flags.
    #[inline]
    const fn slot(&self) -> u32 {
        self.about as u32
    }

    /// Size, or [`SUPER`].
    #[inline]
    const fn size16(&self) -> u16 {
        (self.about >> SIZE_SHIFT) as u16
    }

    #[inline]
    const fn tag(&self) -> u16 {
        (self.about >> TAG_SHIFT) as u16
    }
}

impl FrameBuf {
    /// Makes a handle of a frame in a slot.
    ///
    /// # Safety
    /// From `start` on there are `size` bytes, which stay as they are until the handle is back.
    pub(crate) unsafe fn in_pool(start: NonNull<u8>, slot: u32, size: u16) -> Self {
        debug_assert!(slot & (IN_GUEST | UNFINISHED) == 0, "a pool has fewer slots");
        Self { start, about: about(slot, size, TAG_AS_IS) }
    }

    /// Makes a handle of a frame in a guest's memory; `number` is for the port that gets it back.
    ///
    /// # Safety
    /// Nobody writes to the record, and its pieces stay mapped, until the handle is back. The head
    /// and the pieces have `size` bytes, and if there are pieces the head is full.
    #[inline]
    pub(crate) unsafe fn in_guest(record: NonNull<Record>, number: u32, size: u16) -> Self {
        debug_assert!(number & (IN_GUEST | UNFINISHED) == 0);
        Self { start: record.cast(), about: about(number | IN_GUEST, size, TAG_AS_IS) }
    }

    /// Flags the same frame as one with offloads to be performed.
    ///
    /// # Safety
    /// The offloads stand in its record's [`More`], with its pieces; for a frame in a pool they
    /// stand [`OFFLOAD_ROOM`] bytes in front of it, aligned. A super-frame has a whole head, padded
    /// with zeros if need be.
    pub(crate) unsafe fn unfinished(mut self, is_super: bool) -> Self {
        self.about |= u64::from(UNFINISHED);
        if is_super {
            self.about |= u64::from(SUPER) << SIZE_SHIFT;
        }
        self
    }

    /// Offloads to be performed.
    #[inline]
    pub(crate) fn offload(&self) -> Option<&Offload> {
        (self.slot() & UNFINISHED != 0).then(|| self.unfinished_offload())
    }

    #[cold]
    fn unfinished_offload(&self) -> &Offload {
        if self.slot() & IN_GUEST != 0 {
            return &self.more().offload;
        }
        // SAFETY: as promised to `offload_rx`.
        unsafe { self.start.sub(OFFLOAD_ROOM).cast::<Offload>().as_ref() }
    }

    fn more(&self) -> &More {
        // SAFETY: as promised to `offload_rx`; nobody writes to it while the handle is out.
        unsafe { self.record().more.as_ref() }
    }

    /// Size in memory in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.size16() == SUPER { self.unfinished_offload().size() } else { self.size16().into() }
    }

    /// Slot of a pool, and address of the frame; `None` if it lies in a guest's memory.
    #[inline]
    pub(crate) fn pool_slot(&self) -> Option<(u32, NonNull<u8>)> {
        (self.slot() & IN_GUEST == 0).then_some((self.slot() & !UNFINISHED, self.start))
    }

    /// Number of a guest's frame; `None` if it lies in a pool.
    #[inline]
    pub(crate) fn guest_number(&self) -> Option<u32> {
        (self.slot() & IN_GUEST != 0).then_some(self.slot() & !(IN_GUEST | UNFINISHED))
    }

    /// Sets the driver's handling of the tag. A tag that is taken off has no VID 4095.
    pub(crate) fn with_vlan_tag(mut self, tag: VlanTag) -> Self {
        let tag = match tag {
            VlanTag::AsIs => TAG_AS_IS,
            VlanTag::NotAllowed => TAG_NOT_ALLOWED,
            VlanTag::TakenOff(tci) => {
                debug_assert!(vlan::vid_of(tci) <= vlan::VID_MAX, "no VLAN has this number");
                tci
            }
        };
        self.about = about(self.slot(), self.size16(), tag);
        self
    }

    /// The whole frame, if it lies in a pool.
    ///
    /// # Panics
    /// If it lies in a guest's memory.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        assert!(self.slot() & IN_GUEST == 0, "no reference into a guest's memory");
        // SAFETY: as promised to `in_pool`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    #[inline]
    fn record(&self) -> &Record {
        debug_assert!(self.slot() & IN_GUEST != 0);
        // SAFETY: as promised to `in_guest`.
        unsafe { self.start.cast::<Record>().as_ref() }
    }

    /// Passes the parts of the frame from byte `skip` on, in order, none of them empty. A guest may
    /// write to the memory behind these pointers at any time.
    #[inline]
    pub(crate) fn each_part(&self, skip: usize, mut each: impl FnMut(*const u8, usize)) {
        if self.slot() & UNFINISHED != 0 {
            return self.each_unfinished_part(skip, each);
        }
        let in_guest = self.slot() & IN_GUEST != 0;
        let first = if in_guest { self.head() } else { self.bytes() };
        if let Some(rest) = first.get(skip..).filter(|rest| !rest.is_empty()) {
            each(rest.as_ptr(), rest.len());
        }
        if !in_guest || usize::from(self.size16()) <= HEAD_SIZE {
            return;
        }
        let record = self.record();
        let pieces = &record.pieces[..record.count.into()];
        // Less than the pieces have, if the frame was cut.
        let size = usize::from(self.size16()) - HEAD_SIZE;
        each_piece(pieces, skip.saturating_sub(HEAD_SIZE), size, each);
    }

    #[cold]
    fn each_unfinished_part(&self, skip: usize, mut each: impl FnMut(*const u8, usize)) {
        let in_guest = self.slot() & IN_GUEST != 0;
        let first = if in_guest { self.head() } else { self.bytes() };
        // A super-frame may be shorter than its head.
        let first = &first[..first.len().min(self.len())];
        if let Some(rest) = first.get(skip..).filter(|rest| !rest.is_empty()) {
            each(rest.as_ptr(), rest.len());
        }
        if in_guest {
            let pieces = &self.more().pieces[..self.record().count.into()];
            each_piece(pieces, skip.saturating_sub(HEAD_SIZE), usize::MAX, each);
        }
    }

    /// Copies the frame from byte `skip` on; `into` has the size of the rest.
    pub(crate) fn copy_to(&self, skip: usize, into: &mut [u8]) {
        let mut at = 0;
        self.each_part(skip, |from, size| {
            let room = &mut into[at..at + size];
            // SAFETY: the part is mapped as long as the handle is out, and `room` is our own.
            unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), size) };
            at += size;
        });
        assert_eq!(at, into.len(), "all of it was asked for");
    }

    /// Returns its size in memory in bytes: a super-frame has one head for all of its segments.
    #[must_use]
    pub fn stored_size(&self) -> usize {
        self.len()
    }

    /// Copies from byte `skip` on as much as there is, or fits. Returns the number of bytes.
    pub fn copy_front(&self, skip: usize, into: &mut [u8]) -> usize {
        let size = self.len().saturating_sub(skip).min(into.len());
        self.copy_part(skip, &mut into[..size]);
        size
    }

    /// Copies from byte `skip` on until `into` is full.
    ///
    /// # Panics
    /// If the frame has fewer.
    pub(crate) fn copy_part(&self, skip: usize, into: &mut [u8]) {
        let mut at = 0;
        self.each_part(skip, |from, size| {
            let room = &mut into[at..];
            let size = size.min(room.len());
            // SAFETY: the part is mapped as long as the handle is out, and `room` is our own.
            unsafe { std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), size) };
            at += size;
        });
        assert_eq!(at, into.len(), "there is so much of it");
    }
}

/// Passes the first `left` bytes of pieces, from byte `skip` on.
#[inline]
fn each_piece(
    pieces: &[Piece],
    mut skip: usize,
    mut left: usize,
    mut each: impl FnMut(*const u8, usize),
) {
    for piece in pieces {
        let size = left.min(piece.size as usize);
        left -= size;
        if skip < size {
            // SAFETY: `skip` is below the piece's size.
            each(unsafe { piece.at.add(skip) }, size - skip);
        }
        skip = skip.saturating_sub(size);
    }
}

impl Buf for FrameBuf {
    #[inline]
    fn head(&self) -> &[u8] {
        let size = usize::from(self.size16()).min(Self::HEAD_SIZE_MAX);
        // SAFETY: a slot has that many bytes of the frame, and a record begins with its head; both
        // stay as they are until the handle is back.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), size) }
    }

    #[inline]
    fn size(&self) -> u32 {
        if self.size16() == SUPER {
            self.unfinished_offload().wire_size()
        } else {
            self.size16().into()
        }
    }

    /// # Panics
    /// If the frame has offloads to be performed; no frame of an underlay has.
    fn truncate(&mut self, size: u32) {
        assert!(self.slot() & UNFINISHED == 0, "an underlay has no unfinished frames");
        let size = u16::try_from(size).ok().filter(|size| *size <= self.size16());
        let size = size.expect("a frame is cut to less than it has");
        self.about = about(self.slot(), size, self.tag());
    }

    #[inline]
    fn segments(&self) -> u16 {
        if self.size16() == SUPER { self.unfinished_offload().segments() } else { 1 }
    }

    #[inline]
    fn segment_size(&self) -> u32 {
        if self.size16() == SUPER {
            self.unfinished_offload().segment_size()
        } else {
            self.size16().into()
        }
    }

    #[inline]
    fn plain_size(&self) -> u32 {
        self.size16().into()
    }

    #[inline]
    fn vlan_tag(&self) -> VlanTag {
        match self.tag() {
            TAG_AS_IS => VlanTag::AsIs,
            TAG_NOT_ALLOWED => VlanTag::NotAllowed,
            tci => VlanTag::TakenOff(tci),
        }
    }
}

/// Bytes behind the header of a frame that leaves.
#[inline]
pub(crate) fn payload_size(frame: &Egress<'_, FrameBuf>) -> usize {
    frame.buf.map_or(0, |buf| buf.len().saturating_sub(frame.strip.into()))
}

/// Returns true if a frame that leaves has offloads to be performed.
#[inline]
pub(crate) fn is_unfinished(frame: &Egress<'_, FrameBuf>) -> bool {
    frame.buf.is_some_and(|buf| buf.slot() & UNFINISHED != 0)
}

/// Size of a frame that leaves, in bytes.
#[inline]
pub(crate) fn frame_size(frame: &Egress<'_, FrameBuf>) -> usize {
    frame.header.len() + payload_size(frame)
}

/// Returns the size of a frame that leaves as a driver has it in memory, in bytes.
#[must_use]
pub fn egress_size(frame: &Egress<'_, FrameBuf>) -> usize {
    frame_size(frame)
}

/// Copies the front of a frame that leaves, as much as there is or fits. Returns the number of
/// bytes.
pub fn copy_egress(frame: &Egress<'_, FrameBuf>, into: &mut [u8]) -> usize {
    let front = frame.header.len().min(into.len());
    let (header, rest) = into.split_at_mut(front);
    header.copy_from_slice(&frame.header[..front]);
    front + frame.buf.map_or(0, |buf| buf.copy_front(frame.strip.into(), rest))
}

/// Copies a frame that leaves, from byte `skip` of its header on; `into` has that size.
pub(crate) fn gather(frame: &Egress<'_, FrameBuf>, skip: usize, into: &mut [u8]) {
    let (front, back) = into.split_at_mut(frame.header.len() - skip);
    front.copy_from_slice(&frame.header[skip..]);
    if let Some(buf) = frame.buf {
        buf.copy_to(frame.strip.into(), back);
    }
}

#[cfg(test)]
mod tests;
