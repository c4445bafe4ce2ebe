//! Frames from a guest: its transmit queue.
//!
//! A frame that was read stays where it is, in the guest's memory, until its handle is back; only
//! then is its chain given back. Chains are given back in the order in which their frames end, so a
//! frame that waits holds up none behind it.
//!
//! A frame in more pieces than a handle can name is copied into the pool when it is read.

use std::ptr::NonNull;
use std::sync::Arc;

use sluice_base::Batch;
use sluice_switch::Window;

use super::header::{self, HEADER_SIZE};
use super::memory::Memory;
use super::ring::{Chain, Fault, Ring};
use crate::frame::{FrameBuf, HEAD_SIZE, PIECES_MAX, Piece, Record};
use crate::pool::Pool;
use crate::port::{Amount, Read};

/// The largest frame that a handle can name.
const FRAME_SIZE_MAX: usize = u16::MAX as usize;

/// Frames that were completed without being passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// Larger than any frame.
    pub(super) oversize: u64,
    /// They ask for a checksum or for segmentation, which was not agreed on.
    pub(super) offload: u64,
}

/// A guest's transmit queue, set up.
#[derive(Debug)]
pub(super) struct Incoming {
    ring: Ring,
    memory: Arc<Memory>,
    records: Records,
    /// Which of several queues it is.
    number: u32,
    /// How many handles are out.
    out: u32,
    pub(super) refused: Refused,
}

/// What was found at the next place of the ring.
enum Found {
    /// A frame, where it is.
    InGuest { size: usize },
    /// A frame in too many pieces.
    Scattered,
    /// Something that is no frame.
    Nothing,
}

impl Incoming {
    pub(super) fn new(ring: Ring, memory: Arc<Memory>, number: u32) -> Self {
        let records = Records::new(ring.size());
        Self { ring, memory, records, number, out: 0, refused: Refused::default() }
    }

    /// As [`crate::Port::read`].
    pub(super) fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> Result<Read, Fault> {
        let frames_max = limit.min(window.frames as usize).min(batch.room());
        let wanted = u16::try_from(frames_max).unwrap_or(u16::MAX);
        let mut read = Amount::default();
        let mut left = self.ring.available(wanted.max(1))?;
        if left > 0 {
            self.ring.disarm();
        }
        while left > 0 && read.frames < frames_max as u64 && read.bytes < window.bytes.0 {
            let head = self.ring.head(0)?;
            let Some(buf) = self.take(head, pool)? else {
                // No room for a copy; the frame stays the guest's.
                return Ok(Read { frames: count(&read), more: true });
            };
            self.ring.take(1);
            left -= 1;
            if let Taken::Frame(buf, size) = buf {
                batch.push(buf).expect("room was counted before");
                read.add(size);
            }
        }
        let more = left > 0 || (count(&read) < frames_max && self.ring.arm()?);
        // A read that was cut off by its window or its limit comes again by itself.
        Ok(Read { frames: count(&read), more: more || count(&read) == frames_max })
    }

    /// Makes a handle of the chain of `head`. `None`: it needs a slot of the pool, and there is
    /// none.
    fn take(&mut self, head: u16, pool: &mut Pool) -> Result<Option<Taken>, Fault> {
        if self.records.get(head).is_out {
            return Err(Fault::Twice(head));
        }
        let record = self.records.get_mut(head);
        let chain = Chain::new(&self.ring, &self.memory, head, 0);
        match look(chain, record, head, &mut self.refused)? {
            Found::InGuest { size } => {
                record.is_out = true;
                self.out += 1;
                let number = self.number << 16 | u32::from(head);
                let named = u16::try_from(size).expect("not above `FRAME_SIZE_MAX`");
                let record = self.records.at(head);
                // SAFETY: the record is written only while its handle is not out; it and the memory
                // stay as long as `self`, and beyond if a handle is out then.
                let buf = unsafe { FrameBuf::in_guest(record, number, named) };
                Ok(Some(Taken::Frame(buf, size)))
            }
            Found::Scattered => {
                let Some(mut slot) = pool.take() else { return Ok(None) };
                // Read anew, and looked at anew: what was read before counts no more.
                let chain = Chain::new(&self.ring, &self.memory, head, 0);
                let copied = header::skip_and_copy(chain, slot.bytes_mut());
                let taken = match copied {
                    Ok(Some(size)) => Taken::Frame(slot.freeze(0, size), size),
                    Ok(None) => {
                        self.refused.oversize += 1;
                        pool.cancel(slot);
                        Taken::Nothing
                    }
                    Err(fault) => {
                        pool.cancel(slot);
                        return Err(fault);
                    }
                };
                self.ring.give_back(head, 0);
                Ok(Some(taken))
            }
            Found::Nothing => {
                self.ring.give_back(head, 0);
                Ok(Some(Taken::Nothing))
            }
        }
    }

