//! Changes of queues beside the scheduler: frames and queues that move, wait elsewhere, or end.

use sluice_base::Priority;

use crate::place::Held;
use crate::slots::{List, NIL, Slots};

use super::{COMMON_FRAMES_MAX, EgressTables, Key, Node, Tag};

/// Frames that were taken out of a common queue, first one first.
pub(crate) type Taken<B> = [Option<(B, Tag)>; COMMON_FRAMES_MAX as usize];

impl<B> EgressTables<B> {
    /// Returns the frames in the common queue of a class, first one first.
    pub(crate) fn tags(&self, class: usize) -> impl Iterator<Item = Tag> {
        self.classes[class].common.tags()
    }

    /// Returns the frames in all common queues, with their priorities.
    pub(crate) fn all_tags(&self) -> impl Iterator<Item = (usize, Tag)> {
        let priority = |class| class / self.ports.len();
        let classes = 0..self.classes.len();
        classes.flat_map(move |class| self.tags(class).map(move |tag| (priority(class), tag)))
    }

    /// Returns true if frames wait in the common queue of a class.
    #[inline]
    pub(crate) fn has_common(&self, class: usize) -> bool {
        !self.classes[class].common.is_empty()
    }

    /// Returns the frame of a common queue whose turn it is.
    #[inline]
    pub(crate) fn common_head(&self, class: usize) -> Option<(&B, &Tag)> {
        self.classes[class].common.head()
    }

    /// Takes the handle of the first frame out of a common queue. The caller counts the frame and
    /// marks the class as idle.
    #[inline]
    pub(crate) fn pop_common(&mut self, class: usize) -> Option<B> {
        self.classes[class].common.pop()
    }

    /// Takes the frames that `goes` selects out of the common queue of a (port, priority). The
    /// others keep their order. The caller counts them.
    pub(crate) fn take_common(
        &mut self,
        at: usize,
        priority: Priority,
        goes: impl Fn(&Self, Tag) -> bool,
    ) -> Taken<B> {
        let class = self.class_of(at, priority.index());
        let mut taken = [const { None }; COMMON_FRAMES_MAX as usize];
        // Goes around once, so that frames that stay keep their order.
        let count = self.classes[class].common.len() as usize;
        for place in taken.iter_mut().take(count) {
            let Some(tag) = self.classes[class].common.head().map(|(_, tag)| *tag) else { break };
            let Some(buf) = self.classes[class].common.pop() else { break };
            if goes(self, tag) {
                *place = Some((buf, tag));
            } else {
                self.classes[class].common.push(buf, tag);
            }
        }
        self.mark_idle(at, priority.index());
        taken
    }

    /// Returns the queues of a class that stand in its port's ring.
    pub(crate) fn leaves_of(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        self.queues.ring(self.classes[class].ring).flat_map(|node| self.queues.children_of(node))
    }

    /// Returns every queue in use. Linear in the queues that were in use at a time.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = u32> + '_ {
        self.queues.leaves()
    }

    /// Returns the first queue in use from a place in the pool of queues on, to walk them while
    /// they change.
    pub(crate) fn leaf_from(&self, from: u32) -> Option<u32> {
        self.queues.leaf_from(from)
    }

    /// Makes later walks over the queues as short as the queues that are in use now allow.
    pub(crate) fn shorten_walks(&mut self) {
        self.queues.lower_bound_end();
    }

    pub(crate) fn is_parked(&self, leaf: u32) -> bool {
        let tail = self.group(self.queues.get(leaf).group()).parked;
        self.queues.ring(tail).any(|at| at == leaf)
    }

    /// Parks the queues of a queue group that stand in its port's ring.
    pub(crate) fn park_all(&mut self, group: u32) {
        let mut from = 0;
        while let Some(leaf) = self.leaf_from(from) {
            if self.queues.get(leaf).group() == group && !self.is_parked(leaf) {
                self.park(leaf);
            }
            from = leaf + 1;
        }
    }

    /// Moves a leaf from its port's ring to its queue group's.
    pub(crate) fn park(&mut self, leaf: u32) {
        self.leave_ring(leaf);
        self.push_parked(leaf);
    }

    /// Takes a leaf out of its port's ring.
    fn leave_ring(&mut self, leaf: u32) {
        let node = self.queues.get(leaf);
        let (group, priority) = (node.group(), usize::from(node.priority()));
        let at = usize::from(self.group(group).port);
        let class = self.class_of(at, priority);
        let ring = &mut self.classes[class].ring;
        self.queues.leaf_out(ring, leaf);
        if *ring == NIL {
            self.mark_idle(at, priority);
        }
    }

    /// Takes a leaf out of the ring that it stands in. A queue group that waits for its rate may
    /// still have queues in the port's ring: a queue is parked when its turn comes.
    pub(crate) fn unplace(&mut self, leaf: u32) {
        if self.is_parked(leaf) {
            let group = self.queues.get(leaf).group() as usize;
            self.queues.ring_remove(&mut self.groups[group].parked, leaf);
        } else {
            self.leave_ring(leaf);
        }
    }

    /// Empties and unbinds a leaf that stands in no ring. The caller has its frames, each of which
    /// is to be [discharged](Self::uncharge).
    pub(crate) fn take_leaf(&mut self, leaf: u32) -> Node {
        let node = *self.queues.get(leaf);
        self.queues.clear_leaf(leaf);
        node
    }

    /// Moves the frames of a leaf that stands in no ring to another queue group, behind its frames.
    /// Returns the leaf that has them.
    pub(crate) fn move_leaf(&mut self, slots: &mut Slots<B>, leaf: u32, to: u32) -> u32 {
        let node = *self.queues.get(leaf);
        let frames: List = node.list();
        let mut at = frames.head();
        while at != NIL {
            let s = slots.get(at);
            self.uncharge(node.group(), s.bytes(), s.owner());
            self.charge(to, Held { frames: 1, bytes: s.bytes().into() }, s.owner());
            at = s.next();
        }
        match self.queues.find(Key::leaf(to, node.source(), node.priority())) {
            None => {
                self.queues.rebind(leaf, to);
                self.place_leaf(leaf);
                leaf
            }
            Some(there) => {
                self.queues.append(slots, leaf, there);
                there
            }
        }
    }

    /// Returns the first frame of a queue that may be in its input still: behind those known to be
    /// in the pool.
    pub(crate) fn first_unpooled(&self, slots: &Slots<B>, leaf: u32) -> u32 {
        let queue = self.queues.get(leaf);
        match queue.shared_cursor() {
            NIL => queue.list().head(),
            last => slots.get(last).next(),
        }
    }

    /// Remembers that a frame of a queue, and all before it, are in the pool.
    pub(crate) fn pooled_up_to(&mut self, leaf: u32, slot: u32) {
        self.queues.get_mut(leaf).set_shared_cursor(slot);
    }

    /// Counts a frame of a queue that left its input for the pool.
    pub(crate) fn left_input(&mut self, leaf: u32, bytes: u32) {
        self.queues.get_mut(leaf).ring_sub(1, bytes.into());
    }
}
