//! A page that BPF programs, or the kernel, share with this process.
#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags};

/// Size of the part that is mapped: the smallest page of all machines.
const SIZE: usize = 4096;

/// One page of a map.
#[derive(Debug)]
pub(crate) struct SharedPages(NonNull<u8>);

// SAFETY: its words are atomic.
unsafe impl Send for SharedPages {}

impl SharedPages {
    /// Maps the page at this offset.
    pub(crate) fn map(map: BorrowedFd<'_>, offset: u64, writable: bool) -> io::Result<Self> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), SIZE, protection, MapFlags::SHARED, map, offset)
        }?;
        Ok(Self(NonNull::new(base.cast()).expect("a mapping is never at zero")))
    }

    /// The word at this offset. One of a page that is not writable must only be read.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + size_of::<AtomicU64>() <= SIZE && offset.is_multiple_of(8), "in the page");
        // SAFETY: it lies in the page and is aligned, and all sides use it atomically only.
        unsafe { self.0.add(offset).cast().as_ref() }
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every borrow of it is a borrow of `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}