    /// A frame ended: its chain goes back to the guest.
    pub(super) fn give_back(&mut self, number: u32) {
        let head = u16::try_from(number & 0xffff).expect("masked");
        assert!(self.records.get(head).is_out, "a handle came back twice");
        self.records.get_mut(head).is_out = false;
        self.out -= 1;
        self.ring.give_back(head, 0);
    }

    /// Shows the guest what was given back. Returns whether it wants an interrupt for it.
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// How many handles are out.
    pub(super) const fn out(&self) -> u32 {
        self.out
    }

    /// The next entry that would be taken.
    pub(super) const fn base(&self) -> u16 {
        self.ring.base()
    }

    pub(super) const fn size(&self) -> u16 {
        self.ring.size()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.out > 0 {
            // Somebody still has pointers into it. What they need is never freed.
            self.records.is_shared = true;
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// A record for each descriptor, by the head of its chain.
///
/// Handles point at records while others are written, so the records are reached by pointer, one
/// at a time, and never as a slice.
#[derive(Debug)]
struct Records {
    base: NonNull<Record>,
    count: u16,
    /// Handles outlive them.
    is_shared: bool,
}

// SAFETY: records are plain data, and one thread at a time has them.
unsafe impl Send for Records {}

impl Records {
    fn new(count: u16) -> Self {
        let records: Box<[Record]> = (0..count).map(|_| Record::EMPTY).collect();
        let base = NonNull::from(Box::leak(records)).cast();
        Self { base, count, is_shared: false }
    }

    #[inline]
    fn at(&self, head: u16) -> NonNull<Record> {
        assert!(head < self.count, "a ring gives no other heads");
        // SAFETY: below the count.
        unsafe { self.base.add(head.into()) }
    }

    #[inline]
    fn get(&self, head: u16) -> &Record {
        // SAFETY: handles only read, and so does this.
        unsafe { self.at(head).as_ref() }
    }

    /// To be written: its handle is not out, or has just come back.
    #[inline]
    fn get_mut(&mut self, head: u16) -> &mut Record {
        // SAFETY: no handle looks at it, and `self` is borrowed for as long.
        unsafe { self.at(head).as_mut() }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.is_shared {
            let all = NonNull::slice_from_raw_parts(self.base, self.count.into());
            // SAFETY: they came out of a box of that size, and nobody else points at them.
            drop(unsafe { Box::from_raw(all.as_ptr()) });
        }
    }
}

/// What became of a chain.
enum Taken {
    Frame(FrameBuf, usize),
    Nothing,
}

/// Reads a chain: the header, the head of the frame, and where the rest of it lies.
fn look(
    mut chain: Chain<'_>,
    record: &mut Record,
    head: u16,
    refused: &mut Refused,
) -> Result<Found, Fault> {
    let mut net_header = [0; HEADER_SIZE];
    let (mut header_size, mut head_size, mut size) = (0, 0, 0);
    record.count = 0;
    while let Some((mut at, mut left)) = chain.next()? {
        if header_size < HEADER_SIZE {
            header_size += header::copy_piece(&mut at, &mut left, &mut net_header[header_size..]);
        }
        if head_size < HEAD_SIZE {
            let copied = header::copy_piece(&mut at, &mut left, &mut record.head[head_size..]);
            head_size += copied;
            size += copied;
        }
        if left == 0 {
            continue;
        }
        let Some(piece) = record.pieces.get_mut(usize::from(record.count)) else {
            debug_assert_eq!(usize::from(record.count), PIECES_MAX);
            return Ok(Found::Scattered);
        };
        *piece = Piece { at: at.as_ptr(), size: left };
        record.count += 1;
        size += left as usize;
    }
    if header_size < HEADER_SIZE {
        return Err(Fault::Short(head));
    }
    if header::asks_for_offload(&net_header) {
        refused.offload += 1;
        return Ok(Found::Nothing);
    }
    if size > FRAME_SIZE_MAX {
        refused.oversize += 1;
        return Ok(Found::Nothing);
    }
    Ok(Found::InGuest { size })
}

fn count(read: &Amount) -> usize {
    usize::try_from(read.frames).expect("at most a batch")
}
