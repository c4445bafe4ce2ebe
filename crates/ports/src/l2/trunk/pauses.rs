//! The flow control of one wire with several ports (802.1Q clause 36).
//!
//! A neighbour keeps one state per priority, so the ports' requests are merged: a priority is
//! paused while any of them requests it, or while it is held because much of it is set aside.
//!
//! ```text
//!   wire pauses p   <=>   some port asked for p   or   p is held, and may be paused
//! ```
//!
//! In the other direction a message is kept for each port until it reads: a later one replaces an
//! earlier one for the same priorities (clause 36.1.3.2).

use sluice_base::{Mac, Priority, PriorityMask};
use sluice_wire::mac_control::Message;

/// The longest pause of one frame.
const QUANTA_MAX: u16 = u16::MAX;

/// Pauses that the wire requests of its neighbour.
#[derive(Debug)]
pub(super) struct Pauses {
    pausable: PriorityMask,
    /// Priorities that each port wants paused.
    asked: Vec<PriorityMask>,
    held: PriorityMask,
}

impl Pauses {
    pub(super) fn new(pausable: PriorityMask) -> Self {
        Self { pausable, asked: Vec::new(), held: PriorityMask::NONE }
    }

    /// Adds a port without requests.
    pub(super) fn add(&mut self, vlan: usize) {
        self.asked.resize(self.asked.len().max(vlan + 1), PriorityMask::NONE);
        self.asked[vlan] = PriorityMask::NONE;
    }

    /// Removes a port and its requests; returns the message to send.
    pub(super) fn remove(&mut self, vlan: usize) -> Option<Message> {
        let asked = std::mem::replace(&mut self.asked[vlan], PriorityMask::NONE);
        message(asked.without(self.wanted()), PriorityMask::NONE)
    }

    /// Priorities to be paused.
    fn wanted(&self) -> PriorityMask {
        self.asked.iter().fold(self.held, |sum, one| PriorityMask(sum.0 | one.0))
    }

    /// Applies a port's message `said`; returns the message for the wire. A repetition changes
    /// nothing.
    pub(super) fn merge(&mut self, vlan: usize, said: &Message) -> Option<Message> {
        let Message::Pfc { enabled, quanta } = *said else { return Some(*said) };
        for priority in Priority::all().filter(|p| enabled.contains(*p)) {
            if quanta[priority.index()] > 0 {
                self.asked[vlan].insert(priority);
            } else {
                self.asked[vlan].remove(priority);
            }
        }
        let asks = enabled.and(self.asked[vlan]);
        let wanted = self.wanted();
        // A pause repeats all of them, so that one port's repetition serves all.
        let on = if asks.is_empty() { asks } else { wanted };
        message(PriorityMask(enabled.without(wanted).0 | on.0), on)
    }

    /// Holds these priorities and no others, as far as they may be paused; returns the message to
    /// send, which also covers priorities that were held before.
    pub(super) fn hold(&mut self, held: PriorityMask) -> Option<Message> {
        let before = self.wanted();
        self.held = held.and(self.pausable);
        let over = before.without(self.wanted());
        message(PriorityMask(self.held.0 | over.0), self.held)
    }
}

/// A message for the priorities `enabled` that pauses those of `on`; `None` if it would cover none.
fn message(enabled: PriorityMask, on: PriorityMask) -> Option<Message> {
    let quanta = std::array::from_fn(|p| if on.0 >> p & 1 == 1 { QUANTA_MAX } else { 0 });
    (!enabled.is_empty()).then_some(Message::Pfc { enabled, quanta })
}

/// Neighbour's messages that a port has not read, merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Source of the last one.
    pub(super) source: Mac,
    enabled: PriorityMask,
    quanta: [u16; 8],
}

impl Heard {
    /// Merges `message` into the messages that were not read before.
    pub(super) fn after(before: Option<Self>, source: Mac, message: &Message) -> Self {
        let nothing = Self { source, enabled: PriorityMask::NONE, quanta: [0; 8] };
        let mut heard = Self { source, ..before.unwrap_or(nothing) };
        let (enabled, quanta) = match *message {
            // 802.3 annex 31B: PAUSE is for the whole link.
            Message::Pause { quanta } => (PriorityMask::ALL, [quanta; 8]),
            Message::Pfc { enabled, quanta } => (enabled, quanta),
            Message::Unknown { .. } => return heard,
        };
        for priority in Priority::all().filter(|p| enabled.contains(*p)) {
            heard.enabled.insert(priority);
            heard.quanta[priority.index()] = quanta[priority.index()];
        }
        heard
    }

    /// All merged messages as one.
    pub(super) fn message(&self) -> Message {
        Message::Pfc { enabled: self.enabled, quanta: self.quanta }
    }
}
