//! The dirty log of a guest that is moved: what its switch says that it wrote.
//!
//! One bit for each page of 4 KiB by guest address, in a memfd that cannot shrink. It is read as a
//! file, when the switch is at rest; a hypervisor takes marks out meanwhile, too.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vhost::VhostUserDirtyLogRegion;

use super::error::GuestError;
use super::memory::Memory;

/// What a bit stands for, in bytes of memory.
const PAGE: u64 = 4096;

/// A dirty log.
#[derive(Debug)]
pub struct Log {
    file: File,
    bytes: u64,
    /// Rung by a switch that tells of what it logs.
    bell: OwnedFd,
}

impl Log {
    /// A log with a bit for every page of a guest's memory, and none marked.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn of(memory: &Memory) -> Result<Self, GuestError> {
        let regions = memory.regions();
        let ends = regions.iter().map(|region| region.guest_phys_addr + region.memory_size);
        Self::with_bytes(ends.max().unwrap_or(0).div_ceil(8 * PAGE))
    }

    /// A log of so many bytes, whether that is enough or not.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn with_bytes(bytes: u64) -> Result<Self, GuestError> {
        let make = || -> io::Result<OwnedFd> {
            let fd = memfd_create("log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&fd, bytes)?;
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(fd)
        };
        let fd = make().map_err(|source| GuestError::System { what: "make a log", source })?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|errno| GuestError::System {
            what: "make the bell of a log",
            source: errno.into(),
        })?;
        Ok(Self { file: fd.into(), bytes, bell })
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn region(&self) -> VhostUserDirtyLogRegion {
        let mmap_handle = self.file.as_raw_fd();
        VhostUserDirtyLogRegion { mmap_size: self.bytes, mmap_offset: 0, mmap_handle }
    }

    /// The guest addresses of the pages that are marked, in order.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn pages(&self) -> Result<Vec<u64>, GuestError> {
        let mut bytes = vec![0; usize::try_from(self.bytes).expect("it is in memory")];
        let read = self.file.read_exact_at(&mut bytes, 0);
        read.map_err(|source| GuestError::System { what: "read a log", source })?;
        let of = |(at, byte): (u64, u8)| {
            let bits = (0..8).filter(move |bit| byte & (1 << bit) != 0);
            bits.map(move |bit| (8 * at + bit) * PAGE)
        };
        Ok((0..).zip(bytes).flat_map(of).collect())
    }
}
