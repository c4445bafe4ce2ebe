//! Detachment of a port. Afterwards the switch has no handle of its driver but those in the list to
//! reclaim, no frame waits for the port, and no destination leads to it. For the reuse of its spare
//! port see `attach.rs`.

use sluice_base::{Buf, DropReason, Nanos, PortId, Priority};

use crate::slots::{BufferOwner, NIL};
use crate::surface::Detached;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Detaches a port: frames that came from it and are in its memory, and frames that wait for
    /// it, end under `stopped`. Frames from it that were copied to the shared buffer are delivered.
    /// The port leaves its network, and its addresses leave the forwarding table (FDB): the next
    /// frame for one of them is a miss. Its driver must then reclaim its handles, and never calls
    /// [`Self::receive`] for the port again.
    pub fn detach(&mut self, now: Nanos, port: PortId) -> Detached {
        let before = self.dropped_as(DropReason::Stopped);
        self.end_isolation_of(port.0);
        self.leave(now, port);
        for group in self.groups.iter_mut().filter(|group| group.port == port.0) {
            group.plain = false;
        }
        let first = usize::from(self.ports[port.index()].first_input);
        let inputs = first..first + usize::from(self.ports[port.index()].queues);
        for input in inputs.clone() {
            self.drop_unqueued(input);
        }
        for at in 0..self.ports.len() {
            self.detach_common(at, port.0);
        }
        for at in 0..self.queues.len() {
            if self.queues.is_live_leaf(at) {
                let leaf = u32::try_from(at).expect("fewer than 2^24 nodes");
                self.detach_leaf(leaf, port.0);
            }
        }
        self.forget_questions(now);
        let handles = inputs.map(|input| self.inputs[input].unreclaimed).sum();
        let dropped = dropped_since(before, self.dropped_as(DropReason::Stopped));
        Detached { dropped, handles }
    }

    /// Returns the number of frames that ended under this reason.
    pub(crate) fn dropped_as(&self, reason: DropReason) -> u64 {
        self.ledger.dropped_as(reason)
    }

    /// Returns true if the frame must end because its memory, or its output, goes away.
    fn goes_with(&self, slot: u32, to_port: bool, port: u16) -> bool {
        let s = self.slots.get(slot);
        to_port || self.lies_with(s.input, s.owner, port)
    }

    /// Returns true if a frame is in the memory of a port's driver.
    fn lies_with(&self, input: u16, owner: BufferOwner, port: u16) -> bool {
        self.inputs[usize::from(input)].port == port
            && matches!(owner, BufferOwner::Ring | BufferOwner::Output)
    }

    fn detach_common(&mut self, at: usize, port: u16) {
        let to_port = at == usize::from(port);
        for priority in Priority::all() {
            let class = self.class_of(at, priority.index());
            // Goes around once, so that frames that stay keep their order.
            for _ in 0..self.classes[class].common.len() {
                let Some((buf, tag)) = self.classes[class].common.pop() else { break };
                if to_port || self.lies_with(tag.input, tag.owner, port) {
                    let group = self.group_of_tag(at, tag);
                    self.uncharge_group(group, tag.bytes.into(), tag.owner);
                    self.drop_loose(buf, tag, priority.get(), DropReason::Stopped);
                } else {
                    self.classes[class].common.push(buf, tag);
                }
            }
            self.mark_idle(at, priority.index());
        }
    }

    fn detach_leaf(&mut self, leaf: u32, port: u16) {
        let node = self.queues.get(leaf);
        let to_port = self.groups[node.group as usize].port == port;
        if self.slots.walk(node.list).any(|slot| self.goes_with(slot, to_port, port)) {
            self.drop_from_leaf(leaf, DropReason::Stopped, |switch, slot| {
                switch.goes_with(slot, to_port, port)
            });
        }
    }

    /// Ends the frames of a queue that `goes` selects. The others keep their order.
    pub(crate) fn drop_from_leaf(
        &mut self,
        leaf: u32,
        reason: DropReason,
        goes: impl Fn(&Self, u32) -> bool,
    ) {
        let node = *self.queues.get(leaf);
        let group = &self.groups[node.group as usize];
        let priority = usize::from(node.priority);
        // A queue group that waits for its rate may still have queues in the port's ring: a queue
        // is parked when its turn comes.
        if !self.is_parked(leaf) {
            let at = usize::from(group.port);
            let class = self.class_of(at, priority);
            let ring = &mut self.classes[class].ring;
            self.queues.leaf_out(ring, leaf);
            if *ring == NIL {
                self.mark_idle(at, priority);
            }
        } else {
            let mut parked = group.parked;
            self.queues.ring_remove(&mut parked, leaf);
            self.groups[node.group as usize].parked = parked;
        }
        self.take_frames(leaf, |switch, slot| {
            if goes(switch, slot) {
                switch.drop_frame(slot, reason);
            } else {
                switch.put_frame(slot, node.group);
            }
        });
    }
}

/// Returns the number of frames that ended between two readings of a counter.
pub(crate) fn dropped_since(before: u64, after: u64) -> u32 {
    u32::try_from(after - before).expect("no more frames than the switch holds")
}
