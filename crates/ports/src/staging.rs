//! Frames taken from the switch that the kernel has not taken yet.
//!
//! A bounded ring of copies: header and payload are gathered here, so that the switch's handle is
//! free as soon as `offer` returns. Frames that the kernel does not take stay at the front, in
//! order.

use sluice_base::Priority;
use sluice_switch::Egress;
use sluice_wire::vlan;

use crate::frame::{FrameBuf, frame_size, gather};
use crate::port::{Amount, Losses};

/// Number of frames staged before the kernel must take some, unless a driver has another one.
pub(crate) const STAGED_FRAMES_MAX: usize = 32;

/// Size of the destination and source addresses; a tag follows them.
pub(crate) const ADDRESSES_SIZE: usize = 12;

/// The ring of copies, with places for so many.
#[derive(Debug)]
pub(crate) struct Staging<const PLACES: usize = STAGED_FRAMES_MAX> {
    bytes: Box<[u8]>,
    sizes: [usize; PLACES],
    priorities: [Priority; PLACES],
    frame_size_max: usize,
    first: usize,
    amount: Amount,
}

/// Reason why a frame is not staged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStaged {
    /// There is no room; try again after a flush.
    Full,
    /// It is larger than any frame that this port can send.
    TooLarge,
}

impl<const PLACES: usize> Staging<PLACES> {
    pub(crate) fn new(frame_size_max: usize) -> Self {
        Self {
            bytes: vec![0; frame_size_max * PLACES].into_boxed_slice(),
            sizes: [0; PLACES],
            priorities: [Priority::ZERO; PLACES],
            frame_size_max,
            first: 0,
            amount: Amount::default(),
        }
    }

    /// Copies `frame` from byte `skip` of its header on.
    pub(crate) fn push(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        skip: usize,
    ) -> Result<(), NotStaged> {
        if self.len() == PLACES {
            return Err(NotStaged::Full);
        }
        let size = frame_size(frame) - skip;
        if size > self.frame_size_max {
            return Err(NotStaged::TooLarge);
        }
        let index = (self.first + self.len()) % PLACES;
        gather(frame, skip, &mut self.bytes[index * self.frame_size_max..][..size]);
        self.sizes[index] = size;
        self.priorities[index] = frame.priority;
        self.amount.add(size);
        Ok(())
    }

    /// Copies `frame` with a tag behind its addresses.
    pub(crate) fn push_tagged(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        tag: [u8; vlan::TAG_SIZE],
    ) -> Result<(), NotStaged> {
        if self.len() == PLACES {
            return Err(NotStaged::Full);
        }
        let size = tag.len() + frame_size(frame);
        if size > self.frame_size_max {
            return Err(NotStaged::TooLarge);
        }
        let index = (self.first + self.len()) % PLACES;
        let slot = &mut self.bytes[index * self.frame_size_max..][..size];
        // The addresses may stand in the header, in the payload, or in both: first the whole frame,
        // then its beginning once more.
        gather(frame, 0, &mut slot[tag.len()..]);
        slot.copy_within(tag.len()..tag.len() + ADDRESSES_SIZE, 0);
        slot[ADDRESSES_SIZE..][..tag.len()].copy_from_slice(&tag);
        self.sizes[index] = size;
        self.priorities[index] = frame.priority;
        self.amount.add(size);
        Ok(())
    }

    /// Number of staged frames.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.amount.frames).expect("at most `PLACES`")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.amount.frames == 0
    }

    pub(crate) fn amount(&self) -> Amount {
        self.amount
    }

    /// The place of the `nth` frame from the front, stable while it is staged.
    pub(crate) fn place(&self, nth: usize) -> usize {
        debug_assert!(nth < self.len());
        (self.first + nth) % PLACES
    }

    /// The bytes of the `nth` frame from the front.
    pub(crate) fn get(&self, nth: usize) -> &[u8] {
        let place = self.place(nth);
        &self.bytes[place * self.frame_size_max..][..self.sizes[place]]
    }

    /// Removes the first frame, which its device never takes.
    #[cold]
    pub(crate) fn refuse(&mut self, errno: i32, lost: &mut Losses) {
        let priority = self.priorities[self.first];
        lost.refuse(errno, priority, self.pop());
    }

    /// Removes the first frame and returns its size.
    pub(crate) fn pop(&mut self) -> usize {
        assert!(!self.is_empty(), "only staged frames are taken away");
        let size = self.sizes[self.first];
        self.first = (self.first + 1) % PLACES;
        self.amount.remove(size);
        size
    }

    /// Removes all frames.
    pub(crate) fn clear(&mut self) {
        self.amount = Amount::default();
    }
}

#[cfg(test)]
mod tests;
