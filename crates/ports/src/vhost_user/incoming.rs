//! Frames from a guest: its transmit queue.
//!
//! A frame that was read stays where it is, in the guest's memory, until its handle is back; only
//! then is its chain given back. Chains are given back in the order in which their frames end, so a
//! frame that waits holds up none behind it; or, if that is wanted, in the order in which they came
//! (`order.rs`).
//!
//! A frame in more pieces than a handle can name is copied into the pool when it is read.
//!
//! The memory of a frame was written by another core and is far away, so it is asked for some
//! frames ahead.

use std::ptr::NonNull;
use std::sync::Arc;

use sluice_base::Batch;
use sluice_switch::Window;

use super::header::{self, HEADER_SIZE};
use super::log::Logging;
use super::memory::Memory;
use super::offload;
use super::order::Order;
use super::records::Records;
use super::ring::{Chain, Desc, Fault, LOOK_AHEAD, Ring};
use crate::bytes::{copy_short, will_read};
use crate::frame::{FrameBuf, HEAD_SIZE, PIECES_MAX, PLAIN_SIZE_MAX, Piece, Record};
use crate::pool::Pool;
use crate::port::{Amount, Read};

/// The largest frame that a handle can name.
const FRAME_SIZE_MAX: usize = PLAIN_SIZE_MAX;

/// Frames that were completed without being passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// Larger than any frame.
    pub(super) oversize: u64,
    /// They ask for a checksum or for segmentation that was not agreed on, or that cannot be.
    pub(super) offload: u64,
}

/// A guest's transmit queue, set up.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) ring: Ring,
    pub(super) memory: Arc<Memory>,
    pub(super) records: Records,
    /// If chains are given back in the order in which they came.
    order: Option<Order>,
    /// Which of several queues it is.
    number: u32,
    /// The features that were agreed on.
    pub(super) agreed: u64,
    pub(super) refused: Refused,
}

/// What was found at the next place of the ring.
enum Found {
    /// A frame, where it is.
    InGuest { size: usize },
    /// A frame in too many pieces.
    Scattered,
    /// A frame to which something is left to be done.
    Unfinished,
    /// Something that is no frame.
    Nothing,
}

impl Incoming {
    pub(super) fn new(
        ring: Ring,
        memory: Arc<Memory>,
        number: u32,
        in_order: bool,
        agreed: u64,
    ) -> Self {
        let records = Records::new(ring.size(), offload::may_leave(agreed));
        let order = in_order.then(|| Order::new(ring.size()));
        Self { ring, memory, records, order, number, agreed, refused: Refused::default() }
    }

    /// Where its writes are to be marked from now on: those of the used ring are all it makes.
    pub(super) fn log_to(&mut self, logging: Option<Logging>) {
        self.ring.log_to(logging.and_then(|of| Some((of.log, of.used?))));
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
        for nth in 0..LOOK_AHEAD.min(left) {
            self.look_ahead(nth);
        }
        while left > 0 && read.frames < frames_max as u64 && read.bytes < window.bytes.0 {
            if left > LOOK_AHEAD {
                self.look_ahead(LOOK_AHEAD);
            }
            let head = self.ring.head(0)?;
            let Some(buf) = self.take(head, pool)? else {
                // No room for a copy; the frame stays the guest's.
                return Ok(Read { frames: count(&read), more: true, aside: 0 });
            };
            self.ring.take(1);
            left -= 1;
            if let Taken::Frame(buf, size) = buf {
                batch.push(buf).expect("room was counted before");
                read.add(size);
            }
        }
        // Whether there are more is asked by looking again, or by `arm`.
        Ok(Read { frames: count(&read), more: true, aside: 0 })
    }

