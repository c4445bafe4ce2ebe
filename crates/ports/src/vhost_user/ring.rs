//! The device's side of a split virtqueue (virtio 1.2 section 2.7).
//!
//! All of its memory may be changed by the guest at any time. Each field is read once, as a copy,
//! and the copy is checked; a checked field is never read again.
//!
//! **No wake-up is lost**, in either direction, because each side first writes its progress, then,
//! behind a full fence, reads the other side's wish for an event. Here: the used index, fence, the
//! driver's wish for an interrupt ([`Ring::publish`]); and the wish for a kick, fence, the
//! available index ([`Ring::arm`], `waking.rs`).

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use super::log::DirtyLog;
use super::memory::Memory;
use super::waking::{self, Words};

/// Bits of a descriptor's flags (section 2.7.5).
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// The driver wants no interrupts (`flags` of the available ring, section 2.7.6).
const NO_INTERRUPT: u16 = 1;
/// The device wants no kicks (`flags` of the used ring, section 2.7.8).
const NO_NOTIFY: u16 = 1;

/// Distance of prefetches in entries: hardly more fit into a core's outstanding loads.
pub(super) const LOOK_AHEAD: u16 = 16;

/// Maximum size of a ring (section 2.7).
pub(super) const SIZE_MAX: u32 = 32_768;

/// A descriptor (section 2.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub(super) struct Desc {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

/// An entry of the used ring (section 2.7.8).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Used {
    id: u32,
    len: u32,
}

/// Fault of a ring. The ring stays stopped until its driver sets it up anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The available index is further ahead than the ring is long.
    #[error("its available index is {ahead} ahead, and the ring has {size} entries")]
    Index {
        /// Distance from the next entry.
        ahead: u16,
        /// Size of the ring.
        size: u16,
    },
    /// A descriptor index beyond the table.
    #[error("descriptor {0} is beyond the table")]
    Head(u16),
    /// A descriptor that is in use already.
    #[error("descriptor {0} is available twice")]
    Twice(u16),
    /// A chain with more descriptors than the ring has, or a loop.
    #[error("the chain of descriptor {0} has no end")]
    Chain(u16),
    /// Memory that the front end did not share.
    #[error("{size} bytes at guest address {addr:#x} are not shared memory")]
    Unmapped {
        /// Guest address.
        addr: u64,
        /// Number of bytes.
        size: u32,
    },
    /// A descriptor that the device may only write where it should read, or the other way round.
    #[error("descriptor {0} has the wrong direction")]
    Direction(u16),
    /// An indirect table with a partial descriptor, in another one, or in a chain.
    #[error("the indirect table of descriptor {0} is malformed")]
    Indirect(u16),
    /// A chain that is too short for the header of a frame.
    #[error("the chain of descriptor {0} is too short")]
    Short(u16),
    /// Shared memory that cannot be accessed any more.
    #[error("its memory is gone: the file became shorter while shared, or its pages ran out")]
    Gone,
}

/// Addresses of a ring's parts, as the front end has them, and its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) size: u16,
    pub(super) desc: u64,
    pub(super) avail: u64,
    pub(super) used: u64,
}

impl Place {
    const fn is_aligned(&self) -> bool {
        self.desc.is_multiple_of(16) && self.avail.is_multiple_of(2) && self.used.is_multiple_of(4)
    }
}

/// An index of a ring: 16 bits, in a word of its own. With two in one word the processor may load
/// both at once, and a load that spans several stores that are still on their way waits until
/// these, and all before them, have reached the cache: here, frames written to memory that another
/// core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Index(u32);

impl Index {
    const fn new(at: u16) -> Self {
        Self(at as u32)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "its 16 bits")]
    const fn get(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    const fn advance(&mut self, count: u16) {
        self.0 = self.0.wrapping_add(count as u32);
    }
}

