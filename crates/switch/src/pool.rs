//! The host pool, of which the shared buffer (`switch::shared_buffer`) is a part: what it
//! holds, by partition, and its handles that have ended.
//!
//! The third partition is the **reserve**: memory for frames of isolated receivers that came in at
//! a shared input. Only isolated receivers use it: they take no memory from others. One receiver
//! may hold as much of it as is still free, so that none takes it all from the others.
//!
//! Bodies of copies have a limit of their own beside the partitions. Memory of the pool is free
//! once its handle was reclaimed, and not before.

mod partition;

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::ByteCount;

use crate::config::{Limit, SwitchConfig};
use crate::ingress::{Ingress, Input};
use crate::inspect::Marks;
use crate::place::Held;
use crate::slots::{BufferOwner, NIL, Slots};

use self::partition::Partition;

/// The reserve's place among the partitions. A slot refers to the reserve and the record of its
/// receiver by `RESERVE + record`.
pub(crate) const RESERVE: usize = 2;

/// Number of receivers that may have frames in the reserve at a time.
pub(crate) const RECEIVERS_MAX: usize = 64;

/// State of the host pool.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pool {
    /// Stack of slots whose frames have ended, with their handles.
    ended: u32,
    /// Number of bodies of copies.
    bodies: u32,
    bodies_max: u32,
    /// Number of copies that one queue group may hold.
    copies_max: u32,
    /// Partitions: for frames from local ports, from the underlay, and the reserve of isolated
    /// receivers.
    parts: [Partition; 3],
    marks: [Marks; 3],
    /// Frames in the reserve by record of a receiver, memory that is not reclaimed yet included.
    reserved: Box<[Held]>,
}

