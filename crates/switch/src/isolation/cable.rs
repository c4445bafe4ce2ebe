//! Overload of a cable, as opposed to a neighbour that does not take what comes.
//!
//! A switch without tunnels can ask no sender to hold, so isolation of one of its outputs costs
//! frames. Several hosts that send to one at full rate fill the switch for longer than `patience`
//! although the receiver takes all that its cable carries. The switch pauses the senders then, as
//! 802.1Q clause 36 means it, and isolates nobody.

use sluice_base::{Buf, Nanos, PortId, Priority};

use crate::config::PortRole;
use crate::egress::Port;
use crate::inspect::Counter;
use crate::switch::Switch;

/// Amounts of an output since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cable {
    /// Frames of all priorities that left.
    sent: Counter,
    /// Time for which the neighbour paused one priority.
    paused: Nanos,
}

impl<B: Buf> Switch<B> {
    /// Returns the amounts of a port's output, with the pauses of `priority`.
    pub(super) fn cable(&self, now: Nanos, at: usize, priority: Priority) -> Cable {
        let paused = self.egress.port(at).pause_in().paused_time(now, priority);
        Cable { sent: self.sent(PortId::from_index(at)), paused }
    }

    /// True if the cable of a port has too much to carry: `left` frames of the priority left in
    /// `span`, the port sent at half of its rate or more, and its neighbour paused the priority for
    /// less than half of the time. Of a port without a rate, and of one that another worker serves,
    /// it is enough that frames left.
    pub(super) fn is_overloaded(
        &self,
        at: usize,
        span: Nanos,
        left: u64,
        then: Cable,
        now: Cable,
    ) -> bool {
        let port = self.egress.port(at);
        if left == 0 || !self.has_cables_only() {
            return false;
        }
        let sent = Counter {
            frames: now.sent.frames.wrapping_sub(then.sent.frames),
            bytes: now.sent.bytes.wrapping_sub(then.sent.bytes),
        };
        let at_rate = |busy: Nanos| busy.0 >= span.0 / 2;
        let is_at_rate = port.is_elsewhere() || port.time_of(sent).is_none_or(at_rate);
        is_at_rate && now.paused.since(then.paused).0 < span.0 / 2
    }

    /// True for a physical switch: every port of this worker can pause its sender, and there is no
    /// tunnel by which a sender could be asked to hold.
    fn has_cables_only(&self) -> bool {
        let is_cable = |port: &Port| {
            let is_own =
                !port.is_detached() && !port.is_elsewhere() && port.role() != PortRole::Handoff;
            !is_own || port.pause_out().is_some()
        };
        self.tunnels.is_empty() && self.egress.ports().iter().all(is_cable)
    }
}
