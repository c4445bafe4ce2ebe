//! The queues by (source, queue group, priority), bound from a fixed pool while they hold frames.
//!
//! ```text
//!   port, priority ── ring ──> leaf ──> leaf ──> ...          a port with one queue group
//!   port, priority ── ring ──> bundle ──> bundle ──> ...      an underlay port
//!                                └─ ring ──> leaf ──> leaf    one source, its queue groups
//! ```
//!
//! A **leaf** is one queue. On a port with several queue groups the leaves of one source are
//! gathered in a **bundle**, so that a source with many queue groups gets one share and not many. A
//! ring is a circular list of which only the tail is kept: the head is served, and the turn passes
//! on by moving the tail by one. A leaf whose queue group is held back is *parked*: it stands in
//! its queue group's ring and in no port's, so that a blocked queue costs the scheduler nothing.
//!
//! Because all frames of one (source, queue group, priority) stand in one list, a frame cannot
//! overtake another of its pair whatever the scheduler does.

use alloc::vec;
use alloc::vec::Vec;

use crate::slots::{BufferOwner, List, NIL, Slots};

/// Key of a node, packed into one number: priority, kind, source, queue group or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) const fn leaf(group: u32, source: u16, priority: u8) -> Self {
        // 20 bits of queue group, 16 of source, 3 of priority: see the assertion in `Switch::new`.
        Self(((group as u64) << 19) | ((source as u64) << 3) | priority as u64)
    }

    const fn bundle(port: u16, source: u16, priority: u8) -> Self {
        Self((1 << 39) | Self::leaf(port as u32, source, priority).0)
    }
}

/// The largest number of queue groups that a key can tell apart.
pub(crate) const GROUPS_MAX: usize = 1 << 20;

/// Bytes that a source may send before the next one gets its turn.
pub(crate) const QUANTUM_BYTES: i32 = 1_600;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    key: Key,
    /// The next node of its ring.
    next: u32,
    /// Leaf: its frames.
    list: List,
    /// Bundle: the tail of its ring of leaves.
    children: u32,
    /// Leaf: its bundle, if it stands in one.
    parent: u32,
    frames: u32,
    bytes: u64,
    /// Leaf: number of its frames that wait in their input (not in the pool).
    ring_frames: u32,
    /// Leaf: the bytes of the frames that wait in their input. It saturates at 4 GiB, which only
    /// makes a share less exact.
    ring_bytes: u32,
    /// Leaf: a frame in its list such that it and all before it are in the pool. The search for the
    /// next frame to be moved there starts behind it.
    shared_cursor: u32,
    deficit: i32,
    group: u32,
    source: u16,
    priority: u8,
    live: bool,
}

const _: () = assert!(size_of::<Node>() == 64, "a queue is one cache line");

impl Node {
    /// A node without a queue.
    const BLANK: Self = Self {
        key: Key(0),
        next: NIL,
        list: List::EMPTY,
        children: NIL,
        parent: NIL,
        frames: 0,
        bytes: 0,
        ring_frames: 0,
        ring_bytes: 0,
        shared_cursor: NIL,
        deficit: 0,
        group: 0,
        source: 0,
        priority: 0,
        live: false,
    };

    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    #[inline]
    pub(crate) const fn group(&self) -> u32 {
        self.group
    }

    #[inline]
    pub(crate) const fn source(&self) -> u16 {
        self.source
    }

    #[inline]
    pub(crate) const fn priority(&self) -> u8 {
        self.priority
    }

    /// Returns the frames of a leaf.
    #[inline]
    pub(crate) const fn list(&self) -> List {
        self.list
    }

    #[inline]
    pub(crate) const fn frames(&self) -> u32 {
        self.frames
    }

    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of frames of a leaf that wait in their input (not in the pool).
    #[inline]
    pub(crate) const fn ring_frames(&self) -> u32 {
        self.ring_frames
    }

    /// Returns the bytes of those frames.
    #[inline]
    pub(crate) const fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    #[inline]
    pub(super) const fn deficit(&self) -> i32 {
        self.deficit
    }

    #[inline]
    pub(super) const fn set_deficit(&mut self, deficit: i32) {
        self.deficit = deficit;
    }

    #[inline]
    pub(super) const fn shared_cursor(&self) -> u32 {
        self.shared_cursor
    }

    /// Remembers that a frame, and all before it, are in the pool.
    #[inline]
    pub(super) const fn set_shared_cursor(&mut self, slot: u32) {
        self.shared_cursor = slot;
    }

