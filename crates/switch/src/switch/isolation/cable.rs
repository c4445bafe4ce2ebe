//! Overload of a cable, as opposed to a neighbour that does not take what comes.
//!
//! A switch without tunnels can ask no sender to hold, so isolation of one of its outputs costs
//! frames. Several hosts that send to one at full rate fill the switch for longer than `patience`
//! although the receiver takes all that its cable carries. The switch pauses the senders then, as
//! 802.1Q clause 36 means it, and isolates nobody.

use sluice_base::{Buf, Nanos, Priority};

use crate::config::PortRole;
use crate::egress::Port;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Returns the time for which the neighbour of a port has paused a priority so far.
    pub(super) fn paused_time(&self, now: Nanos, at: usize, priority: Priority) -> Nanos {
        self.egress.port(at).pause_in().paused_time(now, priority)
    }

    /// True if the cable of a port has too much to carry: `left` frames of the priority left in
    /// `span`, and its neighbour paused the priority for less than half of that time, for `paused`.
    /// The rate at which they left says nothing: a switch that waits for its processor sends slowly
    /// to whoever takes at full rate.
    pub(super) fn is_overloaded(&self, span: Nanos, left: u64, paused: Nanos) -> bool {
        left > 0 && paused.0 < span.0 / 2 && self.has_cables_only()
    }

    /// True for a physical switch: every port of this worker can pause its sender, and there is no
    /// tunnel by which a sender could be asked to hold.
    fn has_cables_only(&self) -> bool {
        let is_cable = |port: &Port| {
            let is_own =
                !port.is_detached() && !port.is_elsewhere() && port.role() != PortRole::Handoff;
            !is_own || port.pause_out().is_some()
        };
        self.networks.tunnels().is_empty() && self.egress.ports().iter().all(is_cable)
    }
}