/// A ring that is set up.
#[derive(Debug)]
pub(super) struct Ring {
    desc: NonNull<Desc>,
    avail: NonNull<u16>,
    used: NonNull<u16>,
    size: u16,
    /// True if both sides publish the index at which they want an event (`VIRTIO_F_EVENT_IDX`).
    event_idx: bool,
    /// The next available entry to take.
    next_avail: Index,
    /// The available index at the last look.
    seen: Index,
    /// The next used entry to write, and the index published last.
    next_used: Index,
    published: Index,
    /// Dirty log of the used ring, and the guest's address of the used ring.
    log: Option<(Arc<DirtyLog>, u64)>,
}

// SAFETY: the pointers lead into a mapping, which is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Makes a ring in mapped memory with the next available entry `base`. `None` if it lies
    /// outside, or is not aligned (section 2.7).
    pub(super) fn new(memory: &Memory, place: Place, base: u16, event_idx: bool) -> Option<Self> {
        let size = usize::from(place.size);
        let is_size = place.size.is_power_of_two() && u32::from(place.size) <= SIZE_MAX;
        if !is_size || !place.is_aligned() {
            return None;
        }
        let desc = memory.at_user(place.desc, size * size_of::<Desc>())?.cast();
        let avail = memory.at_user(place.avail, 2 * (3 + size))?.cast();
        let used = memory.at_user(place.used, 2 * 3 + size * size_of::<Used>())?.cast::<u16>();
        // The mapping of a file is aligned to a page only.
        if !desc.is_aligned() || !avail.is_aligned() || !used.cast::<Used>().is_aligned() {
            return None;
        }
        let size = place.size;
        let mut ring = Self {
            desc,
            avail,
            used,
            size,
            event_idx,
            next_avail: Index::new(base),
            seen: Index::new(base),
            next_used: Index::new(0),
            published: Index::new(0),
            log: None,
        };
        // The used index of an earlier setup: frames that were not completed come again only if the
        // front end says so by `base`.
        ring.next_used = Index::new(ring.used_at(1).load(Ordering::Acquire));
        ring.published = ring.next_used;
        ring.used_at(0).store(if event_idx { 0 } else { NO_NOTIFY }, Ordering::Relaxed);
        Some(ring)
    }

    /// Sets the dirty log of the used ring, if any, and the guest's address of it.
    pub(super) fn log_to(&mut self, log: Option<(Arc<DirtyLog>, u64)>) {
        self.log = log;
        // `new` wrote to this field.
        self.mark_used(0, 1);
    }

    /// Marks fields of the used ring, each of two bytes, as written.
    #[inline]
    fn mark_used(&self, at: usize, fields: usize) {
        if let Some((log, used)) = &self.log {
            log.mark(used + 2 * at as u64, 2 * fields as u64);
        }
    }

    /// Marks entries of the used ring, from one index to another, and its index as written.
    #[cold]
    fn mark_published(&self, before: u16, now: u16) {
        const FIELDS: usize = size_of::<Used>() / 2;
        let (size, count) = (usize::from(self.size), usize::from(now.wrapping_sub(before)));
        let first = usize::from(before & (self.size - 1));
        let to_end = count.min(size - first);
        self.mark_used(2 + FIELDS * first, FIELDS * to_end);
        // The rest begins at the front again.
        self.mark_used(2, FIELDS * (count - to_end));
        self.mark_used(1, 1);
    }

    #[inline]
    pub(super) const fn size(&self) -> u16 {
        self.size
    }

    /// The next available entry to take.
    pub(super) const fn base(&self) -> u16 {
        self.next_avail.get()
    }

    #[inline]
    fn avail_at(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at < 3 + usize::from(self.size));
        // SAFETY: `new` saw that the available ring, of that many fields, is mapped and aligned;
        // the mapping outlives the ring.
        unsafe { AtomicU16::from_ptr(self.avail.add(at).as_ptr()) }
    }

    #[inline]
    fn used_at(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at < 3 + 4 * usize::from(self.size));
        // SAFETY: as for `avail_at`.
        unsafe { AtomicU16::from_ptr(self.used.add(at).as_ptr()) }
    }

    /// Returns the number of entries available beyond the taken ones. It reads the index only if
    /// fewer than `wanted` are known.
    ///
    /// # Errors
    /// [`Fault::Index`].
    #[inline]
    pub(super) fn available(&mut self, wanted: u16) -> Result<u16, Fault> {
        let known = self.known();
        if known >= wanted {
            return Ok(known);
        }
        let available = self.index();
        self.see(available)?;
        Ok(self.known())
    }

    /// Stores an available index that was read.
    #[inline]
    fn see(&mut self, available: u16) -> Result<(), Fault> {
        self.seen = Index::new(available);
        let ahead = self.known();
        if ahead > self.size {
            self.seen = self.next_avail;
            return Err(Fault::Index { ahead, size: self.size });
        }
        Ok(())
    }

    /// Returns the head of the chain that is `nth` from the next one on.
    ///
    /// # Errors
    /// [`Fault::Head`].
    #[inline]
    pub(super) fn head(&self, nth: u16) -> Result<u16, Fault> {
        let at = self.next_avail.get().wrapping_add(nth) & (self.size - 1);
        let head = self.avail_at(2 + usize::from(at)).load(Ordering::Relaxed);
        if head < self.size { Ok(head) } else { Err(Fault::Head(head)) }
    }

    /// Number of entries known to be available, without a look.
    #[inline]
    pub(super) const fn known(&self) -> u16 {
        self.seen.get().wrapping_sub(self.next_avail.get())
    }

    /// Takes entries: they belong to the device until they are used.
    #[inline]
    pub(super) fn take(&mut self, count: u16) {
        self.next_avail.advance(count);
    }

    /// Copies a descriptor of the table.
    #[inline]
    pub(super) fn desc(&self, at: u16) -> Desc {
        debug_assert!(at < self.size);
        // SAFETY: below the size of the table, which is mapped and aligned.
        unsafe { self.desc.add(at.into()).read_volatile() }
    }

    /// Gives a chain back, into which `len` bytes were written. The driver sees it only after
    /// [`Self::publish`].
    #[inline]
    pub(super) fn give_back(&mut self, head: u16, len: u32) {
        let at = usize::from(self.next_used.get() & (self.size - 1));
        // SAFETY: `new` saw that the used ring, which begins behind two fields, is mapped and
        // aligned for its entries.
        unsafe {
            let entries = self.used.add(2).cast::<Used>();
            entries.add(at).write_volatile(Used { id: head.into(), len });
        }
        self.next_used.advance(1);
    }

    /// Publishes the chains that were given back. Returns true if the driver wants an interrupt for
    /// them.
    pub(super) fn publish(&mut self) -> bool {
        let (before, now) = (self.published.get(), self.next_used.get());
        if now == before {
            return false;
        }
        self.published = self.next_used;
        // Release: the entries and the frames were written before.
        self.used_at(1).store(now, Ordering::Release);
        // Once for all entries: a mark may come late, but not too early.
        if self.log.is_some() {
            self.mark_published(before, now);
        }
        fence(Ordering::SeqCst);
        if !self.event_idx {
            return self.avail_at(0).load(Ordering::Relaxed) & NO_INTERRUPT == 0;
        }
        let event = self.avail_at(2 + usize::from(self.size)).load(Ordering::Relaxed);
        passes(event, before, now)
    }

    /// The available index at the last look.
    #[inline]
    pub(super) const fn seen(&self) -> u16 {
        self.seen.get()
    }

    /// Asks for a kick when entries become available beyond those that were served. Returns true if
    /// some already are, on every call.
    ///
    /// # Errors
    /// [`Fault::Index`].
    pub(super) fn arm(&mut self, served: u16) -> Result<bool, Fault> {
        let available = waking::arm(self, served);
        self.see(available)?;
        Ok(available != served)
    }

    /// Asks for no more kicks. With event indices a driver kicks once only, anyway.
    #[inline]
    pub(super) fn disarm(&mut self) {
        if !self.event_idx {
            self.used_at(0).store(NO_NOTIFY, Ordering::Relaxed);
            self.mark_used(0, 1);
        }
    }
}

