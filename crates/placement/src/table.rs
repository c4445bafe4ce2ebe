//! Carries decisions out, packet by packet, and keeps the order of packets.
//!
//! Two packets of one entry that are on two cores at a time may overtake each other. So an entry
//! goes to its new core only when no packet of it is under way: either its packets are counted
//! ([`Order::Counted`]), or there is a limit of the time that a packet can be under way
//! ([`Order::Quiet`]), if no event tells when it is done.
//!
//! Work that never pauses would never move. With counting, packets of an entry that has waited for
//! longer than the patience are held back in their queue, until the earlier ones are done: a few
//! microseconds, and no packet is lost.

use alloc::vec::Vec;

use sluice_base::Nanos;

use crate::why::Move;
use crate::{CoreIndex, EntryId};

/// Evidence that no packet of an entry is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// [`Table::done`] is called for each packet. An entry that waits for longer than `patience` is
    /// held back.
    Counted {
        /// Limit of the wait.
        patience: Nanos,
    },
    /// No packet came for this time.
    Quiet(Nanos),
}

/// Decision for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// To this core, and to the other one for delivery, if any.
    To(CoreIndex, Option<CoreIndex>),
    /// Not yet: leave it in its queue, and the packets of its entry behind it.
    Hold,
    /// Its entry has no core and must be placed.
    Unplaced,
}

/// Cores of an entry's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    core: u16,
    /// [`NONE`] if delivery is not apart.
    delivery: u16,
}

const NONE: u16 = u16::MAX;
const NOWHERE: Place = Place { core: NONE, delivery: NONE };

#[derive(Clone, Copy, Debug)]
struct Slot {
    now: Place,
    /// Target of a move; equal to `now` without a move.
    next: Place,
    under_way: u32,
    /// [`Order::Counted`]: time of the decision to move. [`Order::Quiet`]: time of its last packet.
    at: Nanos,
}

/// Place of every entry, for the dispatcher of packets. It belongs to one thread.
#[derive(Clone, Debug)]
pub struct Table {
    slots: Vec<Slot>,
    order: Order,
    held: u64,
}

impl Table {
    /// Makes a table for this number of entries, none of which has a place.
    #[must_use]
    pub fn new(entries: u32, order: Order) -> Self {
        let empty = Slot { now: NOWHERE, next: NOWHERE, under_way: 0, at: Nanos::ZERO };
        Self { slots: (0..entries).map(|_| empty).collect(), order, held: 0 }
    }

    /// Sets a new place of an entry. The move happens at once if no packet of it is under way.
    ///
    /// # Panics
    /// If there is no entry of that number.
    pub fn set(&mut self, now: Nanos, change: &Move) {
        let counted = matches!(self.order, Order::Counted { .. });
        let slot = &mut self.slots[change.entry.index()];
        let delivery = change.delivery.map_or(NONE, |core| core.0);
        let was_moving = slot.now != slot.next;
        slot.next = Place { core: change.core.0, delivery };
        if slot.now == NOWHERE || (counted && slot.under_way == 0) {
            slot.now = slot.next;
        } else if counted && !was_moving {
            slot.at = now;
        }
    }

    /// Returns the decision for a packet that has come.
    ///
    /// # Panics
    /// If there is no entry of that number.
    #[inline]
    pub fn dispatch(&mut self, now: Nanos, entry: EntryId) -> Dispatch {
        let slot = &mut self.slots[entry.index()];
        if slot.now != slot.next {
            match self.order {
                Order::Counted { patience } => {
                    if slot.under_way == 0 {
                        slot.now = slot.next;
                    } else if now.0.saturating_sub(slot.at.0) > patience.0 {
                        self.held += 1;
                        return Dispatch::Hold;
                    }
                }
                Order::Quiet(gap) => {
                    if now.0.saturating_sub(slot.at.0) >= gap.0 {
                        slot.now = slot.next;
                    }
                }
            }
        }
        if slot.now == NOWHERE {
            return Dispatch::Unplaced;
        }
        match self.order {
            Order::Counted { .. } => slot.under_way += 1,
            Order::Quiet(_) => slot.at = now,
        }
        let Place { core, delivery } = slot.now;
        Dispatch::To(CoreIndex(core), (delivery != NONE).then_some(CoreIndex(delivery)))
    }

    /// Notes that `count` packets of an entry are done.
    ///
    /// # Panics
    /// In debug builds, if not so many were under way.
    #[inline]
    pub fn done(&mut self, entry: EntryId, count: u32) {
        let slot = &mut self.slots[entry.index()];
        debug_assert!(slot.under_way >= count, "{count} done of {}", slot.under_way);
        slot.under_way = slot.under_way.saturating_sub(count);
    }

    /// Returns true if an entry has reached its place.
    #[must_use]
    pub fn is_settled(&self, entry: EntryId) -> bool {
        self.slots.get(entry.index()).is_some_and(|slot| slot.now == slot.next)
    }

    /// Number of times that a packet was held back.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }
}

#[cfg(test)]
mod tests;
