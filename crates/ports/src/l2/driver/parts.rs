//! The parts of the port that only some kinds have: flow control, frames set aside, the hand-over,
//! the state of the device.

use std::io;

use sluice_switch::Classifier;

use super::{HEARD_MAX, L2Port};
use crate::device::{DeviceCounters, softnet_dropped};
use crate::error::OpenError;
use crate::handed::PortHandover;
use crate::l2::driver::takes_series;
use crate::l2::handing::{FRAMES, INDEX, QUIET, SERIES, SLOT_SIZE, VTEP, share_number};
use crate::link::LinkNow;
use crate::port::{Counters, DeviceState, FlowControl, Handover, HeldBack, KernelSide, ReadAhead};

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
        self.joined.add_to(self.room.amount())
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
        handed.number(SERIES, u64::from(takes_series(self.kernel)));
        open.offloads.hand_over(&mut handed);
        Ok(Some(handed))
    }
}

/// Counters of the device and of this machine's queue in front of the stack.
#[derive(Debug)]
pub(super) struct KernelCounters {
    device: DeviceCounters,
    /// Value at the opening.
    softnet_dropped: u64,
    /// The MTU that the port needs.
    mtu: u16,
}

impl KernelSide for KernelCounters {
    fn read(&self, rows: &mut Counters) -> io::Result<()> {
        self.device.read(rows)?;
        rows.insert("softnet.dropped", softnet_dropped()?.wrapping_sub(self.softnet_dropped));
        Ok(())
    }

    fn device(&self) -> DeviceState {
        let Ok(link) = self.device.link() else { return DeviceState::default() };
        DeviceState {
            up: Some(link.as_ref().is_some_and(|link| link.up)),
            problem: self.problem(link.as_ref()),
        }
    }
}

impl KernelCounters {
    /// Begins to count.
    pub(super) fn open(name: &str, index: u32, mtu: u16) -> Result<Self, OpenError> {
        let failed = |what| OpenError::device(name, what);
        Ok(Self {
            device: DeviceCounters::new(index).map_err(failed("read its counters"))?,
            softnet_dropped: softnet_dropped().map_err(failed("read softnet_stat for it"))?,
            mtu,
        })
    }

    fn problem(&self, link: Option<&LinkNow>) -> Option<String> {
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
