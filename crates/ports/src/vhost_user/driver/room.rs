//! The UDP sockets in the guest: what its agent says, and what it is asked.

use sluice_base::{Nanos, Priority};
use sluice_switch::Egress;
use sluice_wire::guest_room::FRAME_SIZE_MAX;

use super::{VhostUserPort, interrupt, receive};
use crate::frame::FrameBuf;
use crate::port::{Amount, ReceivingSockets};
use crate::rcvbuf::{GuestRoom, Receivers, SocketHolds, SocketsShot};
use crate::vhost_user::outgoing::Placed;

/// The sockets of a guest with so many queue pairs. With more than one, a question would not be in
/// order with the data of the others.
pub(super) fn receivers(pairs: usize) -> Receivers<GuestRoom> {
    if pairs > 1 {
        return Receivers::lacking("a card with one queue pair: leave `queues` out".to_owned());
    }
    Receivers::guest()
}

impl VhostUserPort {
    /// Forgets the guest's agent with the ring that leads to it.
    pub(super) fn forget_agent(&mut self) {
        for size in self.receivers.reset() {
            self.lost.count(libc::ENETDOWN, size);
        }
        self.is_reset = true;
    }

    fn hear_agent(&mut self, now: Nanos) {
        for ring in self.incoming.iter_mut().flatten() {
            self.receivers.ignore(std::mem::take(&mut ring.told.ignored));
            while let Some(frame) = ring.told.frames.pop_front() {
                self.receivers.hear(now, &frame);
            }
        }
    }

    /// Sends the agent the question that is due, behind all data.
    #[inline(never)]
    fn ask_agent(&mut self, now: Nanos) {
        let mut bytes = [0; FRAME_SIZE_MAX];
        let Some(size) = self.receivers.question(now, &mut bytes) else { return };
        let usable = self.is_usable(receive(0));
        let Some(ring) = self.outgoing[0].as_mut().filter(|_| usable) else { return };
        let frame: Egress<'_, FrameBuf> = Egress {
            header: &bytes[..size],
            buf: None,
            strip: 0,
            size: u32::try_from(size).expect("a short frame"),
            first: 0,
            priority: Priority::ZERO,
            tunnel: None,
        };
        match ring.write(&frame) {
            Ok(Placed::Written) => {
                self.receivers.note_asked(now);
                if ring.publish() {
                    interrupt(&self.wires[receive(0)]);
                }
            }
            Ok(Placed::NoRoom | Placed::TooLarge) => {}
            Err(fault) => self.fail(receive(0), fault),
        }
    }
}

impl ReceivingSockets for VhostUserPort {
    fn hold(&mut self, holds: SocketHolds) {
        self.receivers.hold(holds);
    }

    #[inline]
    fn resume(&mut self, now: Nanos) -> bool {
        self.hear_agent(now);
        let mut left = std::mem::take(&mut self.is_reset);
        if self.receivers.is_active() {
            left |= self.resume_waiting(now);
        }
        if self.receivers.has_agent() {
            self.ask_agent(now);
        }
        left
    }

    fn shot(&self) -> SocketsShot {
        self.receivers.guest_shot()
    }

    fn take_stuck(&mut self) -> Option<(Priority, Amount)> {
        self.receivers.take_stuck()
    }
}

impl VhostUserPort {
    #[cold]
    fn resume_waiting(&mut self, now: Nanos) -> bool {
        // The gate is beside the port that it writes to.
        let mut receivers =
            std::mem::replace(&mut self.receivers, Receivers::lacking(String::new()));
        let left = receivers.resume(now, |waiting| self.offer_waiting(waiting).then_some(0));
        self.receivers = receivers;
        if let Some(ring) = &mut self.outgoing[0]
            && ring.publish()
        {
            interrupt(&self.wires[receive(0)]);
        }
        left
    }
}
