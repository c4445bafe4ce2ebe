//! Memory for a few super-frames, which are larger than a slot.
//!
//! ```text
//!   | offloads: 64 bytes | frame ............ | unused |
//! ```
//!
//! Super-frames of a TAP are read into them. One of a guest lies in the guest's memory, and is
//! copied only if it waits for a stopped receiver, goes to a group, or lies in too many pieces.
//! Pages of a slot that was never used take no memory.
#![allow(unsafe_code, reason = "as the pool's own slots")]

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use crate::error::OpenError;
use crate::frame::{FrameBuf, HEAD_SIZE, OFFLOAD_ROOM};
use crate::offload::Offload;

/// Size of the largest packet, and Ethernet with two tags.
pub(crate) const LARGE_FRAME_SIZE_MAX: usize = (1 << 16) + 22;
/// Size of one slot: whole pages.
const SLOT_SIZE: usize = (OFFLOAD_ROOM + LARGE_FRAME_SIZE_MAX).next_multiple_of(4096);
/// Bit of a slot number that marks a slot for super-frames.
pub(super) const LARGE: u32 = 1 << 29;

/// The region.
#[derive(Debug)]
pub(super) struct Large {
    base: NonNull<u8>,
    count: u32,
    free: Vec<u32>,
    /// True for slots that are out.
    out: Box<[bool]>,
}

// SAFETY: as for `Pool`.
unsafe impl Send for Large {}

impl Large {
    pub(super) fn new(count: u32) -> Result<Self, OpenError> {
        let bytes = SLOT_SIZE * count as usize;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
        let base = base.map_err(|errno| OpenError::Memory {
            bytes,
            what: "the pool of super-frames",
            source: errno.into(),
        })?;
        let base = NonNull::new(base.cast()).expect("a mapping is never at zero");
        Ok(Self {
            base,
            count,
            free: (0..count).rev().collect(),
            out: vec![false; count as usize].into(),
        })
    }

    pub(super) fn take(&mut self) -> Option<LargeSlot> {
        let slot = self.free.pop()?;
        self.out[slot as usize] = true;
        // SAFETY: the number is below the count.
        let start = unsafe { self.base.add(slot as usize * SLOT_SIZE) };
        Some(LargeSlot { start, slot: slot | LARGE })
    }

    /// Takes a slot back, by its number.
    pub(super) fn put(&mut self, slot: u32) {
        let slot = slot & !LARGE;
        assert!(slot < self.count, "a handle of another pool was given back");
        let was_out = std::mem::take(&mut self.out[slot as usize]);
        assert!(was_out, "a handle came back twice");
        self.free.push(slot);
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn used(&self) -> u32 {
        self.count - u32::try_from(self.free.len()).expect("at most `count`")
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        if self.used() > 0 {
            return; // Somebody still has a pointer into it.
        }
        let bytes = SLOT_SIZE * self.count as usize;
        // SAFETY: the region is ours, and every pointer into it was given back.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A slot to be written.
#[derive(Debug)]
#[must_use = "a slot that is dropped is lost to its pool"]
pub(crate) struct LargeSlot {
    start: NonNull<u8>,
    slot: u32,
}

// SAFETY: as for `SlotMut`.
unsafe impl Send for LargeSlot {}

impl LargeSlot {
    fn frame(&self) -> NonNull<u8> {
        // SAFETY: a slot is larger.
        unsafe { self.start.add(OFFLOAD_ROOM) }
    }

    pub(super) fn number(&self) -> u32 {
        self.slot
    }

    /// The memory for the frame.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: that much is left of the slot, which this owns, and which the kernel has
        // initialised.
        unsafe { std::slice::from_raw_parts_mut(self.frame().as_ptr(), LARGE_FRAME_SIZE_MAX) }
    }

    /// Turns the slot into a handle of the frame that was written. Its offloads are performed now,
    /// unless it is a super-frame.
    pub(crate) fn freeze(mut self, offload: &Offload) -> FrameBuf {
        let size = offload.size();
        if !offload.is_super() {
            offload.finish(&mut self.bytes_mut()[..size]);
            let size = u16::try_from(size).expect("no super-frame is larger");
            // SAFETY: the frame lies in the slot, and this was its only writer.
            return unsafe { FrameBuf::in_pool(self.frame(), self.slot, size) };
        }
        if size < HEAD_SIZE {
            self.bytes_mut()[size..HEAD_SIZE].fill(0);
        }
        // SAFETY: there is room in front of the frame, on a page's boundary, and nobody else has
        // the slot; a head is there even of a shorter frame.
        unsafe {
            self.start.cast::<Offload>().write(*offload);
            FrameBuf::in_pool(self.frame(), self.slot, 0).unfinished(true)
        }
    }
}
