//! The driver's side of one split virtqueue (virtio 1.2, 2.7).
//!
//! ```text
//!   descriptors   where the buffers are                     written by the driver
//!   avail         which heads the device may use, and idx    written by the driver
//!   used          which heads it is done with, and idx       written by the device
//! ```
//!
//! A [`Ring`] reads and writes each of these, kicks the device when it wants that, and can sleep.
//! [`super::sender`] and [`super::receiver`] give the descriptors their meaning. The methods that
//! begin with `put_` write anything anywhere: a test of a switch uses them to be a hostile guest.
//!
//! # No wake-up is lost
//!
//! Two sides each write one word and then read the other's: the driver writes `avail.idx` and reads
//! whether the device wants a kick; the device asks for one and reads `avail.idx`. Each has a full
//! fence in between. So, in the one order that both agree on, the second side sees the other's
//! word: either the driver sees the request and kicks, or the device sees the index and does not
//! sleep. The same holds the other way round for `used.idx` and [`Ring::arm`]: `arm` checks once
//! more *after* it has asked, and the caller must act on its answer.
#![allow(unsafe_code, reason = "rings in memory that two processes share")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::error::GuestError;
use super::feature;
use super::memory::Memory;

/// The chain goes on with the descriptor `next` (2.7.5, `VIRTQ_DESC_F_NEXT`).
pub const NEXT: u16 = 1;
/// The device writes this buffer (2.7.5, `VIRTQ_DESC_F_WRITE`).
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors (2.7.5, `VIRTQ_DESC_F_INDIRECT`).
pub const INDIRECT: u16 = 4;
/// `avail.flags`: do not interrupt (2.7.6); `used.flags`: do not kick (2.7.8).
pub const SUPPRESS: u16 = 1;

/// The largest ring (2.7: at most 32768).
pub const RING_SIZE_MAX: u16 = 1 << 15;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;
const PAGE: usize = 4096;

// Rings are little-endian since virtio 1.0; this code supports little-endian machines only.
const _: () = assert!(cfg!(target_endian = "little"));

/// A descriptor (2.7.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Guest-physical address of the buffer.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// The next one of the chain.
    pub next: u16,
}
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES);

/// Offsets of the three parts of a ring in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The descriptor table.
    pub descriptors: usize,
    /// The available ring.
    pub avail: usize,
    /// The used ring.
    pub used: usize,
}

/// The driver's side of a virtqueue.
#[derive(Debug)]
pub struct Ring {
    memory: Arc<Memory>,
    parts: Parts,
    descriptors: NonNull<Descriptor>,
    avail: NonNull<u16>,
    used: NonNull<u16>,
    size: u16,
    event_idx: bool,
    /// Value of `avail.idx` after the next publication, in its lower half; so are the next two
    /// fields. They have 32 bits because compilers read a 16-bit field together with its neighbour.
    /// If the neighbour was just written, such a load waits until every store before it has left
    /// the core.
    next_avail: u32,
    /// Current value of `avail.idx`.
    published: u32,
    /// The next place of the used ring that the driver reads.
    next_used: u32,
    kick: EventFd,
    call: EventFd,
    kicks: u64,
}

