//! Ingress: the places at which frames come in, what waits in their memory, and the handles that
//! go back to their drivers.
//!
//! This module owns the inputs, with the share of one that a queue may hold. Nobody else changes
//! them. It knows no output: what an input holds is counted here when the switch charges a frame,
//! and flow control is told by the switch.

mod share;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use sluice_base::{Batch, ByteCount, Full as BatchFull, PortId, Priority, PriorityMask};

use crate::config::{InputFull, Limit, PortRole, SwitchConfig};
use crate::egress::Key;
use crate::inspect::Marks;
use crate::place::{Full, Held, NO_PORT, NO_VNET};
use crate::sizes::{CONTROL_FRAMES, own_slots, priorities_of};
use crate::slots::{BufferOwner, List, NIL, Slots};

use self::share::PairShare;

/// Number of queues beyond their share that an input remembers. A queue that is not remembered is
/// found when its next frame comes.
const OVER_MAX: usize = 16;

/// The inputs of a switch.
#[derive(Debug)]
pub(crate) struct Ingress<B> {
    inputs: Box<[Input<B>]>,
    pair_share: PairShare,
}

/// An input. Every frame touches the first cache line; the second is touched when a frame is
/// charged and when it ends.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Input<B> {
    /// Frames that wait in this input's own memory and count against its window.
    held: Held,
    limit: Limit,
    /// Number of handles that ended and were not reclaimed yet, in `ended` and `ended_slots`.
    unreclaimed: u32,
    full: Full,
    port: u16,
    /// The network of its port; [`NO_VNET`] for the underlay and for
    /// control.
    vnet: u16,
    from_underlay: bool,
    /// Inputs that pause: the priorities with frames.
    holding: PriorityMask,
    /// Frames that could not even be queued as unresolved; in order, and no frame passes them.
    deferred: List,
    /// Stack of slots whose handles found no room in `ended`. Only lossy frames can be so many,
    /// since they wait in outputs and not in their input.
    ended_slots: u32,
    /// Handles that ended and were not reclaimed yet, at most as many as the input has slots of its
    /// own.
    ended: Batch<B>,
    marks: Marks,
    /// Number of slots that it uses beyond its own: lossy frames that waited in an output's share
    /// of the slots, ended, and were not reclaimed yet.
    excess: u32,
    /// Frames to be replicated once they are in the host pool.
    awaiting: List,
    /// Queues of this input that have outgrown their share, as far as the list has room.
    over: Vec<Key>,
    /// Frames of this input that wait in the host pool.
    pooled_frames: u32,
    /// The priorities that its frames may have. Only careful ports have inputs that are limited to
    /// some.
    priorities: PriorityMask,
    /// True if it may hold frames for isolated receivers, which belong into the reserve.
    sweep: bool,
}

impl<B> Input<B> {
    /// Returns an empty input of a port and a network, which has so many slots of its own.
    pub(crate) fn new(
        (port, vnet): (u16, u16),
        (limit, full): (Limit, InputFull),
        own_slots: u32,
        priorities: PriorityMask,
    ) -> Self {
        Self {
            port,
            limit,
            full: full.into(),
            from_underlay: false,
            vnet,
            holding: PriorityMask::NONE,
            held: Held::default(),
            unreclaimed: 0,
            ended: Batch::with_limit(own_slots as usize),
            excess: 0,
            ended_slots: NIL,
            awaiting: List::EMPTY,
            deferred: List::EMPTY,
            over: Vec::with_capacity(OVER_MAX),
            pooled_frames: 0,
            priorities,
            marks: Marks::default(),
            sweep: false,
        }
    }

    /// Makes the input one of the underlay.
    pub(crate) fn of_underlay(self) -> Self {
        Self { from_underlay: true, ..self }
    }

    /// Makes the input one of another switch: each handle goes back with its remote reference,
    /// which is in a slot.
    pub(crate) fn of_handoff(self) -> Self {
        Self { ended: Batch::with_limit(0), ..self }
    }

    /// Returns the frames that wait in its memory.
    #[inline]
    pub(crate) const fn held(&self) -> Held {
        self.held
    }

    #[inline]
    pub(crate) const fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns the number of handles that ended and were not reclaimed yet.
    #[inline]
    pub(crate) const fn unreclaimed(&self) -> u32 {
        self.unreclaimed
    }

    #[inline]
    pub(crate) const fn full(&self) -> Full {
        self.full
    }

