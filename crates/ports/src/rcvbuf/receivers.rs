//! The gate of a port, once it is told to hold, and what became of frames there.

use std::os::fd::BorrowedFd;

use sluice_base::{Nanos, Priority, PriorityMask};
use sluice_switch::Egress;
use sluice_wire::mac_control;

use super::arrivals::Arrivals;
use super::gate::{Admit, Gate, Waiting};
use super::kernel::KernelRoom;
use super::room::RoomSource;
use super::{SocketHolds, SocketsShot};
use crate::frame::{FrameBuf, frame_size};
use crate::net_header::HEADER_SIZE;
use crate::port::Amount;

/// Interval of offers while the port is held for a socket, beside the events of sockets.
const FULL_RETRY: Nanos = Nanos::from_millis(5);

/// UDP sockets behind a port.
#[derive(Debug)]
pub(crate) struct Receivers<S = KernelRoom> {
    /// Made when it is opened, since its descriptors are to be watched from the start.
    room: Option<Box<S>>,
    gate: Option<Box<Gate<S>>>,
    /// Reason why there is neither.
    lacks: Option<String>,
    stuck: [Amount; Priority::COUNT],
    unbooked: PriorityMask,
}

impl Receivers {
    /// Those in a namespace; `None` is the caller's. Without rights or a kernel for it, every
    /// datagram passes.
    pub(crate) fn open(namespace: Option<BorrowedFd<'_>>) -> Self {
        Self::with(KernelRoom::open(namespace, None))
    }

    /// Sockets of a namespace to which frames are under way for a time, which `arrivals` tells.
    pub(crate) fn behind(namespace: BorrowedFd<'_>, arrivals: Arrivals) -> Self {
        Self::with(KernelRoom::open(Some(namespace), Some(arrivals)))
    }

    /// As [`Self::arrivals`], to be told what is sent.
    #[inline]
    pub(crate) fn arrivals_mut(&mut self) -> Option<&mut Arrivals> {
        match (&mut self.gate, &mut self.room) {
            (Some(gate), _) => gate.source_mut().arrivals_mut(),
            (None, Some(room)) => room.arrivals_mut(),
            (None, None) => None,
        }
    }

    /// The count of frames that arrived, if sending does not deliver.
    pub(crate) fn arrivals(&self) -> Option<&Arrivals> {
        self.source()?.arrivals()
    }

    /// A marker to send behind all frames, if sockets are held for frames that seem to be on their
    /// way for long.
    #[inline]
    pub(crate) fn marker(&mut self, now: Nanos) -> Option<[u8; mac_control::FRAME_SIZE]> {
        let gate = self.gate.as_mut().filter(|gate| gate.waits_for_flight())?;
        gate.source_mut().arrivals_mut()?.marker(now)
    }

    /// Descriptors that tell of drained sockets.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.source().into_iter().flat_map(KernelRoom::fds)
    }

    /// As [`crate::ReceivingSockets::shot`].
    pub(crate) fn shot(&self) -> SocketsShot {
        let mut shot = self.plain_shot();
        if let Some(source) = self.gate.as_ref().map(|gate| gate.source()) {
            shot.is_signalled = source.is_signalled();
            shot.counters.written_off = source.arrivals().map_or(0, Arrivals::written_off);
        }
        shot
    }
}

impl<S: RoomSource> Receivers<S> {
    pub(super) fn with(room: Result<S, String>) -> Self {
        let (room, lacks) = match room {
            Ok(room) => (Some(Box::new(room)), None),
            Err(lacks) => (None, Some(lacks)),
        };
        let (stuck, unbooked) = ([Amount::default(); Priority::COUNT], PriorityMask::NONE);
        Self { room, gate: None, lacks, stuck, unbooked }
    }

    /// Those that are not held for, and why.
    pub(crate) fn lacking(lacks: String) -> Self {
        Self::with(Err(lacks))
    }

