//! Return of the handles of frames that have ended, sent or dropped.
//!
//! Handles of an input are in its list of ended handles, and, beyond that list's room, on a stack
//! of slots. Handles of the host pool are on a stack of slots only; their memory is free once they
//! are handed back.

use sluice_base::{Batch, Buf, InputId};

use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Returns true if [`Self::reclaim`] has something for this input.
    #[inline]
    #[must_use]
    pub fn has_ended(&self, input: InputId) -> bool {
        match self.ingress.inputs().get(input.index()) {
            Some(i) => i.unreclaimed() > 0,
            None => self.pool.has_ended(),
        }
    }

    /// Hands back handles of frames that have ended, sent or dropped, as many as fit into `out`,
    /// in no particular order.
    pub fn reclaim(&mut self, input: InputId, out: &mut Batch<B>) {
        if input != self.pool_input() {
            self.ingress.reclaim(&mut self.slots, input.0, out);
        }
        while out.room() > 0 && self.has_ended(input) {
            let Some(buf) = self.reclaim_slot(input) else { break };
            let pushed = out.push(buf);
            debug_assert!(pushed.is_ok(), "there was room");
        }
    }

    /// Hands back one handle, for a driver that reclaims in every turn.
    #[inline]
    pub fn reclaim_one(&mut self, input: InputId) -> Option<B> {
        if !self.has_ended(input) {
            return None;
        }
        if input != self.pool_input()
            && let Some(buf) = self.ingress.reclaim_one(&mut self.slots, input.0)
        {
            return Some(buf);
        }
        self.reclaim_slot(input)
    }

    /// Hands back the handle on top of a stack of slots.
    #[cold]
    fn reclaim_slot(&mut self, input: InputId) -> Option<B> {
        let index = if input != self.pool_input() {
            self.ingress.reclaim_slot(&mut self.slots, input.0)?
        } else {
            let index = self.pool.pop_ended(&mut self.slots)?;
            self.pool.free(&self.slots, &mut self.ingress, index);
            index
        };
        let buf = self.slots.get_mut(index).take_buf().expect("an ended frame has its handle");
        self.slots.give_back(index);
        self.slots.leave(1);
        if input != self.pool_input() {
            self.ingress.note_excess(&mut self.slots, input.0);
        }
        Some(buf)
    }
}
