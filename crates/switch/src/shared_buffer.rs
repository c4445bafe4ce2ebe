//! The shared buffer (the host pool). Waiting frames are copied to it out of an input's own memory,
//! so that one slow output does not stop the input's other outputs (head-of-line blocking).
//!
//! One (source, queue group) pair may hold a share of its input. Frames beyond the share are moved
//! into the pool, oldest first, while the pool has room; only then does the input wait. An input
//! may hold as much of the pool as is still free, so that no input takes all of it.
//!
//! The share is a part of the amount that the input may hold before it stops all senders, in frames
//! or in bytes, whichever is used up first. An input that pauses its sender does so at XOFF, so
//! XOFF is the amount there, and several pairs divide it: with a share of `s` a pair may hold `s /
//! (1 - s)` times the room that is still free below XOFF. A pair that is alone then fills `s` of
//! it, and `n` pairs together stay below it (the rule of dynamic thresholds, Choudhury and Hahne
//! 1998). While the pool has room the window ends at XOFF, so that one batch does not exceed it
//! before its frames are copied to the shared buffer.

use sluice_base::{Buf, InputId, Priority, QueueGroupId, SourceId};

use crate::config::Limit;
use crate::pause::PauseSender;
use crate::place::{Full, Input};
use crate::queues::{Key, Node};
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

/// Number of queues beyond their share that an input remembers. A queue that is not remembered is
/// found when its next frame comes.
pub(crate) const OVER_MAX: usize = 16;

/// The whole of an input, of which a share is a part.
const WHOLE: u16 = 256;

/// Share of its input that one queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    frames: u32,
    bytes: u64,
}

impl Share {
    /// Returns a part of a limit; one frame at least, since a queue of one frame blocks no other.
    fn of(limit: Limit, part: u16) -> Self {
        let frames = u64::from(limit.frames) * u64::from(part) / u64::from(WHOLE);
        // Divides first to avoid an overflow: the control input has no limit in bytes.
        let bytes = limit.bytes.0 / u64::from(WHOLE) * u64::from(part);
        Self { frames: u32::try_from(frames).unwrap_or(u32::MAX).max(1), bytes }
    }

    /// The smallest share.
    const LEAST: Self = Self { frames: 1, bytes: 0 };

    /// Returns a lower bound of the shares of these inputs: a queue beyond its share is beyond this
    /// bound as well.
    fn least<'a, B: 'a>(inputs: impl Iterator<Item = &'a Input<B>> + Clone, part: u16) -> Self {
        if inputs.clone().any(|i| matches!(i.full, Full::Pause(_))) {
            return Self::LEAST;
        }
        let shares = inputs.map(|i| Self::of(i.limit, part));
        let least =
            |a: Self, b: Self| Self { frames: a.frames.min(b.frames), bytes: a.bytes.min(b.bytes) };
        shares.reduce(least).unwrap_or(Self::LEAST)
    }

    #[inline]
    const fn is_passed_by(self, node: &Node) -> bool {
        node.ring_frames > self.frames
            || (node.ring_bytes as u64 > self.bytes && node.ring_frames > 1)
    }
}

/// The share of its input that one pair may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairShare {
    /// Lower bound of the shares of all inputs.
    least: Share,
    /// The share as a part of [`WHOLE`].
    part: u16,
}

impl PairShare {
    /// Returns the share for a switch without inputs.
    pub(crate) const fn new(part: u16) -> Self {
        Self { least: Share::LEAST, part }
    }

    /// Recomputes the lower bound after inputs came or went.
    pub(crate) fn inputs_changed<'a, B: 'a>(
        &mut self,
        inputs: impl Iterator<Item = &'a Input<B>> + Clone,
    ) {
        self.least = Share::least(inputs, self.part);
    }

    /// Returns true if a queue may hold more than its share: it passes that of the smallest input.
    #[inline]
    pub(crate) const fn may_be_passed_by(&self, node: &Node) -> bool {
        self.least.is_passed_by(node)
    }

    fn of(self, limit: Limit) -> Share {
        Share::of(limit, self.part)
    }
}

impl<B: Buf> Switch<B> {
    /// Moves handles of an input into the host pool. `copy` gets a handle of the input and returns
    /// one of the pool with the same bytes (the driver owns the first one again), or, if the pool
    /// has no room, the same handle.
    pub fn copy_to_shared(&mut self, input: InputId, mut copy: impl FnMut(B) -> Result<B, B>) {
        let input = input.index();
        if !self.inputs[input].awaiting.is_empty() {
            self.replicate(input, &mut copy);
        }
        if self.inputs[input].sweep {
            self.sweep(input, &mut copy);
        }
        let mut at = 0;
        while let Some(&key) = self.inputs[input].over.get(at) {
            // A queue that finds no room waits, and blocks no queue of another priority.
            let leaf = self.queues.find(key).filter(|&leaf| self.may_claim_pool(leaf));
            if leaf.is_some_and(|leaf| !self.copy_leaf_to_shared(input, leaf, &mut copy)) {
                at += 1;
            } else {
                self.inputs[input].over.swap_remove(at);
            }
        }
    }

    /// Moves frames of one queue until it is within its share. Returns false if the pool is full
    /// before that.
    fn copy_leaf_to_shared(
        &mut self,
        input: usize,
        leaf: u32,
        copy: &mut impl FnMut(B) -> Result<B, B>,
    ) -> bool {
        let node = self.queues.get(leaf);
        let mut at = match node.shared_cursor {
            NIL => node.list.head,
            last => self.slots.get(last).next,
        };
        let mut all_pooled = true;
        while at != NIL && self.is_over(input, leaf) {
            let slot = self.slots.get(at);
            let next = slot.next;
            let is_own = slot.owner == BufferOwner::Ring && usize::from(slot.input) == input;
            if is_own && !self.move_to_pool(at, leaf, &mut |buf, _| copy(buf)) {
                return false;
            }
            // A frame of another input may stay in between; the walk of that input must find it.
            all_pooled &= self.slots.get(at).owner == BufferOwner::Pool;
            if all_pooled {
                self.queues.get_mut(leaf).shared_cursor = at;
            }
            at = next;
        }
        true
    }

