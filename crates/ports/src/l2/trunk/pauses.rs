//! The flow control of one wire with several ports (802.1Q clause 36).
//!
//! A neighbour keeps one state per priority, so what the ports ask is merged: a priority is paused
//! while any of them asks for it, or while everything is paused because the head of the ring waits
//! for a port without room.
//!
//! ```text
//!   wire pauses p   <=>   some port asked for p   or   all, and p may be paused
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
    all: bool,
}

impl Pauses {
    pub(super) fn new(pausable: PriorityMask) -> Self {
        Self { pausable, asked: Vec::new(), all: false }
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
        let all = if self.all { self.pausable } else { PriorityMask::NONE };
        self.asked.iter().fold(all, |sum, one| PriorityMask(sum.0 | one.0))
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

    /// Whether everything is paused.
    pub(super) fn pauses_all(&self) -> bool {
        self.all
    }

    /// Everything is paused; what is to be said, also if it was said before.
    pub(super) fn all(&mut self) -> Option<Message> {
        self.all = true;
        message(self.pausable, self.pausable)
    }

    /// That is over; what is to be said then.
    pub(super) fn no_longer_all(&mut self) -> Option<Message> {
        if !std::mem::take(&mut self.all) {
            return None;
        }
        message(self.pausable.without(self.wanted()), PriorityMask::NONE)
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
