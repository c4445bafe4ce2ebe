//! The end of a worker: it drains, or it hands over to another process.
//!
//! ```text
//!            Drain ─▶ reads nothing, sends what it holds ─▶ ended
//!   runs ◀─▶ Stop  ─▶ the same, until the next step
//!                      └─ Freeze ─▶ moves nothing, and answers questions ─ Thaw ─▶ runs
//! ```
//!
//! A worker that hands over is frozen before the other process moves the first frame: two that send
//! would reorder frames, two that read would take each other's frames. A worker that takes over
//! starts frozen.

use std::io;
use std::sync::mpsc::SyncSender;

use sluice_base::{Mac, Nanos, PortId, VnetId};
use sluice_ports::{Port, PortHandover, TxBackoff};
use sluice_switch::Destination;

use super::Worker;
use crate::sys::log::say;

/// Longest time for held frames to leave when the host is stopped.
const DRAIN_MAX: Nanos = Nanos::from_millis(1000);
/// Longest sleep of a frozen worker if nobody asks it anything.
const FROZEN_SLEEP: Nanos = Nanos::from_millis(1000);

/// Frames that are left when the worker ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::data) struct Left {
    /// Frames in the switch.
    pub(in crate::data) resident: u64,
    /// Frames in drivers, on their way out or set aside on their way in, and from other workers.
    pub(in crate::data) pending: u64,
}

impl std::ops::AddAssign for Left {
    fn add_assign(&mut self, other: Self) {
        self.resident += other.resident;
        self.pending += other.pending;
    }
}

/// A step of handing over.
pub(in crate::data) enum YieldStep {
    /// Stop reading; send all held frames.
    Stop,
    /// Report the number of frames left.
    Left(SyncSender<Left>),
    /// Stop moving frames, and return the state that the other process needs.
    Freeze(SyncSender<io::Result<Frozen>>),
    /// Install these addresses, as far as this worker's switch has their networks.
    Know(Vec<Known>),
    /// Continue.
    Thaw,
}

/// An address, and its destination.
pub(in crate::data) type Known = (VnetId, Mac, Destination);

/// State of a frozen worker.
#[derive(Debug, Default)]
pub(in crate::data) struct Frozen {
    pub(in crate::data) left: Left,
    pub(in crate::data) ports: Vec<(PortId, PortHandover)>,
    pub(in crate::data) known: Vec<Known>,
}

/// Progress of a worker towards its end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    until: Option<Nanos>,
    stopped: bool,
    frozen: bool,
}

impl Ending {
    /// Returns the time at which a draining worker ends, even with frames left.
    pub(super) const fn until(&self) -> Option<Nanos> {
        self.until
    }

    pub(super) const fn reads_nothing(&self) -> bool {
        self.stopped || self.until.is_some()
    }

    pub(super) const fn is_frozen(&self) -> bool {
        self.frozen
    }
}

impl Worker {
    /// Returns the frames that have not left yet.
    ///
    /// Frames that another worker sent count from their entry into the ring: two questions may be
    /// answered in one turn, before the frames are taken.
    pub(super) fn left(&mut self) -> Left {
        let ports = self.ports.iter_mut();
        let in_drivers: u64 = ports.map(|attached| pending(&mut *attached.port)).sum();
        Left {
            resident: self.host.switch().audit().total(|row| row.frames.resident),
            pending: in_drivers + self.handoffs.arriving(),
        }
    }

    /// Stops reading, and ends when all held frames have left.
    pub(super) fn drain(&mut self, now: Nanos) {
        self.ending.until.get_or_insert(now.after(DRAIN_MAX));
        self.ending.frozen = false;
        self.stop_reading();
    }

    fn stop_reading(&mut self) {
        for attached in &mut self.ports {
            if let Some(ahead) = attached.port.read_ahead() {
                ahead.stop_reading();
            }
        }
    }

    /// Returns the frames left, if the worker is to end now.
    pub(super) fn has_drained(&mut self, now: Nanos, worked: bool) -> Option<Left> {
        let until = self.ending.until.filter(|_| !worked)?;
        let left = self.left();
        let done = now >= until || (left == Left::default() && self.handoffs.drained());
        done.then_some(left)
    }

    /// Starts frozen: another process still holds the state that this one will continue with.
    pub(in crate::data) fn begin_frozen(&mut self) {
        self.ending.frozen = true;
    }

    /// Takes its ports, in order; ports after one that cannot be watched stay in the list.
    pub(in crate::data) fn open(&mut self, ports: &mut Vec<super::Opened>) -> io::Result<()> {
        ports.reverse();
        while let Some((id, name, port)) = ports.pop() {
            self.adopt(name, port, id)?;
        }
        Ok(())
    }

    /// Answers questions and does nothing else, until it is thawed.
    #[cold]
    pub(super) fn wait_frozen(&mut self, mut now: Nanos) -> io::Result<()> {
        while self.ending.frozen {
            if self.asked {
                self.answer(now);
            } else {
                self.collect(FROZEN_SLEEP)?;
                now = crate::sys::clock::now();
            }
        }
        Ok(())
    }

    /// Executes a step of the handover. Returns true if a turn must follow.
    #[cold]
    pub(super) fn yield_step(&mut self, now: Nanos, step: YieldStep) -> bool {
        // The thread that asked may be gone.
        match step {
            YieldStep::Stop => {
                self.ending.stopped = true;
                self.stop_reading();
            }
            YieldStep::Left(reply) => _ = reply.send(self.left()),
            YieldStep::Freeze(reply) => {
                self.ending.frozen = true;
                _ = reply.send(self.frozen());
            }
            YieldStep::Know(known) => {
                for (vnet, mac, to) in known {
                    let install = sluice_switch::Command::Install { vnet, mac, to };
                    // An address that is there already, or whose destination is gone, needs
                    // nothing.
                    _ = self.host.switch_mut().command(now, install);
                }
            }
            YieldStep::Thaw => {
                (self.ending.stopped, self.ending.frozen) = (false, false);
                for attached in &mut self.ports {
                    if let Some(ahead) = attached.port.read_ahead() {
                        ahead.resume_reading();
                    }
                    if let Some(handover) = attached.port.handover() {
                        handover.take_back();
                    }
                    attached.readable = attached.gone.is_none();
                    attached.room = TxBackoff::default();
                    attached.tell();
                }
            }
        }
        true
    }

    fn frozen(&mut self) -> io::Result<Frozen> {
        let mut frozen = Frozen { left: self.left(), ..Frozen::default() };
        for attached in &mut self.ports {
            let Some(handover) = attached.port.handover() else { continue };
            frozen.ports.extend(handover.hand_over()?.map(|handed| (attached.id, handed)));
        }
        frozen.known.extend(self.host.switch().macs());
        Ok(frozen)
    }

    /// Closes every port, and logs the kernel's errors.
    pub(in crate::data) fn close(&mut self) {
        for attached in &mut self.ports {
            if let Err(error) = attached.port.close() {
                say!(warn: "port {}: while closing: {error}", attached.name);
            }
        }
    }
}

fn pending(port: &mut dyn Port) -> u64 {
    port.pending().frames + aside(port)
}

/// Returns the number of frames that a port has set aside.
pub(super) fn aside(port: &mut dyn Port) -> u64 {
    port.read_ahead().map_or(0, |ahead| ahead.aside().frames)
}
