//! The dirty log: pages of a guest's memory that were written (vhost-user, "Migration").
//!
//! A front end that migrates a running guest copies its memory page by page, and copies again the
//! pages written meanwhile. It sees the guest's own writes itself; the device marks its writes
//! here: bit `address / 4096` of a file that both have mapped, the least significant bit of a byte
//! first. The front end clears marks at any time, and copies the page later.
//!
//! **No write is missed**, because the mark is set *after* the write, with release, and always:
//! also if it is set already. The front end clears it by an atomic exchange, and then reads the
//! page. If the exchange comes behind our mark, it read the mark, and all writes before the mark
//! are in its copy. If it comes before, our mark stays for its next round, and there is one: the
//! last round comes when the rings have stopped. A mark set before the write could be cleared, and
//! the page copied, before the write; so could one that was found set and left.
//!
//! The file must not shrink under the mapping: an access beyond its end would end the process, and
//! with it the ports of all other guests. So it is sealed against that, or refused.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of memory per bit, for any page size of the machine.
const PAGE_SIZE: u64 = 4096;
/// Bytes of memory per byte of the log.
const BYTE_COVERS: u64 = 8 * PAGE_SIZE;

/// A log, mapped.
#[derive(Debug)]
pub(super) struct DirtyLog {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping is not bound to a thread, and it is reached by atomics only.
unsafe impl Send for DirtyLog {}
// SAFETY: as above.
unsafe impl Sync for DirtyLog {}

/// Logging of one ring.
#[derive(Clone, Debug)]
pub(super) struct Logging {
    pub(super) log: Arc<DirtyLog>,
    /// The guest's address of the used ring, if its writes are logged, too.
    pub(super) used: Option<u64>,
}

impl DirtyLog {
    /// Maps a log of `size` bytes, which begins at `offset` of its file.
    ///
    /// # Errors
    /// A file that is shorter, or that may shrink; or the kernel's error.
    pub(super) fn map(file: &File, offset: u64, size: u64) -> io::Result<Self> {
        let end = offset.checked_add(size).filter(|_| size > 0);
        let end = end.ok_or_else(|| invalid("it is empty, or wraps around"))?;
        // First the seal, then the size: it cannot shrink in between.
        seal(file)?;
        if file.metadata()?.len() < end {
            return Err(invalid("it is larger than its file"));
        }
        let size = usize::try_from(size).map_err(|_| invalid("it is larger than memory"))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).expect("a mapping is never at zero");
        Ok(Self { base, size })
    }

    /// End of the guest addresses that have a bit for every page.
    pub(super) const fn end(&self) -> u64 {
        (self.size as u64).saturating_mul(BYTE_COVERS)
    }

    /// Marks every page with one of `size` bytes at a guest's address. The bytes are written
    /// already, and below [`Self::end`].
    #[cold]
    pub(super) fn mark(&self, guest: u64, size: u64) {
        if size == 0 {
            return;
        }
        for page in guest / PAGE_SIZE..=(guest + (size - 1)) / PAGE_SIZE {
            let Some(byte) = self.byte(page / 8) else {
                debug_assert!(false, "page {page} has no bit; logs are checked when they come");
                return;
            };
            // After the write, and always: see the top of the file.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    fn byte(&self, at: u64) -> Option<&AtomicU8> {
        let at = usize::try_from(at).ok().filter(|&at| at < self.size)?;
        // SAFETY: it is within the mapping, which stays as long as `self`; nobody of this process
        // has another way to it.
        Some(unsafe { AtomicU8::from_ptr(self.base.add(at).as_ptr()) })
    }
}

impl Drop for DirtyLog {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Makes sure that no process can shrink the file.
fn seal(file: &File) -> io::Result<()> {
    let is_sealed = |seals: SealFlags| seals.contains(SealFlags::SHRINK);
    let sealed = fcntl_get_seals(file).is_ok_and(is_sealed)
        || fcntl_add_seals(file, SealFlags::SHRINK).is_ok();
    if sealed {
        return Ok(());
    }
    Err(invalid("its file may shrink: give a memfd with F_SEAL_SHRINK, or one that can be sealed"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests;
