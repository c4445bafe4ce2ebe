//! Frames to a guest: its receive queue.
//!
//! A frame is copied once, from its place straight into the guest's buffers: one of them, or as
//! many as it needs if the guest can merge (`VIRTIO_NET_F_MRG_RXBUF`, virtio 1.2 section
//! 5.1.6.3.1). None is taken before there are enough. The guest sees the frames after
//! [`Outgoing::publish`], many at once.

use std::ptr::NonNull;
use std::sync::Arc;

use sluice_switch::Egress;

use super::device::MRG_RXBUF;
use super::log::{DirtyLog, Logging};
use super::memory::Memory;
use super::ring::{Chain, Fault, LOOK_AHEAD, Ring, WRITE};
use crate::bytes::{copy_short, will_write};
use crate::frame::{FrameBuf, frame_size};
use crate::net_header::{self, HEADER_SIZE, NUM_BUFFERS, of_buffers};
use crate::offload::Offload;

/// Maximum of pieces of a guest's memory for one frame: a jumbo frame in the smallest buffers that
/// a driver may offer needs seven.
const PIECES_MAX: usize = 64;

/// A guest's receive queue, set up.
#[derive(Debug)]
pub(super) struct Outgoing {
    ring: Ring,
    memory: Arc<Memory>,
    /// The negotiated features.
    agreed: u64,
    /// The available index at which the last frame found no room.
    missed: Option<u16>,
    /// Dirty log of its writes.
    log: Option<Arc<DirtyLog>>,
    /// Buffers of the frame being written; kept, for making them anew costs more than a frame.
    room: Room,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    Written,
    /// The guest has not enough buffers now.
    NoRoom,
    /// The frame does not fit into the guest's buffers.
    TooLarge,
}

/// The buffers for one frame. Only entries below the counts are valid.
#[derive(Debug)]
struct Room {
    pieces: [(NonNull<u8>, u32); PIECES_MAX],
    count: usize,
    /// Head of each chain, and bytes of the frame in it.
    chains: [(u16, u32); PIECES_MAX],
    chain_count: usize,
}

// SAFETY: places in a mapping, which is not bound to a thread.
unsafe impl Send for Room {}

impl Outgoing {
    pub(super) fn new(ring: Ring, memory: Arc<Memory>, agreed: u64) -> Self {
        let room = Room {
            pieces: [(NonNull::dangling(), 0); PIECES_MAX],
            count: 0,
            chains: [(0, 0); PIECES_MAX],
            chain_count: 0,
        };
        Self { ring, memory, agreed, missed: None, log: None, room }
    }

    /// Sets the dirty log of its writes: frames, and the used ring.
    pub(super) fn log_to(&mut self, logging: Option<Logging>) {
        self.log = logging.as_ref().map(|of| Arc::clone(&of.log));
        self.ring.log_to(logging.and_then(|of| Some((of.log, of.used?))));
    }

    /// Writes one frame into the next buffer, if that is the usual one and takes all of it. All
    /// other cases are left to [`Self::write`].
    #[inline]
    pub(super) fn write_whole(&mut self, frame: &Egress<'_, FrameBuf>) -> bool {
        let size = HEADER_SIZE + frame_size(frame);
        let Some((head, at)) = self.whole(size) else { return false };
        self.fill_whole(head, at, size, frame);
        true
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn write(&mut self, frame: &Egress<'_, FrameBuf>) -> Result<Placed, Fault> {
        let placed = self.find(HEADER_SIZE + frame_size(frame), u16::MAX)?;
        match placed {
            Placed::Written => self.fill(frame, of_buffers),
            Placed::NoRoom => self.missed = Some(self.ring.seen()),
            Placed::TooLarge => {}
        }
        Ok(placed)
    }

    /// Writes one frame with this header, in which the number of buffers is still to be set.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn write_with(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        header: &[u8; HEADER_SIZE],
    ) -> Result<Placed, Fault> {
        let placed = self.find(HEADER_SIZE + frame_size(frame), u16::MAX)?;
        match placed {
            Placed::Written => self.fill(frame, |buffers| {
                let mut header = *header;
                header[NUM_BUFFERS..].copy_from_slice(&buffers.to_le_bytes());
                header
            }),
            Placed::NoRoom => self.missed = Some(self.ring.seen()),
            Placed::TooLarge => {}
        }
        Ok(placed)
    }