    /// Adds frames with one buffer owner at the end of this leaf.
    #[inline]
    pub(super) fn push<B>(
        &mut self,
        slots: &mut Slots<B>,
        list: List,
        (frames, bytes): (u32, u64),
        owner: BufferOwner,
    ) {
        self.add(frames, bytes, owner);
        slots.splice(&mut self.list, list);
    }

    /// Adds a frame in front of this leaf.
    pub(super) fn push_first<B>(&mut self, slots: &mut Slots<B>, slot: u32) {
        let s = slots.get(slot);
        self.add(1, s.bytes().into(), s.owner());
        self.shared_cursor = NIL;
        slots.push_front(&mut self.list, slot);
    }

    /// Takes the first frame out of this leaf.
    #[inline]
    pub(super) fn pop<B>(&mut self, slots: &mut Slots<B>) -> u32 {
        let slot = slots.pop(&mut self.list).expect("a queue in a ring has a frame");
        let s = slots.get(slot);
        if self.shared_cursor == slot {
            self.shared_cursor = NIL;
        }
        self.frames -= 1;
        self.bytes -= u64::from(s.bytes());
        if s.owner() == BufferOwner::Ring {
            self.ring_sub(1, s.bytes().into());
        }
        slot
    }

    /// Takes frames out of the sums of this leaf, which left it; `list` is what is left.
    #[inline]
    pub(super) const fn keep(&mut self, list: List, frames: u32, bytes: u64) {
        self.list = list;
        self.frames -= frames;
        self.bytes -= bytes;
    }

    /// Counts frames with one buffer owner that joined this leaf.
    #[inline]
    fn add(&mut self, frames: u32, bytes: u64, owner: BufferOwner) {
        self.frames += frames;
        self.bytes += bytes;
        if owner == BufferOwner::Ring {
            self.ring_add(frames, bytes);
        }
    }

