//! The arena of frames in the switch, and lists of them.
//!
//! A slot is taken when a frame has to wait in a list and given back when the frame has ended. The
//! slot that was given back last is taken next, so that few slots are in use and they stay in
//! cache. A separate count ([`Slots::free_count`]) bounds the handles and copies in the switch,
//! wherever they are: there is a slot for each of them, should it need one. Lists are threaded
//! through the slots by index, so that moving a frame costs two stores and no memory.

mod slot;

use alloc::boxed::Box;

use sluice_base::{Batch, Buf, Full};

use self::slot::NOT_REMOTE;
pub(crate) use self::slot::{Arrival, Slot};

/// No slot, no node.
pub(crate) const NIL: u32 = u32::MAX;

/// Owner of a slot's buffer, to which the handle goes back when the frame has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferOwner {
    /// The driver of its input. The frame counts against that input's window.
    Ring,
    /// The driver of its input, but the frame counts in the buffer of its (lossy) output.
    Output,
    /// The host pool.
    Pool,
    /// None: the slot has no handle of its own but shares that of another slot.
    Copy,
}

/// A first-in first-out list of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.head == NIL
    }

    /// Returns its first slot; [`NIL`] if it is empty.
    #[inline]
    pub(crate) const fn head(self) -> u32 {
        self.head
    }

    /// Returns true if it has this slot and no other.
    pub(crate) const fn is_only(self, slot: u32) -> bool {
        self.head == slot && self.tail == slot
    }

    /// Takes out all slots in front of `next`, which stands behind them; all with [`NIL`]. After
    /// the last of these steps comes [`Self::close`].
    #[inline]
    pub(crate) const fn advance_to(&mut self, next: u32) {
        self.head = next;
    }

    /// Ends a walk by [`Self::advance_to`].
    #[inline]
    pub(crate) const fn close(&mut self) {
        if self.head == NIL {
            self.tail = NIL;
        }
    }
}

/// The arena.
#[derive(Debug)]
pub(crate) struct Slots<B> {
    slots: Box<[Slot<B>]>,
    /// The stack of free slots.
    free: u32,
    /// Upper bound of the slots that were ever in use: those from here on are as they were made.
    taken_end: u32,
    /// Number of handles and copies that may still come in.
    free_count: u32,
    /// Number of slots that inputs use beyond their own.
    excess: u32,
    /// Number of slots that are not for lossy frames in buffers.
    reserved: u32,
}

impl<B> Slots<B> {
    /// Creates so many free slots, of which `reserved` are not for lossy frames in buffers.
    pub(crate) fn new(count: u32, reserved: u32) -> Self {
        let next = |at| if at + 1 == count { NIL } else { at + 1 };
        let slots = (0..count).map(|at| Slot::free(next(at))).collect();
        let free = if count == 0 { NIL } else { 0 };
        Self { slots, free, taken_end: 0, free_count: count, excess: 0, reserved }
    }

    /// Returns the slot that has the handle of a frame: the body of a copy, or the slot itself.
    #[inline]
    pub(crate) fn body_of<'a>(&'a self, slot: &'a Slot<B>) -> &'a Slot<B> {
        if slot.owner() == BufferOwner::Copy { self.get(slot.body()) } else { slot }
    }

    /// Begins to count the copies of a body.
    pub(crate) fn begin_copies(&mut self, body: u32) {
        self.get_mut(body).begin_copies();
    }

    /// Puts a copy of a body into a slot, which enters the switch.
    pub(crate) fn copy_of(&mut self, body: u32) -> u32 {
        self.enter(1);
        let index = self.take();
        let (metadata, segments) = (self.get(body).metadata(), self.get(body).segments());
        self.get_mut(index).become_copy_of(body, metadata, segments);
        self.get_mut(body).add_copy();
        index
    }

    /// Returns true if a body has copies.
    pub(crate) fn has_copies(&self, body: u32) -> bool {
        self.get(body).has_copies()
    }

    /// Gives a copy back. Returns its body.
    pub(crate) fn end_copy(&mut self, index: u32) -> u32 {
        debug_assert!(self.get(index).owner() == BufferOwner::Copy, "only copies have a body");
        let body = self.get(index).body();
        self.leave(1);
        self.give_back(index);
        self.get_mut(body).sub_copy();
        body
    }

    /// Puts a frame that entered the switch into a slot, charged to nothing yet.
    #[inline(always)]
    pub(crate) fn put(&mut self, input: u16, arrival: &Arrival, owner: BufferOwner, buf: B) -> u32
    where
        B: Buf,
    {
        let index = self.take();
        self.get_mut(index).fill(input, arrival, owner, buf);
        index
    }

    /// Puts a handle whose frame has ended at an input into a slot.
    pub(crate) fn put_ended(&mut self, input: u16, buf: B) -> u32 {
        let index = self.take();
        self.get_mut(index).keep_ended(input, buf);
        index
    }

    /// Changes the number of slots that an input uses beyond its own.
    #[inline]
    pub(crate) const fn change_excess(&mut self, before: u32, after: u32) {
        self.excess = self.excess - before + after;
    }