// SAFETY: the pointers lead into `memory`, which may be used from any thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Returns a ring of `size` descriptors, a power of two, all of them empty.
    ///
    /// # Errors
    /// [`GuestError::NoRoom`], or [`GuestError::System`] if there are no event descriptors left.
    ///
    /// # Panics
    /// If the size is no power of two or beyond [`RING_SIZE_MAX`].
    pub fn new(memory: &Arc<Memory>, size: u16) -> Result<Self, GuestError> {
        assert!(size.is_power_of_two() && size <= RING_SIZE_MAX, "a ring of {size}");
        let count = usize::from(size);
        let lengths = [DESCRIPTOR_BYTES * count, 2 * (3 + count), 2 * (3 + 4 * count)];
        let mut offsets = [0; 3];
        for (offset, length) in offsets.iter_mut().zip(lengths) {
            *offset = memory.allocate(length, PAGE)?;
        }
        let [descriptors, avail, used] = offsets;
        let event = || {
            EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)
                .map_err(|source| GuestError::System { what: "make an eventfd", source })
        };
        Ok(Self {
            descriptors: memory.at(descriptors, lengths[0]).cast(),
            avail: memory.at(avail, lengths[1]).cast(),
            used: memory.at(used, lengths[2]).cast(),
            parts: Parts { descriptors, avail, used },
            memory: Arc::clone(memory),
            size,
            event_idx: false,
            next_avail: 0,
            published: 0,
            next_used: 0,
            kick: event()?,
            call: event()?,
            kicks: 0,
        })
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the offsets of its parts.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Returns the eventfd that the guest writes when the device wants a kick.
    #[must_use]
    pub fn kick_fd(&self) -> &EventFd {
        &self.kick
    }

    /// Returns the eventfd that the device writes when the guest wants a call.
    #[must_use]
    pub fn call_fd(&self) -> &EventFd {
        &self.call
    }

    /// Returns the number of kicks since it was made.
    #[must_use]
    pub fn kicks(&self) -> u64 {
        self.kicks
    }

    /// Returns the number of buffers that the driver has made available and not taken back.
    #[must_use]
    pub fn out(&self) -> u16 {
        low(self.next_avail.wrapping_sub(self.next_used))
    }

    /// Resets the ring with the agreed features: empty rings, all counts zero, calls suppressed.
    pub fn reset(&mut self, features: u64) {
        for (offset, units) in [(self.parts.avail, 3), (self.parts.used, 3)] {
            let item = if offset == self.parts.avail { 2 } else { 8 };
            self.memory.bytes(offset, 2 * units + item * usize::from(self.size)).fill(0);
        }
        (self.next_avail, self.published, self.next_used) = (0, 0, 0);
        self.event_idx = features & feature::EVENT_IDX != 0;
        self.quiet();
    }

    /// Returns the index of the first buffer that the device has not completed. The next device
    /// starts there, so that the buffers beyond it are offered anew (as QEMU does when a back end
    /// dies without reporting its index).
    #[must_use]
    pub fn rewind(&self) -> u16 {
        self.used_idx()
    }

    /// Returns the word `index` of the available ring: 0 flags, 1 idx, then the heads, then
    /// `used_event`.
    #[inline]
    fn avail_word(&self, index: usize) -> &AtomicU16 {
        assert!(index < 3 + usize::from(self.size));
        // SAFETY: the ring has so many words in the mapping, aligned; all accesses to them by this
        // process are atomic.
        unsafe { AtomicU16::from_ptr(self.avail.add(index).as_ptr()) }
    }

    /// Returns the word `index` of the used ring: 0 flags, 1 idx, then four for each element, then
    /// `avail_event`.
    #[inline]
    fn used_word(&self, index: usize) -> &AtomicU16 {
        assert!(index < 3 + 4 * usize::from(self.size));
        // SAFETY: as above.
        unsafe { AtomicU16::from_ptr(self.used.add(index).as_ptr()) }
    }

    #[inline]
    fn place(&self, position: u32) -> usize {
        usize::from(low(position)) & (usize::from(self.size) - 1)
    }

    /// Writes a descriptor.
    ///
    /// # Panics
    /// If there is no such descriptor.
    #[inline]
    pub fn put_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        assert!(index < self.size, "descriptor {index} of {}", self.size);
        // SAFETY: it is in the table, in the mapping, aligned.
        unsafe { self.descriptors.add(usize::from(index)).write_volatile(descriptor) }
    }

    /// Reads a descriptor back.
    ///
    /// # Panics
    /// If there is no such descriptor.
    #[must_use]
    pub fn descriptor(&self, index: u16) -> Descriptor {
        assert!(index < self.size, "descriptor {index} of {}", self.size);
        // SAFETY: it is in the table, in the mapping, aligned; every bit pattern is a descriptor.
        unsafe { self.descriptors.add(usize::from(index)).read_volatile() }
    }

    /// Writes a head into a place of the available ring; `idx` does not change.
    pub fn put_avail(&mut self, position: u16, head: u16) {
        self.avail_word(2 + self.place(position.into())).store(head, Ordering::Relaxed);
    }

    /// Writes `avail.idx`, without a kick and whatever the driver's own count is.
    pub fn put_avail_idx(&mut self, idx: u16) {
        self.avail_word(1).store(idx, Ordering::Release);
    }

    /// Writes `avail.flags`.
    pub fn put_avail_flags(&mut self, flags: u16) {
        self.avail_word(0).store(flags, Ordering::Release);
    }

    /// Writes `used_event`, which stands behind the available ring.
    pub fn put_used_event(&mut self, event: u16) {
        self.avail_word(2 + usize::from(self.size)).store(event, Ordering::Release);
    }

    /// Returns `avail.idx` as it is in memory.
    #[must_use]
    pub fn avail_idx(&self) -> u16 {
        self.avail_word(1).load(Ordering::Relaxed)
    }

    /// Returns `used.idx`.
    #[inline]
    #[must_use]
    pub fn used_idx(&self) -> u16 {
        self.used_word(1).load(Ordering::Acquire)
    }

    /// Returns `used.flags`.
    #[must_use]
    pub fn used_flags(&self) -> u16 {
        self.used_word(0).load(Ordering::Acquire)
    }

    /// Returns `avail_event`, which stands behind the used ring.
    #[must_use]
    pub fn avail_event(&self) -> u16 {
        self.used_word(2 + 4 * usize::from(self.size)).load(Ordering::Acquire)
    }

    /// Returns the element at a position of the used ring: head and length.
    #[inline]
    #[must_use]
    pub fn used_at(&self, position: u16) -> (u32, u32) {
        let words = 2 + 4 * self.place(position.into());
        assert!(words + 4 <= 3 + 4 * usize::from(self.size));
        // SAFETY: the element is in the ring, in the mapping, aligned to four; every bit pattern
        // is a number.
        unsafe {
            let element = self.used.add(words).cast::<u32>();
            (element.read_volatile(), element.add(1).read_volatile())
        }
    }

    /// Kicks the device, whether it wants that or not.
    pub fn kick(&mut self) {
        self.kicks += 1;
        // The write fails only if the counter is full, and then the device has a kick to read.
        _ = self.kick.write(1);
    }

    /// Makes a head available with the next [`publish`](Self::publish).
    #[inline]
    pub fn offer(&mut self, head: u16) {
        let word = self.avail_word(2 + self.place(self.next_avail));
        // The device keeps this line in its cache as long as it is not written.
        if word.load(Ordering::Relaxed) != head {
            word.store(head, Ordering::Relaxed);
        }
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Shows the offered heads to the device, and kicks it if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        if self.next_avail == self.published {
            return;
        }
        self.avail_word(1).store(low(self.next_avail), Ordering::Release);
        let old = std::mem::replace(&mut self.published, self.next_avail);
        // The first half of "no wake-up is lost", above.
        fence(Ordering::SeqCst);
        let wants = if self.event_idx {
            // 2.7.7.2: tests whether `avail_event` is among the indices that were just published.
            let behind = low(self.next_avail).wrapping_sub(self.avail_event()).wrapping_sub(1);
            behind < low(self.next_avail.wrapping_sub(old))
        } else {
            self.used_flags() & SUPPRESS == 0
        };
        if wants {
            self.kick();
        }
    }

    /// Returns the number of buffers that came back and were not taken yet.
    #[inline]
    #[must_use]
    pub fn back(&self) -> u16 {
        self.used_idx().wrapping_sub(low(self.next_used))
    }

    /// Returns the next element of the used ring, `ahead` places on.
    #[inline]
    #[must_use]
    pub fn peek(&self, ahead: u16) -> (u32, u32) {
        self.used_at(low(self.next_used).wrapping_add(ahead))
    }

    /// Advances in the used ring.
    #[inline]
    pub fn take(&mut self, count: u16) {
        self.next_used = self.next_used.wrapping_add(count.into());
    }

    /// Asks not to be called: the guest polls.
    pub fn quiet(&mut self) {
        if self.event_idx {
            // Sets the event as far away as an index can be: one needless call in 65536 buffers.
            self.put_used_event(low(self.next_used).wrapping_sub(1));
        } else {
            self.put_avail_flags(SUPPRESS);
        }
    }

    /// Asks to be called for the next buffer that comes back. Returns false if one is back already,
    /// for which no call may come.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        if self.event_idx {
            self.put_used_event(low(self.next_used));
        } else {
            self.put_avail_flags(0);
        }
        // The second half of "no wake-up is lost", above: ask, fence, look.
        fence(Ordering::SeqCst);
        self.back() == 0
    }

    /// Sleeps until a buffer is back or the time is over. Returns true if one is back. A spurious
    /// call, which devices may make, restarts the time.
    ///
    /// # Errors
    /// [`GuestError::System`].
    pub fn wait(&mut self, time_max: Duration) -> Result<bool, GuestError> {
        let forever = Timespec { tv_sec: 3600, tv_nsec: 0 };
        let time_max = Timespec::try_from(time_max).unwrap_or(forever);
        while self.arm() {
            let mut fds = [PollFd::from_borrowed_fd(borrow(&self.call), PollFlags::IN)];
            match poll(&mut fds, Some(&time_max)) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(GuestError::System { what: "poll", source: e.into() }),
            }
            // Empties the eventfd, so that the next poll does not end at once.
            _ = self.call.read();
        }
        self.quiet();
        Ok(self.back() > 0)
    }
}

/// Returns the lower half of a count, which the ring has.
#[inline]
fn low(count: u32) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "indices of rings wrap at 2^16")]
    let low = count as u16;
    low
}

fn borrow(event: &EventFd) -> std::os::fd::BorrowedFd<'_> {
    use std::os::fd::AsRawFd;
    // SAFETY: the event keeps its descriptor open for as long as it is borrowed.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(event.as_raw_fd()) }
}
