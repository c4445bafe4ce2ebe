//! Frames from a guest: its transmit queue.
//!
//! A frame that was read stays in the guest's memory until its handle is back; only then is its
//! chain given back. Chains are given back in the order in which their frames end, so a frame that
//! waits holds up none behind it; or, if so configured, in the order in which they came
//! (`order.rs`).
//!
//! A frame in more pieces than a handle can name is copied into the pool when it is read.
//!
//! The memory of a frame was written by another core and is far away, so it is prefetched some
//! frames ahead.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use sluice_base::Batch;
use sluice_switch::Window;
use sluice_wire::guest_room::{self, Message};

use super::header;
use super::log::Logging;
use super::memory::Memory;
use super::order::InOrder;
use super::records::Records;
use super::ring::{Chain, Desc, Fault, LOOK_AHEAD, Ring};
use crate::bytes::{copy_short, will_read};
use crate::frame::{FrameBuf, HEAD_SIZE, PIECES_MAX, PLAIN_SIZE_MAX, Piece, Record};
use crate::net_header::{self, HEADER_SIZE};
use crate::pool::Pool;
use crate::port::{Amount, Read};

/// Size of the largest frame that a handle can name.
const FRAME_SIZE_MAX: usize = PLAIN_SIZE_MAX;

/// Frames that were completed without being passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    /// Larger than any frame.
    pub(super) oversize: u64,
    /// Requests of a checksum or of segmentation that was not negotiated, or that cannot be done.
    pub(super) offload: u64,
}

/// A guest's transmit queue, set up.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) ring: Ring,
    pub(super) memory: Arc<Memory>,
    pub(super) records: Records,
    /// Present if chains are given back in the order in which they came.
    order: Option<InOrder>,
    /// Number of the queue.
    number: u32,
    /// The negotiated features.
    pub(super) agreed: u64,
    pub(super) refused: Refused,
    /// Frames of the guest's agent.
    pub(super) told: Told,
}

/// Frames of the agent in a guest, which are for its port and no other.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) frames: VecDeque<Box<[u8]>>,
    /// Frames that were not read: too large, or too many at once.
    pub(super) ignored: u64,
}

/// Frames of an agent that wait to be read; it has one answer to give at a time.
const TOLD_MAX: usize = 8;

