//! The sockets of a virtual machine behind its port.

use std::os::fd::BorrowedFd;

use sluice_base::Nanos;
use sluice_wire::guest_room::{FRAME_SIZE_MAX, Message};

use super::{GuestRoom, SOURCE};
use crate::rcvbuf::gate::Gate;
use crate::rcvbuf::receivers::Receivers;
use crate::rcvbuf::{SocketCounts, SocketsShot};

impl Receivers<GuestRoom> {
    /// The sockets of a machine whose agent was not heard yet.
    pub(crate) fn guest() -> Self {
        Self::with(GuestRoom::new())
    }

    /// Returns true if frames are to be admitted: the agent is heard, or frames wait.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.gate().is_some_and(|gate| gate.source().is_heard() || !gate.is_open())
    }

    /// Reads a frame of the agent.
    pub(crate) fn hear(&mut self, now: Nanos, frame: &[u8]) {
        let was_heard = self.is_heard();
        let Some(room) = self.source_mut() else { return };
        room.hear(now, frame);
        self.note_silence(was_heard);
    }

    /// Counts frames of an agent that were not read.
    pub(crate) fn ignore(&mut self, frames: u64) {
        self.source_mut().into_iter().for_each(|room| room.ignore(frames));
    }

    /// Frames of an agent that say nothing valid.
    pub(crate) fn invalid(&self) -> u64 {
        self.source().map_or(0, GuestRoom::invalid)
    }

    /// Returns true if an agent said hello and was not silent since.
    #[inline]
    pub(crate) fn has_agent(&self) -> bool {
        self.source().is_some_and(GuestRoom::has_agent)
    }

    /// Writes what the host has to say to the agent now, and returns its size.
    pub(crate) fn question(&mut self, now: Nanos, out: &mut [u8; FRAME_SIZE_MAX]) -> Option<usize> {
        if self.gate().is_none() {
            let is_greeted = self.source_mut().is_some_and(GuestRoom::take_hello);
            return is_greeted.then(|| Message::Idle.emit(SOURCE, out));
        }
        let was_heard = self.is_heard();
        let size = self.source_mut()?.question(now, out);
        self.note_silence(was_heard);
        size
    }

    /// Notes that it was sent behind all data.
    pub(crate) fn note_asked(&mut self, now: Nanos) {
        self.gate_mut().into_iter().for_each(|gate| gate.source_mut().note_asked(now));
    }

    /// Forgets the agent, and gives up all frames that wait; returns their sizes.
    pub(crate) fn reset(&mut self) -> Vec<usize> {
        self.source_mut().into_iter().for_each(GuestRoom::reset);
        self.give_up()
    }

    /// Descriptor that wakes the port while sockets are held.
    pub(crate) fn timer(&self) -> Option<BorrowedFd<'_>> {
        self.source().map(GuestRoom::timer)
    }

    /// As [`crate::ReceivingSockets::shot`].
    pub(crate) fn guest_shot(&self) -> SocketsShot {
        let shot = self.plain_shot();
        let Some(room) = self.source().filter(|_| self.gate().is_some()) else { return shot };
        let counters = SocketCounts { asked: room.asked(), ..shot.counters };
        SocketsShot { lacks: room.lacks(), counters, ..shot }
    }

    fn is_heard(&self) -> bool {
        self.source().is_some_and(GuestRoom::is_heard)
    }

    /// Has frames that wait looked at once the agent is heard no more.
    fn note_silence(&mut self, was_heard: bool) {
        if was_heard && !self.is_heard() {
            self.gate_mut().into_iter().for_each(Gate::look_now);
        }
    }
}
