//! The worker's part in an underlay that it shares with others: the steps of moving a bucket of
//! flows (`sluice_ports::buckets`), which are taken between two turns.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sluice_ports::buckets::{BucketSet, Buckets, Gauges, HighFlows};
use sluice_ports::{FrameBuf, Port};

use super::{Attached, Meter, Worker};

/// A step of moving buckets, or of changing the flows in them.
#[derive(Clone, Debug)]
pub(in crate::data) enum Step {
    /// Keep the frames of these buckets in the port.
    Hold(BucketSet),
    /// No more frames of these buckets will come. The step is done when those that came have left.
    Leave(BucketSet),
    /// Send the frames of these buckets.
    Release(BucketSet),
    /// Use these matches for flows of high priority.
    High(HighFlows),
}

/// Readable state of a worker's part of a shared underlay.
pub(in crate::data) struct Part {
    pub(in crate::data) gauges: Arc<Gauges>,
    pub(in crate::data) meter: Arc<Meter>,
}

/// A shared underlay.
pub(super) struct Spread {
    /// Its position in the worker's list of ports.
    at: usize,
    /// Channel to answer when all leaving frames have left.
    leaving: Option<SyncSender<()>>,
}

impl Spread {
    /// Follows a port to its new position in the list.
    pub(super) fn follow(&mut self, from: usize, to: usize) {
        if self.at == from {
            self.at = to;
        }
    }

    /// Returns the underlay.
    pub(super) fn port<'a>(&self, ports: &'a [Attached]) -> Option<&'a dyn Port> {
        ports.get(self.at).map(|attached| &*attached.port)
    }

    pub(super) fn buckets<'a>(&self, ports: &'a mut [Attached]) -> Option<&'a mut Buckets> {
        ports[self.at].port.buckets()
    }

    /// Notes that the handle of a frame in the host pool is back.
    pub(super) fn ended(&self, ports: &mut [Attached], buf: &FrameBuf) {
        if let Some(buckets) = self.buckets(ports) {
            buckets.ended(buf);
        }
    }
}

impl Worker {
    /// Returns the worker's part of a shared underlay, if it has one. The host has `ports` in all.
    pub(in crate::data) fn part(&mut self, ports: usize) -> Option<Part> {
        let at = self.ports.iter_mut().position(|attached| attached.port.buckets().is_some())?;
        let meter = self.meter(ports);
        let buckets = self.ports[at].port.buckets()?;
        self.spread = Some(Spread { at, leaving: None });
        Some(Part { gauges: buckets.gauges(), meter })
    }

    /// Answers for buckets that have left.
    #[inline]
    pub(super) fn tell_of_buckets(&mut self) {
        if self.spread.as_ref().is_some_and(|spread| spread.leaving.is_some()) {
            self.see_off();
        }
    }

    #[cold]
    fn see_off(&mut self) {
        let Some(spread) = &mut self.spread else { return };
        let attached = &mut self.ports[spread.at];
        let has_left = attached.port.buckets().is_none_or(|buckets| buckets.has_left());
        if has_left || attached.gone.is_some() {
            // The thread that asked may be gone.
            _ = spread.leaving.take().map(|reply| reply.send(()));
        }
    }

    /// Executes a step. Returns true if the port is to be read again.
    pub(super) fn step(&mut self, step: &Step, reply: SyncSender<()>) -> bool {
        let Some(spread) = &mut self.spread else { return false };
        let attached = &mut self.ports[spread.at];
        let Some(buckets) = attached.port.buckets() else { return false };
        match step {
            Step::Hold(set) => buckets.hold(set),
            Step::Release(set) => buckets.release(set),
            Step::High(high) => buckets.set_high(high),
            Step::Leave(set) => {
                buckets.leave(set);
                spread.leaving = Some(reply);
                attached.readable = true;
                return true;
            }
        }
        attached.readable = true;
        _ = reply.send(());
        true
    }
}
