//! The arena of frames that are in the switch, and the lists they stand in.
//!
//! A slot is taken when a frame is received and given back when the frame has ended, so that few
//! slots are in use and they stay in cache. A handle whose slot was given back early still counts
//! as one slot until it is reclaimed ([`Slots::free_count`]): what may be in the switch does not
//! depend on where it is kept. Lists are threaded through the slots by index, so that moving a
//! frame costs two stores and no memory.

use alloc::vec::Vec;

/// No slot, no node.
pub(crate) const NIL: u32 = u32::MAX;

/// Where a slot's handle has to go when the frame has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// To the driver of its input, and it counts against that input's window.
    Ring,
    /// To the driver of its input, but its frame waits in the buffer of its (lossy) output.
    Output,
    /// Into the host pool.
    Pool,
    /// Nowhere: it has no handle of its own but shares that of another slot.
    Copy,
}

/// One frame. `bytes` is its size as received, which is what the audit counts. Aligned so that it
/// lies in one cache line (with a handle of up to 24 bytes).
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot<B> {
    pub(crate) buf: Option<B>,
    pub(crate) next: u32,
    pub(crate) bytes: u32,
    /// For [`Home::Copy`] the slot that owns the handle; for that slot the number of its copies.
    pub(crate) shared: u32,
    pub(crate) input: u16,
    pub(crate) source: u16,
    pub(crate) vnet: u16,
    /// Bytes in front of the tenant's frame (the outer headers it came in).
    pub(crate) strip: u16,
    pub(crate) priority: u8,
    pub(crate) home: Home,
    /// What the inner ECN field must become, if it must change (RFC 6040 section 4.2).
    pub(crate) ecn: Option<u8>,
}

/// A first-in first-out list of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    pub(crate) const fn is_empty(self) -> bool {
        self.head == NIL
    }
}

/// The arena.
#[derive(Debug)]
pub(crate) struct Slots<B> {
    slots: Vec<Slot<B>>,
    /// Free slots. A stack beside the slots and not through them: the next free one is known
    /// without reading the memory of the last.
    free: Vec<u32>,
    /// Handles in the switch that lie in no slot.
    loose: u32,
}

impl<B> Slots<B> {
    pub(crate) fn new(count: u32) -> Self {
        let slots = (0..count)
            .map(|_| Slot {
                buf: None,
                next: NIL,
                bytes: 0,
                shared: NIL,
                input: 0,
                source: 0,
                vnet: 0,
                strip: 0,
                priority: 0,
                home: Home::Ring,
                ecn: None,
            })
            .collect();
        Self { slots, free: (0..count).rev().collect(), loose: 0 }
    }

    /// How many more handles the switch may hold.
    pub(crate) fn free_count(&self) -> u32 {
        let free = u32::try_from(self.free.len()).expect("as many as slots at most");
        free.saturating_sub(self.loose)
    }

    /// So many handles more are in the switch without a slot.
    #[inline]
    pub(crate) fn loosen(&mut self, count: u32) {
        self.loose += count;
        debug_assert!(self.loose as usize <= self.free.len(), "more handles than were promised");
    }

    /// So many handles without a slot got one, or left the switch.
    #[inline]
    pub(crate) fn fasten(&mut self, count: u32) {
        debug_assert!(self.loose >= count, "a handle without a slot was never counted");
        self.loose -= count;
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// A free slot. Running out is a programming error: every frame that enters was promised its
    /// slot by a window, and copies are counted against their own share.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().expect("a frame was received that no window had promised to take")
    }

    /// Gives a slot back. Its handle must have been taken out.
    #[inline]
    pub(crate) fn give_back(&mut self, index: u32) {
        debug_assert!(self.slots[index as usize].buf.is_none(), "a handle would be lost");
        debug_assert!(self.free.len() < self.slots.len(), "a slot came back twice");
        self.free.push(index);
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
        self.slots[index as usize].next = NIL;
        if list.head == NIL {
            list.head = index;
        } else {
            self.slots[list.tail as usize].next = index;
        }
        list.tail = index;
    }

    /// Takes the first slot out of `list`.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<u32> {
        let index = list.head;
        if index == NIL {
            return None;
        }
        list.head = self.slots[index as usize].next;
        if list.head == NIL {
            list.tail = NIL;
        }
        Some(index)
    }

    /// Puts a slot on a stack. Nothing but the slot itself is touched.
    #[inline]
    pub(crate) fn stack_push(&mut self, top: &mut u32, index: u32) {
        self.slots[index as usize].next = *top;
        *top = index;
    }

    /// Takes the slot on top of a stack.
    #[inline]
    pub(crate) fn stack_pop(&mut self, top: &mut u32) -> Option<u32> {
        let index = *top;
        if index == NIL {
            return None;
        }
        *top = self.slots[index as usize].next;
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
            self.slots[list.tail as usize].next = from.head;
        }
        list.tail = from.tail;
    }

    /// The slots of a list, first one first; no more than there are, so that a list that a fault
    /// has closed to a circle shows in the audit instead of stopping it.
    pub(crate) fn walk(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        let mut at = list.head;
        let walk = core::iter::from_fn(move || {
            let index = at;
            if index == NIL {
                return None;
            }
            at = self.slots[index as usize].next;
            Some(index)
        });
        walk.take(self.slots.len())
    }
}
