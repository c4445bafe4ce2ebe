//! The parts of the port that only some kinds have: flow control, frames set aside, the hand-over,
//! the state of the device.

use std::io;

use sluice_switch::Classifier;

use super::{HEARD_MAX, L2Port};
use crate::handed::PortHandover;
use crate::l2::handing::{FRAMES, INDEX, QUIET, SLOT_SIZE, VTEP, share_number};
use crate::port::{DeviceState, FlowControl, Handover, HeldBack, ReadAhead};

impl FlowControl for L2Port {
    fn receive_control(&mut self, tell: &mut dyn FnMut(&[u8])) -> usize {
        let Some(open) = &mut self.open else { return 0 };
        let mut heard = 0;
        while heard < HEARD_MAX
            && let Some(frame) = open.control.front()
        {
            tell(frame.bytes);
            open.control.release();
            heard += 1;
        }
        heard
    }

    fn classify_by(&mut self, classifier: &Classifier) {
        self.classifier = Some(classifier.clone());
    }
}

impl ReadAhead for L2Port {
    fn aside(&self) -> HeldBack {
        self.room.amount()
    }

    fn stop_reading(&mut self) {
        self.stopped = true;
    }

    fn resume_reading(&mut self) {
        self.stopped = false;
    }
}

impl Handover for L2Port {
    fn hand_over(&mut self) -> io::Result<Option<PortHandover>> {
        let Some(open) = &self.open else { return Ok(None) };
        let mut handed = PortHandover::default();
        for (name, ring) in [("control", &open.control), ("ring", &open.ring)] {
            handed.file(name, ring.fd())?;
            handed.number(name, ring.next() as u64);
        }
        if let Some(fd) = open.quiet.fd() {
            handed.file(QUIET, fd)?;
        }
        handed.number(INDEX, open.index.into());
        handed.number(FRAMES, self.plan.frames.into());
        handed.number(SLOT_SIZE, self.plan.slot_size.into());
        handed.number(VTEP, share_number(self.kernel));
        open.offloads.hand_over(&mut handed);
        Ok(Some(handed))
    }
}

impl DeviceState for L2Port {
    fn is_up(&self) -> Option<bool> {
        self.open.as_ref()?.counters.is_up().ok()
    }

    fn problem(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        let Ok(link) = open.counters.link() else { return None };
        let Some(link) = link else { return Some("needs its device back".to_owned()) };
        let name = &link.name;
        if !link.up {
            return Some(format!("needs its device {name} up: ip link set {name} up"));
        }
        if !link.carrier {
            return Some(format!("needs a carrier: the link of its device {name} is down"));
        }
        (link.mtu < u32::from(self.mtu)).then(|| {
            let (there, wanted) = (link.mtu, self.mtu);
            format!("needs an MTU of {wanted}: its device {name} has {there}")
        })
    }
}
