//! The AF_XDP socket in copy mode: its memory (UMEM), the fill ring and the receive ring
//! (`Documentation/networking/af_xdp.rst`).
//!
//! ```text
//!   chunk:  | the kernel's 256 | frame, or a part of it .... |
//!   fill ring:     chunks for the kernel      receive ring:  chunks with frames
//! ```
//!
//! All chunks are in the fill ring at the start, and each goes back there when its frame was copied
//! out. So while the receive ring is empty the fill ring is full, and only then may the NAPI be
//! polled: it takes at most [`POLL_FRAMES_MAX`] frames, for which there is always room.
//!
//! The memory is a file, so that another process can go on with socket and rings
//! ([`Xsk::adopt`]). A chunk that a killed process took from one ring and had not put into the
//! other is found there: it is in neither.
#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags};

use crate::handed::PortHandover;
use crate::sys;

/// Frames that one poll of the NAPI takes at most: its budget twice, and once more if an interrupt
/// came between.
pub(super) const POLL_FRAMES_MAX: u32 = 3 * super::napi::BUDGET;
/// Bytes of a chunk that the kernel keeps free in front of a frame (`XDP_PACKET_HEADROOM`).
const CHUNK_HEADROOM: u32 = 256;
/// Sizes of a chunk: a power of two, a page at most.
const CHUNK_SIZES: [u32; 2] = [2048, 4096];
/// The completion ring, which a socket must have though it sends nothing.
const COMPLETION_ENTRIES: i32 = 2;
/// Names of the descriptors when they are handed over.
const SOCKET_FILE: &str = "xsk";
const MEMORY_FILE: &str = "memory";

/// Layout of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) chunk_size: u32,
    /// Number of chunks, and of entries in either ring: a power of two.
    pub(super) chunks: u32,
}

impl Plan {
    /// Plans for frames of this size.
    pub(super) fn new(frame_size_max: usize) -> Self {
        let frame_size_max = u32::try_from(frame_size_max).expect("an MTU has 16 bits");
        let [small, large] = CHUNK_SIZES;
        let chunk_size = if frame_size_max <= small - CHUNK_HEADROOM { small } else { large };
        let parts = frame_size_max.div_ceil(chunk_size - CHUNK_HEADROOM);
        Self { chunk_size, chunks: (POLL_FRAMES_MAX * parts).next_power_of_two() }
    }
}

/// A part of a frame in the receive ring.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    size: u32,
    is_last: bool,
}

/// A mapping that ends with this.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    size: usize,
}