    /// Asks for a kick when frames come beyond those that were taken. Returns whether some are
    /// there.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn arm(&mut self) -> Result<bool, Fault> {
        self.ring.arm(self.ring.base())
    }

    /// Whether all that was seen is taken.
    pub(super) const fn is_drained(&self) -> bool {
        self.ring.known() == 0
    }

    /// Asks for the memory of an entry that comes soon. What stands there now decides nothing.
    #[inline]
    fn look_ahead(&self, nth: u16) {
        let Ok(head) = self.ring.head(nth) else { return };
        let desc = self.ring.desc(head);
        if let Some(at) = self.memory.at(desc.addr, 1) {
            will_read(at.as_ptr());
        }
    }

    /// Makes a handle of the chain of `head`. `None`: it needs a slot of the pool, and there is
    /// none.
    #[inline]
    fn take(&mut self, head: u16, pool: &mut Pool) -> Result<Option<Taken>, Fault> {
        if self.records.has(head) {
            return Err(Fault::Twice(head));
        }
        let (_, record) = self.records.next();
        let desc = self.ring.desc(head);
        let found = match whole(&desc) {
            Some(size) => look_at_whole(&self.memory, &desc, size, record)?,
            // What was read of it decides nothing more.
            None => {
                let chain = Chain::new(&self.ring, &self.memory, head, 0);
                look(chain, record, head, &mut self.refused)?
            }
        };
        match found {
            Found::InGuest { size } => Ok(Some(Taken::Frame(self.handle(head, size), size))),
            Found::Scattered => self.copy(head, pool),
            Found::Unfinished => self.take_unfinished(head, pool),
            Found::Nothing => {
                self.end_at_once(head);
                Ok(Some(Taken::Nothing))
            }
        }
    }

    /// A handle of the chain of `head`, whose record was written. Always inlined: a handle that is
    /// returned through memory is written in parts and read as a whole.
    #[inline(always)]
    pub(super) fn handle(&mut self, head: u16, size: usize) -> FrameBuf {
        let (number, record) = self.records.take(head);
        if let Some(order) = &mut self.order {
            order.take(head);
        }
        let number = self.number << 16 | u32::from(number);
        let named = u16::try_from(size).expect("not above `FRAME_SIZE_MAX`");
        // SAFETY: the record is written only while its handle is not out; it and the memory stay as
        // long as `self`, and beyond if a handle is out then.
        unsafe { FrameBuf::in_guest(record, number, named) }
    }

    /// Copies a frame in too many pieces into a slot of the pool. `None`: there is none.
    #[cold]
    fn copy(&mut self, head: u16, pool: &mut Pool) -> Result<Option<Taken>, Fault> {
        let Some(mut slot) = pool.take() else { return Ok(None) };
        // Read anew, and looked at anew: what was read before counts no more.
        let chain = Chain::new(&self.ring, &self.memory, head, 0);
        let taken = match header::skip_and_copy(chain, slot.bytes_mut()) {
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
        self.end_at_once(head);
        Ok(Some(taken))
    }

    /// A frame ended: its chain goes back to the guest.
    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        let number = u16::try_from(number & 0xffff).expect("masked");
        let head = self.records.give_back(number);
        self.end(head);
    }

    /// A chain may be the guest's again.
    #[inline]
    fn end(&mut self, head: u16) {
        let Some(order) = &mut self.order else { return self.ring.give_back(head, 0) };
        order.end(head);
        while let Some(head) = order.pop() {
            self.ring.give_back(head, 0);
        }
    }

    /// A chain was taken, of which nothing waits.
    pub(super) fn end_at_once(&mut self, head: u16) {
        if let Some(order) = &mut self.order {
            order.take(head);
        }
        self.end(head);
    }

    /// Shows the guest what was given back. Returns whether it wants an interrupt for it.
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// How many handles are out.
    pub(super) const fn out(&self) -> u16 {
        self.records.out()
    }

    /// Whether its memory went away.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.memory.is_gone()
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
        if self.records.out() > 0 {
            // Somebody still has pointers into it. What they need is never freed.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// What became of a chain.
pub(super) enum Taken {
    Frame(FrameBuf, usize),
    Nothing,
}

/// The size of the frame behind the header, if the chain is the usual one: a descriptor for both.
#[inline]
fn whole(desc: &Desc) -> Option<usize> {
    let size = (desc.len as usize).checked_sub(HEADER_SIZE)?;
    (desc.flags == 0 && size <= FRAME_SIZE_MAX).then_some(size)
}

/// Reads such a chain.
#[inline]
fn look_at_whole(
    memory: &Memory,
    desc: &Desc,
    size: usize,
    record: &mut Record,
) -> Result<Found, Fault> {
    let unmapped = Fault::Unmapped { addr: desc.addr, size: desc.len };
    let start = memory.at(desc.addr, desc.len as usize).ok_or(unmapped)?;
    let head_size = size.min(HEAD_SIZE);
    let mut net_header = [0; HEADER_SIZE];
    // SAFETY: header and frame are mapped, as was just seen, and the head is no longer than its
    // place. A guest may write meanwhile: then some bytes are new and some old.
    let rest = unsafe {
        start.copy_to_nonoverlapping(NonNull::from(&mut net_header).cast(), HEADER_SIZE);
        let frame = start.as_ptr().add(HEADER_SIZE);
        copy_short(frame, record.head.as_mut_ptr(), head_size);
        frame.add(head_size)
    };
    if header::asks_for_offload(&net_header) {
        return Ok(Found::Unfinished);
    }
    record.count = u8::from(size > HEAD_SIZE);
    if size > HEAD_SIZE {
        let left = u32::try_from(size - HEAD_SIZE).expect("not above `FRAME_SIZE_MAX`");
        record.pieces[0] = Piece { at: rest, size: left };
    }
    Ok(Found::InGuest { size })
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
            let is_finished = !header::asks_for_offload(&net_header);
            return Ok(if is_finished { Found::Scattered } else { Found::Unfinished });
        };
        *piece = Piece { at: at.as_ptr(), size: left };
        record.count += 1;
        size += left as usize;
    }
    if header_size < HEADER_SIZE {
        return Err(Fault::Short(head));
    }
    if header::asks_for_offload(&net_header) {
        return Ok(Found::Unfinished);
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
