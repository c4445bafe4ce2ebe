//! Memory for frames: one region of equal slots.
//!
//! A driver takes a slot, lets the kernel write a frame into it and turns it into a handle
//! ([`FrameBuf`]), which travels through the switch and comes back by [`Pool::give_back`]. Slots
//! are never copied and nothing is allocated after the start.
//!
//! A handle is a pointer without a lifetime, so that the switch can keep it. It stays valid because
//! the region is unmapped only by a pool to which *every* slot came back; a pool that is dropped
//! earlier leaves its region mapped for the rest of the process. A handle that is dropped instead
//! of given back therefore costs a slot (visible in [`Pool::used`]), never soundness.
//!
//! ```text
//!   slot:  | room in front, if the driver wants it | frame ............ | unused |
//!          ^ slot * slot_size                      ^ start   size bytes
//! ```
#![allow(unsafe_code, reason = "the region is shared between handles; see above")]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use sluice_base::Buf as _;

use self::large::{LARGE, Large};
pub(crate) use self::large::{LARGE_FRAME_SIZE_MAX, LargeSlot};
use crate::error::OpenError;
use crate::frame::{FrameBuf, HEAD_SIZE, OFFLOAD_ROOM};
use crate::offload::Offload;

mod large;

/// The size of a cache line; slots begin on one.
const ALIGN: u16 = 64;

/// Layout of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of frames it holds.
    pub slots: u32,
    /// Size of one slot, at most 65,535.
    pub slot_size: u16,
    /// True if all memory is taken from the kernel at once, so that no frame ever waits for a page.
    pub populate: bool,
}

impl PoolConfig {
    /// Bytes of a slot beside a frame's layer-3 packet: Ethernet, two tags, offloads, and slack.
    pub const FRAME_OVERHEAD: usize = 64 + OFFLOAD_ROOM;

    /// Slots for frames of a layer-3 MTU: 2,048 bytes at least, and one cache line more if the size
    /// is a power of two, since the heads of all frames would else share a few cache sets.
    #[must_use]
    pub fn for_mtu(slots: u32, mtu: u16) -> Self {
        let wanted =
            (usize::from(mtu) + Self::FRAME_OVERHEAD).next_multiple_of(ALIGN.into()).max(2048);
        let wanted = if wanted.is_power_of_two() { wanted + usize::from(ALIGN) } else { wanted };
        Self { slots, slot_size: u16::try_from(wanted).unwrap_or(0xffc0), populate: true }
    }
}

/// The pool. Its one owner takes slots and gets them back.
#[derive(Debug)]
pub struct Pool {
    base: NonNull<u8>,
    region_size: usize,
    slot_size: u16,
    slots: u32,
    free: Vec<u32>,
    used_max: u32,
    large: Option<Large>,
}

