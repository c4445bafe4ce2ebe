//! What every frame is charged to, and how frames end. Numbers only; nothing is decided here.

use sluice_base::{DropReason, Priority};

use crate::config::InputFull;
use crate::slots::Home;
use crate::switch::Switch;

impl<B> Switch<B> {
    /// Charges a slot to its input: it waits in that input's memory.
    #[inline]
    pub(crate) fn charge_input(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input, u64::from(slot.bytes), slot.priority);
        let input = &mut self.inputs[usize::from(input)];
        input.held_frames += 1;
        input.held_bytes += bytes;
        let held = &mut input.held[usize::from(priority)];
        held.frames += 1;
        held.bytes += bytes;
        let held_bytes = held.bytes;
        input.marks.rise(input.held_frames, input.held_bytes);
        if let InputFull::Pause(_) = input.full {
            let port = &mut self.ports[usize::from(input.port)];
            if let Some(pause) = &mut port.pause_out {
                pause.rose(Priority::from_low_bits(priority), held_bytes);
            }
        }
    }

    /// Takes the charge back: the frame left that memory.
    #[inline]
    pub(crate) fn uncharge_input(&mut self, input: u16, bytes: u32, priority: u8) {
        let input = &mut self.inputs[usize::from(input)];
        input.held_frames -= 1;
        input.held_bytes -= u64::from(bytes);
        let held = &mut input.held[usize::from(priority)];
        held.frames -= 1;
        held.bytes -= u64::from(bytes);
        let held_bytes = held.bytes;
        if let InputFull::Pause(_) = input.full {
            let port = &mut self.ports[usize::from(input.port)];
            if let Some(pause) = &mut port.pause_out {
                pause.fell(Priority::from_low_bits(priority), held_bytes);
            }
        }
    }

    /// The frame of a slot that stands in no list has ended: its handle goes to where it came from.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (input, bytes, priority) = (slot.input, slot.bytes, slot.priority);
        match slot.home {
            Home::Ring => {
                self.uncharge_input(input, bytes, priority);
                self.end_at_input(index, input);
            }
            Home::Output => self.end_at_input(index, input),
            Home::Pool => {
                let input = &mut self.inputs[usize::from(input)];
                input.pooled_frames -= 1;
                let partition = &mut self.pool[usize::from(input.from_underlay)];
                partition.frames -= 1;
                partition.bytes -= u64::from(bytes);
                self.slots.push(&mut self.pool_ended, index);
            }
            Home::Copy => self.end_copy(index),
        }
    }

    #[inline]
    fn end_at_input(&mut self, index: u32, input: u16) {
        let input = &mut self.inputs[usize::from(input)];
        input.unreclaimed += 1;
        self.slots.push(&mut input.ended, index);
    }

    fn end_copy(&mut self, index: u32) {
        let body = self.slots.get(index).shared;
        self.slots.give_back(index);
        self.slots.get_mut(body).shared -= 1;
        if self.slots.get(body).shared == 0 {
            self.bodies -= 1;
            self.slots.push(&mut self.pool_ended, body);
        }
    }

    /// The only way in which a frame ends undelivered. The slot stands in no list.
    #[inline]
    pub(crate) fn drop_frame(&mut self, index: u32, reason: DropReason) {
        self.count_drop(index, reason);
        self.end(index);
    }

    #[inline]
    fn count_drop(&mut self, index: u32, reason: DropReason) {
        let slot = self.slots.get(index);
        let row = usize::from(slot.input) * Priority::COUNT + usize::from(slot.priority);
        self.drops[row][reason.index()].add(slot.bytes);
    }

    /// Counts a copy that was not even made.
    pub(crate) fn count_lost_copy(&mut self, body: u32, reason: DropReason) {
        self.count_drop(body, reason);
    }

    /// Charges a frame to its lane when it is queued.
    #[inline]
    pub(crate) fn charge_lane(&mut self, lane: u32, bytes: u32, home: Home) {
        let lane = &mut self.lanes[lane as usize];
        lane.frames += 1;
        match home {
            Home::Output => {
                lane.buffered.frames += 1;
                lane.buffered.bytes += u64::from(bytes);
            }
            Home::Copy => lane.copies += 1,
            Home::Ring | Home::Pool => {}
        }
        if let Some(port) = self.ports.get_mut(usize::from(lane.port)) {
            port.queued_frames += 1;
            port.queued_bytes += u64::from(bytes);
            port.marks.rise(port.queued_frames, port.queued_bytes);
        }
    }

    /// Takes the charge back when it is dequeued.
    #[inline]
    pub(crate) fn uncharge_lane(&mut self, lane: u32, bytes: u32, home: Home) {
        let lane = &mut self.lanes[lane as usize];
        lane.frames -= 1;
        match home {
            Home::Output => {
                lane.buffered.frames -= 1;
                lane.buffered.bytes -= u64::from(bytes);
            }
            Home::Copy => lane.copies -= 1,
            Home::Ring | Home::Pool => {}
        }
        if let Some(port) = self.ports.get_mut(usize::from(lane.port)) {
            port.queued_frames -= 1;
            port.queued_bytes -= u64::from(bytes);
        }
    }
}
