//! Frames of closed priorities, set aside so that they do not block the others.
//!
//! A receive ring is one queue. Frames that its neighbour sent before it received XOFF stand in it,
//! and behind them the frames of every other priority. So they are copied out, packed, into a queue
//! of their priority, and handed over first once that priority is open again:
//!
//! ```text
//!                              ┌─ 0 ▐▐▐▐▐▐  closed
//!   [ ring ] ─▶ which priority ┤  1                 ──▶ switch
//!                              └─ 2 ▐▐ ─────────────▶
//! ```
//!
//! For the switch such a frame has not arrived yet, like one in the ring. Each priority has room
//! for the headroom of the wire, for any of them may use its whole rate. Memory is taken piece by
//! piece as a queue fills, and given back. A frame costs its bytes and [`HEADER_SIZE`], less than
//! on the wire even for the smallest frame, so that a neighbour that pauses in time never fills it.
//! Beyond that, frames of this priority are dropped and counted, and no others.

use std::collections::VecDeque;

use sluice_base::{Batch, Buf as _, Priority, PriorityMask, VlanTag};
use sluice_switch::Window;

use crate::frame::FrameBuf;
use crate::pool::Pool;
use crate::port::HeldBack;

/// Bytes before each frame: its size, and the handling of its tag.
const HEADER_SIZE: usize = 8;
/// Size of a piece of memory, unless a frame is larger.
const PIECE_SIZE: usize = 64 << 10;

/// Limit and use of the memory for frames set aside from one wire.
#[derive(Debug)]
pub(super) struct Room {
    /// Limit of each priority in bytes.
    bytes_max: u64,
    used: [u64; Priority::COUNT],
    now: HeldBack,
    /// Frames that found no room, by priority.
    full: [u64; Priority::COUNT],
}

impl Room {
    /// Makes room for this many bytes of each priority.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            used: [0; Priority::COUNT],
            now: HeldBack::default(),
            full: [0; Priority::COUNT],
        }
    }

    /// Frames set aside now, and the maximum.
    pub(super) fn amount(&self) -> HeldBack {
        self.now
    }

    /// Frames that found no room.
    pub(super) fn full(&self) -> u64 {
        self.full.iter().sum()
    }

    /// Bytes of a priority that are set aside.
    pub(super) fn used(&self, priority: Priority) -> u64 {
        self.used[priority.index()]
    }

    /// Limit of a priority in bytes.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn take(&mut self, priority: Priority, size: usize) -> bool {
        let used = &mut self.used[priority.index()];
        if *used + (HEADER_SIZE + size) as u64 > self.bytes_max {
            self.full[priority.index()] += 1;
            return false;
        }
        *used += (HEADER_SIZE + size) as u64;
        self.now.frames += 1;
        self.now.bytes += size as u64;
        self.now.frames_max = self.now.frames_max.max(self.now.frames);
        self.now.bytes_max = self.now.bytes_max.max(self.now.bytes);
        true
    }

    fn give(&mut self, priority: Priority, size: usize) {
        self.used[priority.index()] -= (HEADER_SIZE + size) as u64;
        self.now.frames -= 1;
        self.now.bytes -= size as u64;
    }
}

/// Frames of one port that are set aside, by priority.
#[derive(Debug, Default)]
pub(super) struct Store {
    queues: [Packed; Priority::COUNT],
    /// Priorities that have frames here.
    waiting: PriorityMask,
    /// Priority that is served first: it rotates, or a busy one would starve the others.
    first: usize,
}

impl Store {
    /// Priorities of which frames are set aside.
    pub(super) fn waiting(&self) -> PriorityMask {
        self.waiting
    }

    /// Sets a frame aside. Returns false if there was no room for it.
    pub(super) fn push(
        &mut self,
        room: &mut Room,
        priority: Priority,
        frame: &[u8],
        tag: VlanTag,
    ) -> bool {
        if !room.take(priority, frame.len()) {
            return false;
        }
        self.queues[priority.index()].push(frame, tag);
        self.waiting.insert(priority);
        true
    }

    /// Returns the priority to be served next, of those that are not `closed`.
    pub(super) fn next(&mut self, closed: PriorityMask) -> Option<Priority> {
        let ready = self.waiting.without(closed);
        if ready.is_empty() {
            return None;
        }
        self.first = (self.first + 1) % Priority::COUNT;
        let all = (self.first..Priority::COUNT).chain(0..self.first);
        all.filter_map(|at| Priority::all().nth(at)).find(|priority| ready.contains(*priority))
    }

    /// Copies the oldest frame of a priority to the front of `to`; returns its size, and the
    /// handling of its tag. `None` if there is none.
    pub(super) fn pop(
        &mut self,
        room: &mut Room,
        priority: Priority,
        to: &mut [u8],
    ) -> Option<(usize, VlanTag)> {
        let queue = &mut self.queues[priority.index()];
        let popped = queue.pop(to);
        if let Some((size, _)) = popped {
            room.give(priority, size);
        }
        if queue.frames == 0 {
            self.waiting.remove(priority);
        }
        popped
    }

    /// Removes all frames.
    pub(super) fn clear(&mut self, room: &mut Room) {
        for priority in Priority::all() {
            let queue = std::mem::take(&mut self.queues[priority.index()]);
            queue.sizes().for_each(|size| room.give(priority, size));
        }
        self.waiting = PriorityMask::NONE;
    }
}