// SAFETY: the pool is the only one that hands out parts of its region, and each part goes to one
// owner only; nothing about it is bound to a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// Maps the memory.
    ///
    /// # Errors
    /// [`OpenError::Memory`] if the kernel does not give it.
    pub fn new(config: PoolConfig) -> Result<Self, OpenError> {
        let slot_size = config.slot_size / ALIGN * ALIGN;
        assert!(slot_size > 0 && config.slots > 0, "a pool has slots, and they have a size");
        let region_size = slot_size as usize * config.slots as usize;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                region_size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(|errno| OpenError::Memory {
            bytes: region_size,
            what: "the pool of frames",
            source: io::Error::from(errno),
        })?;
        // Large pages spare a page walk per frame. Advice only: without them small ones do.
        // SAFETY: the range is exactly the mapping made above, which nobody else uses yet; neither
        // advice changes what it holds.
        unsafe {
            let _ = rustix::mm::madvise(base, region_size, Advice::LinuxHugepage);
            if config.populate {
                let _ = rustix::mm::madvise(base, region_size, Advice::LinuxPopulateWrite);
            }
        }
        let base = NonNull::new(base.cast()).expect("a mapping is never at zero");
        // The lowest slot lies on top, so that a pool that is little used stays in cache.
        let free = (0..config.slots).rev().collect();
        Ok(Self {
            base,
            region_size,
            slot_size,
            slots: config.slots,
            free,
            used_max: 0,
            large: None,
        })
    }

    /// Adds memory for this number of super-frames.
    ///
    /// # Errors
    /// [`OpenError::Memory`] if the kernel does not give it.
    pub fn with_large(mut self, slots: u32) -> Result<Self, OpenError> {
        self.large = (slots > 0).then(|| Large::new(slots)).transpose()?;
        Ok(self)
    }

    /// Number of slots for super-frames.
    #[must_use]
    pub fn large_slots(&self) -> u32 {
        self.large.as_ref().map_or(0, Large::count)
    }

    /// Takes a slot for a super-frame; `None` if there is none.
    pub(crate) fn take_large(&mut self) -> Option<LargeSlot> {
        let slot = self.large.as_mut()?.take()?;
        self.used_max = self.used_max.max(self.used());
        Some(slot)
    }

    /// Takes a slot for a super-frame that could also be several frames; `None` if not more than
    /// half of them are free. So a container's own never wait for those of the underlay.
    pub(crate) fn take_large_to_spare(&mut self) -> Option<LargeSlot> {
        let large = self.large.as_ref()?;
        if large.used() >= large.count() / 2 { None } else { self.take_large() }
    }

    /// Takes back a slot for super-frames that holds no frame.
    pub(crate) fn cancel_large(&mut self, slot: &LargeSlot) {
        self.put_large(slot.number());
    }

    #[cold]
    fn put_large(&mut self, slot: u32) {
        let large = self.large.as_mut();
        large.expect("a handle of another pool was given back").put(slot);
    }

    /// Takes a slot; `None` if all are in use.
    #[inline]
    pub fn take(&mut self) -> Option<SlotMut> {
        let slot = self.free.pop()?;
        self.used_max = self.used_max.max(self.used());
        // SAFETY: `slot` is below `slots`, so the result lies inside the region.
        let start = unsafe { self.base.add(slot as usize * self.slot_size as usize) };
        Some(SlotMut { start, slot, size: self.slot_size })
    }

    /// Takes a handle back.
    ///
    /// # Panics
    /// If it is not of this pool.
    #[inline]
    pub fn give_back(&mut self, buf: FrameBuf) {
        let (slot, start) = buf.pool_slot().expect("a guest's frame was given back to a pool");
        if slot & LARGE != 0 {
            return self.put_large(slot);
        }
        self.put(slot, start);
    }

    /// Copies a frame that lies elsewhere into a slot; `None` if there is none. The copy is
    /// finished, unless it is a super-frame.
    #[inline]
    pub fn copy_of(&mut self, buf: &FrameBuf) -> Option<FrameBuf> {
        let offload = buf.offload();
        if let Some(left) = offload.filter(|left| left.is_super()) {
            let mut slot = self.take_large()?;
            buf.copy_to(0, &mut slot.bytes_mut()[..left.size()]);
            return Some(slot.freeze(left));
        }
        let size = buf.len();
        if size > self.slot_size.into() {
            return None;
        }
        let mut slot = self.take()?;
        buf.copy_to(0, &mut slot.bytes_mut()[..size]);
        if let Some(left) = offload {
            left.finish(&mut slot.bytes_mut()[..size]);
        }
        Some(slot.freeze(0, size).with_vlan_tag(buf.vlan_tag()))
    }

    /// Takes back a slot that holds no frame.
    ///
    /// # Panics
    /// If it is not of this pool.
    #[inline]
    pub fn cancel(&mut self, slot: SlotMut) {
        self.put(slot.slot, slot.start);
    }

    fn put(&mut self, slot: u32, start: NonNull<u8>) {
        let offset = (start.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        let here = offset / self.slot_size as usize == slot as usize && slot < self.slots;
        assert!(here, "a handle of another pool was given back");
        assert!(self.free.len() < self.slots as usize, "more handles came back than were taken");
        self.free.push(slot);
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Size of a slot.
    #[must_use]
    pub fn slot_size(&self) -> u16 {
        self.slot_size
    }

    /// Number of free slots.
    #[must_use]
    pub fn free(&self) -> u32 {
        u32::try_from(self.free.len()).expect("at most `slots`")
    }

    /// Number of slots in use: handles in the switch, in drivers, or lost.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.slots - self.free() + self.large.as_ref().map_or(0, Large::used)
    }

    /// Maximum of slots ever in use.
    #[must_use]
    pub fn used_max(&self) -> u32 {
        self.used_max
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.free() < self.slots {
            return; // Somebody still has a pointer into it.
        }
        // SAFETY: the region is ours, and every pointer into it was given back.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.region_size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A slot to be written. It goes back as a handle, by [`Self::freeze`], or by [`Pool::cancel`].
#[derive(Debug)]
#[must_use = "a slot that is dropped is lost to its pool"]
pub struct SlotMut {
    start: NonNull<u8>,
    slot: u32,
    size: u16,
}

// SAFETY: a slot has one owner, and only it can reach the memory.
unsafe impl Send for SlotMut {}

impl SlotMut {
    /// All bytes of the slot; they hold remains of earlier frames.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot lies in a region that is mapped while the slot is out, its memory was
        // initialised (to zero) by the kernel, and this is its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size.into()) }
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// The bytes behind the room for offloads.
    #[inline]
    pub(crate) fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.bytes_mut()[OFFLOAD_ROOM..]
    }

    /// Turns the slot into a handle of the frame in [`Self::frame_mut`].
    #[inline]
    pub(crate) fn freeze_frame(self, size: usize) -> FrameBuf {
        self.freeze(OFFLOAD_ROOM, size)
    }

    /// Turns the slot into a handle of the frame in [`Self::frame_mut`], with offloads to be
    /// performed.
    pub(crate) fn freeze_unfinished(mut self, offload: &Offload) -> FrameBuf {
        let size = offload.size();
        if offload.is_super() && size < HEAD_SIZE {
            self.frame_mut()[size..HEAD_SIZE].fill(0);
        }
        // SAFETY: a slot begins on a cache line and has room in front of the frame; this is its
        // only writer.
        unsafe { self.start.cast::<Offload>().write(*offload) };
        let is_super = offload.is_super();
        // SAFETY: the offloads stand there, and a head behind them.
        unsafe { self.freeze_frame(size).unfinished(is_super) }
    }

    /// Turns the slot into a handle of the frame that was written at `offset`.
    ///
    /// # Panics
    /// If the frame does not lie in the slot.
    #[inline]
    pub fn freeze(self, offset: usize, size: usize) -> FrameBuf {
        let end = offset.checked_add(size).expect("a frame is smaller than memory");
        assert!(offset < self.size() && end <= self.size(), "the frame lies in the slot");
        #[expect(clippy::cast_possible_truncation, reason = "not above `self.size`, a u16")]
        let size = size as u16;
        // SAFETY: `offset` is below the slot's size, asserted just before.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: the frame lies in the slot, asserted just before, and this was its only writer.
        unsafe { FrameBuf::in_pool(start, self.slot, size) }
    }
}

#[cfg(test)]
mod tests;