    /// Moves a frame of a queue from its input's memory into the pool. Returns false if the pool
    /// has no room. `copy` also gets the number that the frame has in the switch that handed it
    /// off, if one did.
    pub(crate) fn move_to_pool(
        &mut self,
        at: u32,
        leaf: u32,
        copy: &mut impl FnMut(B, u32) -> Result<B, B>,
    ) -> bool {
        let slot = self.slots.get(at);
        let input = usize::from(slot.input);
        let part = usize::from(self.inputs[input].from_underlay);
        if !self.pool_takes_of(input, slot.priority) {
            return false;
        }
        self.copy_into(at, leaf, part, copy)
    }

    /// Moves a frame as [`Self::move_to_pool`], into a partition that has room.
    pub(crate) fn copy_into(
        &mut self,
        at: u32,
        leaf: u32,
        part: usize,
        copy: &mut impl FnMut(B, u32) -> Result<B, B>,
    ) -> bool {
        let slot = self.slots.get_mut(at);
        let (number, bytes) = (slot.remote_number(), slot.bytes);
        let copied = copy(slot.buf.take().expect("a waiting frame has its handle"), number);
        let moved = copied.is_ok();
        slot.buf = Some(copied.unwrap_or_else(|same| same));
        if moved {
            self.pooled(at, part);
            self.queues.get_mut(leaf).ring_sub(1, bytes.into());
        }
        moved
    }

    /// Records that the frame of a slot is in the pool now, in this partition.
    pub(crate) fn pooled(&mut self, index: u32, part: usize) {
        let slot = self.slots.get_mut(index);
        slot.owner = BufferOwner::Pool;
        let (input, bytes, priority) = (slot.input, slot.bytes, slot.priority);
        self.uncharge_input(input, bytes, priority);
        self.note_excess(input);
        self.enter_part(index, part);
    }

    /// Returns true if the pool takes one more frame of this input, of some priority.
    pub(crate) fn pool_takes(&self, input: usize) -> bool {
        let i = &self.inputs[input];
        let partition = &self.pool.parts()[usize::from(i.from_underlay)];
        partition.has_room() && i.pooled_frames < partition.limit.frames - partition.frames
    }

    /// Returns true if the pool takes one more frame of this input and priority.
    pub(crate) fn pool_takes_of(&self, input: usize, priority: u8) -> bool {
        let partition = &self.pool.parts()[usize::from(self.inputs[input].from_underlay)];
        self.pool_takes(input) && partition.takes(priority)
    }

    /// Returns true if a queue holds more than its share of its input.
    fn is_over(&self, input: usize, leaf: u32) -> bool {
        let (i, node) = (&self.inputs[input], self.queues.get(leaf));
        let share = self.pair_share.of(i.limit);
        match (i.full, self.pause_of(i)) {
            (Full::Pause(paused), Some(pause))
                if paused.contains(Priority::from_low_bits(node.priority)) =>
            {
                node.ring_frames > share.frames
                    || (node.ring_frames > 1 && self.is_over_below_xoff(input, node, pause))
            }
            _ => share.is_passed_by(node),
        }
    }

    pub(crate) fn pause_of(&self, input: &Input<B>) -> Option<&PauseSender> {
        self.ports.get(usize::from(input.port))?.pause_out.as_ref()
    }

    /// Returns true if a queue holds more than `s / (1 - s)` times the room that is free below
    /// XOFF, with `s` the share of a pair.
    fn is_over_below_xoff(&self, input: usize, node: &Node, pause: &PauseSender) -> bool {
        let held = self.ledger.held(input, node.priority.into());
        let free = pause.xoff().saturating_sub(pause.weight(held.frames, held.bytes));
        let own = pause.weight(node.ring_frames, node.ring_bytes.into());
        let rest = WHOLE.saturating_sub(self.pair_share.part);
        own.saturating_mul(rest.into()) > free.saturating_mul(self.pair_share.part.into())
    }

    /// Remembers a queue if it holds more than its share of the input of `slot`.
    #[cold]
    pub(crate) fn note_share(&mut self, slot: u32, leaf: u32) {
        let input = usize::from(self.slots.get(slot).input);
        if !self.is_over(input, leaf) || !self.may_claim_pool(leaf) {
            return;
        }
        let key = self.queues.get(leaf).key();
        let over = &mut self.inputs[input].over;
        if over.len() < OVER_MAX && !over.contains(&key) {
            over.push(key);
        }
    }

    /// Returns true if frames of a queue may go to the pool. Frames for a receiver that is
    /// isolated, here or at its own host, may not.
    fn may_claim_pool(&self, leaf: u32) -> bool {
        let node = self.queues.get(leaf);
        let group = &self.groups[node.group as usize];
        !matches!(group.kind, QueueGroupKind::Held(_))
            && !self.is_isolated(group.port, node.priority)
    }

    /// Returns the frames that wait for a pair, for inspection: in the input's memory, and in all.
    #[must_use]
    pub fn pair(&self, group: QueueGroupId, source: SourceId, priority: Priority) -> (u32, u32) {
        self.queues.find(Key::leaf(group.0, source.0, priority.get())).map_or((0, 0), |leaf| {
            let node = self.queues.get(leaf);
            (node.ring_frames, node.frames)
        })
    }
}