impl Pool {
    /// Creates an empty pool.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        let receivers = if config.isolation.is_some() { RECEIVERS_MAX } else { 0 };
        Self {
            ended: NIL,
            bodies: 0,
            bodies_max: config.pool.replicated_frames,
            copies_max: config.pool.copies_per_group,
            parts: partitions(config),
            marks: [Marks::default(); 3],
            reserved: vec![Held::default(); receivers].into(),
        }
    }

    /// Returns the number of frames of a partition.
    pub(crate) const fn frames(&self, part: usize) -> u32 {
        self.parts[part].held().frames
    }

    /// Returns the high-water marks of a partition.
    pub(crate) const fn marks(&self, part: usize) -> Marks {
        self.marks[part]
    }

    /// Returns true if the pool takes one more frame of this input, of some priority.
    pub(crate) fn takes<B>(&self, input: &Input<B>) -> bool {
        let part = &self.parts[part_of(input)];
        part.has_room() && input.pooled_frames() < part.frames_left()
    }

    /// Returns true if the pool takes one more frame of this input and priority.
    pub(crate) fn takes_of<B>(&self, input: &Input<B>, priority: u8) -> bool {
        self.takes(input) && self.parts[part_of(input)].takes(priority)
    }

    /// Returns true if more than one of `parts` parts of a partition, the reserve aside, or of the
    /// bodies of copies is in use.
    pub(crate) fn is_used_beyond(&self, parts: u32) -> bool {
        self.bodies > self.bodies_max / parts
            || self.parts[..RESERVE].iter().any(|part| part.is_beyond(part.held(), parts))
    }

    /// Returns true if an amount is more than one of `parts` parts of a partition, the reserve
    /// aside, or is a part of what fills a partition.
    pub(crate) fn is_claimed_by(&self, held: Held, parts: u32) -> bool {
        let claims =
            |part: &Partition| part.is_beyond(held, parts) || (!part.has_room() && held.frames > 0);
        self.parts[..RESERVE].iter().any(claims)
    }

    /// Returns true if the reserve takes one more frame of a record.
    pub(crate) fn reserve_takes(&self, record: usize) -> bool {
        let (part, held) = (&self.parts[RESERVE], self.reserved[record]);
        part.has_room() && held.frames < part.frames_left() && held.bytes < part.bytes_left()
    }

    /// Returns true if the reserve has room for a good part of a record again.
    pub(crate) fn reserve_has_room_again(&self, record: usize) -> bool {
        let (part, held) = (&self.parts[RESERVE], self.reserved[record]);
        let is_small = |held: u64, free: u64| held * 4 <= free * 3;
        is_small(held.frames.into(), part.frames_left().into())
            && is_small(held.bytes, part.bytes_left())
    }

    /// Returns the frames of a record in the reserve.
    pub(crate) fn reserved(&self, record: usize) -> Held {
        self.reserved[record]
    }

    /// Counts a frame of the pool in a partition from now on.
    pub(crate) fn enter<B>(
        &mut self,
        slots: &mut Slots<B>,
        ingress: &mut Ingress<B>,
        index: u32,
        part: usize,
    ) {
        slots.get_mut(index).set_part(u8::try_from(part).expect("fewer partitions than 256"));
        let slot = slots.get(index);
        let (bytes, priority) = (u64::from(slot.bytes()), slot.priority());
        if let Some(record) = part.checked_sub(RESERVE) {
            let held = &mut self.reserved[record];
            held.frames += 1;
            held.bytes += bytes;
        } else {
            ingress.enter_pool(slot.input());
        }
        let part = part.min(RESERVE);
        self.parts[part].add(priority, Held { frames: 1, bytes });
        let held = self.parts[part].held();
        self.marks[part].rise(held.frames, held.bytes);
    }

    /// Takes a frame of the pool out of the count of its partition.
    pub(crate) fn leave<B>(&mut self, slots: &Slots<B>, ingress: &mut Ingress<B>, index: u32) {
        let slot = slots.get(index);
        let (bytes, part) = (u64::from(slot.bytes()), usize::from(slot.part()));
        if let Some(record) = part.checked_sub(RESERVE) {
            let held = &mut self.reserved[record];
            held.frames -= 1;
            held.bytes -= bytes;
        } else {
            ingress.leave_pool(slot.input());
        }
        self.parts[part.min(RESERVE)].sub(slot.priority(), Held { frames: 1, bytes });
    }

    /// Frees the memory of a handle of the pool that goes back.
    pub(crate) fn free<B>(&mut self, slots: &Slots<B>, ingress: &mut Ingress<B>, index: u32) {
        if slots.get(index).owner() != BufferOwner::Pool {
            // The slot was the body of copies.
            self.bodies -= 1;
            return;
        }
        self.leave(slots, ingress, index);
    }

    /// Returns true if handles have ended.
    #[inline]
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended != NIL
    }

    /// Keeps the slot of a frame that has ended, with its handle. Writes nothing but the slot.
    #[inline]
    pub(crate) fn push_ended<B>(&mut self, slots: &mut Slots<B>, index: u32) {
        slots.stack_push(&mut self.ended, index);
    }

    /// Returns a slot with a handle that has ended.
    #[inline]
    pub(crate) fn pop_ended<B>(&mut self, slots: &mut Slots<B>) -> Option<u32> {
        slots.stack_pop(&mut self.ended)
    }

    /// Returns true if there is no room for another body of copies.
    #[inline]
    pub(crate) const fn is_full_of_bodies(&self) -> bool {
        self.bodies >= self.bodies_max
    }

    /// Returns the limit of bodies of copies.
    #[inline]
    pub(crate) const fn bodies_max(&self) -> u32 {
        self.bodies_max
    }

    /// Counts a body of copies.
    #[inline]
    pub(crate) const fn add_body(&mut self) {
        self.bodies += 1;
    }

    /// Returns the number of copies that one queue group may hold.
    #[inline]
    pub(crate) const fn copies_max(&self) -> u32 {
        self.copies_max
    }
}

/// Returns the partition for frames of an input.
pub(crate) fn part_of<B>(input: &Input<B>) -> usize {
    usize::from(input.is_from_underlay())
}

/// Returns the partitions of the host pool.
fn partitions(config: &SwitchConfig) -> [Partition; 3] {
    let apart = config.isolation.is_some();
    let none = Limit { frames: 0, bytes: ByteCount::ZERO };
    let reserve = config.isolation.map_or(none, |isolation| isolation.reserve);
    [
        Partition::new(config.pool.from_local, apart),
        Partition::new(config.pool.from_underlay, apart),
        Partition::new(reserve, false),
    ]
}