impl Words for Ring {
    fn ask(&self, beyond: u16) {
        if self.event_idx {
            // Behind the used entries; two bytes each for flags and index.
            let at = 2 + 4 * usize::from(self.size);
            self.used_at(at).store(beyond, Ordering::Relaxed);
            self.mark_used(at, 1);
        } else {
            self.used_at(0).store(0, Ordering::Relaxed);
            self.mark_used(0, 1);
        }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn index(&self) -> u16 {
        // Acquire: the entries and descriptors below it were written before.
        self.avail_at(1).load(Ordering::Acquire)
    }
}

/// Returns true if an index went past the one of the wanted event (section 2.7.10).
#[inline]
const fn passes(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// The descriptors of one chain, each read once and checked.
pub(super) struct Chain<'a> {
    ring: &'a Ring,
    memory: &'a Memory,
    head: u16,
    /// Required direction flag of descriptors: [`WRITE`] or nothing.
    direction: u16,
    /// Indirect table of the rest of the chain, with its number of entries; `None` for the ring's
    /// table.
    table: Option<(NonNull<Desc>, u16)>,
    /// The next descriptor.
    next: Option<u16>,
    /// Maximum of further descriptors.
    left: u16,
}

impl<'a> Chain<'a> {
    #[inline]
    pub(super) fn new(ring: &'a Ring, memory: &'a Memory, head: u16, direction: u16) -> Self {
        Self { ring, memory, head, direction, table: None, next: Some(head), left: ring.size }
    }