    /// Returns its port; [`NO_PORT`] for control.
    #[inline]
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    #[inline]
    pub(crate) const fn vnet(&self) -> u16 {
        self.vnet
    }

    #[inline]
    pub(crate) const fn is_from_underlay(&self) -> bool {
        self.from_underlay
    }

    /// Returns the priorities with frames, if it pauses.
    #[inline]
    pub(crate) const fn holding(&self) -> PriorityMask {
        self.holding
    }

    /// Returns the priorities that its frames may have.
    #[inline]
    pub(crate) const fn priorities(&self) -> PriorityMask {
        self.priorities
    }

    pub(crate) const fn marks(&self) -> Marks {
        self.marks
    }

    /// Returns the number of its frames in the host pool.
    pub(crate) const fn pooled_frames(&self) -> u32 {
        self.pooled_frames
    }

    /// Returns true if frames of it may belong into the reserve.
    #[inline]
    pub(crate) const fn needs_sweep(&self) -> bool {
        self.sweep
    }

    /// Returns true if a queue of it has outgrown its share.
    #[inline]
    pub(crate) fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Returns true if several senders share it.
    #[inline]
    pub(crate) const fn is_shared(&self) -> bool {
        self.from_underlay || !matches!(self.full, Full::Wait)
    }

    /// Returns true if a frame of one of the lossless priorities may find it full: it reads on
    /// without pausing the sender.
    #[inline]
    pub(crate) fn may_be_full(&self, lossless: PriorityMask) -> bool {
        match self.full {
            Full::Wait => false,
            Full::Drop => !lossless.is_empty(),
            Full::Pause(priorities) => !lossless.without(priorities).is_empty(),
        }
    }

    /// Returns the frames that could not be queued, which no frame passes.
    #[inline]
    pub(crate) const fn deferred(&self) -> List {
        self.deferred
    }

    /// Returns the frames that wait to be replicated.
    #[inline]
    pub(crate) const fn awaiting(&self) -> List {
        self.awaiting
    }

    /// Returns the slot on top of the stack of those with ended handles.
    pub(crate) const fn ended_slot(&self) -> u32 {
        self.ended_slots
    }

    /// Returns true if no frame and no handle of it is in the switch, but for copies.
    pub(crate) const fn is_clear(&self) -> bool {
        self.unreclaimed == 0
            && self.held.frames == 0
            && self.pooled_frames == 0
            && self.awaiting.is_empty()
            && self.deferred.is_empty()
    }

    /// Counts frames of one buffer owner that ended, and whose handles are to be reclaimed. Frames
    /// that waited in its memory leave it.
    #[inline(always)]
    fn end(&mut self, slots: &mut Slots<B>, owner: BufferOwner, sum: Held) {
        self.unreclaimed += sum.frames;
        if owner == BufferOwner::Ring {
            self.release(sum);
        } else {
            self.note_excess(slots);
        }
    }

    #[inline]
    const fn release(&mut self, sum: Held) {
        self.held.frames -= sum.frames;
        self.held.bytes -= sum.bytes;
    }

    /// Updates the number of slots that it uses beyond its own.
    #[inline]
    fn note_excess(&mut self, slots: &mut Slots<B>) {
        let excess = (self.held.frames + self.unreclaimed).saturating_sub(self.slots_max());
        if excess != self.excess {
            slots.change_excess(self.excess, excess);
            self.excess = excess;
        }
    }

    /// Returns the number of its own slots.
    #[inline]
    fn slots_max(&self) -> u32 {
        // An input that tells its handles apart has all of them in slots.
        match self.ended.limit() {
            0 => self.limit.frames,
            // Made from a `u32` in `build`.
            limit => u32::try_from(limit).unwrap_or(u32::MAX),
        }
    }
}

