//! The worker's part in an underlay that it shares with others: its load, and the steps of moving a
//! bucket of flows (`sluice_ports::udp::Buckets`), which are taken between two turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use sluice_ports::udp::{BucketSet, BucketTable, Buckets, Gauges, HighFlows, Selector};
use sluice_ports::{FrameBuf, Port};

use super::{Attached, Worker};

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

/// Counters that a worker writes every turn and that any thread may read.
#[derive(Debug, Default)]
pub(in crate::data) struct Meter {
    busy_ns: AtomicU64,
    frames: AtomicU64,
}

impl Meter {
    /// Returns the time of turns that moved something, in nanoseconds.
    pub(in crate::data) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Returns the frames that the worker read.
    pub(in crate::data) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// Readable state of a worker's part of a shared underlay.
pub(in crate::data) struct Part {
    pub(in crate::data) gauges: Arc<Gauges>,
    pub(in crate::data) meter: Arc<Meter>,
    /// Program that distributes datagrams to the workers.
    pub(in crate::data) selector: Option<(Selector, BucketTable)>,
}

/// A shared underlay.
pub(super) struct Spread {
    /// Its position in the worker's list of ports.
    at: usize,
    meter: Arc<Meter>,
    read: u64,
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
    /// Returns the worker's part of a shared underlay, if it has one.
    pub(in crate::data) fn part(&mut self) -> Option<Part> {
        let at = self.ports.iter_mut().position(|attached| attached.port.buckets().is_some())?;
        let buckets = self.ports[at].port.buckets()?;
        let meter = Arc::new(Meter::default());
        self.spread = Some(Spread { at, meter: Arc::clone(&meter), read: 0, leaving: None });
        Some(Part { gauges: buckets.gauges(), meter, selector: buckets.take_selector() })
    }

    /// Publishes the counters of this turn, and answers for buckets that have left.
    #[inline]
    pub(super) fn tell_of(&mut self, frames: usize) {
        let Some(spread) = &mut self.spread else { return };
        spread.read += frames as u64;
        spread.meter.frames.store(spread.read, Ordering::Relaxed);
        spread.meter.busy_ns.store(self.watch.times().busy.0, Ordering::Relaxed);
        if spread.leaving.is_some() {
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
