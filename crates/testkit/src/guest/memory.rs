//! A guest's memory: one memfd, mapped shared, in one or more regions of guest-physical addresses.
//!
//! ```text
//!   offset   0 ............ | .............      one file, one mapping
//!   address  4 GiB ....     hole  5 GiB ....     what descriptors say
//! ```
//!
//! Guest-physical addresses differ from those of the mapping and from offsets, so that a switch
//! that mixes them up is detected. Between regions there is a hole, and no allocation crosses one.
//! Allocations are never given back: rings and buffers live as long as the guest.
//!
//! The other process may write at any time, in violation of the rules. So no function here hands
//! out a reference to bytes: [`Bytes`] copies in and out, and rings use atomics and volatile
//! accesses.
#![allow(unsafe_code, reason = "the mapping that two processes share")]

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use vhost::VhostUserMemoryRegionInfo;

use super::error::GuestError;

/// A cache line, in bytes.
pub const LINE: usize = 64;
/// Guest address of the first region.
const GUEST_BASE: u64 = 1 << 32;
/// Size of the hole between two regions.
const HOLE: u64 = 1 << 30;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Page size of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The usual ones, 4 KiB.
    #[default]
    Small,
    /// Of 2 MiB, which the machine must have reserved (`vm.nr_hugepages`).
    Huge,
}

/// The memory of a guest.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    region_bytes: usize,
    regions: usize,
    next: AtomicUsize,
}

// SAFETY: the mapping belongs to no thread. It is accessed as memory that may change at any time,
// by copies, atomics and volatile accesses, so another thread of this process is no worse than the
// other process.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns zeroed memory of at least `bytes` bytes, cut into `regions` of equal size.
    ///
    /// # Errors
    /// [`GuestError::Memory`].
    pub fn new(bytes: usize, pages: Pages, regions: usize) -> Result<Self, GuestError> {
        let regions = regions.max(1);
        let (flags, page) = match pages {
            Pages::Small => (MemfdFlags::empty(), PAGE),
            Pages::Huge => (MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, HUGE_PAGE),
        };
        let region_bytes = bytes.div_ceil(regions).next_multiple_of(page);
        let bytes = region_bytes * regions;
        let error = |what, source: rustix::io::Errno| GuestError::Memory {
            what,
            bytes,
            source: io::Error::from(source),
        };
        let fd = rustix::fs::memfd_create("guest", flags | MemfdFlags::CLOEXEC)
            .map_err(|e| error("make", e))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(|e| error("size", e))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &fd,
                0,
            )
        };
        let base = base.map_err(|e| error("map", e))?.cast::<u8>();
        let base = NonNull::new(base).expect("the kernel does not map at null");
        Ok(Self { fd, base, region_bytes, regions, next: AtomicUsize::new(0) })
    }

    /// Returns its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region_bytes * self.regions
    }

    /// Returns false: a memory has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the file, to be mapped by another process.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the regions as the table of the protocol has them: guest address, address here,
    /// offset.
    #[must_use]
    pub fn regions(&self) -> Vec<VhostUserMemoryRegionInfo> {
        let region = |number: usize| {
            let offset = number * self.region_bytes;
            VhostUserMemoryRegionInfo {
                guest_phys_addr: self.guest_address(offset),
                memory_size: self.region_bytes as u64,
                userspace_addr: self.address(offset),
                mmap_offset: offset as u64,
                mmap_handle: self.fd.as_raw_fd(),
            }
        };
        (0..self.regions).map(region).collect()
    }

    /// Allocates `bytes` bytes, aligned to a power of two, and returns their offset. The bytes are
    /// zero.
    ///
    /// # Errors
    /// [`GuestError::NoRoom`].
    pub fn allocate(&self, bytes: usize, align: usize) -> Result<usize, GuestError> {
        let place = |from: usize| {
            let start = from.next_multiple_of(align);
            let room = self.region_bytes - start % self.region_bytes;
            if bytes <= room { start } else { start + room }
        };
        let fits = |from: usize| {
            let end = place(from) + bytes;
            (bytes <= self.region_bytes && end <= self.len()).then_some(end)
        };
        let from = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        from.map(place).map_err(|_| GuestError::NoRoom { bytes })
    }

    /// Returns the guest-physical address of the byte at an offset; beyond the end, an address
    /// without memory.
    #[must_use]
    pub fn guest_address(&self, offset: usize) -> u64 {
        GUEST_BASE + offset as u64 + (offset / self.region_bytes) as u64 * HOLE
    }

    /// Returns the address of the byte at an offset in this process. Ring addresses of the protocol
    /// are of this kind.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        (self.base.as_ptr().addr() + offset) as u64
    }

    /// Returns bytes from an offset on.
    ///
    /// # Panics
    /// If they are not all in this memory.
    #[inline]
    #[must_use]
    pub fn bytes(&self, offset: usize, bytes: usize) -> Bytes<'_> {
        Bytes { at: self.at(offset, bytes), bytes, of: PhantomData }
    }

    /// Prefetches the line at an offset, to read it.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize) {
        let at = self.base.as_ptr().wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>()) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Prefetches the line at an offset, to write it.
    #[inline]
    pub(super) fn prefetch_to_write(&self, offset: usize) {
        let at = self.base.as_ptr().wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        {
            // The function of the standard library prefetches the line to read it, unless the whole
            // program is built for newer processors. Older ones execute this instruction as a
            // no-op. SAFETY: a hint, which faults at no address and changes nothing.
            unsafe {
                std::arch::asm!(
                    "prefetchw [{at}]",
                    at = in(reg) at,
                    options(nostack, preserves_flags)
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Returns the address of some bytes that are in this memory.
    #[inline]
    pub(super) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.len()), "{bytes} bytes at {offset}");
        // SAFETY: it is within the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, and whatever points into it borrows or shares the
        // object. An error would mean that it was no mapping.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len()) };
    }
}

/// Bytes that two processes share: they are copied, never referenced.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    at: NonNull<u8>,
    bytes: usize,
    of: PhantomData<&'a Memory>,
}

impl Bytes<'_> {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    #[inline]
    fn checked(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "{bytes} of {} at {at}", self.bytes);
        // SAFETY: it is within these bytes, which are in the mapping.
        unsafe { self.at.as_ptr().add(at) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not all here.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) {
        let from = self.checked(at, to.len());
        // SAFETY: `from` has so many bytes in the mapping; `to` is memory of this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) {
        let to = self.checked(at, from.len());
        // SAFETY: `to` has so many bytes in the mapping; `from` is memory of this process alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    /// Returns eight bytes as a number, the least significant one first.
    ///
    /// # Panics
    /// If they are not all here.
    #[inline]
    #[must_use]
    pub fn read_u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Writes a number into eight bytes, the least significant one first.
    ///
    /// # Panics
    /// If they are not all here.
    #[inline]
    pub fn write_u64(&self, at: usize, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Returns a copy of all bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }

    /// Sets all bytes to one value.
    pub fn fill(&self, value: u8) {
        // SAFETY: they are in the mapping.
        unsafe { std::ptr::write_bytes(self.at.as_ptr(), value, self.bytes) }
    }
}
