//! The fast way in: what most batches are made of, unicast IPv4 between local ports of one network.
//!
//! The heads and the table entries of a whole batch are read before its first frame is queued;
//! frames that follow each other to one place are queued together; the books are kept once per
//! batch and priority. The outcome is that of taking each frame by itself.

use sluice_base::{Batch, Buf, DropReason, Nanos, Priority};

use crate::account;
use crate::classify;
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::Held;
use crate::receive::Arrival;
use crate::slots::{Home, List, NIL};
use crate::switch::{BATCH_MAX, Switch};

/// What a frame of a batch turned out to be before any frame of it was queued. The heads and the
/// table entries of a whole batch are read first, so that the misses of one frame overlap with
/// those of the next.
struct Outlook {
    keys: [u64; BATCH],
    priorities: [u8; BATCH],
    lanes: [u32; BATCH],
}

const BATCH: usize = BATCH_MAX as usize;
/// The key of a frame that takes the long way.
const NO_KEY: u64 = u64::MAX;

impl Outlook {
    #[inline]
    fn of(&self, at: usize) -> (u32, u8) {
        if at < BATCH { (self.lanes[at], self.priorities[at]) } else { (NIL, 0) }
    }
}

/// Frames of a batch that follow each other to one lane in one priority: they are queued together.
struct Sequence {
    lane: u32,
    priority: u8,
    home: Home,
    /// Lossy: what the output still takes.
    room: Held,
    list: List,
    frames: u32,
    bytes: u64,
    largest: u32,
}

impl Sequence {
    const NONE: Self = Self {
        lane: NIL,
        priority: 0,
        home: Home::Ring,
        room: Held { frames: 0, bytes: 0 },
        list: List::EMPTY,
        frames: 0,
        bytes: 0,
        largest: 0,
    };

    #[inline]
    fn has_room(&self, bytes: u32) -> bool {
        self.frames < self.room.frames && self.bytes + u64::from(bytes) <= self.room.bytes
    }

    #[inline]
    fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
        self.largest = self.largest.max(bytes);
    }
}

