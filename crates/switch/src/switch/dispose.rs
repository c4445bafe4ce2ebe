//! What becomes of a frame: decided in one place, and carried out in one.
//!
//! The first line that holds decides:
//!
//! | frame | lossless | lossy |
//! |---|---|---|
//! | a broadcast beyond its budget | `storm_limit` | the same |
//! | for a group | waits at its input for its copies; `input_full` | the same |
//! | its input is full and reads on | `input_full` | - |
//! | a frame of its input is deferred | is deferred behind it | the same; `input_full` |
//! | its destination is not known | waits for it, or is deferred | waits, or `unresolved_full` |
//! | its destination is held: not its priority | as if it were not held | the same |
//! | its destination is held and stuck | `receiver_stuck` | - |
//! | back to where it came from | `same_port`, `split_horizon` | the same |
//! | its port is gone | `stopped` | the same |
//! | its output is full | - | `output_full` |
//! | its receiver is isolated and takes no more | `receiver_stuck` | - |
//! | any other | is queued | the same |

use sluice_base::{Buf, DropReason, Mac, Nanos, Priority};
use sluice_wire::ethernet;

use crate::egress::{EgressTables, Room};
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::{Full, Held, NO_PORT};
use crate::slots::{Arrival, BufferOwner, List};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

/// What becomes of a frame.
#[derive(Clone, Copy)]
pub(crate) enum Disposition {
    /// It is queued for this queue group.
    Queue(u32),
    /// It is queued for this queue group, whose receiver is isolated.
    QueueIsolated(u32),
    /// It waits in this queue group until its destination is known.
    Wait(u32),
    /// It waits at its input, and no frame passes it.
    Defer,
    /// It waits at its input until it is in the host pool, for its copies.
    Replicate,
    /// It was for the switch itself, or control took it.
    Consume,
    /// It ends.
    Drop(DropReason),
}

impl<B: Buf> Switch<B> {
    /// Forwards a tenant's frame, whose slot is charged to nothing yet.
    pub(crate) fn forward(&mut self, now: Nanos, slot: u32, dst: Mac) {
        let disposition = self.dispose(now, slot, dst);
        self.settle(slot, disposition);
    }

    /// Decides about a tenant's frame, whose slot is charged to nothing yet. Charges a lossless one
    /// to its input.
    #[inline]
    pub(crate) fn dispose(&mut self, now: Nanos, slot: u32, dst: Mac) -> Disposition {
        if dst.is_group() {
            if dst == Mac::BROADCAST && self.is_storm(now, slot) {
                return Disposition::Drop(DropReason::StormLimit);
            }
            return Disposition::Replicate;
        }
        let priority = Priority::from_low_bits(self.slots.get(slot).priority());
        if self.egress.owner_of(priority) == BufferOwner::Ring {
            if self.input_is_full(slot) {
                return Disposition::Drop(DropReason::InputFull);
            }
            self.hold_at_input(slot);
        }
        self.route(now, slot, dst)
    }

    /// Decides about a frame that is charged, by its destination.
    #[inline]
    pub(crate) fn route(&mut self, now: Nanos, slot: u32, dst: Mac) -> Disposition {
        let s = self.slots.get(slot);
        let (vnet, input) = (s.vnet(), s.input());
        // No frame may pass one that could not be queued: both might be of the same pair.
        if !self.ingress.input(input).deferred().is_empty() {
            return Disposition::Defer;
        }
        match self.fdb.lookup(mac_table::key(vnet, dst)) {
            Some(group) => self.admit(slot, group),
            None => self.miss(now, slot, dst),
        }
    }

    /// Decides about a frame for a queue group with a destination.
    #[inline]
    pub(crate) fn admit(&self, slot: u32, group: u32) -> Disposition {
        if !self.egress.group(group).is_plain() {
            return self.admit_slowly(slot, group);
        }
        match self.refusal(slot, group) {
            Some(reason) => Disposition::Drop(reason),
            None => Disposition::Queue(group),
        }
    }