impl Mapping {
    fn of(fd: BorrowedFd<'_>, offset: u64, size: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, protection, flags, fd, offset) }?;
        Ok(Self { base: NonNull::new(base.cast()).expect("a mapping is never at zero"), size })
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        let offset = usize::try_from(offset).expect("an offset of the kernel");
        assert!(offset < self.size, "it lies in the mapping");
        // SAFETY: it lies in the mapping, asserted just before.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every borrow of it is a borrow of `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// One ring: indices that run on, and entries of `T`.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// Keeps the memory behind the pointers.
    _map: Mapping,
}

impl<T> Ring<T> {
    fn map(
        fd: BorrowedFd<'_>,
        offsets: &libc::xdp_ring_offset,
        at: u64,
        entries: u32,
    ) -> io::Result<Self> {
        let size = usize::try_from(offsets.desc).map_err(io::Error::other)?
            + entries as usize * size_of::<T>();
        let map = Mapping::of(fd, at, size)?;
        Ok(Self {
            producer: map.at(offsets.producer).cast(),
            consumer: map.at(offsets.consumer).cast(),
            entries: map.at(offsets.desc).cast(),
            mask: entries - 1,
            _map: map,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, aligned, and both sides use it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    /// Pointer to the entry of this index.
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the mapping has `mask + 1` entries from `entries` on.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

/// The socket with its rings.
#[derive(Debug)]
pub(super) struct Xsk {
    /// Closed before the memory goes.
    socket: OwnedFd,
    fill: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    umem: Mapping,
    memory: OwnedFd,
    plan: Plan,
    /// Index of the next entry of the receive ring, and that behind the last one seen.
    next: u32,
    end: u32,
    /// Index of the next entry of the fill ring.
    filled: u32,
}

// SAFETY: this is the only owner of the mappings on this side; the other side is the kernel.
unsafe impl Send for Xsk {}

type Failed = (&'static str, io::Error);

impl Xsk {
    /// Opens a socket for queue 0 of a device of the caller's namespace.
    pub(super) fn open(index: u32, plan: Plan) -> Result<Self, Failed> {
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, flags, 0) };
        if fd < 0 {
            return Err(("open an AF_XDP socket on it", io::Error::last_os_error()));
        }
        // SAFETY: the kernel just made it, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let umem_size = plan.chunk_size as usize * plan.chunks as usize;
        let (memory, umem) =
            take_memory(umem_size).map_err(|e| ("take memory for its frames", e))?;
        let rings = Self::set_up(&socket, &umem, plan).map_err(|e| ("make its AF_XDP rings", e))?;
        let (fill, received) = rings;
        bind(&socket, index).map_err(|e| ("bind an AF_XDP socket to it", e))?;
        let mut xsk =
            Self { socket, fill, received, umem, memory, plan, next: 0, end: 0, filled: 0 };
        for chunk in 0..plan.chunks {
            xsk.give_back(u64::from(chunk) * u64::from(plan.chunk_size));
        }
        xsk.publish();
        Ok(xsk)
    }

    fn set_up(
        socket: &OwnedFd,
        umem: &Mapping,
        plan: Plan,
    ) -> io::Result<(Ring<u64>, Ring<libc::xdp_desc>)> {
        let memory = libc::xdp_umem_reg {
            addr: umem.base.as_ptr() as u64,
            len: umem.size as u64,
            chunk_size: plan.chunk_size,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        let entries = plan.chunks.cast_signed();
        let set = |name, value: i32| sys::set_option(socket, libc::SOL_XDP, name, &value);
        set(libc::XDP_UMEM_FILL_RING, entries)?;
        set(libc::XDP_UMEM_COMPLETION_RING, COMPLETION_ENTRIES)?;
        set(libc::XDP_RX_RING, entries)?;
        Self::map_rings(socket, plan)
    }

    fn map_rings(socket: &OwnedFd, plan: Plan) -> io::Result<(Ring<u64>, Ring<libc::xdp_desc>)> {
        // SAFETY: integers only, of which zero is a value.
        let none: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let offsets = sys::get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)?;
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING;
        Ok((
            Ring::map(socket.as_fd(), &offsets.fr, fill, plan.chunks)?,
            Ring::map(socket.as_fd(), &offsets.rx, 0, plan.chunks)?,
        ))
    }

    /// Adds copies of the descriptors.
    pub(super) fn hand_over(&self, handed: &mut PortHandover) -> io::Result<()> {
        handed.file(SOCKET_FILE, self.socket.as_fd())?;
        handed.file(MEMORY_FILE, self.memory.as_fd())
    }

    /// Takes up the socket of an earlier process, which reads it no more. Frames in the receive
    /// ring stay there.
    pub(super) fn adopt(handed: &mut PortHandover, plan: Plan) -> io::Result<Self> {
        let mut file = |name| handed.take_file(name).ok_or(io::ErrorKind::NotFound);
        let (socket, memory) = (file(SOCKET_FILE)?, file(MEMORY_FILE)?);
        let size = plan.chunk_size as usize * plan.chunks as usize;
        if fstat(&memory)?.st_size.cast_unsigned() != size as u64 {
            return Err(io::Error::other("its frames have another size"));
        }
        let umem = Mapping::of(memory.as_fd(), 0, size)?;
        let (fill, received) = Self::map_rings(&socket, plan)?;
        let next = received.consumer().load(Ordering::Acquire);
        let end = received.producer().load(Ordering::Acquire);
        let filled = fill.producer().load(Ordering::Acquire);
        let mut xsk = Self { socket, fill, received, umem, memory, plan, next, end, filled };
        let lost = xsk.chunks_in_no_ring();
        let statistics = xsk.statistics()?;
        // The kernel keeps the chunk of a frame that it dropped.
        if !lost.is_empty() && statistics.rx_dropped + statistics.rx_ring_full > 0 {
            return Err(io::Error::other("its rings are not whole"));
        }
        lost.into_iter().for_each(|chunk| xsk.give_back(chunk));
        xsk.publish();
        Ok(xsk)
    }

    /// Offsets of the chunks that are in neither ring.
    fn chunks_in_no_ring(&self) -> Vec<u64> {
        let size = u64::from(self.plan.chunk_size);
        let all = u64::from(self.plan.chunks);
        let mut is_known = vec![false; self.plan.chunks as usize];
        let mut know = |offset: u64| {
            let nth = usize::try_from(offset / size).unwrap_or(usize::MAX);
            is_known.get_mut(nth).into_iter().for_each(|known| *known = true);
        };
        let mut at = self.next;
        while at != self.end {
            // SAFETY: an entry between the indices is not written by the kernel.
            know(unsafe { self.received.entry(at).read() }.addr);
            at = at.wrapping_add(1);
        }
        at = self.fill.consumer().load(Ordering::Acquire);
        while at != self.filled {
            // SAFETY: only the process that owns the ring writes entries.
            know(unsafe { self.fill.entry(at).read() });
            at = at.wrapping_add(1);
        }
        (0..all).zip(is_known).filter(|(_, known)| !known).map(|(nth, _)| nth * size).collect()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Number of chunks.
    pub(super) const fn chunks(&self) -> u32 {
        self.plan.chunks
    }

    /// Returns true if there is a frame.
    #[inline]
    pub(super) fn has_frame(&mut self) -> bool {
        if self.next == self.end {
            self.end = self.received.producer().load(Ordering::Acquire);
        }
        self.next != self.end
    }

    /// Number of parts of frames that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.received.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }

    /// Copies the next frame, which is there, into `to`, and frees its chunks. Returns its size, or
    /// `None` if it does not fit.
    #[inline]
    pub(super) fn take_front(&mut self, to: &mut [u8]) -> Option<usize> {
        let mut size = 0;
        let mut fits = true;
        loop {
            let part = self.part();
            let end = size + part.size as usize;
            fits &= end <= to.len();
            if fits {
                let from = self.umem.at(part.offset);
                // SAFETY: the part lies in the memory, as the kernel promises and `part` asserts;
                // it is ours until `give_back`. `to` has room from `size` to `end`.
                unsafe {
                    let to = to.as_mut_ptr().add(size);
                    crate::bytes::copy_short(from.as_ptr(), to, part.size as usize);
                }
            }
            size = end;
            self.give_back(part.offset);
            self.next = self.next.wrapping_add(1);
            // The kernel publishes whole frames only.
            if part.is_last || self.next == self.end {
                return fits.then_some(size);
            }
        }
    }

    fn part(&self) -> Part {
        debug_assert!(self.next != self.end);
        // SAFETY: entries below the producer's index are ours until the consumer's index passes
        // them.
        let entry = unsafe { self.received.entry(self.next).read() };
        let end = entry.addr.checked_add(entry.len.into());
        assert!(end.is_some_and(|end| end <= self.umem.size as u64), "it lies in the memory");
        Part {
            offset: entry.addr,
            size: entry.len,
            is_last: entry.options & libc::XDP_PKT_CONTD == 0,
        }
    }

    /// Puts the chunk that this offset lies in into the fill ring, unpublished. There is always
    /// room, for the ring has as many entries as there are chunks.
    fn give_back(&mut self, offset: u64) {
        let chunk = offset & !u64::from(self.plan.chunk_size - 1);
        // SAFETY: the entry is ours until the producer's index passes it.
        unsafe { self.fill.entry(self.filled).write(chunk) };
        self.filled = self.filled.wrapping_add(1);
    }

    /// Shows the kernel which frames were taken and which chunks are free.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.received.consumer().store(self.next, Ordering::Release);
        self.fill.producer().store(self.filled, Ordering::Release);
    }

    /// Frames that the kernel dropped at this socket: those beyond the fill ring or the receive
    /// ring.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: integers only, of which zero is a value.
        let none: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        sys::get_option(&self.socket, libc::SOL_XDP, libc::XDP_STATISTICS, none)
    }

    /// Returns an error if the device is gone. The kernel tells so once.
    pub(super) fn error(&self) -> io::Result<()> {
        match sys::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, 0)? {
            0 => Ok(()),
            libc::ENETDOWN => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Takes memory that other processes can map.
fn take_memory(size: usize) -> io::Result<(OwnedFd, Mapping)> {
    let memory = memfd_create("sluice-veth", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, size as u64)?;
    let mapping = Mapping::of(memory.as_fd(), 0, size)?;
    Ok((memory, mapping))
}

/// Binds the socket to queue 0 of a device, in copy mode, for frames of several parts too.
fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    const FAMILY: u16 = 44;
    const _: () = assert!(FAMILY as libc::c_int == libc::AF_XDP);
    let address = libc::sockaddr_xdp {
        sxdp_family: FAMILY,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_SG,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let size = libc::socklen_t::try_from(size_of_val(&address)).expect("a small address");
    // SAFETY: the kernel reads that many bytes of a live value.
    let done = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_ring_holds_a_poll_of_largest_frames() {
        let sizes = [60, 1514, 1522, 1792, 1793, 4096, 9022, 65_557];
        for size in sizes {
            let plan = Plan::new(size);
            let parts = size.div_ceil((plan.chunk_size - CHUNK_HEADROOM) as usize);
            assert!(plan.chunks as usize >= POLL_FRAMES_MAX as usize * parts, "{size}");
            assert!(plan.chunks.is_power_of_two() && CHUNK_SIZES.contains(&plan.chunk_size));
        }
        assert_eq!(Plan::new(1522), Plan { chunk_size: 2048, chunks: 256 });
        assert_eq!(Plan::new(9022), Plan { chunk_size: 4096, chunks: 1024 });
    }
}
