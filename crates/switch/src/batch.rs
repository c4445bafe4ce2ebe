//! The fast way in: what most batches are made of, unicast IPv4 between local ports of one network.
//!
//! The heads and the table entries of a whole batch are read before its first frame is queued;
//! frames that follow each other to one place are queued together; the books are kept once per
//! batch and priority. The outcome is that of taking each frame by itself.

use sluice_base::{Batch, Buf, DropReason, Nanos, Priority};

use crate::account;
use crate::classify;
use crate::common::Entry;
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::Held;
use crate::receive::Arrival;
use crate::slots::{Home, List, NIL};
use crate::switch::{BATCH_MAX, Switch};

const BATCH: usize = BATCH_MAX as usize;

/// Where the frames of a batch go, found out before any of them is queued: lane and priority in
/// one number.
struct Outlook([u32; BATCH]);

/// The way of a frame that has to be asked about.
const LONG_WAY: u32 = u32::MAX;
/// A lane's number stands above its frame's priority.
const LANE_SHIFT: u32 = Priority::COUNT.ilog2();

impl Outlook {
    #[inline]
    fn of(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(LONG_WAY)
    }

    /// How many frames from `at` on go one way.
    #[inline]
    fn run(&self, at: usize) -> usize {
        let Some((first, rest)) = self.0.get(at..).and_then(<[u32]>::split_first) else { return 0 };
        1 + rest.iter().take_while(|way| *way == first).count()
    }
}

/// Frames of a batch that follow each other to one lane in one priority: they are queued together.
#[derive(Clone, Copy)]
struct Sequence {
    input: u16,
    vnet: u16,
    lane: u32,
    priority: Priority,
    home: Home,
    /// Lossy: what the output still takes.
    room: Held,
}

impl Sequence {
    /// Takes a frame's place, if the output has one for it.
    #[inline]
    fn admit(&mut self, bytes: u32) -> bool {
        if self.home == Home::Ring {
            return true;
        }
        if self.room.frames == 0 || self.room.bytes < u64::from(bytes) {
            return false;
        }
        self.room.frames -= 1;
        self.room.bytes -= u64::from(bytes);
        true
    }
}

/// Frames of one batch and priority, summed up before they are booked.
#[derive(Default)]
struct Tally {
    priority: Priority,
    received: Counter,
}

impl<B: Buf> Switch<B> {
    /// The common case: unicast IPv4 between local ports of one network. Any other frame of the
    /// batch takes the long way, in its turn, so that the order of every pair is kept.
    pub(crate) fn receive_batch(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        vnet: u16,
        batch: &mut Batch<B>,
    ) {
        let outlook = self.look_ahead(port, vnet, batch.as_slice());
        let mut tally = Tally::default();
        // Nothing passes a frame that could not be queued.
        let mut blocked = !self.inputs[usize::from(input)].deferred.is_empty();
        let count = batch.len();
        let mut frames = batch.drain();
        let mut at = 0;
        while at < count {
            let way = outlook.of(at);
            if way == LONG_WAY || blocked {
                self.book(input, &mut tally);
                let Some(buf) = frames.next() else { break };
                self.receive_access(now, input, port, vnet, buf);
                blocked = !self.inputs[usize::from(input)].deferred.is_empty();
                at += 1;
                continue;
            }
            let priority = Priority::from_low_bits((way & 7) as u8);
            if priority != tally.priority {
                self.book(input, &mut tally);
                tally.priority = priority;
            }
            let run = outlook.run(at);
            let sequence = self.sequence(input, vnet, way >> LANE_SHIFT, priority);
            self.receive_sequence(sequence, frames.by_ref().take(run), run, &mut tally);
            at += run;
        }
        self.book(input, &mut tally);
    }

    #[inline]
    fn sequence(&self, input: u16, vnet: u16, lane: u32, priority: Priority) -> Sequence {
        let lossless = self.lossless.contains(priority);
        let home = if lossless { Home::Ring } else { Home::Output };
        let room = if lossless { Held::default() } else { self.output_room(lane) };
        Sequence { input, vnet, lane, priority, home, room }
    }

    /// Queues `count` frames of a sequence.
    #[inline]
    fn receive_sequence(
        &mut self,
        sequence: Sequence,
        frames: impl Iterator<Item = B>,
        count: usize,
        tally: &mut Tally,
    ) {
        // The lane of a local port has its number.
        let class = self.class_of(sequence.lane as usize, sequence.priority.index());
        if count <= self.classes[class].common_room(self.common_max) as usize {
            self.receive_common(sequence, class, frames, tally);
        } else {
            self.receive_leaf(sequence, frames, tally);
        }
    }