    /// Counts frames that wait in their input and joined this leaf.
    #[inline]
    fn ring_add(&mut self, frames: u32, bytes: u64) {
        self.ring_frames += frames;
        self.ring_bytes = self.ring_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Counts frames that left this leaf, or their input.
    #[inline]
    pub(super) fn ring_sub(&mut self, frames: u32, bytes: u64) {
        self.ring_frames -= frames;
        self.ring_bytes = self.ring_bytes.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}

/// The nodes, and the index that finds them.
#[derive(Debug)]
pub(crate) struct Queues {
    nodes: Vec<Node>,
    free: u32,
    /// Upper bound of the nodes in use: those from here on are free. The node that was freed last
    /// is bound next, so it stays near the largest number that were in use at a time.
    bound_end: u32,
    /// Open addressing: key in the high 40 bits, node in the low 24; 0 is a free place.
    index: Vec<u64>,
    mask: usize,
}

const NODE_BITS: u32 = 24;
/// Number of nodes that the index can tell apart (the number is stored plus one).
pub(crate) const NODES_MAX: usize = (1 << NODE_BITS) - 1;

impl Queues {
    pub(crate) fn new(count: usize) -> Self {
        assert!(count <= NODES_MAX);
        let mut nodes = vec![Node::BLANK; count];
        for (at, node) in nodes.iter_mut().enumerate() {
            node.next = if at + 1 == count { NIL } else { index_of(at + 1) };
        }
        let size = (count * 2).next_power_of_two().max(2);
        let free = if count == 0 { NIL } else { 0 };
        Self { nodes, free, bound_end: 0, index: vec![0; size], mask: size - 1 }
    }

    #[inline]
    pub(crate) fn get(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    #[inline]
    fn place_of(&self, key: Key) -> usize {
        let hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & self.mask
    }

    /// Returns the node bound to `key`.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        let mut place = self.place_of(key);
        loop {
            let entry = self.index[place];
            if entry >> NODE_BITS == key.0 && entry != 0 {
                return Some(node_of(entry));
            }
            if entry == 0 {
                return None;
            }
            place = (place + 1) & self.mask;
        }
    }

    #[inline]
    fn index_insert(&mut self, key: Key, node: u32) {
        let mut place = self.place_of(key);
        while self.index[place] != 0 {
            place = (place + 1) & self.mask;
        }
        self.index[place] = (key.0 << NODE_BITS) | u64::from(node + 1);
    }

    #[inline]
    fn index_remove(&mut self, key: Key) {
        let mut hole = self.place_of(key);
        while self.index[hole] >> NODE_BITS != key.0 || self.index[hole] == 0 {
            debug_assert!(self.index[hole] != 0, "the key is not bound");
            hole = (hole + 1) & self.mask;
        }
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask;
            let entry = self.index[place];
            if entry == 0 {
                break;
            }
            let home = self.place_of(Key(entry >> NODE_BITS));
            if (hole.wrapping_sub(home) & self.mask) <= (place.wrapping_sub(home) & self.mask) {
                self.index[hole] = entry;
                hole = place;
            }
        }
        self.index[hole] = 0;
    }

    fn bind(&mut self, key: Key, group: u32, source: u16, priority: u8) -> u32 {
        let node = self.free;
        assert!(node != NIL, "there are as many nodes as queues can be in use");
        self.free = self.nodes[node as usize].next;
        self.bound_end = self.bound_end.max(node + 1);
        self.nodes[node as usize] = Node {
            key,
            deficit: QUANTUM_BYTES,
            group,
            source,
            priority,
            live: true,
            ..Node::BLANK
        };
        self.index_insert(key, node);
        node
    }

    /// Binds a leaf. It stands in no ring yet.
    pub(crate) fn bind_leaf(&mut self, group: u32, source: u16, priority: u8) -> u32 {
        self.bind(Key::leaf(group, source, priority), group, source, priority)
    }

    /// Unbinds a node that stands in no ring.
    pub(crate) fn unbind(&mut self, node: u32) {
        let key = self.nodes[node as usize].key;
        self.index_remove(key);
        let free = self.free;
        let n = &mut self.nodes[node as usize];
        debug_assert!(n.list.is_empty() && n.frames == 0 && n.children == NIL);
        n.live = false;
        n.next = free;
        self.free = node;
    }

    /// Empties and unbinds a leaf that stands in no ring. The caller has its frames.
    pub(crate) fn clear_leaf(&mut self, leaf: u32) {
        let node = self.get_mut(leaf);
        node.list = List::EMPTY;
        node.frames = 0;
        node.bytes = 0;
        node.ring_frames = 0;
        node.ring_bytes = 0;
        self.unbind(leaf);
    }

    /// Moves the frames of a leaf behind those of another one, and unbinds it. It stands in no
    /// ring.
    pub(super) fn append<B>(&mut self, slots: &mut Slots<B>, leaf: u32, to: u32) {
        let node = self.nodes[leaf as usize];
        let there = &mut self.nodes[to as usize];
        there.frames += node.frames;
        there.bytes += node.bytes;
        there.ring_add(node.ring_frames, node.ring_bytes.into());
        slots.splice(&mut there.list, node.list);
        self.clear_leaf(leaf);
    }

    /// Binds a leaf that stands in no ring to another queue group.
    pub(crate) fn rebind(&mut self, node: u32, group: u32) {
        let Node { key, source, priority, .. } = self.nodes[node as usize];
        self.index_remove(key);
        let key = Key::leaf(group, source, priority);
        self.nodes[node as usize].key = key;
        self.nodes[node as usize].group = group;
        self.index_insert(key, node);
    }

    /// Adds a node at the end of a ring.
    #[inline]
    pub(crate) fn ring_push(&mut self, tail: &mut u32, node: u32) {
        if *tail == NIL {
            self.nodes[node as usize].next = node;
        } else {
            self.nodes[node as usize].next = self.nodes[*tail as usize].next;
            self.nodes[*tail as usize].next = node;
        }
        *tail = node;
    }

    /// Returns the node whose turn it is.
    #[inline]
    pub(crate) fn ring_head(&self, tail: u32) -> u32 {
        self.nodes[tail as usize].next
    }

    /// Returns the nodes of a ring, the one whose turn it is first.
    pub(crate) fn ring(&self, tail: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = (tail != NIL).then_some(tail);
        core::iter::from_fn(move || {
            let node = self.ring_head(at?);
            at = (node != tail).then_some(node);
            Some(node)
        })
    }

    /// Returns the leaves of a node of a port's ring: those of a bundle, or itself.
    pub(crate) fn children_of(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let children = self.nodes[node as usize].children;
        let itself = (children == NIL).then_some(node);
        itself.into_iter().chain(self.ring(children))
    }

    /// Takes the head out of a ring.
    #[inline]
    pub(crate) fn ring_pop(&mut self, tail: &mut u32) -> u32 {
        let head = self.nodes[*tail as usize].next;
        if head == *tail {
            *tail = NIL;
        } else {
            self.nodes[*tail as usize].next = self.nodes[head as usize].next;
        }
        head
    }

    /// Takes a node out of a ring, wherever it stands. Linear; for rare events only.
    pub(crate) fn ring_remove(&mut self, tail: &mut u32, node: u32) {
        for _ in 0..self.nodes.len() {
            if self.ring_head(*tail) == node {
                self.ring_pop(tail);
                return;
            }
            *tail = self.ring_head(*tail);
        }
        unreachable!("the node stands in this ring");
    }

    /// Puts a leaf into the ring of its source's bundle, and the bundle into the port's ring if it
    /// is new.
    pub(crate) fn bundle_push(&mut self, ring: &mut u32, port: u16, leaf: u32) {
        let Node { source, priority, .. } = self.nodes[leaf as usize];
        let key = Key::bundle(port, source, priority);
        let bundle = match self.find(key) {
            Some(bundle) => bundle,
            None => {
                let bundle = self.bind(key, NIL, source, priority);
                self.ring_push(ring, bundle);
                bundle
            }
        };
        let mut children = self.nodes[bundle as usize].children;
        self.ring_push(&mut children, leaf);
        self.nodes[bundle as usize].children = children;
        self.nodes[leaf as usize].parent = bundle;
    }

    /// Returns true if the node is a bundle.
    #[inline]
    pub(crate) fn is_bundle(&self, node: u32) -> bool {
        self.nodes[node as usize].children != NIL
    }

    /// Returns the leaf whose turn it is in a bundle.
    #[inline]
    pub(crate) fn child_head(&self, bundle: u32) -> u32 {
        self.ring_head(self.nodes[bundle as usize].children)
    }

    /// Returns the leaf of a node of a port's ring, if it has only one.
    #[inline]
    pub(crate) fn only_leaf(&self, node: u32) -> Option<u32> {
        let children = self.nodes[node as usize].children;
        if children == NIL {
            return Some(node);
        }
        (self.ring_head(children) == children).then_some(children)
    }

    /// Returns the node of a port's ring that serves a leaf: its bundle, or the leaf itself.
    #[inline]
    pub(crate) fn in_ring(&self, leaf: u32) -> u32 {
        let parent = self.nodes[leaf as usize].parent;
        if parent == NIL { leaf } else { parent }
    }

    /// Takes a leaf whose turn it is out of its port's ring.
    #[inline]
    pub(crate) fn head_out(&mut self, ring: &mut u32, leaf: u32) {
        if self.nodes[leaf as usize].parent == NIL {
            self.ring_pop(ring);
        } else {
            self.leaf_out(ring, leaf);
        }
    }

    /// Gives the next leaf of a bundle its turn.
    #[inline]
    pub(crate) fn child_rotate(&mut self, bundle: u32) {
        let children = self.nodes[bundle as usize].children;
        self.nodes[bundle as usize].children = self.ring_head(children);
    }

    /// Takes a leaf out of its ring: that of its bundle, or `ring`. A bundle that becomes empty
    /// leaves `ring` too.
    pub(crate) fn leaf_out(&mut self, ring: &mut u32, leaf: u32) {
        let parent = self.nodes[leaf as usize].parent;
        if parent == NIL {
            self.ring_remove(ring, leaf);
            return;
        }
        let mut children = self.nodes[parent as usize].children;
        self.ring_remove(&mut children, leaf);
        self.nodes[parent as usize].children = children;
        self.nodes[leaf as usize].parent = NIL;
        if children == NIL {
            self.ring_remove(ring, parent);
            self.unbind(parent);
        }
    }

    /// Returns every leaf in use. Linear in the nodes that were in use at a time.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.bound_end).filter(|node| self.is_live_leaf(*node))
    }

    /// Returns the first leaf in use from a node on.
    pub(crate) fn leaf_from(&self, from: u32) -> Option<u32> {
        (from..self.bound_end).find(|node| self.is_live_leaf(*node))
    }

    /// Lowers the bound of the nodes in use to the last of them. Each step was paid by a bind.
    pub(crate) fn lower_bound_end(&mut self) {
        while self.bound_end > 0 && !self.nodes[self.bound_end as usize - 1].live {
            self.bound_end -= 1;
        }
    }

    /// Returns true if a node is a leaf in use.
    fn is_live_leaf(&self, node: u32) -> bool {
        let node = &self.nodes[node as usize];
        node.live && node.group != NIL
    }
}

fn index_of(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^24 nodes")
}

#[inline]
fn node_of(entry: u64) -> u32 {
    let node = (entry & ((1 << NODE_BITS) - 1)) as u32;
    node - 1
}

#[cfg(test)]
mod tests;
