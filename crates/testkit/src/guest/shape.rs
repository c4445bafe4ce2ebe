//! Layout of the buffer of a frame: in one descriptor, in a chain, or in an indirect table.
//!
//! A *slot* is a buffer with its descriptors. Slot `s` always has the same descriptors, so that no
//! search is needed when a head comes back:
//!
//! ```text
//!   Whole        slot s = descriptor s            [header frame]
//!   HeaderApart  slot s = 2s, 2s+1                [header] [frame]
//!   Pieces       slot s = 4s ..= 4s+3             [header] [14] [50] [rest]
//!   indirect     slot s = descriptor s            → table of the same pieces
//! ```
//!
//! Pieces of one slot do not touch: between them lies a gap of a line or more, so that a device
//! that runs over the end of a piece is detected. In a whole buffer the frame begins at a line,
//! with the header right before it, as network drivers place it. Slots are an odd number of lines
//! apart: at a power of two a thousand of them would fall into a few sets of the cache.

use std::sync::Arc;

use super::error::GuestError;
use super::memory::{Bytes, LINE, Memory};
use super::ring::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, Ring, WRITE};

/// `struct virtio_net_hdr` with `num_buffers`, as every device has it since 1.0 (5.1.6).
pub const HEADER_BYTES: usize = 12;
/// Offset of `num_buffers` in the header.
pub(super) const NUM_BUFFERS_AT: usize = 10;
/// Upper bound of the pieces of a slot.
pub(super) const PIECES_MAX: usize = 4;

/// Pieces of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Header and frame in one piece.
    #[default]
    Whole,
    /// The header in a piece of its own, as old drivers have it.
    HeaderApart,
    /// The header, 14 bytes, 50 bytes, the rest.
    Pieces,
}

/// Layout of a buffer and its descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Pieces of the buffer.
    pub cut: Cut,
    /// True if its pieces stand in an indirect table, which has to be agreed; false for a chain.
    pub indirect: bool,
}

/// One piece: its offset in a slot, and its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// All slots of a ring.
#[derive(Debug)]
pub(super) struct Slots {
    memory: Arc<Memory>,
    start: usize,
    stride: usize,
    /// Slots `s` and `s + buffers` have the same bytes.
    buffers: u16,
    tables: Option<usize>,
    pieces: [Piece; PIECES_MAX],
    piece_count: usize,
    count: u16,
    /// Descriptors of the ring for each slot, as a power of two.
    step_shift: u32,
    /// Length of each slot in its descriptors, header included; `u32::MAX` if they are not written.
    written: Vec<u32>,
}

impl Slots {
    /// Returns the slots for a ring of this size, for frames of up to `frame_bytes`.
    pub(super) fn new(
        memory: &Arc<Memory>,
        ring_size: u16,
        shape: Shape,
        frame_bytes: usize,
        buffers_max: Option<u16>,
    ) -> Result<Self, GuestError> {
        let (pieces, piece_count, slot_bytes) = cut(shape.cut, frame_bytes);
        let step = if shape.indirect { 1 } else { u16::try_from(piece_count).unwrap_or(1) };
        assert!(ring_size >= step, "a ring of {ring_size} has no place for {step} descriptors");
        let count = ring_size / step;
        // Successive slots must not have the same bytes, also at the wrap-around: both counts are
        // powers of two.
        let buffers = 1 << buffers_max.unwrap_or(count).clamp(1, count).ilog2();
        let lines = slot_bytes.div_ceil(LINE) | 1;
        let stride = lines * LINE;
        let start = memory.allocate(stride * usize::from(buffers), LINE)?;
        let table_bytes = usize::from(count) * PIECES_MAX * DESCRIPTOR_BYTES;
        let tables = shape.indirect.then(|| memory.allocate(table_bytes, LINE)).transpose()?;
        Ok(Self {
            memory: Arc::clone(memory),
            start,
            stride,
            buffers,
            tables,
            pieces,
            piece_count,
            count,
            step_shift: step.trailing_zeros(),
            written: vec![u32::MAX; usize::from(count)],
        })
    }

    /// Returns the number of slots that may be out at a time.
    #[inline]
    pub(super) fn usable(&self) -> u16 {
        self.buffers
    }

    #[inline]
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// Returns the bytes of a slot, header included.
    #[inline]
    pub(super) fn bytes_max(&self) -> usize {
        self.pieces().iter().map(|piece| piece.bytes).sum()
    }

    /// Returns the slot whose turn it is, if they are used one after the other. Their count is a
    /// power of two.
    #[inline]
    pub(super) fn turn(&self, turn: usize) -> u16 {
        u16::try_from(turn & (usize::from(self.count) - 1)).unwrap_or(0)
    }

    /// Prefetches the first line of a frame, to write it.
    #[inline]
    pub(super) fn prefetch_to_write(&self, slot: u16) {
        self.memory.prefetch_to_write(self.offset(slot) + LINE);
    }

    /// Prefetches the first line of a frame and its header, to read them.
    #[inline]
    pub(super) fn prefetch(&self, slot: u16) {
        let start = self.offset(slot);
        self.memory.prefetch(start);
        self.memory.prefetch(start + LINE);
    }