    /// Returns false if there is no buffer now, which is noted as if a frame had missed it.
    pub(super) fn has_room(&mut self) -> bool {
        // A fault is found again by the write.
        let is_full = self.ring.available(1).is_ok_and(|count| count == 0);
        if is_full {
            self.missed = Some(self.ring.seen());
        }
        !is_full
    }

    /// Returns true if the guest performs the offloads of a frame.
    pub(super) fn takes(&self, left: &Offload) -> bool {
        net_header::takes(self.agreed, left)
    }

    /// Writes a frame with the offloads `left`, of which nothing was sent yet.
    ///
    /// # Errors
    /// [`Fault`].
    #[cold]
    pub(super) fn write_unfinished(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        left: &Offload,
    ) -> Result<Placed, Fault> {
        // A driver may never offer all of its buffers at once, and segments take one each.
        let chains_max = if left.is_super() { self.ring.size() / 2 } else { u16::MAX };
        let placed = self.find(HEADER_SIZE + frame_size(frame), chains_max)?;
        match placed {
            Placed::Written => self.fill(frame, |buffers| net_header::header_of(left, buffers)),
            Placed::NoRoom => self.missed = Some(self.ring.seen()),
            Placed::TooLarge => {}
        }
        Ok(placed)
    }

    /// Asks for a kick when more buffers come. Returns true if some came since a frame missed them.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn arm(&mut self) -> Result<bool, Fault> {
        self.missed.map_or(Ok(true), |at| self.ring.arm(at))
    }

    /// Returns head and address of the next buffer, if it is the usual one: a descriptor that takes
    /// all of the frame. A fault gives `None`, too; [`Self::write`] finds it again.
    #[inline]
    fn whole(&mut self, size: usize) -> Option<(u16, NonNull<u8>)> {
        if self.ring.available(1).ok()? == 0 {
            return None;
        }
        let head = self.ring.head(0).ok()?;
        let desc = self.ring.desc(head);
        if desc.flags != WRITE || (desc.len as usize) < size {
            return None;
        }
        Some((head, self.memory.at(desc.addr, desc.len as usize)?))
    }

    /// Copies the frame into one buffer and takes it.
    #[inline]
    fn fill_whole(
        &mut self,
        head: u16,
        at: NonNull<u8>,
        size: usize,
        frame: &Egress<'_, FrameBuf>,
    ) {
        self.wake_up();
        if self.ring.known() > LOOK_AHEAD {
            self.look_ahead(LOOK_AHEAD);
        }
        // SAFETY: the buffer has room for header and frame, which is more.
        let mut to = unsafe { write_if_other(at, of_buffers(1)) };
        let mut write = |from: *const u8, size: usize| {
            // SAFETY: the parts together are not longer than the buffer, which is mapped. Two
            // places of a guest's may overlap, and then it gets what it asked for.
            unsafe {
                copy_short(from, to, size);
                to = to.add(size);
            }
        };
        if !frame.header.is_empty() {
            write(frame.header.as_ptr(), frame.header.len());
        }
        if let Some(buf) = frame.buf {
            buf.each_part(frame.strip.into(), write);
        }
        let written = u32::try_from(size).expect("not longer than a descriptor");
        if let Some(log) = &self.log {
            self.mark(log, &[(at, written)]);
        }
        self.ring.give_back(head, written);
        self.ring.take(1);
    }

    /// Prefetches the memory of a buffer that is written soon. The value read here decides nothing.
    #[inline]
    fn look_ahead(&self, nth: u16) {
        let Ok(head) = self.ring.head(nth) else { return };
        if let Some(at) = self.memory.at(self.ring.desc(head).addr, 1) {
            will_write(at.as_ptr().wrapping_add(HEADER_SIZE));
        }
    }

    /// Asks for no more kicks, since buffers came after there were none.
    #[inline]
    fn wake_up(&mut self) {
        if self.missed.take().is_some() {
            self.ring.disarm();
        }
    }

    /// Finds buffers of `size` bytes, `chains_max` chains at most, and takes none.
    fn find(&mut self, size: usize, chains_max: u16) -> Result<Placed, Fault> {
        let room = &mut self.room;
        (room.count, room.chain_count) = (0, 0);
        let (mut found, mut descriptors) = (0, 0);
        while found < size {
            let nth = u16::try_from(room.chain_count).expect("at most `PIECES_MAX`");
            if nth == chains_max {
                return Ok(Placed::TooLarge);
            }
            if self.ring.available(nth + 1)? <= nth {
                // If these buffers use each descriptor of the ring there are never more.
                let is_all = descriptors >= self.ring.size();
                return Ok(if is_all { Placed::TooLarge } else { Placed::NoRoom });
            }
            let head = self.ring.head(nth)?;
            let mut chain = Chain::new(&self.ring, &self.memory, head, WRITE);
            let mut in_chain = 0;
            while let Some((at, left)) = chain.next()? {
                if found == size {
                    break;
                }
                if room.count == PIECES_MAX {
                    return Ok(Placed::TooLarge);
                }
                let taken = left.min(u32::try_from(size - found).unwrap_or(u32::MAX));
                room.pieces[room.count] = (at, taken);
                room.count += 1;
                found += taken as usize;
                in_chain += taken;
            }
            if in_chain == 0 {
                return Err(Fault::Short(head));
            }
            descriptors += chain.descriptors();
            room.chains[room.chain_count] = (head, in_chain);
            room.chain_count += 1;
            let mergeable = self.agreed & MRG_RXBUF != 0;
            if found < size && (!mergeable || room.chain_count == PIECES_MAX) {
                return Ok(Placed::TooLarge);
            }
        }
        Ok(Placed::Written)
    }

    /// Copies the frame and takes its buffers, whose number goes into its header.
    fn fill(&mut self, frame: &Egress<'_, FrameBuf>, header: impl Fn(u16) -> [u8; HEADER_SIZE]) {
        self.wake_up();
        let room = &self.room;
        let count = u16::try_from(room.chain_count).expect("at most `PIECES_MAX`");
        let header = header(count);
        let mut writer = Writer { pieces: &room.pieces[..room.count], offset: 0 };
        writer.write(header.as_ptr(), header.len());
        writer.write(frame.header.as_ptr(), frame.header.len());
        if let Some(buf) = frame.buf {
            buf.each_part(frame.strip.into(), |at, size| writer.write(at, size));
        }
        if let Some(log) = &self.log {
            self.mark(log, &room.pieces[..room.count]);
        }
        for &(head, size) in &room.chains[..room.chain_count] {
            self.ring.give_back(head, size);
        }
        self.ring.take(count);
    }

    /// Marks the pages of the frame that was written.
    #[cold]
    fn mark(&self, log: &DirtyLog, pieces: &[(NonNull<u8>, u32)]) {
        for &(at, size) in pieces {
            let guest = self.memory.guest_of(at).expect("pieces are found in this memory");
            log.mark(guest, size.into());
        }
    }

    /// Publishes the written frames. Returns true if the guest wants an interrupt for them.
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Returns true if its memory went away.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.memory.is_gone()
    }

    pub(super) const fn base(&self) -> u16 {
        self.ring.base()
    }
}

