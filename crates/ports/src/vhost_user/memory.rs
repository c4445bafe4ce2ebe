//! A guest's memory as this process sees it.
//!
//! The front end passes regions as files; each is mapped once, and a guest's address is looked up
//! by [`Memory::at`]. No address is trusted: a range that does not lie in one region whole is not
//! mapped. A map never changes; another one takes its place, and the old one stays mapped until the
//! last ring that uses it has stopped. The size of the file is checked at mapping time; if memory
//! goes away later, see `sigbus.rs`.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::sigbus::Watch;

/// A region as the front end describes it (vhost-user, "Memory region description").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Guest address.
    pub(super) guest: u64,
    /// Address in the front end; ring addresses are given so.
    pub(super) user: u64,
    pub(super) size: u64,
    /// Offset in its file.
    pub(super) offset: u64,
}

/// A mapped region.
#[derive(Debug)]
struct Region {
    layout: Layout,
    base: NonNull<u8>,
    size: usize,
    /// Watch of the mapping, as long as it is mapped.
    watch: Option<Watch>,
}

// SAFETY: a mapping is not bound to a thread; it is read as memory that another process may write
// at any time, which the guest may do anyway.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        self.watch = None;
        // SAFETY: the mapping is ours, and the last ring that had pointers into it is gone.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// All regions, the largest first: most addresses lie there.
#[derive(Debug, Default)]
pub(super) struct Memory {
    regions: Vec<Region>,
}

impl Memory {
    /// Maps regions.
    ///
    /// # Errors
    /// A region that is empty, overlaps another one, wraps around or is larger than its file; or
    /// the kernel's error.
    pub(super) fn map(layouts: &[(Layout, File)]) -> io::Result<Self> {
        let mut regions: Vec<Region> = Vec::with_capacity(layouts.len());
        for (layout, file) in layouts {
            check(layout)?;
            let mapped = regions.iter().map(|region| &region.layout);
            if mapped.into_iter().any(|other| overlap(layout, other)) {
                return Err(invalid("two regions of guest memory overlap"));
            }
            regions.push(map_region(*layout, file)?);
        }
        regions.sort_by_key(|region| std::cmp::Reverse(region.size));
        Ok(Self { regions })
    }

    /// Returns the mapping of `size` bytes at a guest's address; `None` unless all of them are in
    /// one region.
    #[inline]
    pub(super) fn at(&self, guest: u64, size: usize) -> Option<NonNull<u8>> {
        self.find(guest, size, |layout| layout.guest)
    }

    /// Returns the mapping of `size` bytes at an address of the front end.
    pub(super) fn at_user(&self, user: u64, size: usize) -> Option<NonNull<u8>> {
        self.find(user, size, |layout| layout.user)
    }

    /// Returns the guest's address of mapped memory.
    pub(super) fn guest_of(&self, at: NonNull<u8>) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let offset = at.addr().get().wrapping_sub(region.base.addr().get());
            (offset < region.size).then(|| region.layout.guest + offset as u64)
        })
    }

    /// End of a guest's memory: the first address behind all regions.
    pub(super) fn end(&self) -> u64 {
        let ends = self.regions.iter().map(|region| region.layout.guest + region.layout.size);
        ends.max().unwrap_or(0)
    }

    /// Returns true if some of it went away: its files became shorter. Its content is invalid then.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.regions.iter().any(|region| region.watch.as_ref().is_some_and(Watch::is_gone))
    }

    #[inline]
    fn find(&self, at: u64, size: usize, of: impl Fn(&Layout) -> u64) -> Option<NonNull<u8>> {
        for region in &self.regions {
            let Ok(offset) = usize::try_from(at.wrapping_sub(of(&region.layout))) else { continue };
            if offset < region.size && size <= region.size - offset {
                // SAFETY: `offset` is below the size of the mapping.
                return Some(unsafe { region.base.add(offset) });
            }
        }
        None
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Checks that a region does not wrap around, before its end is used.
fn check(layout: &Layout) -> io::Result<()> {
    let Layout { guest, user, size, offset } = *layout;
    let wraps = [guest, user, offset].iter().any(|start| start.checked_add(size).is_none());
    if size == 0 || wraps {
        return Err(invalid("a region of guest memory is empty, or wraps around"));
    }
    Ok(())
}

fn overlap(a: &Layout, b: &Layout) -> bool {
    let meet = |a: u64, a_size: u64, b: u64, b_size: u64| a < b + b_size && b < a + a_size;
    meet(a.guest, a.size, b.guest, b.size) || meet(a.user, a.size, b.user, b.size)
}

fn map_region(layout: Layout, file: &File) -> io::Result<Region> {
    let Layout { size, offset, .. } = layout;
    // It would be gone with the first access.
    if file.metadata()?.len() < offset + size {
        return Err(invalid("a region of guest memory is larger than its file"));
    }
    let size = usize::try_from(size).map_err(|_| invalid("a region is larger than memory"))?;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            size,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            file,
            offset,
        )
    }?;
    let base = NonNull::new(base.cast()).expect("a mapping is never at zero");
    let mut region = Region { layout, base, size, watch: None };
    region.watch = Some(Watch::new(base, size)?);
    Ok(region)
}

#[cfg(test)]
mod tests;