    #[inline]
    fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.piece_count]
    }

    #[inline]
    pub(super) fn head(&self, slot: u16) -> u16 {
        slot << self.step_shift
    }

    /// Returns the slot of a head that a device wrote.
    #[inline]
    pub(super) fn slot(&self, head: u32) -> Option<u16> {
        let slot = head >> self.step_shift;
        let is_head = slot << self.step_shift == head;
        u16::try_from(slot).ok().filter(|&slot| is_head && slot < self.count)
    }

    #[inline]
    fn offset(&self, slot: u16) -> usize {
        let buffer = slot & (self.buffers - 1);
        self.start + usize::from(buffer) * self.stride
    }

    /// Returns the header of a slot.
    #[inline]
    pub(super) fn header(&self, slot: u16) -> Bytes<'_> {
        self.memory.bytes(self.offset(slot) + self.pieces[0].at, HEADER_BYTES)
    }

    /// Returns true if header and frame lie in one piece.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.piece_count == 1
    }

    /// Returns the bytes of a slot from `skip` on, counted from the header: at most `bytes`, and no
    /// more than the piece has.
    #[inline]
    pub(super) fn part(&self, slot: u16, skip: usize, bytes: usize) -> Bytes<'_> {
        let mut skip = skip;
        for piece in self.pieces() {
            if skip < piece.bytes {
                let bytes = bytes.min(piece.bytes - skip);
                return self.memory.bytes(self.offset(slot) + piece.at + skip, bytes);
            }
            skip -= piece.bytes;
        }
        self.memory.bytes(self.offset(slot), 0)
    }

    /// Copies bytes into a slot, from `skip` on.
    pub(super) fn scatter(&self, slot: u16, mut skip: usize, mut from: &[u8]) {
        while !from.is_empty() {
            let part = self.part(slot, skip, from.len());
            assert!(!part.is_empty(), "a frame that does not fit into its buffer");
            let (now, rest) = from.split_at(part.len());
            part.write(0, now);
            (skip, from) = (skip + now.len(), rest);
        }
    }

    /// Appends bytes of a slot, from `skip` on.
    pub(super) fn gather(&self, slot: u16, mut skip: usize, mut bytes: usize, to: &mut Vec<u8>) {
        while bytes > 0 {
            let part = self.part(slot, skip, bytes);
            assert!(!part.is_empty(), "a frame that is longer than its buffer");
            let from = to.len();
            to.resize(from + part.len(), 0);
            part.read(0, &mut to[from..]);
            (skip, bytes) = (skip + part.len(), bytes - part.len());
        }
    }

    /// Sets the length of a slot in its descriptors, header included, and the flag that the device
    /// writes them. Descriptors are written only if they change, so that the device's cache keeps
    /// their lines.
    #[inline]
    pub(super) fn describe(&mut self, ring: &mut Ring, slot: u16, bytes: usize, write: bool) {
        let length = u32::try_from(bytes).expect("a buffer is small");
        let written = &mut self.written[usize::from(slot)];
        if *written != length {
            *written = length;
            self.write_descriptors(ring, slot, bytes, if write { WRITE } else { 0 });
        }
    }

    /// Marks all descriptors as unknown, after others were written.
    pub(super) fn forget(&mut self) {
        self.written.fill(u32::MAX);
    }

    fn write_descriptors(&self, ring: &mut Ring, slot: u16, bytes: usize, flags: u16) {
        let head = self.head(slot);
        let table =
            self.tables.map(|tables| tables + usize::from(slot) * PIECES_MAX * DESCRIPTOR_BYTES);
        let first = if table.is_some() { 0 } else { head };
        let mut rest = bytes;
        let mut used = 0;
        for (index, piece) in (first..).zip(self.pieces()) {
            let now = rest.min(piece.bytes);
            rest -= now;
            used += 1;
            let descriptor = Descriptor {
                addr: self.memory.guest_address(self.offset(slot) + piece.at),
                len: u32::try_from(now).expect("a piece is small"),
                flags: flags | if rest > 0 { NEXT } else { 0 },
                next: if rest > 0 { index + 1 } else { 0 },
            };
            match table {
                None => ring.put_descriptor(index, descriptor),
                Some(table) => {
                    let at = table + usize::from(index) * DESCRIPTOR_BYTES;
                    put_in_memory(&self.memory, at, descriptor);
                }
            }
            if rest == 0 {
                break;
            }
        }
        assert!(rest == 0, "{bytes} bytes do not fit into a slot");
        if let Some(table) = table {
            let len = used * u32::try_from(DESCRIPTOR_BYTES).expect("16");
            let addr = self.memory.guest_address(table);
            ring.put_descriptor(head, Descriptor { addr, len, flags: INDIRECT, next: 0 });
        }
    }
}

/// Writes a descriptor anywhere in memory: one of an indirect table.
pub fn put_in_memory(memory: &Memory, at: usize, descriptor: Descriptor) {
    let bytes = memory.bytes(at, DESCRIPTOR_BYTES);
    bytes.write_u64(0, descriptor.addr);
    let flags = u64::from(descriptor.flags) | u64::from(descriptor.next) << 16;
    bytes.write_u64(8, u64::from(descriptor.len) | flags << 32);
}

/// Returns the pieces of a slot, their number, and the length of the slot with its gaps.
fn cut(cut: Cut, frame_bytes: usize) -> ([Piece; PIECES_MAX], usize, usize) {
    const WHOLE_AT: usize = LINE - HEADER_BYTES;
    let mut pieces = [Piece::default(); PIECES_MAX];
    let lengths: &[usize] = match cut {
        Cut::Whole => {
            pieces[0] = Piece { at: WHOLE_AT, bytes: HEADER_BYTES + frame_bytes };
            return (pieces, 1, LINE + frame_bytes);
        }
        Cut::HeaderApart => &[HEADER_BYTES, frame_bytes],
        Cut::Pieces => &[HEADER_BYTES, 14, 50, frame_bytes.saturating_sub(64).max(1)],
    };
    let mut at = 0;
    for (piece, &bytes) in pieces.iter_mut().zip(lengths) {
        *piece = Piece { at, bytes };
        at = (at + bytes).next_multiple_of(LINE) + LINE;
    }
    (pieces, lengths.len(), at)
}