/// Result of a look at the next entry of the ring.
enum Found {
    /// A frame that stays in place.
    InGuest { size: usize },
    /// A frame in too many pieces.
    Scattered,
    /// A frame with offloads to be performed.
    Unfinished,
    /// No frame.
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
        let records = Records::new(ring.size(), net_header::may_leave(agreed));
        let order = in_order.then(|| InOrder::new(ring.size()));
        Self {
            ring,
            memory,
            records,
            order,
            number,
            agreed,
            refused: Refused::default(),
            told: Told::default(),
        }
    }

    /// Sets the dirty log of its writes, which go to the used ring only.
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
                // No slot for a copy; the frame stays with the guest.
                return Ok(Read { frames: count(&read), more: true, others: 0 });
            };
            self.ring.take(1);
            left -= 1;
            if let Taken::Frame(buf, size) = buf {
                batch.push(buf).expect("room was counted before");
                read.add(size);
            }
        }
        // The next look, or `arm`, tells if there are more.
        Ok(Read { frames: count(&read), more: true, others: 0 })
    }

    /// Asks for a kick when frames come beyond the taken ones. Returns true if some are there.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn arm(&mut self) -> Result<bool, Fault> {
        self.ring.arm(self.ring.base())
    }

    /// Returns true if all entries that were seen are taken.
    pub(super) const fn is_drained(&self) -> bool {
        self.ring.known() == 0
    }

    /// Prefetches the memory of an entry that comes soon. The value read here decides nothing.
    #[inline]
    fn look_ahead(&self, nth: u16) {
        let Ok(head) = self.ring.head(nth) else { return };
        let desc = self.ring.desc(head);
        if let Some(at) = self.memory.at(desc.addr, 1) {
            will_read(at.as_ptr());
        }
    }

    /// Makes a handle of the chain of `head`. `None` if it needs a slot of the pool, and there is
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
            // The values read so far decide nothing more.
            None => {
                let chain = Chain::new(&self.ring, &self.memory, head, 0);
                look(chain, record, head, &mut self.refused)?
            }
        };
        match found {
            Found::InGuest { size } if is_told(&record.head, size) => self.hear(head),
            Found::InGuest { size } => Ok(Some(Taken::Frame(self.handle(head, size), size))),
            Found::Scattered => self.copy(head, pool),
            Found::Unfinished => self.take_unfinished(head, pool),
            Found::Nothing => {
                self.end_at_once(head);
                Ok(Some(Taken::Nothing))
            }
        }
    }

    /// Keeps a copy of what the guest's agent says.
    #[cold]
    fn hear(&mut self, head: u16) -> Result<Option<Taken>, Fault> {
        let mut bytes = [0; guest_room::FRAME_SIZE_MAX];
        // Read and checked anew: values read before do not count.
        let chain = Chain::new(&self.ring, &self.memory, head, 0);
        let size = header::skip_and_copy(chain, &mut bytes)?;
        match size.filter(|_| self.told.frames.len() < TOLD_MAX) {
            Some(size) => self.told.frames.push_back(bytes[..size].into()),
            None => self.told.ignored += 1,
        }
        self.end_at_once(head);
        Ok(Some(Taken::Nothing))
    }

    /// Makes a handle of the chain of `head`, whose record was written. Always inlined: a handle
    /// that is returned through memory is written in parts and read as a whole.
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

    /// Copies a frame in too many pieces into a slot of the pool. `None` if there is none.
    #[cold]
    fn copy(&mut self, head: u16, pool: &mut Pool) -> Result<Option<Taken>, Fault> {
        let Some(mut slot) = pool.take() else { return Ok(None) };
        // Read and checked anew: values read before do not count.
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

    /// Ends a frame: its chain goes back to the guest.
    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        let number = u16::try_from(number & 0xffff).expect("masked");
        let head = self.records.give_back(number);
        self.end(head);
    }

    /// Gives a chain back, as soon as the order allows it.
    #[inline]
    fn end(&mut self, head: u16) {
        let Some(order) = &mut self.order else { return self.ring.give_back(head, 0) };
        order.end(head);
        while let Some(head) = order.pop() {
            self.ring.give_back(head, 0);
        }
    }

    /// Takes a chain and gives it back at once, since no frame of it waits.
    pub(super) fn end_at_once(&mut self, head: u16) {
        if let Some(order) = &mut self.order {
            order.take(head);
        }
        self.end(head);
    }

    /// Publishes the chains that were given back. Returns true if the guest wants an interrupt for
    /// them.
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// Number of handles that are out.
    pub(super) const fn out(&self) -> u16 {
        self.records.out()
    }

    /// Returns true if its memory went away.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.memory.is_gone()
    }

    /// The next entry to take.
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
            // Some handles still point into it. Their memory is never freed.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// Result of taking a chain.
pub(super) enum Taken {
    Frame(FrameBuf, usize),
    Nothing,
}

/// Returns true if the frame is one of the guest's agent.
#[inline]
fn is_told(head: &[u8; HEAD_SIZE], size: usize) -> bool {
    // The first bytes of its destination, which hardly any other frame has.
    head[..3] == guest_room::ADDRESS.0[..3] && Message::is_one(&head[..size.min(HEAD_SIZE)])
}

/// Size of the frame behind the header, if the chain is the usual one: a descriptor for both.
#[inline]
fn whole(desc: &Desc) -> Option<usize> {
    let size = (desc.len as usize).checked_sub(HEADER_SIZE)?;
    (desc.flags == 0 && size <= FRAME_SIZE_MAX).then_some(size)
}

/// Reads a chain of one descriptor.
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
    if net_header::asks_for_offload(&net_header) {
        return Ok(Found::Unfinished);
    }
    record.count = u8::from(size > HEAD_SIZE);
    if size > HEAD_SIZE {
        let left = u32::try_from(size - HEAD_SIZE).expect("not above `FRAME_SIZE_MAX`");
        record.pieces[0] = Piece { at: rest, size: left };
    }
    Ok(Found::InGuest { size })
}

/// Reads a chain: the header, the head of the frame, and the places of the rest.
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
            let is_finished = !net_header::asks_for_offload(&net_header);
            return Ok(if is_finished { Found::Scattered } else { Found::Unfinished });
        };
        *piece = Piece { at: at.as_ptr(), size: left };
        record.count += 1;
        size += left as usize;
    }
    if header_size < HEADER_SIZE {
        return Err(Fault::Short(head));
    }
    if net_header::asks_for_offload(&net_header) {
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
