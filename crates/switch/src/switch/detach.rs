//! Detachment of a port. Afterwards the switch has no handle of its driver but those in the list to
//! reclaim, no frame waits for the port, and no destination leads to it. For the reuse of its spare
//! port see `attach.rs`.

use sluice_base::{Buf, DropReason, Nanos, PortId, Priority};

use crate::egress::Tag;
use crate::ingress::Ingress;
use crate::slots::BufferOwner;
use crate::surface::Detached;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Detaches a port: frames that came from it and are in its memory, and frames that wait for
    /// it, end under `stopped`. Frames from it that were copied to the shared buffer are delivered.
    /// The port leaves its network, and its addresses leave the forwarding table (FDB): the next
    /// frame for one of them is a miss. Its driver must then reclaim its handles, and never calls
    /// [`Self::receive`] for the port again.
    pub fn detach(&mut self, now: Nanos, port: PortId) -> Detached {
        let before = self.ledger.dropped_as(DropReason::Stopped);
        self.end_isolation_of(port.0);
        self.leave(now, port);
        let inputs = self.egress.port(port.index()).inputs();
        for input in inputs.clone() {
            self.drop_unqueued(input);
        }
        for at in 0..self.egress.ports().len() {
            self.detach_common(at, port.0);
        }
        let mut from = 0;
        while let Some(leaf) = self.egress.leaf_from(from) {
            self.detach_leaf(leaf, port.0);
            from = leaf + 1;
        }
        self.forget_questions(now);
        let handles = inputs.map(|input| self.ingress.input(input).unreclaimed()).sum();
        let dropped = dropped_since(before, self.ledger.dropped_as(DropReason::Stopped));
        Detached { dropped, handles }
    }

    /// Returns true if the frame must end because its memory, or its output, goes away.
    fn goes_with(&self, slot: u32, to_port: bool, port: u16) -> bool {
        let s = self.slots.get(slot);
        to_port || lies_with(&self.ingress, s.input(), s.owner(), port)
    }

    fn detach_common(&mut self, at: usize, port: u16) {
        let to_port = at == usize::from(port);
        for priority in Priority::all() {
            let ingress = &self.ingress;
            let goes = |tag: Tag| to_port || lies_with(ingress, tag.input(), tag.owner(), port);
            let taken = self.egress.take_common(at, priority, |_, tag| goes(tag));
            for (buf, tag) in taken.into_iter().flatten() {
                let group = self.egress.group_of_tag(at, tag);
                self.egress.uncharge(group, tag.bytes().into(), tag.owner());
                self.drop_loose(buf, tag, priority.get(), DropReason::Stopped);
            }
        }
    }

    fn detach_leaf(&mut self, leaf: u32, port: u16) {
        let queue = self.egress.queue(leaf);
        let to_port = self.egress.group(queue.group()).port() == port;
        if self.slots.walk(queue.list()).any(|slot| self.goes_with(slot, to_port, port)) {
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
        let group = self.egress.queue(leaf).group();
        self.egress.unplace(leaf);
        self.take_frames(leaf, |switch, slot| {
            if goes(switch, slot) {
                switch.drop_frame(slot, reason);
            } else {
                switch.put_frame(slot, group);
            }
        });
    }
}

/// Returns true if a frame is in the memory of a port's driver.
fn lies_with<B>(ingress: &Ingress<B>, input: u16, owner: BufferOwner, port: u16) -> bool {
    ingress.input(input).port() == port && matches!(owner, BufferOwner::Ring | BufferOwner::Output)
}

/// Returns the number of frames that ended between two readings of a counter.
pub(crate) fn dropped_since(before: u64, after: u64) -> u32 {
    u32::try_from(after - before).expect("no more frames than the switch holds")
}