    /// A sequence that fits into the common queue of its output.
    #[inline]
    fn receive_common(
        &mut self,
        mut sequence: Sequence,
        class: usize,
        frames: impl Iterator<Item = B>,
        tally: &mut Tally,
    ) {
        let Sequence { input, lane, priority, home, .. } = sequence;
        let mut queued = Held::default();
        for buf in frames {
            let bytes = buf.size();
            tally.received.add(bytes);
            self.slots.loosen(1);
            #[expect(clippy::cast_possible_truncation, reason = "`look_ahead` read its size")]
            let entry = Entry { buf, bytes: bytes as u16, input, source: input, strip: 0, home };
            if !sequence.admit(bytes) {
                self.drop_entry(entry, priority.get(), DropReason::OutputFull);
                continue;
            }
            queued.frames += 1;
            queued.bytes += u64::from(bytes);
            self.classes[class].common.push(entry);
        }
        self.charge_lane_all(lane, queued, home);
        if self.classes[class].common.len() == queued.frames && queued.frames > 0 {
            self.mark_active(lane as usize, priority.index());
        }
    }

    /// A sequence that goes into the queue of its source.
    fn receive_leaf(
        &mut self,
        mut sequence: Sequence,
        frames: impl Iterator<Item = B>,
        tally: &mut Tally,
    ) {
        let Sequence { input, vnet, lane, priority, home, .. } = sequence;
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        let mut queued = Held::default();
        let mut list = List::EMPTY;
        for buf in frames {
            let bytes = buf.size();
            tally.received.add(bytes);
            let slot = self.new_slot(input, &arrival, home, buf);
            if !sequence.admit(bytes) {
                self.drop_frame(slot, DropReason::OutputFull);
                continue;
            }
            queued.frames += 1;
            queued.bytes += u64::from(bytes);
            self.slots.push(&mut list, slot);
        }
        if queued.frames == 0 {
            return;
        }
        self.charge_lane_all(lane, queued, home);
        let leaf = self.leaf_of(lane, input, priority.get());
        let node = self.queues.get_mut(leaf);
        node.frames += queued.frames;
        node.bytes += queued.bytes;
        if home == Home::Ring {
            node.ring_frames += queued.frames;
        }
        let ring_frames = node.ring_frames;
        self.slots.splice(&mut node.list, list);
        if ring_frames > self.share_min {
            self.note_share(list.head, lane, ring_frames);
        }
    }

    /// Reads the heads of the whole batch, then all table entries, then the lanes, so that the
    /// misses of one frame overlap with those of the next.
    fn look_ahead(&mut self, port: u16, vnet: u16, frames: &[B]) -> Outlook {
        let mut keys = [0; BATCH];
        let mut ways = [LONG_WAY; BATCH];
        let marking = self.marking(port);
        for ((key, way), buf) in keys.iter_mut().zip(&mut ways).zip(frames) {
            if let Some((dst, priority)) = classify::plain(buf.head(), marking) {
                *key = mac_table::key_of(vnet, dst);
                *way = u32::from(priority);
            }
        }
        for (key, way) in keys.iter().zip(&mut ways).take(frames.len()) {
            if *way != LONG_WAY {
                let lane = self.chip.lookup(*key);
                *way = lane.map_or(LONG_WAY, |lane| (lane << LANE_SHIFT) | *way);
            }
        }
        let (mut lane, mut size_max) = (NIL, 0);
        for (way, buf) in ways.iter_mut().zip(frames) {
            if *way == LONG_WAY {
                continue;
            }
            if lane != *way >> LANE_SHIFT {
                lane = *way >> LANE_SHIFT;
                size_max = self.plain_size_max(port, lane);
            }
            if buf.size() > size_max {
                *way = LONG_WAY;
            }
        }
        Outlook(ways)
    }

    /// The largest frame of a port that may be queued for a lane without further questions.
    #[inline]
    fn plain_size_max(&self, port: u16, lane: u32) -> u32 {
        let lane = &self.lanes[lane as usize];
        if lane.plain && lane.port != port { lane.plain_size_max.into() } else { 0 }
    }

    #[inline]
    fn book(&mut self, input: u16, tally: &mut Tally) {
        if tally.received.frames == 0 {
            return;
        }
        let priority = tally.priority.get();
        self.rows[account::row(input, priority)].received.add_all(tally.received);
        if self.lossless.contains(tally.priority) {
            self.charge_input_all(input, priority, tally.received);
        }
        tally.received = Counter::default();
    }
}
