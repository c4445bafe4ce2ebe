//! Ingress fast path for unicast IPv4 to known destinations, the content of most batches.
//!
//! The heads and the table entries of a whole batch are read before its first frame is queued;
//! successive frames for one source's queue are queued together; counters are updated once per
//! batch and priority. The result is the same as for each frame by itself.
//!
//! The loops are never inlined, and neither is the function that they call rarely
//! (`receive_access`): each has the registers to itself, and sums stay out of memory.

use core::net::Ipv4Addr;

use sluice_base::{Batch, Buf, DropReason, Mac, Nanos, Priority};

use crate::classify::{self, PlainDecapsulated};
use crate::common::Tag;
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::Held;
use crate::receive::Arrival;
use crate::slots::{BufferOwner, List, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::{BATCH_MAX, Switch};
use crate::tunnel::OUTER_BYTES;

const BATCH: usize = BATCH_MAX as usize;
/// Bytes in front of the tenant's frame in a plain VXLAN packet.
const PLAIN_STRIP: u8 = 50;
const _: () = assert!(OUTER_BYTES == PLAIN_STRIP as u32);

/// Queue group and priority of each frame of a batch, in one number, looked up before any of them
/// is queued.
struct Outlook([u32; BATCH]);

/// Mark of a frame that takes the slow path.
const SLOW_PATH: u32 = u32::MAX;
/// Shift of a queue group's number, which stands above its frame's priority.
const GROUP_SHIFT: u32 = Priority::COUNT.ilog2();

impl Outlook {
    #[inline]
    fn of(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(SLOW_PATH)
    }

    /// Returns the number of successive frames from `at` on with the same queue group and priority.
    #[inline]
    fn run(&self, at: usize) -> usize {
        let Some((first, rest)) = self.0.get(at..).and_then(<[u32]>::split_first) else { return 0 };
        1 + rest.iter().take_while(|destination| *destination == first).count()
    }
}

/// Fields that the frames of one batch and priority have in common, and their sums before they are
/// counted.
struct Tally {
    input: u16,
    vnet: u16,
    priority: Priority,
    owner: BufferOwner,
    /// Index of the first class of the priority.
    classes: usize,
    received: Counter,
}

impl<B: Buf> Switch<B> {
    /// Receives a batch. The fast path is unicast IPv4 between local ports of one network. Any
    /// other frame of the batch takes the slow path in its turn, so that the order of every pair is
    /// kept.
    #[inline(never)]
    pub(crate) fn receive_batch(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        vnet: u16,
        batch: &mut Batch<B>,
    ) {
        let outlook = self.look_ahead(port, vnet, batch.as_slice());
        let mut tally = self.tally(input, vnet, Priority::ZERO);
        // No frame passes one that could not be queued.
        let mut blocked = !self.inputs[usize::from(input)].deferred.is_empty();
        // The queue group of a local port has the port's number; the queue groups of tunnels
        // follow.
        let local_end = self.ports.len() << GROUP_SHIFT;
        let mut at = 0;
        let count = batch.len();
        let mut frames = batch.drain();
        while at < count {
            let destination = outlook.of(at);
            if destination as usize >= local_end || blocked {
                if destination != SLOW_PATH && !blocked {
                    at += self.receive_tunnel(&outlook, at, &mut tally, &mut frames);
                    continue;
                }
                self.book(&mut tally);
                let Some(buf) = frames.next() else { break };
                self.receive_access(now, input, port, vnet, buf);
                blocked = !self.inputs[usize::from(input)].deferred.is_empty();
                at += 1;
                continue;
            }
            let priority = Priority::from_low_bits((destination & 7) as u8);
            if priority != tally.priority {
                self.book(&mut tally);
                tally = self.tally(input, vnet, priority);
            }
            let group = destination >> GROUP_SHIFT;
            // The queue group of a local port has the port's number.
            let out = group as usize;
            if self.classes[tally.classes + out].common_room(self.common_max) > 0 {
                let Some(buf) = frames.next() else { break };
                self.receive_common(group, out, input, &mut tally, buf);
                at += 1;
            } else {
                let run = outlook.run(at);
                self.receive_leaf(group, &mut tally, frames.by_ref().take(run));
                at += run;
            }
        }
        self.book(&mut tally);
    }

    #[inline]
    fn tally(&self, input: u16, vnet: u16, priority: Priority) -> Tally {
        let owner = if self.services.lossless().contains(priority) {
            BufferOwner::Ring
        } else {
            BufferOwner::Output
        };
        let classes = self.class_of(0, priority.index());
        Tally { input, vnet, priority, owner, classes, received: Counter::default() }
    }

    /// Puts a frame into the common queue of port `out`, which has room. `source_or_group` goes
    /// into its tag.
    #[inline(always)]
    fn receive_common(
        &mut self,
        group: u32,
        out: usize,
        source_or_group: u16,
        tally: &mut Tally,
        buf: B,
    ) {
        let (input, owner) = (tally.input, tally.owner);
        let bytes = buf.plain_size();
        tally.received.add(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "a plain group takes it")]
        let tag = Tag { bytes: bytes as u16, input, source_or_group, strip: 0, owner };
        if owner == BufferOwner::Output && self.output_is_full(group, bytes) {
            self.drop_loose(buf, tag, tally.priority.get(), DropReason::OutputFull);
            return;
        }
        self.charge_group(group, bytes, owner);
        let common = &mut self.classes[tally.classes + out].common;
        let first = common.is_empty();
        common.push(buf, tag);
        if first {
            self.mark_active(out, tally.priority.index());
        }
    }

    /// Queues the frame at `at`, which goes to a tunnel. If it goes into a source's queue, queues
    /// the next frames for the same queue group as well. Returns the number of frames.
    #[inline(never)]
    fn receive_tunnel(
        &mut self,
        outlook: &Outlook,
        at: usize,
        tally: &mut Tally,
        frames: &mut impl Iterator<Item = B>,
    ) -> usize {
        let destination = outlook.of(at);
        let (group, priority) =
            (destination >> GROUP_SHIFT, Priority::from_low_bits((destination & 7) as u8));
        if priority != tally.priority {
            self.book(tally);
            *tally = self.tally(tally.input, tally.vnet, priority);
        }
        let out = usize::from(self.groups[group as usize].port);
        if self.classes[tally.classes + out].common_room(self.common_max) == 0 {
            let run = outlook.run(at);
            self.receive_leaf(group, tally, frames.take(run));
            return run;
        }
        if let Some(buf) = frames.next() {
            #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
            self.receive_common(group, out, group as u16, tally, buf);
        }
        1
    }

    /// Receives one frame on the fast path. Returns any other frame, which takes the slow path.
    #[inline(never)]
    pub(crate) fn receive_plain(
        &mut self,
        input: u16,
        port: u16,
        vnet: u16,
        buf: B,
    ) -> Result<(), B> {
        let Some((dst, priority)) = classify::plain(buf.head(), self.marking(port)) else {
            return Err(buf);
        };
        let Some(group) = self.fdb.lookup(mac_table::key_of(vnet, dst)) else { return Err(buf) };
        let mut tally = self.tally(input, vnet, Priority::from_low_bits(priority));
        let out = usize::from(self.groups[group as usize].port);
        if buf.plain_size() > self.plain_size_max(port, group)
            || !self.inputs[usize::from(input)].deferred.is_empty()
        {
            return Err(buf);
        }
        if self.classes[tally.classes + out].common_room(self.common_max) == 0 {
            tally.received.add(buf.plain_size());
            self.book(&mut tally);
            let priority = tally.priority;
            let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
            self.queue_one(input, group, &arrival, tally.owner, buf);
            return Ok(());
        }
        #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
        let source_or_group = if out == group as usize { input } else { group as u16 };
        self.receive_common(group, out, source_or_group, &mut tally, buf);
        self.book(&mut tally);
        Ok(())
    }

    /// Receives a frame from the underlay on the fast path. Returns any other frame, which takes
    /// the slow path.
    #[inline(never)]
    pub(crate) fn receive_plain_underlay(
        &mut self,
        input: u16,
        port: u16,
        (local, mac): (Ipv4Addr, Mac),
        buf: B,
    ) -> Result<(), B> {
        let (marking, bytes) = (self.marking(port), buf.plain_size());
        let Some(frame) = classify::plain_underlay(buf.head(), bytes, local, mac, marking) else {
            return Err(buf);
        };
        let priority = Priority::from_low_bits(frame.priority);
        let Some((vnet, tunnel, source, group)) = self.place_of_plain(input, port, &frame) else {
            return Err(buf);
        };
        let l = &self.groups[group as usize];
        let (out, size_max) = (usize::from(l.port), u32::from(l.plain_size_max));
        let class = self.class_of(out, priority.index());
        let Ok(size) = u16::try_from(bytes) else { return Err(buf) };
        if bytes > size_max + OUTER_BYTES {
            return Err(buf);
        }
        let owner = if self.services.lossless().contains(priority) {
            BufferOwner::Ring
        } else {
            BufferOwner::Output
        };
        self.vnets[usize::from(vnet)].decaps[usize::from(tunnel)].received.add(bytes);
        let tag = Tag { bytes: size, input, source_or_group: source, strip: PLAIN_STRIP, owner };
        self.ledger.receive(input, frame.priority, Counter::of(bytes));
        if owner == BufferOwner::Ring {
            let sum = Counter { frames: 1, bytes: bytes.into() };
            self.charge_input_all(input, frame.priority, sum);
        }
        if self.classes[class].common_room(self.common_max) == 0 {
            let arrival = Arrival { source, vnet, strip: PLAIN_STRIP.into(), priority, ecn: None };
            self.queue_one(input, group, &arrival, owner, buf);
            return Ok(());
        }
        if owner == BufferOwner::Output && self.output_is_full(group, bytes) {
            self.drop_loose(buf, tag, frame.priority, DropReason::OutputFull);
            return Ok(());
        }
        self.charge_group(group, bytes, owner);
        self.classes[class].common.push(buf, tag);
        self.mark_active(out, priority.index());
        Ok(())
    }

    /// Puts a frame that is charged to its input already into the queue of its source.
    #[inline(never)]
    fn queue_one(&mut self, input: u16, group: u32, arrival: &Arrival, owner: BufferOwner, buf: B) {
        let bytes = buf.plain_size();
        let slot = self.new_slot(input, arrival, owner, buf);
        if owner == BufferOwner::Output && self.output_is_full(group, bytes) {
            self.drop_frame(slot, DropReason::OutputFull);
            return;
        }
        self.charge_group(group, bytes, owner);
        self.enqueue_leaf(slot, group);
    }

    /// Returns the network of a frame of the underlay, its tunnel, the source number of the tunnel,
    /// and the frame's queue group, if the frame may come in and the queue group is plain and that
    /// of a local port.
    #[inline]
    fn place_of_plain(
        &mut self,
        input: u16,
        port: u16,
        frame: &PlainDecapsulated,
    ) -> Option<(u16, u16, u16, u32)> {
        let tunnel = self.fdb.vtep(frame.remote)?;
        let vnet = self.fdb.vnet_of(frame.vni)?;
        let at = usize::from(input);
        let flow = self.vnets[usize::from(vnet)].decaps.get(usize::from(tunnel))?;
        let source = flow.source;
        if !flow.is_plain
            || flow.port != port
            || !self.inputs[at].deferred.is_empty()
            || self.may_be_full(at)
        {
            return None;
        }
        let group = self.fdb.lookup(mac_table::key_of(vnet, frame.dst))?;
        let l = &self.groups[group as usize];
        (l.plain && matches!(l.kind, QueueGroupKind::Port(_)))
            .then_some((vnet, tunnel, source, group))
    }

    /// Puts successive frames for one queue group into the queue of their source.
    #[inline(never)]
    fn receive_leaf(&mut self, group: u32, tally: &mut Tally, frames: impl Iterator<Item = B>) {
        let Tally { input, vnet, priority, owner, .. } = *tally;
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        let mut room = if owner == BufferOwner::Ring { Held::MAX } else { self.output_room(group) };
        let (mut received, mut queued) = (Counter::default(), Held::default());
        let mut list = List::EMPTY;
        for buf in frames {
            let bytes = buf.plain_size();
            received.add(bytes);
            let slot = self.new_slot(input, &arrival, owner, buf);
            if room.frames == 0 || room.bytes < u64::from(bytes) {
                self.drop_frame(slot, DropReason::OutputFull);
                continue;
            }
            room.frames -= 1;
            room.bytes -= u64::from(bytes);
            queued.frames += 1;
            queued.bytes += u64::from(bytes);
            self.slots.push(&mut list, slot);
        }
        tally.received.add_all(received);
        if queued.frames == 0 {
            return;
        }
        self.charge_group_all(group, queued, owner);
        let leaf = self.leaf_of(group, input, priority.get());
        let node = self.queues.get_mut(leaf);
        node.add(queued.frames, queued.bytes, owner);
        let may_be_over = self.pair_share.may_be_passed_by(node);
        self.slots.splice(&mut node.list, list);
        if may_be_over {
            self.note_share(list.head, leaf);
        }
    }

    /// Reads the heads of the whole batch, then their table entries, so that the cache misses of
    /// one frame overlap with those of the next.
    #[inline(never)]
    fn look_ahead(&mut self, port: u16, vnet: u16, frames: &[B]) -> Outlook {
        let frames = &frames[..frames.len().min(BATCH)];
        let mut keys = [0; BATCH];
        let mut destinations = [SLOW_PATH; BATCH];
        let marking = self.marking(port);
        for ((key, destination), buf) in keys.iter_mut().zip(&mut destinations).zip(frames) {
            if let Some((dst, priority)) = classify::plain(buf.head(), marking) {
                *key = mac_table::key_of(vnet, dst);
                *destination = u32::from(priority);
            }
        }
        let (mut last, mut size_max) = (NIL, 0);
        for ((key, destination), buf) in keys.iter().zip(&mut destinations).zip(frames) {
            if *destination == SLOW_PATH {
                continue;
            }
            let Some(group) = self.fdb.lookup(*key) else {
                *destination = SLOW_PATH;
                continue;
            };
            if group != last {
                last = group;
                size_max = self.plain_size_max(port, group);
            }
            *destination = if buf.plain_size() > size_max {
                SLOW_PATH
            } else {
                (group << GROUP_SHIFT) | *destination
            };
        }
        Outlook(destinations)
    }

    /// Returns the largest frame of a port that may be queued for a queue group without further
    /// checks.
    #[inline]
    fn plain_size_max(&self, port: u16, group: u32) -> u32 {
        let group = &self.groups[group as usize];
        if group.plain && group.port != port { group.plain_size_max.into() } else { 0 }
    }

    #[inline]
    fn book(&mut self, tally: &mut Tally) {
        if tally.received.frames == 0 {
            return;
        }
        let (input, priority) = (tally.input, tally.priority.get());
        self.ledger.receive(input, priority, tally.received);
        if tally.owner == BufferOwner::Ring {
            self.charge_input_all(input, priority, tally.received);
        }
        tally.received = Counter::default();
    }
}
