//! Who wakes whom at a guest's ring: the device asks for a kick, and looks once more.
//!
//! ```text
//!   device                                  guest
//!   serves what is there: up to `served`    makes more available
//!   asks for a kick beyond `served`         full fence
//!   full fence                              is a kick asked for?
//!   is the index still `served`?
//! ```
//!
//! In the one order that both fences agree on, the one that comes second sees what the other wrote:
//! either the device sees the index, or the guest sees that it has to kick.
//!
//! **The look is compared with what was served**, with frames that were read and with the index at
//! which a frame found no room, and never with what an earlier look has seen: a loop may rest twice
//! before it serves, and the guest, whose buffers are all there, will not kick again.

use super::queues::Pairs;

/// The words by which a guest and its device wake each other: of the machine, or of the model that
/// tries every order.
pub(super) trait Words {
    /// Asks for a kick when the available index passes this one (virtio 1.2 sections 2.7.7 and
    /// 2.7.10).
    fn ask(&self, beyond: u16);

    /// Orders what was written before against what is read afterwards.
    fn fence(&self);

    /// The available index. What it speaks of can be seen.
    fn index(&self) -> u16;
}

/// Asks for a kick beyond what was served, and looks once more. Returns the available index; unless
/// it is `served`, no kick may come for what is there.
#[inline]
pub(super) fn arm(words: &impl Words, served: u16) -> u16 {
    words.ask(served);
    words.fence();
    words.index()
}

/// Pairs whose receive queues had no room for a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Full {
    /// The last offer found no room.
    pairs: Pairs,
    /// Of those, the ones of which a kick tells.
    armed: Pairs,
}

impl Full {
    /// A frame found no room.
    pub(super) fn missed(&mut self, pair: usize) {
        self.pairs.insert(pair);
        self.armed.remove(pair);
    }

    /// A frame found room, or the queue is gone.
    #[inline]
    pub(super) fn found(&mut self, pair: usize) {
        self.pairs.remove(pair);
    }

    /// A kick was asked for, and `came` is whether there was more room than a frame missed.
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

    /// A kick tells of room in each of them.
    pub(super) fn are_armed(self) -> bool {
        self.pairs.and(self.armed) == self.pairs
    }
}

#[cfg(test)]
mod tests;
