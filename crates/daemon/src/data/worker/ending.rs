//! The end of a worker: it drains, or it hands over to another process.
//!
//! ```text
//!            Drain ─▶ reads nothing, sends what it holds ─▶ ended
//!   runs ◀─▶ Stop  ─▶ the same, until it is told more
//!                      └─ Freeze ─▶ moves nothing, and answers questions ─ Thaw ─▶ runs
//! ```
//!
//! A worker that hands over is frozen before the other process moves the first frame: two that send
//! would overtake each other, two that read would take each other's frames. One that takes over
//! begins frozen.

use std::io;
use std::sync::mpsc::SyncSender;

use sluice_base::{Mac, Nanos, PortId, VnetId};
use sluice_ports::{Handed, Port, Room};
use sluice_switch::Destination;

use super::Worker;
use crate::log::say;

/// How long held frames may take to leave when the host is stopped.
const DRAIN_MAX: Nanos = Nanos::from_millis(1000);
/// How long a frozen worker sleeps if nobody asks it anything.
const FROZEN_SLEEP: Nanos = Nanos::from_millis(1000);

/// What is left when the worker ends.
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
    /// Read nothing more; send what is held.
    Stop,
    /// How much is left of it.
    Left(SyncSender<Left>),
    /// Move nothing more, and say what the other process needs.
    Freeze(SyncSender<io::Result<Frozen>>),
    /// These addresses are there; as far as this worker's switch knows their networks.
    Know(Vec<Known>),
    /// Go on.
    Thaw,
}

/// An address, and where it is.
pub(in crate::data) type Known = (VnetId, Mac, Destination);

/// What a frozen worker has.
#[derive(Debug, Default)]
pub(in crate::data) struct Frozen {
    pub(in crate::data) left: Left,
    pub(in crate::data) ports: Vec<(PortId, Handed)>,
    pub(in crate::data) known: Vec<Known>,
}

/// How far a worker is on its way to its end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    until: Option<Nanos>,
    stopped: bool,
    frozen: bool,
}

impl Ending {
    /// When it ends whatever is left, if it drains.
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
    /// Frames that have not left yet.
    ///
    /// Those that another worker has lent count from when they are in the ring: two questions may
    /// be answered in one turn, before they are taken.
    pub(super) fn left(&self) -> Left {
        let in_drivers: u64 = self.ports.iter().map(|attached| pending(&*attached.port)).sum();
        Left {
            resident: self.host.switch().audit().total(|row| row.frames.resident),
            pending: in_drivers + self.crossings.arriving(),
        }
    }

    /// Reads nothing more, and ends when what is held has left.
    pub(super) fn drain(&mut self, now: Nanos) {
        self.ending.until.get_or_insert(now.after(DRAIN_MAX));
        self.ending.frozen = false;
        self.ports.iter_mut().for_each(|attached| attached.port.stop_reading());
    }

    /// What is left, if the worker is to end now.
    pub(super) fn has_drained(&mut self, now: Nanos, worked: bool) -> Option<Left> {
        let until = self.ending.until.filter(|_| !worked)?;
        let left = self.left();
        let done = now >= until || (left == Left::default() && self.crossings.drained());
        done.then_some(left)
    }

    /// Begins frozen: another process still has what this one will go on with.
    pub(in crate::data) fn begin_frozen(&mut self) {
        self.ending.frozen = true;
    }

    /// Takes its ports, first one first; those behind one that cannot be watched stay.
    pub(in crate::data) fn open(&mut self, ports: &mut Vec<super::Opened>) -> io::Result<()> {
        ports.reverse();
        while let Some((id, name, port)) = ports.pop() {
            self.take_up(name, port, id)?;
        }
        Ok(())
    }

    /// Answers questions and does nothing else, until it is told to go on.
    #[cold]
    pub(super) fn wait_frozen(&mut self, mut now: Nanos) -> io::Result<()> {
        while self.ending.frozen {
            if self.asked {
                self.answer(now);
            } else {
                self.collect(FROZEN_SLEEP)?;
                now = crate::clock::now();
            }
        }
        Ok(())
    }

    /// A step of handing over. Returns whether a turn must follow.
    #[cold]
    pub(super) fn yield_step(&mut self, now: Nanos, step: YieldStep) -> bool {
        // Whoever asked may have gone away.
        match step {
            YieldStep::Stop => {
                self.ending.stopped = true;
                self.ports.iter_mut().for_each(|attached| attached.port.stop_reading());
            }
            YieldStep::Left(reply) => _ = reply.send(self.left()),
            YieldStep::Freeze(reply) => {
                self.ending.frozen = true;
                _ = reply.send(self.frozen());
            }
            YieldStep::Know(known) => {
                for (vnet, mac, to) in known {
                    let install = sluice_switch::Command::Install { vnet, mac, to };
                    // What is there already, or has gone, needs nothing.
                    _ = self.host.switch_mut().command(now, install);
                }
            }
            YieldStep::Thaw => {
                (self.ending.stopped, self.ending.frozen) = (false, false);
                for attached in &mut self.ports {
                    attached.port.go_on_reading();
                    attached.readable = attached.gone.is_none();
                    attached.room = Room::default();
                    attached.tell();
                }
            }
        }
        true
    }

    fn frozen(&mut self) -> io::Result<Frozen> {
        let mut frozen = Frozen { left: self.left(), ..Frozen::default() };
        for attached in &mut self.ports {
            frozen.ports.extend(attached.port.hand_over()?.map(|handed| (attached.id, handed)));
        }
        frozen.known.extend(self.host.switch().macs());
        Ok(frozen)
    }

    /// Closes every port, and says what the kernel had against it.
    pub(in crate::data) fn close(&mut self) {
        for attached in &mut self.ports {
            if let Err(error) = attached.port.close() {
                say!(warn: "port {}: while closing: {error}", attached.name);
            }
        }
    }
}

fn pending(port: &dyn Port) -> u64 {
    port.pending().frames + port.aside().frames
}
