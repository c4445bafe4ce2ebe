//! The parts of the port that only some kinds have: the hand-over, the state of the device. Its
//! rings stand beside the port.

use std::io;

use super::{VhostUserPort, receive, transmit};
use crate::handed::PortHandover;
use crate::port::{DeviceState, Handover, Port as _};
use crate::vhost_user::device::handing::base_of;
use crate::vhost_user::incoming::Incoming;
use crate::vhost_user::outgoing::Outgoing;

impl Handover for VhostUserPort {
    fn hand_over(&mut self) -> io::Result<Option<PortHandover>> {
        self.flush()?;
        self.publish_incoming();
        let mut handed = PortHandover::default();
        let idle = self.incoming.iter().flatten().all(|ring| ring.out() == 0);
        self.session.hand_over(idle && self.stopping.is_none(), &mut handed)?;
        for pair in 0..self.incoming.len() {
            let bases = [
                (receive(pair), self.outgoing[pair].as_ref().map(Outgoing::base)),
                (transmit(pair), self.incoming[pair].as_ref().map(Incoming::base)),
            ];
            for (ring, base) in bases {
                base.into_iter().for_each(|base| handed.number(&base_of(ring), base.into()));
            }
        }
        Ok(Some(handed))
    }

    fn take_back(&mut self) {
        self.session.go_on();
    }
}

impl VhostUserPort {
    /// Returns the state of the guest's device.
    pub(super) fn device(&self) -> DeviceState {
        let runs = self.incoming[0].is_some() && self.outgoing[0].is_some();
        let fault = self.faults.iter().flatten().next();
        let stopped = fault.map(|fault| format!("the guest's ring is stopped: {fault}"));
        DeviceState {
            up: Some(runs && self.is_usable(transmit(0)) && self.is_usable(receive(0))),
            problem: stopped.or_else(|| self.session.problem()),
        }
    }
}
