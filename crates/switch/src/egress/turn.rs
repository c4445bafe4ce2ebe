//! The turn of a queue: what it may send, what it sent, and its end.

use sluice_base::{Nanos, TunnelId};

use crate::inspect::Counter;
use crate::place::Held;
use crate::slots::{BufferOwner, List, NIL, Slots};

use super::EgressTables;

/// The frame whose turn it is.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) port: usize,
    pub(crate) priority: usize,
    /// The node in the port's ring: the leaf, or its bundle.
    pub(crate) node: u32,
    pub(crate) leaf: u32,
    pub(crate) group: u32,
    pub(crate) slot: u32,
}

/// Limits of the turn of a queue.
pub(crate) struct Reach {
    pub(crate) frames_max: u32,
    /// The deficit: no frame goes beyond it.
    pub(crate) deficit: i32,
    /// True if no other queue waits, so that a deficit that is too small is filled up at once.
    pub(crate) lone: bool,
    /// A larger frame takes the slow path.
    pub(crate) size_max: u32,
    /// The last of the frames at the start of the queue that are in the pool.
    pub(crate) shared_cursor: u32,
    /// The node in the port's ring, which has the deficit.
    node: u32,
}

/// Sums of the frames that a queue sent in its turn, before they are counted.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
    /// Bytes of the frames on the wire.
    pub(crate) sent_bytes: u64,
    ring: Held,
    output: Held,
}

impl Run {
    /// Adds frames with one buffer owner.
    #[inline]
    pub(crate) fn add(&mut self, owner: BufferOwner, sum: Held, sent_bytes: u64) {
        self.frames += sum.frames;
        self.bytes += sum.bytes;
        self.sent_bytes += sent_bytes;
        match owner {
            BufferOwner::Ring => {
                self.ring.frames += sum.frames;
                self.ring.bytes += sum.bytes;
            }
            BufferOwner::Output => {
                self.output.frames += sum.frames;
                self.output.bytes += sum.bytes;
            }
            BufferOwner::Pool | BufferOwner::Copy => {}
        }
    }

    /// Adds a frame of a common queue, which counts in no queue of a source.
    #[inline]
    pub(crate) fn add_loose(&mut self, owner: BufferOwner, bytes: u32, sent_bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
        self.sent_bytes += u64::from(sent_bytes);
        if owner == BufferOwner::Output {
            self.output.frames += 1;
            self.output.bytes += u64::from(bytes);
        }
    }

    /// Returns the frames with their sizes on the wire.
    #[inline]
    pub(crate) fn sent(&self) -> Counter {
        Counter { frames: u64::from(self.frames), bytes: self.sent_bytes }
    }
}

impl<B> EgressTables<B> {
    /// Returns the queue of a node of a port's ring, if it is the only one and its queue group is
    /// plain, so that it may be served in runs.
    #[inline]
    pub(crate) fn plain_leaf(&self, node: u32) -> Option<u32> {
        let leaf = self.queues.only_leaf(node)?;
        self.group(self.queues.get(leaf).group()).plain.then_some(leaf)
    }

    /// Returns the frames of a queue that has the turn, and how far the turn reaches.
    pub(crate) fn begin_run(&self, at: usize, priority: usize, leaf: u32) -> (List, Reach) {
        let queue = self.queues.get(leaf);
        let node = self.queues.in_ring(leaf);
        let reach = Reach {
            frames_max: if self.ports[at].is_alone() { u32::MAX } else { 1 },
            deficit: self.queues.get(node).deficit(),
            lone: self.classes[self.class_of(at, priority)].ring == node,
            size_max: self.group(queue.group()).plain_size_max(),
            shared_cursor: queue.shared_cursor(),
            node,
        };
        (queue.list(), reach)
    }

    /// Ends the turn of a queue, of which `list` is left.
    #[inline]
    pub(crate) fn end_run(
        &mut self,
        now: Nanos,
        (at, priority, leaf): (usize, usize, u32),
        list: List,
        reach: &Reach,
        run: &Run,
    ) {
        self.queues.get_mut(reach.node).set_deficit(reach.deficit);
        let queue = self.queues.get_mut(leaf);
        queue.keep(list, run.frames, run.bytes);
        queue.set_shared_cursor(reach.shared_cursor);
        queue.ring_sub(run.ring.frames, run.ring.bytes);
        let (group, is_empty) = (queue.group(), queue.frames() == 0);
        self.book_run(now, at, priority, group, run);
        if is_empty {
            let class = self.class_of(at, priority);
            self.queues.head_out(&mut self.classes[class].ring, leaf);
            self.queues.unbind(leaf);
            self.mark_idle(at, priority);
        }
    }