    /// Decides as [`Self::admit`], for a queue group that is not plain: its receiver may be
    /// isolated, here or at its own host.
    fn admit_slowly(&self, slot: u32, group: u32) -> Disposition {
        let group = match self.egress.group(group).kind() {
            QueueGroupKind::Held(_) => match self.group_beyond_hold(slot, group) {
                Ok(group) => group,
                Err(reason) => return Disposition::Drop(reason),
            },
            _ => group,
        };
        if let Some(reason) = self.refusal(slot, group) {
            return Disposition::Drop(reason);
        }
        let (port, priority) = (self.egress.group(group).port(), self.slots.get(slot).priority());
        if !self.is_isolated(port, priority) {
            return Disposition::Queue(group);
        }
        match self.refused_by_isolation(slot, group) {
            Some(reason) => Disposition::Drop(reason),
            None => Disposition::QueueIsolated(group),
        }
    }

    /// Returns the reason why a frame may not go to a queue group with a destination.
    #[inline]
    pub(crate) fn refusal(&self, slot: u32, group: u32) -> Option<DropReason> {
        let s = self.slots.get(slot);
        let l = self.egress.group(group);
        let input = self.ingress.input(s.input());
        if l.port() == input.port() {
            let is_tunnel = l.is_behind_tunnel();
            return Some(if is_tunnel { DropReason::SplitHorizon } else { DropReason::SamePort });
        }
        if l.is_behind_tunnel() && input.is_from_underlay() {
            return Some(DropReason::SplitHorizon);
        }
        if self.egress.port(usize::from(l.port())).is_detached() {
            return Some(DropReason::Stopped);
        }
        if self.is_offloaded(input.port(), l.port()) {
            return Some(DropReason::SplitHorizon);
        }
        (!self.room(group, s.owner()).takes(s.bytes())).then_some(DropReason::OutputFull)
    }

    /// Returns true if a device forwards from a port to another one by itself.
    #[inline]
    pub(crate) fn is_offloaded(&self, from: u16, to: u16) -> bool {
        let is_of_device =
            |port| port != NO_PORT && self.egress.port(usize::from(port)).is_offloaded();
        is_of_device(to) && is_of_device(from)
    }

    /// Carries out what was decided about a frame, whose slot stands in no list.
    #[inline]
    pub(crate) fn settle(&mut self, slot: u32, disposition: Disposition) {
        match disposition {
            Disposition::Queue(group) => self.enqueue(slot, group),
            Disposition::QueueIsolated(group) => {
                let s = self.slots.get(slot);
                let (input, source, priority) = (s.input(), s.source(), s.priority());
                self.enqueue(slot, group);
                let port = self.egress.group(group).port();
                self.joined_isolated(port, priority, input, source);
            }
            Disposition::Wait(group) => self.put_frame(slot, group),
            Disposition::Defer => self.defer(slot),
            Disposition::Replicate => self.hold_for_replication(slot),
            Disposition::Consume => self.consume(slot),
            Disposition::Drop(reason) => self.drop_frame(slot, reason),
        }
    }

    /// Returns the room of an output for frames of one buffer owner.
    #[inline]
    pub(crate) fn room(&self, group: u32, owner: BufferOwner) -> Room {
        self.egress.room(group, owner, self.slots.to_spare())
    }

    /// Makes a frame wait in the memory of its input.
    #[inline]
    pub(crate) fn hold_at_input(&mut self, slot: u32) {
        self.slots.get_mut(slot).wait_in_ring();
        self.charge_input(slot);
    }

    /// Puts a frame at the end of the deferred ones of its input, which could not be queued.
    fn defer(&mut self, slot: u32) {
        if self.slots.get(slot).owner() == BufferOwner::Output {
            if self.input_is_full(slot) {
                self.drop_frame(slot, DropReason::InputFull);
                return;
            }
            // A frame that waits at its input counts there, whatever its class.
            self.hold_at_input(slot);
        }
        let input = self.slots.get(slot).input();
        self.ingress.defer(&mut self.slots, input, slot);
    }