    /// Returns true if one more lossy frame in a buffer would take a slot that was promised to an
    /// input. Without excess the limits of the buffers prevent that.
    #[inline]
    pub(crate) const fn are_short(&self) -> bool {
        self.excess > 0 && self.free_count < self.reserved
    }

    /// Returns the number of lossy frames that may be buffered before slots are short.
    #[inline]
    pub(crate) const fn to_spare(&self) -> u32 {
        if self.excess == 0 {
            return u32::MAX;
        }
        self.free_count.saturating_sub(self.reserved)
    }

    /// Returns the number of handles and copies that may still come in.
    #[inline]
    pub(crate) const fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Counts handles or copies that come in. Too many are a programming error: a window promised
    /// every frame its place, and copies count against their own share.
    #[inline]
    pub(crate) fn enter(&mut self, count: u32) {
        let free = self.free_count.checked_sub(count);
        self.free_count = free.expect("frames were received that no window had promised to take");
    }

    /// Counts handles or copies that left.
    #[inline]
    pub(crate) fn leave(&mut self, count: u32) {
        self.free_count += count;
        debug_assert!(self.free_count as usize <= self.slots.len(), "more left than came in");
    }

    /// Returns the slots that other switches reference.
    pub(crate) fn remote(&self) -> impl Iterator<Item = &Slot<B>> {
        self.slots[..self.taken_end as usize].iter().filter(|slot| slot.remote_port() != NOT_REMOTE)
    }

    /// Returns the slots of frames that another switch has.
    pub(crate) fn remote_indices(&self) -> impl Iterator<Item = u32> {
        let all = (0..self.taken_end).zip(&self.slots);
        all.filter(|(_, slot)| slot.remote_port() != NOT_REMOTE).map(|(index, _)| index)
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns a free slot for a handle or copy that [`Self::enter`] counted.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        let mut free = self.free;
        let index = self.stack_pop(&mut free).expect("there is a slot for everything that entered");
        self.free = free;
        self.taken_end = self.taken_end.max(index + 1);
        index
    }

    /// Gives a slot back. Its handle must have been taken out.
    #[inline]
    pub(crate) fn give_back(&mut self, index: u32) {
        debug_assert!(self.slots[index as usize].buf().is_none(), "a handle would be lost");
        let mut free = self.free;
        self.stack_push(&mut free, index);
        self.free = free;
    }

    /// Moves the handle of a slot whose frame has ended to `ended` and gives the slot back, or, if
    /// there is no room, puts the slot on the stack `late`.
    #[inline]
    pub(crate) fn end(&mut self, index: u32, ended: &mut Batch<B>, late: &mut u32) {
        let slot = &mut self.slots[index as usize];
        let buf = slot.take_buf().expect("a frame that waited has its handle");
        match ended.push(buf) {
            Ok(()) => {
                slot.set_next(self.free);
                self.free = index;
            }
            Err(Full(buf)) => {
                slot.put_buf(buf);
                slot.set_next(*late);
                *late = index;
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot<B> {
        &self.slots[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot<B> {
        &mut self.slots[index as usize]
    }

    /// Adds `index` at the end of `list`.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, index: u32) {
        self.slots[index as usize].set_next(NIL);
        if list.head == NIL {
            list.head = index;
        } else {
            self.slots[list.tail as usize].set_next(index);
        }
        list.tail = index;
    }

    /// Returns a list of one slot.
    #[inline]
    pub(crate) fn single(&mut self, index: u32) -> List {
        self.slots[index as usize].set_next(NIL);
        List { head: index, tail: index }
    }

    /// Adds `index` in front of `list`.
    pub(crate) fn push_front(&mut self, list: &mut List, index: u32) {
        self.slots[index as usize].set_next(list.head);
        list.head = index;
        if list.tail == NIL {
            list.tail = index;
        }
    }

    /// Takes the first slot out of `list`.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<u32> {
        let index = list.head;
        if index == NIL {
            return None;
        }
        list.head = self.slots[index as usize].next();
        if list.head == NIL {
            list.tail = NIL;
        }
        Some(index)
    }

    /// Puts a slot on a stack. Writes nothing but the slot itself.
    #[inline]
    pub(crate) fn stack_push(&mut self, top: &mut u32, index: u32) {
        self.slots[index as usize].set_next(*top);
        *top = index;
    }

    /// Takes the slot on top of a stack.
    #[inline]
    pub(crate) fn stack_pop(&mut self, top: &mut u32) -> Option<u32> {
        let index = *top;
        if index == NIL {
            return None;
        }
        *top = self.slots[index as usize].next();
        Some(index)
    }

    /// Moves everything from `from` to the end of `list`.
    pub(crate) fn splice(&mut self, list: &mut List, from: List) {
        if from.head == NIL {
            return;
        }
        if list.head == NIL {
            list.head = from.head;
        } else {
            self.slots[list.tail as usize].set_next(from.head);
        }
        list.tail = from.tail;
    }

    /// Returns the slots of a list, first one first. It stops at the number of slots, so that the
    /// audit reports a list that a fault has closed to a circle instead of hanging.
    pub(crate) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        let mut at = list.head;
        let walk = core::iter::from_fn(move || {
            let index = at;
            if index == NIL {
                return None;
            }
            at = self.slots[index as usize].next();
            Some(index)
        });
        walk.take(self.slots.len())
    }
}
