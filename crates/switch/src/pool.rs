//! The host pool, of which the [shared buffer](crate::shared_buffer) is a part: what it holds, by
//! partition, and its handles that have ended.
//!
//! Bodies of copies have a limit of their own beside the partitions. Memory of the pool is free
//! once its handle was reclaimed, and not before.

use sluice_base::ByteCount;

use crate::config::{Limit, SwitchConfig};
use crate::inspect::Marks;
use crate::place::{Held, Partition};
use crate::slots::{NIL, Slots};

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
}

impl Pool {
    /// Creates an empty pool.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        Self {
            ended: NIL,
            bodies: 0,
            bodies_max: config.pool.replicated_frames,
            copies_max: config.pool.copies_per_group,
            parts: partitions(config),
            marks: [Marks::default(); 3],
        }
    }

    /// Returns the partitions.
    #[inline]
    pub(crate) const fn parts(&self) -> &[Partition; 3] {
        &self.parts
    }

    /// Returns the high-water marks of the partitions.
    pub(crate) const fn marks(&self) -> &[Marks; 3] {
        &self.marks
    }

    /// Counts frames of one priority in a partition.
    #[inline]
    pub(crate) fn add(&mut self, part: usize, priority: u8, sum: Held) {
        self.parts[part].add(priority, sum);
        self.marks[part].rise(self.parts[part].frames, self.parts[part].bytes);
    }

    /// Takes frames of one priority out of the count of a partition.
    #[inline]
    pub(crate) fn sub(&mut self, part: usize, priority: u8, sum: Held) {
        self.parts[part].sub(priority, sum);
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

    /// Returns the number of bodies of copies.
    #[inline]
    pub(crate) const fn bodies(&self) -> u32 {
        self.bodies
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

    /// Takes a body of copies out of the count.
    #[inline]
    pub(crate) const fn sub_body(&mut self) {
        self.bodies -= 1;
    }

    /// Returns the number of copies that one queue group may hold.
    #[inline]
    pub(crate) const fn copies_max(&self) -> u32 {
        self.copies_max
    }
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
