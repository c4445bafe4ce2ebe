//! Bounded queues of output for the caller.
//!
//! Commands keep their order. Frames to send and new installs may be given up when the caller does
//! not take commands, because both are tried again when they are needed. A command that corrects
//! the forwarding table (FDB) is never given up; there are at most a few of these for each
//! installed endpoint. A frame of a tenant that is given up is counted at its ingress port, and the
//! count is reported after all other commands.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use sluice_base::{DropReason, HostId, PortId};
use sluice_wire::fabric::MESSAGE_SIZE_MAX;

use super::surface::{Command, Counts, Event, Full};
use crate::rpc;

/// Number of commands beyond which none is added that can be given up.
const COMMANDS_MAX: usize = 1 << 14;
/// Number of events that wait at most; then the oldest goes.
const EVENTS_MAX: usize = 1 << 12;
/// Number of datagrams that wait at most; a probe that is late is as good as lost.
const DATAGRAMS_MAX: usize = 1 << 12;
/// Number of events of messages that wait at most; then the oldest goes.
const MESSAGES_MAX: usize = 1 << 12;
/// Bytes of messages that wait at most; a message beyond them is lost.
const MESSAGE_BYTES_MAX: usize = 4 * MESSAGE_SIZE_MAX;

/// Event of messages between members. Those of one member come in this order: connected, any
/// number received, gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// A session with the member began.
    Connected {
        /// False if the version of the member takes no messages.
        takes_messages: bool,
    },
    /// The member sent a message.
    Received(Vec<u8>),
    /// The session ended. Messages that were under way are lost.
    Gone,
}

impl MessageEvent {
    const fn size(&self) -> usize {
        match self {
            Self::Received(message) => message.len(),
            Self::Connected { .. } | Self::Gone => 0,
        }
    }
}

/// The queues and the counters.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    commands: VecDeque<Command>,
    events: VecDeque<Event>,
    datagrams: VecDeque<(HostId, Vec<u8>)>,
    /// Questions of members and ends of own questions. Each session bounds their number.
    talk: VecDeque<(HostId, rpc::Event)>,
    messages: VecDeque<(HostId, MessageEvent)>,
    message_bytes: usize,
    /// Frames and bytes that were dropped here and are not reported yet: a few numbers for each
    /// port.
    refused: BTreeMap<(PortId, DropReason), (u64, u64)>,
    pub(super) counts: Counts,
}

impl Outbox {
    /// Adds a command that must be carried out.
    pub(super) fn command(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    /// Returns true if there is room for a command that can be given up. Counts the command if not.
    pub(super) fn has_room(&mut self) -> bool {
        let room = self.commands.len() < COMMANDS_MAX;
        if !room {
            self.counts.commands_lost += 1;
            // Reported once for each time that the queue fills, not for each command that is lost.
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

    /// Drops a frame of `port` that the switch took.
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

    pub(super) fn message(&mut self, host: HostId, event: MessageEvent) {
        let size = event.size();
        if self.message_bytes + size > MESSAGE_BYTES_MAX {
            self.counts.messages_lost += 1;
            return;
        }
        if self.messages.len() == MESSAGES_MAX {
            self.next_message();
            self.counts.messages_lost += 1;
        }
        self.message_bytes += size;
        self.messages.push_back((host, event));
    }

    pub(super) fn next_message(&mut self) -> Option<(HostId, MessageEvent)> {
        let (host, event) = self.messages.pop_front()?;
        self.message_bytes -= event.size();
        Some((host, event))
    }

    /// Numbers of commands, events and datagrams that wait.
    pub(super) fn waiting(&self) -> (usize, usize, usize) {
        (self.commands.len() + self.refused.len(), self.events.len(), self.datagrams.len())
    }
}
