//! Wake-ups at a guest's ring: the device asks for a kick, and looks once more.
//!
//! ```text
//!   device                                  guest
//!   serves what is there: up to `served`    makes more available
//!   asks for a kick beyond `served`         full fence
//!   full fence                              is a kick asked for?
//!   is the index still `served`?
//! ```
//!
//! In the single order of both fences, the second side sees the first side's write: either the
//! device sees the index, or the guest sees that it has to kick.
//!
//! **The look is compared with the served index**, of frames that were read or of the entry at
//! which a frame found no room, and never with the result of an earlier look: a loop may arm
//! notifications twice before it serves, and the guest, whose buffers are all there, will not kick
//! again.

use super::queues::Pairs;

/// The words of a ring that control wake-ups: in guest memory, or in the model that tries every
/// order.
pub(super) trait Words {
    /// Asks for a kick when the available index passes this one (virtio 1.2 sections 2.7.7 and
    /// 2.7.10).
    fn ask(&self, beyond: u16);

    /// Orders earlier writes before later reads.
    fn fence(&self);

    /// The available index. Entries below it are visible.
    fn index(&self) -> u16;
}

/// Asks for a kick beyond `served`, and looks once more. Returns the available index; unless it is
/// `served`, no kick may come for the entries that are there.
#[inline]
pub(super) fn arm(words: &impl Words, served: u16) -> u16 {
    words.ask(served);
    words.fence();
    words.index()
}

/// Pairs whose receive queues had no room for a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    /// Pairs whose last offer found no room.
    pairs: Pairs,
    /// Pairs among them for which a kick signals room.
    armed: Pairs,
}

impl Full {
    /// Notes that a frame found no room.
    pub(super) fn missed(&mut self, pair: usize) {
        self.pairs.insert(pair);
        self.armed.remove(pair);
    }

    /// Notes that a frame found room, or the queue is gone.
    #[inline]
    pub(super) fn found(&mut self, pair: usize) {
        self.pairs.remove(pair);
    }

    /// Notes a request for a kick; `came` is true if there was more room than a frame missed.
    pub(super) fn asked(&mut self, pair: usize, came: bool) {
        if came {
            self.armed.remove(pair);
        } else {
            self.armed.insert(pair);
        }
    }

    pub(super) const fn has(self, pair: usize) -> bool {
        self.pairs.has(pair)
    }

    pub(super) const fn pairs(self) -> Pairs {
        self.pairs
    }

    /// Returns true if a kick signals room in each full pair.
    pub(super) fn are_armed(self) -> bool {
        self.pairs.and(self.armed) == self.pairs
    }
}

#[cfg(test)]
mod tests;