impl<B> Ingress<B> {
    /// Makes the inputs of a configuration.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        Self { inputs: make_inputs(config), pair_share: PairShare::new(config.pool.pair_share) }
    }

    /// Returns the number of inputs, with that of control.
    #[inline]
    pub(crate) const fn count(&self) -> usize {
        self.inputs.len()
    }

    pub(crate) const fn inputs(&self) -> &[Input<B>] {
        &self.inputs
    }

    #[inline]
    pub(crate) fn input(&self, input: u16) -> &Input<B> {
        &self.inputs[usize::from(input)]
    }

    #[inline]
    fn input_mut(&mut self, input: u16) -> &mut Input<B> {
        &mut self.inputs[usize::from(input)]
    }

    /// Gives an input to a new port of a network. One without a queue of the port has no window.
    pub(crate) fn occupy(
        &mut self,
        input: u16,
        vnet: u16,
        queue: Option<(Limit, InputFull)>,
        priorities: PriorityMask,
    ) {
        let input = self.input_mut(input);
        debug_assert!(input.excess == 0 && input.holding.is_empty(), "nothing is held");
        (input.vnet, input.priorities, input.marks) = (vnet, priorities, Marks::default());
        let none = Limit { frames: 0, bytes: ByteCount::ZERO };
        (input.limit, input.full) =
            queue.map_or((none, Full::Wait), |(limit, full)| (limit, full.into()));
    }

    /// Takes the high-water marks of an input, which migrates.
    pub(crate) fn take_marks(&mut self, input: u16) -> Marks {
        mem::take(&mut self.input_mut(input).marks)
    }

    /// Raises the high-water marks of an input to those of the same input elsewhere.
    pub(crate) fn add_marks(&mut self, input: u16, marks: Marks) {
        self.input_mut(input).marks.rise_to(marks);
    }

    /// Counts frames of a priority that wait in the memory of an input from now on. Returns the
    /// input.
    #[inline]
    pub(crate) fn hold(&mut self, input: u16, priority: u8, sum: Held) -> &Input<B> {
        let i = self.input_mut(input);
        i.held.frames += sum.frames;
        i.held.bytes += sum.bytes;
        i.marks.rise(i.held.frames, i.held.bytes);
        if let Full::Pause(_) = i.full {
            i.holding.insert(Priority::from_low_bits(priority));
        }
        i
    }

    /// Counts frames that left the memory of an input. Returns the input.
    #[inline]
    pub(crate) fn release(&mut self, input: u16, sum: Held) -> &Input<B> {
        let i = self.input_mut(input);
        i.release(sum);
        i
    }

    /// Notes that no frame of a priority waits at an input that pauses.
    #[inline]
    pub(crate) fn drained(&mut self, input: u16, priority: Priority) {
        self.input_mut(input).holding.remove(priority);
    }

    /// Counts frames of one buffer owner that ended, and whose handles are to be reclaimed. Frames
    /// that waited in the memory of the input leave it. Returns the input's behaviour when it is
    /// full.
    #[inline(always)]
    pub(crate) fn end(
        &mut self,
        slots: &mut Slots<B>,
        input: u16,
        owner: BufferOwner,
        sum: Held,
    ) -> Full {
        let i = self.input_mut(input);
        i.end(slots, owner, sum);
        i.full
    }

    /// Moves the handle of a slot to those that the driver has back, and frees the slot.
    #[inline]
    pub(crate) fn hand_back_slot(&mut self, slots: &mut Slots<B>, input: u16, index: u32) {
        let i = self.input_mut(input);
        slots.end(index, &mut i.ended, &mut i.ended_slots);
    }

    /// Ends a frame without a slot as [`Self::end`]: its handle is one that the driver has back.
    #[inline(always)]
    pub(crate) fn end_loose(
        &mut self,
        slots: &mut Slots<B>,
        input: u16,
        (owner, bytes): (BufferOwner, u32),
        buf: B,
    ) -> Full {
        let i = self.input_mut(input);
        let full = i.full;
        i.end(slots, owner, Held { frames: 1, bytes: bytes.into() });
        if let Err(BatchFull(buf)) = i.ended.push(buf) {
            self.end_late(slots, input, buf);
        }
        full
    }

    /// Keeps a handle that ended in a slot: lossy frames of an input ended faster than it reclaims
    /// them, and the handles beyond its own slots wait in slots of its outputs.
    #[cold]
    fn end_late(&mut self, slots: &mut Slots<B>, input: u16, buf: B) {
        let index = slots.put_ended(input, buf);
        slots.stack_push(&mut self.input_mut(input).ended_slots, index);
    }

    /// Moves handles that ended and have no slot to their driver, as many as fit.
    pub(crate) fn reclaim(&mut self, slots: &mut Slots<B>, input: u16, out: &mut Batch<B>) {
        let i = self.input_mut(input);
        let moved = out.refill(&mut i.ended, usize::MAX);
        let moved = u32::try_from(moved).expect("not above `unreclaimed`");
        i.unreclaimed -= moved;
        slots.leave(moved);
        i.note_excess(slots);
    }

    /// Returns a handle that ended and has no slot.
    #[inline]
    pub(crate) fn reclaim_one(&mut self, slots: &mut Slots<B>, input: u16) -> Option<B> {
        let i = self.input_mut(input);
        let buf = i.ended.pop()?;
        i.unreclaimed -= 1;
        slots.leave(1);
        i.note_excess(slots);
        Some(buf)
    }

    /// Returns a slot with a handle that ended.
    pub(crate) fn reclaim_slot(&mut self, slots: &mut Slots<B>, input: u16) -> Option<u32> {
        let i = self.input_mut(input);
        let index = slots.stack_pop(&mut i.ended_slots)?;
        i.unreclaimed -= 1;
        Some(index)
    }

    /// Updates the number of slots that an input uses beyond its own.
    pub(crate) fn note_excess(&mut self, slots: &mut Slots<B>, input: u16) {
        self.input_mut(input).note_excess(slots);
    }

    /// Puts a frame at the end of those that could not be queued.
    pub(crate) fn defer(&mut self, slots: &mut Slots<B>, input: u16, slot: u32) {
        slots.push(&mut self.input_mut(input).deferred, slot);
    }

    /// Takes the frames that could not be queued.
    pub(crate) fn take_deferred(&mut self, input: u16) -> List {
        mem::replace(&mut self.input_mut(input).deferred, List::EMPTY)
    }

    /// Puts a frame at the end of those that wait to be replicated.
    pub(crate) fn await_copies(&mut self, slots: &mut Slots<B>, input: u16, slot: u32) {
        slots.push(&mut self.input_mut(input).awaiting, slot);
    }

    /// Takes the frames that wait to be replicated.
    pub(crate) fn take_awaiting(&mut self, input: u16) -> List {
        mem::replace(&mut self.input_mut(input).awaiting, List::EMPTY)
    }

    /// Remembers a queue beyond its share, if there is room.
    pub(crate) fn note_over(&mut self, input: u16, key: Key) {
        let over = &mut self.input_mut(input).over;
        if over.len() < OVER_MAX && !over.contains(&key) {
            over.push(key);
        }
    }

    /// Returns a queue beyond its share by its place in the list.
    pub(crate) fn over_at(&self, input: u16, at: usize) -> Option<Key> {
        self.input(input).over.get(at).copied()
    }

    /// Forgets the queue at a place of the list; the last one takes its place.
    pub(crate) fn forget_over_at(&mut self, input: u16, at: usize) {
        self.input_mut(input).over.swap_remove(at);
    }

    /// Forgets all queues beyond their share.
    pub(crate) fn forget_over(&mut self, input: u16) {
        self.input_mut(input).over.clear();
    }

    /// Sets whether frames of an input may belong into the reserve.
    pub(crate) fn set_sweep(&mut self, input: u16, sweep: bool) {
        self.input_mut(input).sweep = sweep;
    }

    /// Counts a frame of an input that is in the host pool from now on.
    pub(crate) fn enter_pool(&mut self, input: u16) {
        self.input_mut(input).pooled_frames += 1;
    }

    /// Counts a frame of an input that left the host pool.
    pub(crate) fn leave_pool(&mut self, input: u16) {
        self.input_mut(input).pooled_frames -= 1;
    }
}