    /// Counts the frames that a queue of a queue group of this port sent.
    #[inline]
    pub(crate) fn book_run(
        &mut self,
        now: Nanos,
        at: usize,
        priority: usize,
        group: u32,
        run: &Run,
    ) {
        let class = self.class_of(at, priority);
        self.classes[class].sent.add_all(run.sent());
        if run.frames > 0 && !self.ports[at].is_alone() {
            let size = u32::try_from(run.sent_bytes).expect("one frame");
            self.charge_port(now, at, priority, size);
        }
        let group = &mut self.groups[group as usize];
        group.frames -= run.frames;
        group.bytes -= run.bytes;
        group.room.frames += run.output.frames;
        group.room.bytes += run.output.bytes;
    }

    /// Returns the frame at the head of a node's queue.
    #[inline]
    pub(crate) fn turn_of(&self, port: usize, priority: usize, node: u32) -> Turn {
        let leaf = if self.queues.is_bundle(node) { self.queues.child_head(node) } else { node };
        let queue = self.queues.get(leaf);
        Turn { port, priority, node, leaf, group: queue.group(), slot: queue.list().head() }
    }

    /// Returns the frame at the head of a class's ring.
    #[inline]
    pub(crate) fn head_turn(&self, port: usize, priority: usize) -> Turn {
        let ring = self.classes[self.class_of(port, priority)].ring;
        self.turn_of(port, priority, self.queues.ring_head(ring))
    }

    /// Charges the frames that the driver took in this turn to rates, deficits and counters.
    /// Returns the tunnel that they went through.
    #[inline]
    pub(crate) fn charge_turn(
        &mut self,
        now: Nanos,
        turn: &Turn,
        frames: u32,
        size: u32,
    ) -> Option<TunnelId> {
        let sum = Counter { frames: frames.into(), bytes: size.into() };
        self.ports[turn.port].shaper.charge_all(now, frames, size);
        let class = self.class_of(turn.port, turn.priority);
        self.classes[class].sent.add_all(sum);
        self.charge_class(turn.port, turn.priority, size);
        self.charge_node(turn.node, size);
        let group = &mut self.groups[turn.group as usize];
        group.shaper.charge_all(now, frames, size);
        group.tunnel()
    }

    /// Charges bytes to the deficit of a node of a port's ring.
    #[inline]
    pub(crate) fn charge_node(&mut self, node: u32, size: u32) {
        let node = self.queues.get_mut(node);
        node.set_deficit(node.deficit() - i32::try_from(size).unwrap_or(i32::MAX));
    }

    /// Takes the frame of this turn out of its queue, and passes the turn on.
    #[inline]
    pub(crate) fn dequeue(&mut self, slots: &mut Slots<B>, turn: &Turn) -> u32 {
        let leaf = self.queues.get_mut(turn.leaf);
        let slot = leaf.pop(slots);
        let is_empty = leaf.frames() == 0;
        let s = slots.get(slot);
        self.uncharge(turn.group, s.bytes(), s.owner());
        if is_empty {
            let class = self.class_of(turn.port, turn.priority);
            let ring = &mut self.classes[class].ring;
            self.queues.head_out(ring, turn.leaf);
            self.queues.unbind(turn.leaf);
            if *ring == NIL {
                self.mark_idle(turn.port, turn.priority);
            }
        } else if turn.node != turn.leaf {
            self.queues.child_rotate(turn.node);
        }
        slot
    }

    /// Takes a queue out of the port's ring if its queue group may not send yet.
    pub(crate) fn park_timed(&mut self, now: Nanos, turn: &Turn) -> bool {
        if self.group(turn.group).shaper.is_ready(now) {
            return false;
        }
        self.start_timed(turn.group);
        self.park(turn.leaf);
        true
    }
}
