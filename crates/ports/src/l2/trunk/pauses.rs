//! The flow control of one wire with several ports (802.1Q clause 36).
//!
//! A neighbour keeps one state per priority, so what the ports ask is merged: a priority is paused
//! while any of them asks for it, or while it is held because much of it is set aside.
//!
//! ```text
//!   wire pauses p   <=>   some port asked for p   or   p is held, and may be paused
//! ```
//!
//! The other way a message is kept for each port until it reads: of two the later one replaces what
//! the earlier one said of the same priorities (clause 36.1.3.2).

use sluice_base::{Mac, Priority, PriorityMask};
use sluice_wire::mac_control::Message;

/// The longest pause that a frame can ask for.
const QUANTA_MAX: u16 = u16::MAX;

/// What the wire tells its neighbour.
#[derive(Debug)]
pub(super) struct Pauses {
    pausable: PriorityMask,
    /// What each port asked for.
    asked: Vec<PriorityMask>,
    held: PriorityMask,
}

impl Pauses {
    pub(super) fn new(pausable: PriorityMask) -> Self {
        Self { pausable, asked: Vec::new(), held: PriorityMask::NONE }
    }

    /// A port that asks for nothing.
    pub(super) fn add(&mut self, lane: usize) {
        self.asked.resize(self.asked.len().max(lane + 1), PriorityMask::NONE);
        self.asked[lane] = PriorityMask::NONE;
    }

    /// A port is closed and asks for nothing more; what is to be said then.
    pub(super) fn remove(&mut self, lane: usize) -> Option<Message> {
        let asked = std::mem::replace(&mut self.asked[lane], PriorityMask::NONE);
        message(asked.without(self.wanted()), PriorityMask::NONE)
    }

    /// Priorities that are to be paused.
    fn wanted(&self) -> PriorityMask {
        self.asked.iter().fold(self.held, |sum, one| PriorityMask(sum.0 | one.0))
    }

    /// A port says `said`; what is to be said on the wire. Saying it again changes nothing.
    pub(super) fn merge(&mut self, lane: usize, said: &Message) -> Option<Message> {
        let Message::Pfc { enabled, quanta } = *said else { return Some(*said) };
        for priority in Priority::all().filter(|p| enabled.contains(*p)) {
            if quanta[priority.index()] > 0 {
                self.asked[lane].insert(priority);
            } else {
                self.asked[lane].remove(priority);
            }
        }
        let asks = enabled.and(self.asked[lane]);
        let wanted = self.wanted();
        // With a pause all of them are repeated, so that the ports' repeating serves all.
        let on = if asks.is_empty() { asks } else { wanted };
        message(PriorityMask(enabled.without(wanted).0 | on.0), on)
    }

    /// Holds these priorities and no others, as far as they may be paused; what is to be said, also
    /// of those that were held before.
    pub(super) fn hold(&mut self, held: PriorityMask) -> Option<Message> {
        let before = self.wanted();
        self.held = held.and(self.pausable);
        let over = before.without(self.wanted());
        message(PriorityMask(self.held.0 | over.0), self.held)
    }
}

/// A frame that speaks of `enabled` and pauses those of `on`; none if it would speak of nothing.
fn message(enabled: PriorityMask, on: PriorityMask) -> Option<Message> {
    let quanta = std::array::from_fn(|p| if on.0 >> p & 1 == 1 { QUANTA_MAX } else { 0 });
    (!enabled.is_empty()).then_some(Message::Pfc { enabled, quanta })
}

/// What the neighbour said and a port has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Who said it.
    pub(super) source: Mac,
    enabled: PriorityMask,
    quanta: [u16; 8],
}

impl Heard {
    /// What is to be read after `message` came.
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

    /// It as one message.
    pub(super) fn message(&self) -> Message {
        Message::Pfc { enabled: self.enabled, quanta: self.quanta }
    }
}