/// Returns the inputs of a configuration, that of control last.
fn make_inputs<B>(config: &SwitchConfig) -> Box<[Input<B>]> {
    let input = |place, limit: Limit, full, priorities| {
        Input::new(place, (limit, full), own_slots(limit.frames, full), priorities)
    };
    // Allocates all inputs at once, so that their own memory does not lie before or between them.
    let queues: usize = config.ports.iter().map(|port| usize::from(port.queues)).sum();
    let mut inputs = Vec::with_capacity(queues + 1);
    for (at, port) in config.ports.iter().enumerate() {
        let vnet = match port.role {
            PortRole::Access { vnet } => vnet.0,
            PortRole::Underlay { .. } | PortRole::Handoff => NO_VNET,
        };
        for queue in 0..port.queues {
            let (id, priorities) = (PortId::from_index(at).0, priorities_of(port, queue));
            let input = input((id, vnet), port.input, port.input_full, priorities);
            inputs.push(match port.role {
                PortRole::Access { .. } => input,
                PortRole::Underlay { .. } => input.of_underlay(),
                PortRole::Handoff => input.of_handoff(),
            });
        }
    }
    let control = Limit { frames: CONTROL_FRAMES, bytes: ByteCount(u64::MAX) };
    inputs.push(input((NO_PORT, NO_VNET), control, InputFull::Wait, PriorityMask::ALL));
    inputs.into()
}
