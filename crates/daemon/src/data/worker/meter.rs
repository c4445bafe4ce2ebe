//! Meter of a worker: counters from which the rebalancer reckons load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_base::PortId;

use super::Worker;

/// Counters that a worker writes every turn, and that any thread may read.
#[derive(Debug)]
pub(in crate::data) struct Meter {
    busy_ns: AtomicU64,
    frames: AtomicU64,
    /// Frames in and out, by port number.
    moved: Box<[AtomicU64]>,
}

impl Meter {
    /// Makes the meter of a worker of a host with this number of ports.
    pub(in crate::data) fn new(ports: usize) -> Self {
        let moved = (0..ports).map(|_| AtomicU64::new(0)).collect();
        Self { busy_ns: AtomicU64::new(0), frames: AtomicU64::new(0), moved }
    }

    /// Returns the time of turns that moved something, in nanoseconds.
    pub(in crate::data) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Returns the frames that the worker read.
    pub(in crate::data) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Returns the frames in and out at a port.
    pub(in crate::data) fn moved(&self, port: PortId) -> u64 {
        self.moved[port.index()].load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Returns the worker's meter, which counts from the first call on. The host has `ports` in
    /// all.
    pub(in crate::data) fn meter(&mut self, ports: usize) -> Arc<Meter> {
        Arc::clone(self.meter.get_or_insert_with(|| Arc::new(Meter::new(ports))))
    }

    /// Returns the frames counted for a port when it was here before.
    pub(super) fn moved_before(&self, port: PortId) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.moved(port))
    }

    /// Publishes the counters of this turn, which read `frames`.
    #[inline]
    pub(super) fn publish(&mut self, frames: usize) {
        let Some(meter) = &self.meter else { return };
        meter.busy_ns.store(self.watch.times().busy.0, Ordering::Relaxed);
        // No other thread writes it.
        meter.frames.store(meter.frames() + frames as u64, Ordering::Relaxed);
        for attached in &self.ports {
            meter.moved[attached.id.index()].store(attached.moved, Ordering::Relaxed);
        }
    }
}