    /// Begins to hold, or changes for how long.
    pub(crate) fn hold(&mut self, holds: SocketHolds) {
        if let Some(gate) = &mut self.gate {
            gate.set_holds(holds);
        } else if holds.iter().any(Option::is_some)
            && let Some(room) = self.room.take()
        {
            self.gate = Some(Box::new(Gate::new(*room, holds)));
        }
    }

    pub(super) fn source(&self) -> Option<&S> {
        self.room.as_deref().or(self.gate.as_ref().map(|gate| gate.source()))
    }

    pub(super) fn source_mut(&mut self) -> Option<&mut S> {
        let gate = self.gate.as_mut().map(|gate| gate.source_mut());
        gate.or(self.room.as_deref_mut())
    }

    pub(super) fn gate(&self) -> Option<&Gate<S>> {
        self.gate.as_deref()
    }

    pub(super) fn gate_mut(&mut self) -> Option<&mut Gate<S>> {
        self.gate.as_deref_mut()
    }

    /// The answer to an offered frame.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        header: &[u8; HEADER_SIZE],
        frame: &Egress<'_, FrameBuf>,
    ) -> Admit {
        let Some(gate) = &mut self.gate else { return Admit::Pass };
        let admit = gate.admit(header, frame);
        if admit == Admit::Stuck {
            self.end(frame.priority, frame_size(frame));
        }
        admit
    }

    /// Returns false if the segments of a super-frame are to be offered one by one.
    pub(crate) fn takes_whole(&mut self, frame: &Egress<'_, FrameBuf>) -> bool {
        self.gate.as_mut().is_none_or(|gate| gate.takes_whole(frame))
    }

    /// Writes frames whose sockets have room again, by `write`; see [`Gate::resume`].
    #[inline]
    pub(crate) fn resume(
        &mut self,
        now: Nanos,
        write: impl FnMut(&Waiting) -> Option<u64>,
    ) -> bool {
        let Some(gate) = &mut self.gate else { return false };
        let left = gate.resume(now, write);
        let ended: Vec<_> = gate.take_ended().collect();
        for (priority, size) in ended {
            self.end(priority, size);
        }
        left
    }

    #[cold]
    fn end(&mut self, priority: Priority, size: usize) {
        self.stuck[priority.index()].add(size);
        self.unbooked.insert(priority);
    }

    /// As [`crate::ReceivingSockets::take_stuck`].
    #[inline]
    pub(crate) fn take_stuck(&mut self) -> Option<(Priority, Amount)> {
        if self.unbooked.is_empty() {
            return None;
        }
        let priority = Priority::all().find(|priority| self.unbooked.contains(*priority))?;
        self.unbooked.remove(priority);
        Some((priority, std::mem::take(&mut self.stuck[priority.index()])))
    }

    /// Notes that the whole port is held.
    pub(crate) fn hold_port(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.hold_port();
        }
    }

    /// Interval of the next offer, if the port is held for a socket.
    pub(crate) fn retry_after(&self) -> Option<Nanos> {
        self.gate.as_ref()?.is_full().then_some(FULL_RETRY)
    }

    /// Frames that wait for sockets.
    pub(crate) fn waiting(&self) -> Amount {
        self.gate.as_ref().map_or(Amount::default(), |gate| gate.waiting())
    }

    /// Gives up all frames that wait, and returns their sizes.
    pub(crate) fn give_up(&mut self) -> Vec<usize> {
        self.gate.as_mut().map_or(Vec::new(), |gate| gate.give_up())
    }

    /// The state of the sockets, but for what only some sources know.
    pub(super) fn plain_shot(&self) -> SocketsShot {
        match &self.gate {
            None => {
                let lacks = || "a lossless priority of a lossless network".to_owned();
                let lacks = Some(self.lacks.clone().unwrap_or_else(lacks));
                SocketsShot { lacks, ..SocketsShot::default() }
            }
            Some(gate) => SocketsShot {
                lacks: None,
                is_signalled: false,
                held: gate.held(),
                counters: gate.counts(),
            },
        }
    }
}