/// Writes a header unless it stands there already, and returns the address behind it. A driver that
/// uses a buffer again has left the header as it was, often on a cache line of its own, which need
/// not be taken from the guest's core then.
///
/// # Safety
/// The header's size and one byte more are mapped from `at` on.
#[inline]
unsafe fn write_if_other(at: NonNull<u8>, header: [u8; HEADER_SIZE]) -> *mut u8 {
    let place = at.cast::<[u8; HEADER_SIZE]>();
    // SAFETY: as promised. A guest that changes it meanwhile has its own change.
    unsafe {
        if place.read_volatile() != header {
            place.write_volatile(header);
        }
        at.as_ptr().add(HEADER_SIZE)
    }
}

/// Writer into pieces, one after the other.
struct Writer<'a> {
    pieces: &'a [(NonNull<u8>, u32)],
    offset: usize,
}

impl Writer<'_> {
    #[inline]
    fn write(&mut self, mut from: *const u8, mut size: usize) {
        while size > 0 {
            let Some(&(at, whole)) = self.pieces.first() else {
                unreachable!("there is room for all of it");
            };
            let part = size.min(whole as usize - self.offset);
            // SAFETY: source and target are mapped for that many bytes. They do not overlap in
            // one's own memory; two places of a guest's may, and then it gets what it asked for.
            unsafe {
                std::ptr::copy(from, at.as_ptr().add(self.offset), part);
                from = from.add(part);
            }
            size -= part;
            self.offset += part;
            if self.offset == whole as usize {
                self.pieces = &self.pieces[1..];
                self.offset = 0;
            }
        }
    }
}