/// Frames of one batch and priority, summed up before they are booked.
#[derive(Default)]
struct Tally {
    priority: u8,
    received: Counter,
    held: Counter,
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
        let mut sequence = Sequence::NONE;
        for (at, buf) in batch.drain().enumerate() {
            let (lane, priority) = outlook.of(at);
            if (lane, priority) == (sequence.lane, sequence.priority) && lane != NIL {
                self.join_sequence(input, vnet, &mut sequence, &mut tally, buf);
                continue;
            }
            self.queue_sequence(input, &mut sequence);
            if lane == NIL || !self.inputs[usize::from(input)].deferred.is_empty() {
                self.book(input, &mut tally);
                self.receive_access(now, input, port, vnet, buf);
                continue;
            }
            if priority != tally.priority {
                self.book(input, &mut tally);
                tally.priority = priority;
            }
            if outlook.of(at + 1) == (lane, priority) {
                sequence = self.start_sequence(lane, priority);
                self.join_sequence(input, vnet, &mut sequence, &mut tally, buf);
            } else {
                self.receive_alone(input, vnet, lane, &mut tally, buf);
            }
        }
        self.queue_sequence(input, &mut sequence);
        self.book(input, &mut tally);
    }

    /// A frame whose neighbours in the batch go elsewhere.
    #[inline]
    fn receive_alone(&mut self, input: u16, vnet: u16, lane: u32, tally: &mut Tally, buf: B) {
        let bytes = buf.size();
        tally.received.add(bytes);
        let priority = Priority::from_low_bits(tally.priority);
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        let home = if self.lossless.contains(priority) { Home::Ring } else { Home::Output };
        let slot = self.new_slot(input, &arrival, home, buf);
        if home == Home::Ring {
            tally.held.add(bytes);
        } else if self.output_is_full(lane, bytes) {
            self.drop_frame(slot, DropReason::OutputFull);
            return;
        }
        self.enqueue(slot, lane);
    }

    /// A frame that goes where the one before it went.
    #[inline]
    fn join_sequence(
        &mut self,
        input: u16,
        vnet: u16,
        sequence: &mut Sequence,
        tally: &mut Tally,
        buf: B,
    ) {
        let bytes = buf.size();
        tally.received.add(bytes);
        let priority = Priority::from_low_bits(sequence.priority);
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        let slot = self.new_slot(input, &arrival, sequence.home, buf);
        if sequence.home == Home::Ring {
            tally.held.add(bytes);
        } else if !sequence.has_room(bytes) {
            self.drop_frame(slot, DropReason::OutputFull);
            return;
        }
        sequence.add(bytes);
        self.slots.push(&mut sequence.list, slot);
    }

    #[inline]
    fn start_sequence(&self, lane: u32, priority: u8) -> Sequence {
        let lossless = self.lossless.contains(Priority::from_low_bits(priority));
        let home = if lossless { Home::Ring } else { Home::Output };
        let room = if lossless { Held::default() } else { self.output_room(lane) };
        Sequence { lane, priority, home, room, ..Sequence::NONE }
    }

    /// Queues the frames of a sequence, and ends it.
    #[inline]
    fn queue_sequence(&mut self, source: u16, sequence: &mut Sequence) {
        if sequence.frames > 0 {
            self.enqueue_all(source, sequence);
        }
        sequence.lane = NIL;
        sequence.frames = 0;
    }

    fn enqueue_all(&mut self, source: u16, sequence: &Sequence) {
        let Sequence { lane, priority, frames, bytes, .. } = *sequence;
        self.charge_lane_all(lane, Held { frames, bytes }, sequence.home);
        let first = sequence.list.head;
        if sequence.largest <= self.lanes[lane as usize].frame_size_max {
            let at = usize::from(self.lanes[lane as usize].port);
            let class = &mut self.ports[at].classes[usize::from(priority)];
            if class.ring == NIL && class.common.frames + frames <= self.common_max {
                class.common.frames += frames;
                self.slots.splice(&mut class.common.list, sequence.list);
                self.mark_active(at, usize::from(priority));
                return;
            }
        }
        let leaf = self.leaf_of(lane, source, priority);
        let node = self.queues.get_mut(leaf);
        node.frames += frames;
        node.bytes += bytes;
        if sequence.home == Home::Ring {
            node.ring_frames += frames;
        }
        let ring_frames = node.ring_frames;
        self.slots.splice(&mut node.list, sequence.list);
        if ring_frames > self.share_min {
            self.note_share(first, lane, ring_frames);
        }
    }

    fn look_ahead(&mut self, port: u16, vnet: u16, frames: &[B]) -> Outlook {
        let mut outlook =
            Outlook { keys: [NO_KEY; BATCH], priorities: [0; BATCH], lanes: [NIL; BATCH] };
        let count = frames.len().min(BATCH);
        let marking = self.marking(port);
        for (at, buf) in frames[..count].iter().enumerate() {
            if let Some((dst, priority)) = classify::plain(buf.head(), marking) {
                outlook.keys[at] = mac_table::key_of(vnet, dst);
                outlook.priorities[at] = priority;
            }
        }
        for (lane, key) in outlook.lanes.iter_mut().zip(&outlook.keys[..count]) {
            if *key != NO_KEY {
                *lane = self.chip.lookup(*key).unwrap_or(NIL);
            }
        }
        for lane in &mut outlook.lanes[..count] {
            if *lane != NIL && !self.is_open_way(port, *lane) {
                *lane = NIL;
            }
        }
        outlook
    }

    /// Whether a frame of this input may be queued for a lane without further questions.
    #[inline]
    fn is_open_way(&self, port: u16, lane: u32) -> bool {
        let lane = &self.lanes[lane as usize];
        lane.plain && lane.port != port
    }

    #[inline]
    fn book(&mut self, input: u16, tally: &mut Tally) {
        if tally.received.frames == 0 {
            return;
        }
        let row = &mut self.rows[account::row(input, tally.priority)];
        row.received.add_all(tally.received);
        if tally.held.frames > 0 {
            self.charge_input_all(input, tally.priority, tally.held);
        }
        *tally = Tally { priority: tally.priority, ..Tally::default() };
    }
}
