//! Queues whose first frame waits for one receiver of several behind a port.
//!
//! ```text
//!   in the port's ring ── the driver says `Later` ──▶ set aside ── `resume_port` ──▶ in the ring
//! ```
//!
//! A container has many sockets, and one that is full must not hold the others. The queue of the
//! source goes out of the port's ring until the driver has room for its first frame again; queues
//! of other sources go on. The frames stay in their sender's input, which fills and holds the
//! sender. They are never copied to the shared buffer, since a receiver that holds others up has no
//! claim on the pool.
//!
//! **Shared inputs.** Frames that came by a wire stand before frames for everybody else there, so
//! they are not set aside: the whole port is held, and isolation ends what that costs others. The
//! same holds for frames of other switches of the host, and while the port is isolated.
//!
//! **Order.** A queue is set aside whole, and while one is, no frame for the port takes the common
//! queue, in which it would overtake.

use sluice_base::{Buf, PortId};

use crate::egress::Turn;
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

impl<B: Buf> Switch<B> {
    /// Sets the queue aside that has the turn. Returns false if it is not its sender's alone.
    #[cold]
    pub(crate) fn set_aside(&mut self, turn: &Turn) -> bool {
        let (queue, slot) = (self.egress.queue(turn.leaf), self.slots.get(turn.slot));
        let priority = slot.priority();
        let port = PortId::from_index(turn.port).0;
        let is_own = matches!(self.egress.group(turn.group).kind(), QueueGroupKind::Port(_))
            && self.shared_input_of(queue.source()).is_none()
            && !self.ingress.input(slot.input()).is_shared()
            && !self.is_handoff(slot.input())
            && !self.is_isolated(port, priority);
        if is_own {
            self.egress.park(turn.leaf);
            self.egress.set_plain(turn.group, false);
        }
        is_own
    }

    /// Offers queues again that were set aside: a receiver behind the port has room.
    pub fn resume_port(&mut self, port: PortId) {
        let group = self.egress.port(port.index()).group();
        if self.egress.reopen(group) {
            self.refresh_plain(port.0);
        }
    }
}