    /// Returns the next piece of memory; empty ones are skipped.
    ///
    /// # Errors
    /// [`Fault`].
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(NonNull<u8>, u32)>, Fault> {
        while let Some(at) = self.next {
            self.left = self.left.checked_sub(1).ok_or(Fault::Chain(self.head))?;
            let desc = match self.table {
                None if at >= self.ring.size => return Err(Fault::Head(at)),
                None => self.ring.desc(at),
                Some((_, count)) if at >= count => return Err(Fault::Indirect(self.head)),
                // SAFETY: below the size of the table, which was seen to be mapped; a guest need
                // not align it.
                Some((table, _)) => unsafe {
                    table.as_ptr().add(at.into()).cast::<[u8; 16]>().read_volatile().into()
                },
            };
            if desc.flags & INDIRECT != 0 {
                self.enter(&desc)?;
                continue;
            }
            if desc.flags & WRITE != self.direction {
                return Err(Fault::Direction(at));
            }
            self.next = (desc.flags & NEXT != 0).then_some(desc.next);
            if desc.len == 0 {
                continue;
            }
            let Some(start) = self.memory.at(desc.addr, desc.len as usize) else {
                return Err(Fault::Unmapped { addr: desc.addr, size: desc.len });
            };
            return Ok(Some((start, desc.len)));
        }
        Ok(None)
    }

    /// Descriptors of the ring that it has, as far as it was read: of an indirect one only that.
    pub(super) const fn descriptors(&self) -> u16 {
        match self.table {
            None => self.ring.size - self.left,
            Some(_) => 1,
        }
    }

    /// The rest of the chain stands in an indirect table (section 2.7.5.3).
    fn enter(&mut self, desc: &Desc) -> Result<(), Fault> {
        const DESC_SIZE: u32 = 16;
        const _: () = assert!(size_of::<Desc>() == DESC_SIZE as usize);
        let malformed = Fault::Indirect(self.head);
        let count = u16::try_from(desc.len / DESC_SIZE).map_err(|_| malformed)?;
        let is_whole = count > 0 && desc.len.is_multiple_of(DESC_SIZE);
        if self.table.is_some() || desc.flags & NEXT != 0 || !is_whole {
            return Err(malformed);
        }
        let table = self.memory.at(desc.addr, desc.len as usize);
        let unmapped = Fault::Unmapped { addr: desc.addr, size: desc.len };
        self.table = Some((table.ok_or(unmapped)?.cast(), count));
        // A chain has no more descriptors than the ring, wherever they stand.
        self.left = self.ring.size;
        self.next = Some(0);
        Ok(())
    }
}

impl From<[u8; 16]> for Desc {
    #[inline]
    fn from(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "each field is its part of the bytes")]
        Self {
            addr: number as u64,
            len: (number >> 64) as u32,
            flags: (number >> 96) as u16,
            next: (number >> 112) as u16,
        }
    }
}

#[cfg(test)]
mod tests;
