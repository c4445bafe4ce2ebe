//! One partition of the host pool.

use sluice_base::Priority;

use crate::config::Limit;
use crate::place::Held;

/// Frames of a partition, and its limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    limit: Limit,
    held: Held,
    /// Its frames, by priority.
    by_priority: [u32; Priority::COUNT],
    /// Frames of each priority for which room is reserved.
    guarantee: u32,
}

impl Partition {
    /// Returns an empty partition. With `apart`, a sixteenth of it is reserved for each priority.
    pub(super) const fn new(limit: Limit, apart: bool) -> Self {
        let guarantee = if apart { limit.frames / 16 } else { 0 };
        let held = Held { frames: 0, bytes: 0 };
        Self { limit, held, by_priority: [0; Priority::COUNT], guarantee }
    }

    /// Returns its frames.
    #[inline]
    pub(super) const fn held(&self) -> Held {
        self.held
    }

    /// Returns true if it has room at all.
    #[inline]
    pub(super) const fn has_room(&self) -> bool {
        self.held.frames < self.limit.frames && self.held.bytes < self.limit.bytes.0
    }

    /// Returns the number of frames that it has room for.
    #[inline]
    pub(super) const fn frames_left(&self) -> u32 {
        self.limit.frames - self.held.frames
    }

    /// Returns the number of bytes that it has room for. The last frame may exceed the limit.
    #[inline]
    pub(super) const fn bytes_left(&self) -> u64 {
        self.limit.bytes.0.saturating_sub(self.held.bytes)
    }

    /// Returns true if an amount is more than one of `parts` parts of it.
    pub(super) fn is_beyond(&self, held: Held, parts: u32) -> bool {
        held.frames > self.limit.frames / parts
            || held.bytes > self.limit.bytes.0 / u64::from(parts)
    }

    /// Returns true if it has room for a frame of this priority beside the reservations of the
    /// others.
    pub(super) fn takes(&self, priority: u8) -> bool {
        if !self.has_room() {
            return false;
        }
        let own = usize::from(priority);
        if self.guarantee == 0 || self.by_priority[own] < self.guarantee {
            return true;
        }
        let others = self.by_priority.iter().enumerate().filter(|(other, _)| *other != own);
        let promised: u32 = others.map(|(_, held)| self.guarantee.saturating_sub(*held)).sum();
        self.frames_left() > promised
    }

    pub(super) fn add(&mut self, priority: u8, sum: Held) {
        self.held.frames += sum.frames;
        self.held.bytes += sum.bytes;
        self.by_priority[usize::from(priority)] += sum.frames;
    }

    pub(super) fn sub(&mut self, priority: u8, sum: Held) {
        self.held.frames -= sum.frames;
        self.held.bytes -= sum.bytes;
        self.by_priority[usize::from(priority)] -= sum.frames;
    }
}
