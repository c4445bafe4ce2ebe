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
        match self.inputs.get(input.index()) {
            Some(i) => i.unreclaimed > 0,
            None => self.pool.has_ended(),
        }
    }

    /// Hands back handles of frames that have ended, sent or dropped, as many as fit into `out`,
    /// in no particular order.
    pub fn reclaim(&mut self, input: InputId, out: &mut Batch<B>) {
        if input != self.pool_input() {
            let i = &mut self.inputs[input.index()];
            let moved = out.refill(&mut i.ended, usize::MAX);
            let moved = u32::try_from(moved).expect("not above `unreclaimed`");
            i.unreclaimed -= moved;
            self.slots.leave(moved);
            self.note_excess(input.0);
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
        let Some(i) = self.inputs.get_mut(input.index()) else { return self.reclaim_slot(input) };
        if i.unreclaimed == 0 {
            return None;
        }
        let Some(buf) = i.ended.pop() else { return self.reclaim_slot(input) };
        i.unreclaimed -= 1;
        self.slots.leave(1);
        self.note_excess(input.0);
        Some(buf)
    }

    /// Hands back the handle on top of a stack of slots.
    #[cold]
    fn reclaim_slot(&mut self, input: InputId) -> Option<B> {
        let index = if let Some(i) = self.inputs.get_mut(input.index()) {
            let index = self.slots.stack_pop(&mut i.ended_slots)?;
            i.unreclaimed -= 1;
            index
        } else {
            let index = self.pool.pop_ended(&mut self.slots)?;
            self.leave_pool(index);
            index
        };
        let buf = self.slots.get_mut(index).buf.take().expect("an ended frame has its handle");
        self.slots.give_back(index);
        self.slots.leave(1);
        if input != self.pool_input() {
            self.note_excess(input.0);
        }
        Some(buf)
    }
}
