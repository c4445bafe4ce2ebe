//! The dirty log of a guest that is migrated: pages that its switch reports as written.
//!
//! It has one bit for each page of 4 KiB by guest address, in a memfd that cannot shrink. Marks are
//! read ([`Log::pages`]), or cleared while the switch writes, as a hypervisor does ([`Log::take`]).
#![allow(unsafe_code, reason = "the mapping that two processes share")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};
use vhost::VhostUserDirtyLogRegion;

use super::error::GuestError;
use super::memory::Memory;

/// Bytes of memory that a bit stands for.
const PAGE: u64 = 4096;

/// A dirty log.
#[derive(Debug)]
pub struct Log {
    fd: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
    /// Notification eventfd, written by a switch that reports its marks.
    bell: OwnedFd,
}

// SAFETY: the mapping belongs to no thread, and is reached by atomics only.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    /// Returns a log with a bit for every page of a guest's memory, and none marked.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn of(memory: &Memory) -> Result<Self, GuestError> {
        let regions = memory.regions();
        let ends = regions.iter().map(|region| region.guest_phys_addr + region.memory_size);
        let bytes = ends.max().unwrap_or(0).div_ceil(8 * PAGE);
        Self::with_bytes(usize::try_from(bytes).expect("logs are small"))
    }

    /// Returns a log of `bytes` bytes, whether that is enough or not.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn with_bytes(bytes: usize) -> Result<Self, GuestError> {
        let make = || -> io::Result<Self> {
            let fd = memfd_create("log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&fd, bytes as u64)?;
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let base = unsafe {
                let (both, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
                rustix::mm::mmap(std::ptr::null_mut(), bytes, both, shared, &fd, 0)
            }?;
            let base = NonNull::new(base.cast()).expect("the kernel does not map at null");
            let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Self { fd, base, bytes, bell: notifier })
        };
        make().map_err(|source| GuestError::System { what: "make a log", source })
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn region(&self) -> VhostUserDirtyLogRegion {
        let (mmap_size, mmap_handle) = (self.bytes as u64, self.fd.as_raw_fd());
        VhostUserDirtyLogRegion { mmap_size, mmap_offset: 0, mmap_handle }
    }

    /// Returns the guest addresses of the pages that are marked, in order.
    #[must_use]
    pub fn pages(&self) -> Vec<u64> {
        self.each(|byte| byte.load(Ordering::Acquire))
    }

    /// Returns the marked pages and clears the marks: pages written from now on are marked anew.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        let is_marked = |byte: &AtomicU8| byte.load(Ordering::Relaxed) != 0;
        self.each(|byte| if is_marked(byte) { byte.swap(0, Ordering::AcqRel) } else { 0 })
    }

    fn each(&self, of: impl Fn(&AtomicU8) -> u8) -> Vec<u64> {
        let mut pages = Vec::new();
        for at in 0..self.bytes {
            // SAFETY: it is within the mapping, which stays as long as `self`.
            let byte = of(unsafe { AtomicU8::from_ptr(self.base.add(at).as_ptr()) });
            let bits = (0..8).filter(|bit| byte & (1 << bit) != 0);
            pages.extend(bits.map(|bit| (8 * at as u64 + bit) * PAGE));
        }
        pages
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's. An error would mean that it was no mapping.
        _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
