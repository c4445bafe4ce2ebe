//! Moving waiting frames out of an input's own memory into the host pool, so that one slow output
//! does not stop the input's other outputs.
//!
//! What one (source, lane) pair may hold of its input is a share; beyond it frames are moved into
//! the pool, oldest first, while the pool has room; only then does the input wait. An input may
//! hold as much of the pool as is still free of it, so that nobody takes it all.

use sluice_base::{Buf, InputId, LaneId, Priority, SourceId};

use crate::queues::Key;
use crate::slots::{Home, NIL};
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Moves handles of an input into the host pool. `copy` gets a handle of the input and gives
    /// back one of the pool with the same bytes (the first is the driver's again), or, if the pool
    /// has no room, the same handle.
    pub fn spill(&mut self, input: InputId, mut copy: impl FnMut(B) -> Result<B, B>) {
        let input = input.index();
        if !self.inputs[input].awaiting.is_empty() {
            self.replicate(input, &mut copy);
        }
        let Some(key) = self.inputs[input].over else { return };
        let Some(leaf) = self.queues.find(key) else {
            self.inputs[input].over = None;
            return;
        };
        let share = self.share_of(input);
        let mut at = self.queues.get(leaf).list.head;
        while at != NIL && self.queues.get(leaf).ring_frames > share && self.pool_takes(input) {
            let slot = self.slots.get_mut(at);
            let next = slot.next;
            if slot.home == Home::Ring && usize::from(slot.input) == input {
                let buf = slot.buf.take().expect("a waiting frame has its handle");
                match copy(buf) {
                    Err(buf) => {
                        self.slots.get_mut(at).buf = Some(buf);
                        return;
                    }
                    Ok(buf) => {
                        self.slots.get_mut(at).buf = Some(buf);
                        self.pooled(at);
                        self.queues.get_mut(leaf).ring_frames -= 1;
                    }
                }
            }
            at = next;
        }
        if self.queues.get(leaf).ring_frames <= share {
            self.inputs[input].over = None;
        }
    }

    /// The frame of a slot now lies in the pool.
    fn pooled(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        slot.home = Home::Pool;
        let (input, bytes, priority) = (slot.input, slot.bytes, slot.priority);
        self.uncharge_input(input, bytes, priority);
        self.note_excess(input);
        let input = &mut self.inputs[usize::from(input)];
        input.pooled_frames += 1;
        let at = usize::from(input.from_underlay);
        let partition = &mut self.pool[at];
        partition.frames += 1;
        partition.bytes += u64::from(bytes);
        self.pool_marks[at].rise(partition.frames, partition.bytes);
    }

    /// Whether the pool takes one more frame of this input.
    pub(crate) fn pool_takes(&self, input: usize) -> bool {
        let i = &self.inputs[input];
        let partition = &self.pool[usize::from(i.from_underlay)];
        partition.frames < partition.limit.frames
            && partition.bytes < partition.limit.bytes.0
            && i.pooled_frames < partition.limit.frames - partition.frames
    }

    /// How many frames one pair may hold of an input.
    pub(crate) fn share_of(&self, input: usize) -> u32 {
        let frames = u64::from(self.inputs[input].limit.frames);
        u32::try_from(frames * u64::from(self.pair_share) / 256).unwrap_or(u32::MAX).max(1)
    }

    /// Remembers a queue that holds more than its share of its input.
    #[cold]
    pub(crate) fn note_share(&mut self, slot: u32, lane: u32, ring_frames: u32) {
        let s = self.slots.get(slot);
        let input = usize::from(s.input);
        if ring_frames > self.share_of(input) {
            self.inputs[input].over = Some(Key::leaf(lane, s.source, s.priority));
        }
    }

    /// The frames that wait for a pair, for inspection: in the input's memory, and in all.
    #[must_use]
    pub fn pair(&self, lane: LaneId, source: SourceId, priority: Priority) -> (u32, u32) {
        self.queues.find(Key::leaf(lane.0, source.0, priority.get())).map_or((0, 0), |leaf| {
            let node = self.queues.get(leaf);
            (node.ring_frames, node.frames)
        })
    }
}