    /// Queues a frame that waits for its copies. The frame counts against its input until then.
    #[cold]
    fn hold_for_replication(&mut self, slot: u32) {
        let input = self.slots.get(slot).input();
        if self.ingress.input(input).full() != Full::Drop && self.input_is_full(slot) {
            self.drop_frame(slot, DropReason::InputFull);
            return;
        }
        self.hold_at_input(slot);
        self.ingress.await_copies(&mut self.slots, input, slot);
    }

    /// Ends a frame that was for the switch itself.
    fn consume(&mut self, slot: u32) {
        let s = self.slots.get(slot);
        self.ledger.consume(s.input(), s.priority(), Counter::of(s.bytes()));
        self.end(slot);
    }

    /// Returns true if a frame finds the buffer of its input full and must be dropped there. Only
    /// inputs that read on can be found full; the others were never read beyond their window.
    #[inline]
    fn input_is_full(&self, slot: u32) -> bool {
        let s = self.slots.get(slot);
        let input = self.ingress.input(s.input());
        let held = match input.full() {
            Full::Wait => return false,
            Full::Drop => input.held(),
            Full::Pause(paused) if paused.contains(Priority::from_low_bits(s.priority())) => {
                return false;
            }
            Full::Pause(paused) => self.ledger.held_unpaused(s.input(), paused),
        };
        let limit = input.limit();
        held.frames >= limit.frames || held.bytes + u64::from(s.bytes()) > limit.bytes.0
    }

    /// Puts a frame at the end of its queue group's common queue or of its (source, queue group,
    /// priority) queue.
    #[inline]
    pub(crate) fn enqueue(&mut self, slot: u32, group: u32) {
        let input = self.slots.get(slot).input();
        debug_assert!(!self.is_handoff(input), "nothing would know the reference any more");
        let vnet = self.ingress.input(input).vnet();
        if !self.egress.join_common(&mut self.slots, slot, group, vnet) {
            self.enqueue_leaf(slot, group);
        }
    }

    /// Puts a frame at the end of its (source, queue group, priority) queue.
    #[inline]
    pub(crate) fn enqueue_leaf(&mut self, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let (queue, owner) = ((group, s.source(), s.priority()), s.owner());
        let sum = Held { frames: 1, bytes: s.bytes().into() };
        let list = self.slots.single(slot);
        self.push_queue(queue, list, sum, owner);
    }

    /// Puts frames with one buffer owner at the end of a (source, queue group, priority) queue.
    #[inline]
    pub(crate) fn push_queue(
        &mut self,
        queue: (u32, u16, u8),
        list: List,
        sum: Held,
        owner: BufferOwner,
    ) {
        let leaf = self.egress.push_queue(&mut self.slots, queue, list, sum, owner);
        if self.ingress.may_be_over(self.egress.queue(leaf)) {
            self.note_share(list.head(), leaf);
        }
    }

    /// Moves frames that wait for a queue group in common queues into queues of their sources, in
    /// front of the frames there, which are younger.
    pub(crate) fn leave_common(&mut self, group: u32) {
        let at = usize::from(self.egress.group(group).port());
        for priority in Priority::all() {
            let goes = |egress: &EgressTables<B>, tag| egress.group_of_tag(at, tag) == group;
            let taken = self.egress.take_common(at, priority, goes);
            let slots = taken.map(|frame| {
                let (buf, tag) = frame?;
                let source = self.egress.source_of_tag(at, tag);
                let (vnet, strip) = (self.ingress.input(tag.input()).vnet(), tag.strip().into());
                let arrival = Arrival { source, vnet, strip, priority, ecn: None };
                Some(self.slots.put(tag.input(), &arrival, tag.owner(), buf))
            });
            for slot in slots.into_iter().rev().flatten() {
                let leaf = self.egress.put_first(&mut self.slots, slot, group);
                self.note_share(slot, leaf);
            }
        }
    }

    /// Reads the destination of a frame that waits.
    pub(crate) fn destination_of(&self, slot: u32) -> Mac {
        let s = self.slots.get(slot);
        let buf = s.buf().expect("a frame that is not a copy has its handle");
        ethernet::Frame::new_checked(&buf.head()[usize::from(s.strip())..])
            .expect("checked when it came in")
            .dst()
    }
}
