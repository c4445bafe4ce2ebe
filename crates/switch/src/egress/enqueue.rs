//! Frames on their way in: into the common queue of a port, or into the queue of their source.

use crate::place::Held;
use crate::slots::{BufferOwner, List, Slots};
use crate::surface::QueueGroupKind;

use super::{EgressTables, Gate, Key, Node, Tag};

impl<B> EgressTables<B> {
    /// Returns the queue group that a frame in a common queue of this port goes to.
    #[inline]
    pub(crate) fn group_of_tag(&self, port: usize, tag: Tag) -> u32 {
        let port = &self.ports[port];
        if port.has_bundles { tag.source_or_group().into() } else { port.group }
    }

    /// Returns the source of a frame in a common queue of this port.
    pub(crate) fn source_of_tag(&self, port: usize, tag: Tag) -> u16 {
        if self.ports[port].has_bundles { tag.input() } else { tag.source_or_group() }
    }

    /// Returns the number of frames that the common queue of a class takes now.
    #[inline]
    pub(crate) fn common_room(&self, class: usize) -> u32 {
        self.classes[class].common_room(self.common_max)
    }

    /// Adds a frame at the end of the common queue of a class, which has room, and charges it to
    /// its queue group. The class is that of the port and the priority.
    #[inline(always)]
    pub(crate) fn push_common(
        &mut self,
        class: usize,
        (at, priority): (usize, usize),
        group: u32,
        buf: B,
        tag: Tag,
    ) {
        self.charge(group, Held { frames: 1, bytes: tag.bytes().into() }, tag.owner());
        let common = &mut self.classes[class].common;
        let first = common.is_empty();
        common.push(buf, tag);
        if first {
            self.mark_active(at, priority);
        }
    }

    /// Puts a frame at the end of the common queue of its queue group's port, and frees its slot,
    /// if the queue has room and takes such frames. `vnet` is the network of the frame's input.
    #[inline]
    pub(crate) fn join_common(
        &mut self,
        slots: &mut Slots<B>,
        index: u32,
        group: u32,
        vnet: u16,
    ) -> bool {
        let l = &self.groups[group as usize];
        let slot = slots.get_mut(index);
        if !l.plain || slot.ecn().is_some() || slot.is_super() || !slot.is_with_driver() {
            return false;
        }
        let (port, priority) = (usize::from(l.port), usize::from(slot.priority()));
        let (Ok(bytes), Ok(strip)) = (u16::try_from(slot.bytes()), u8::try_from(slot.strip()))
        else {
            return false;
        };
        // The network of a frame that control sends to an address does not follow from its input.
        if matches!(l.kind, QueueGroupKind::Tunnel(_)) && slot.vnet() != vnet {
            return false;
        }
        let size = bytes - u16::from(strip);
        let class = self.class_of(port, priority);
        if size > l.plain_size_max || self.common_room(class) == 0 {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
        let source_or_group =
            if matches!(l.kind, QueueGroupKind::Tunnel(_)) { group as u16 } else { slot.source() };
        let tag = Tag::new(bytes, slot.input(), source_or_group, strip, slot.owner());
        let buf = slot.take_buf().expect("a frame that is not a copy has its handle");
        self.push_common(class, (port, priority), group, buf, tag);
        slots.give_back(index);
        true
    }

    /// Puts frames with one buffer owner at the end of a (source, queue group, priority) queue, and
    /// charges them to the queue group. Returns the queue.
    #[inline]
    pub(crate) fn push_queue(
        &mut self,
        slots: &mut Slots<B>,
        (group, source, priority): (u32, u16, u8),
        list: List,
        sum: Held,
        owner: BufferOwner,
    ) -> u32 {
        self.charge(group, sum, owner);
        let leaf = self.queue_of(group, source, priority);
        self.queues.get_mut(leaf).push(slots, list, (sum.frames, sum.bytes), owner);
        leaf
    }

    /// Puts a frame that is charged to its queue group in front of its (source, queue group,
    /// priority) queue. Returns the queue.
    pub(crate) fn put_first(&mut self, slots: &mut Slots<B>, slot: u32, group: u32) -> u32 {
        let s = slots.get(slot);
        let leaf = self.queue_of(group, s.source(), s.priority());
        self.queues.get_mut(leaf).push_first(slots, slot);
        leaf
    }

    /// Returns the queue of a (source, queue group, priority), bound now if it is not.
    #[inline]
    fn queue_of(&mut self, group: u32, source: u16, priority: u8) -> u32 {
        match self.queues.find(Key::leaf(group, source, priority)) {
            Some(leaf) => leaf,
            None => {
                let leaf = self.queues.bind_leaf(group, source, priority);
                self.place_leaf(leaf);
                leaf
            }
        }
    }

    /// Puts a leaf into its port's ring, or, if its queue group is not open, into the queue group's
    /// ring of parked leaves.
    pub(super) fn place_leaf(&mut self, leaf: u32) {
        let node = self.queues.get(leaf);
        let (group, priority) = (node.group(), usize::from(node.priority()));
        let l = &mut self.groups[group as usize];
        if l.gate != Gate::Open {
            self.queues.ring_push(&mut l.parked, leaf);
            return;
        }
        let number = l.port;
        let at = usize::from(number);
        let class = self.class_of(at, priority);
        let ring = &mut self.classes[class].ring;
        if self.ports[at].has_bundles {
            self.queues.bundle_push(ring, number, leaf);
        } else {
            self.queues.ring_push(ring, leaf);
        }
        self.mark_active(at, priority);
    }

    /// Returns the queue of a key, if it holds frames.
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.queues.find(key)
    }

    #[inline]
    pub(crate) fn queue(&self, leaf: u32) -> &Node {
        self.queues.get(leaf)
    }
}