/// A queue of frames, packed one behind the other.
#[derive(Debug, Default)]
struct Packed {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that were read.
    read: usize,
    frames: u64,
}

impl Packed {
    fn push(&mut self, frame: &[u8], tag: VlanTag) {
        let size = HEADER_SIZE + frame.len();
        if self.pieces.back().is_none_or(|piece| piece.capacity() - piece.len() < size) {
            self.pieces.push_back(Vec::with_capacity(size.max(PIECE_SIZE)));
        }
        let Some(piece) = self.pieces.back_mut() else { return };
        piece.extend_from_slice(&header(frame.len(), tag));
        piece.extend_from_slice(frame);
        self.frames += 1;
    }

    fn pop(&mut self, to: &mut [u8]) -> Option<(usize, VlanTag)> {
        let piece = self.pieces.front()?;
        let (size, tag) = parse(piece[self.read..].first_chunk()?);
        let frame = &piece[self.read + HEADER_SIZE..][..size];
        to[..size].copy_from_slice(frame);
        self.read += HEADER_SIZE + size;
        self.frames -= 1;
        if self.read == piece.len() {
            self.read = 0;
            if self.pieces.len() > 1 {
                self.pieces.pop_front();
            } else if let Some(last) = self.pieces.front_mut() {
                // The last piece stays: the next frame may come soon.
                last.clear();
            }
        }
        Some((size, tag))
    }

    /// Sizes of all frames.
    fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let first = std::iter::once(self.read).chain(std::iter::repeat(0));
        self.pieces.iter().zip(first).flat_map(|(piece, mut at)| {
            std::iter::from_fn(move || {
                let (size, _) = parse(piece[at..].first_chunk()?);
                at += HEADER_SIZE + size;
                Some(size)
            })
        })
    }
}

fn header(size: usize, tag: VlanTag) -> [u8; HEADER_SIZE] {
    let (kind, tci) = match tag {
        VlanTag::AsIs => (0, 0),
        VlanTag::TakenOff(tci) => (1, tci),
        VlanTag::NotAllowed => (2, 0),
    };
    let [a, b, c, d] = u32::try_from(size).expect("a frame is smaller").to_ne_bytes();
    let [e, f] = u16::to_ne_bytes(tci);
    [a, b, c, d, e, f, kind, 0]
}

fn parse(&[a, b, c, d, e, f, kind, _]: &[u8; HEADER_SIZE]) -> (usize, VlanTag) {
    let tag = match kind {
        0 => VlanTag::AsIs,
        1 => VlanTag::TakenOff(u16::from_ne_bytes([e, f])),
        _ => VlanTag::NotAllowed,
    };
    (u32::from_ne_bytes([a, b, c, d]) as usize, tag)
}

/// Frames that one read hands over.
pub(super) struct Taker<'a> {
    batch: &'a mut Batch<FrameBuf>,
    closed: PriorityMask,
    limit: usize,
    bytes_max: u64,
    frames: usize,
    bytes: u64,
}

impl<'a> Taker<'a> {
    /// Takes frames within `window`, and no more than `limit`.
    pub(super) fn new(window: Window, limit: usize, batch: &'a mut Batch<FrameBuf>) -> Self {
        let limit = limit.min(window.frames as usize).min(batch.room());
        let (closed, bytes_max) = (window.closed, window.bytes.0);
        Self { batch, closed, limit, bytes_max, frames: 0, bytes: 0 }
    }

    /// Number of frames it took.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Returns true if it takes no more frames.
    pub(super) fn is_full(&self) -> bool {
        self.frames >= self.limit || self.bytes >= self.bytes_max
    }

    /// Returns true if it takes a frame of any priority.
    pub(super) fn takes_any(&self) -> bool {
        self.closed.is_empty() && !self.is_full()
    }

    /// Returns true if no frame of a ring concerns it, not even to be set aside.
    pub(super) fn is_done(&self) -> bool {
        self.closed.is_empty() && self.is_full()
    }

    /// Takes a frame. There must be room.
    pub(super) fn push(&mut self, buf: FrameBuf) {
        self.frames += 1;
        self.bytes += u64::from(buf.size());
        self.batch.push(buf).expect("room was counted before");
    }

    /// Takes frames of open priorities that were set aside.
    pub(super) fn serve(&mut self, store: &mut Store, room: &mut Room, pool: &mut Pool) {
        while !self.is_full()
            && let Some(priority) = store.next(self.closed)
        {
            let Some(mut slot) = pool.take() else { return };
            match store.pop(room, priority, slot.bytes_mut()) {
                Some((size, tag)) => self.push(slot.freeze(0, size).with_vlan_tag(tag)),
                None => pool.cancel(slot),
            }
        }
    }

    /// Takes a copy of a frame, unless its priority is closed, or an earlier one was set aside, or
    /// there is no room.
    pub(super) fn take(
        &mut self,
        store: &Store,
        priority: Priority,
        frame: &[u8],
        tag: VlanTag,
        pool: &mut Pool,
    ) -> bool {
        let waits = self.closed.contains(priority) || store.waiting().contains(priority);
        if waits || self.is_full() {
            return false;
        }
        let Some(mut slot) = pool.take() else { return false };
        slot.bytes_mut()[..frame.len()].copy_from_slice(frame);
        self.push(slot.freeze(0, frame.len()).with_vlan_tag(tag));
        true
    }
}

#[cfg(test)]
mod tests;
