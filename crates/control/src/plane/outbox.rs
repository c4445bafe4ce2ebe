//! What waits to be taken by the caller, bounded.
//!
//! Commands keep their order. Frames to send and new installs may be given up when the caller does
//! not take commands, for both are tried again by who needs them; a command that corrects what is
//! in the chip never is, and of those there are at most a few for each endpoint in the chip. A
//! frame of a tenant that is given up is counted where it came in, and the count is told when all
//! else is.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use sluice_base::{DropReason, HostId, PortId};

use super::surface::{Command, Counts, Event, Full};
use crate::rpc;

/// Beyond so many commands nothing is added that can be given up.
const COMMANDS_MAX: usize = 1 << 14;
/// So many events wait at most; then the oldest goes.
const EVENTS_MAX: usize = 1 << 12;
/// So many datagrams wait at most; a probe that is late is as good as lost.
const DATAGRAMS_MAX: usize = 1 << 12;

/// The queues, and what is counted.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    datagrams: VecDeque<(HostId, Vec<u8>)>,
    /// As many as questions end and come, which each session bounds.
    talk: VecDeque<(HostId, rpc::Event)>,
    /// Frames and bytes that ended here and are not told yet: a few numbers for each port.
    refused: BTreeMap<(PortId, DropReason), (u64, u64)>,
    pub(super) counts: Counts,
}

impl Outbox {
    /// A command that must be carried out.
    pub(super) fn command(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Whether a command that can be given up has room. It is counted if not.
    pub(super) fn has_room(&mut self) -> bool {
        let room = self.commands.len() < COMMANDS_MAX;
        if !room {
            self.counts.commands_lost += 1;
            // Told once for each time that it fills, not for each that is lost.
            if self.events.back() != Some(&Event::Full(Full::Commands)) {
                self.event(Event::Full(Full::Commands));
            }
        }
        room
    }

    pub(super) fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.counts.events_lost += 1;
        }
        self.events.push_back(event);
    }

    pub(super) fn datagram(&mut self, datagram: (HostId, Vec<u8>)) {
        if self.datagrams.len() == DATAGRAMS_MAX {
            self.datagrams.pop_front();
            self.counts.datagrams_lost += 1;
        }
        self.datagrams.push_back(datagram);
    }

    /// A frame of `port` that the switch took ends.
    pub(super) fn refuse(&mut self, port: PortId, reason: DropReason, bytes: usize) {
        self.counts.refused += 1;
        let (frames, sum) = self.refused.entry((port, reason)).or_default();
        *frames += 1;
        *sum += bytes as u64;
    }

    pub(super) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front().or_else(|| {
            let ((port, reason), (frames, bytes)) = self.refused.pop_first()?;
            Some(Command::Refuse { port, reason, frames, bytes })
        })
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn next_datagram(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.datagrams.pop_front()
    }

    pub(super) fn talk(&mut self, host: HostId, event: rpc::Event) {
        self.talk.push_back((host, event));
    }

    pub(super) fn next_talk(&mut self) -> Option<(HostId, rpc::Event)> {
        self.talk.pop_front()
    }

    /// How many commands, events and datagrams wait.
    pub(super) fn waiting(&self) -> (usize, usize, usize) {
        (self.commands.len() + self.refused.len(), self.events.len(), self.datagrams.len())
    }
}
