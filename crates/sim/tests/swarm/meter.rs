//! Counts the payload of messages that have arrived, beside a workload that knows nothing of it.

use std::collections::BTreeMap;

use sluice_base::Nanos;
use sluice_sim::world::{EndpointId, Notice, Workload, World};

/// A workload whose messages are counted.
#[derive(Debug)]
pub(crate) struct Metered<'a> {
    inner: &'a mut dyn Workload,
    /// Bytes that were counted, by endpoint.
    counted: BTreeMap<EndpointId, u64>,
    /// Payload of all messages that have arrived.
    pub(crate) bytes: u64,
    /// Time of the last arrival.
    pub(crate) last: Nanos,
}

impl<'a> Metered<'a> {
    pub(crate) const fn new(inner: &'a mut dyn Workload) -> Self {
        Self { inner, counted: BTreeMap::new(), bytes: 0, last: Nanos::ZERO }
    }

    fn count(&mut self, world: &World, to: EndpointId) {
        let delivered = world.delivered(to);
        let before = self.counted.insert(to, delivered).unwrap_or(0);
        self.bytes += delivered - before;
        self.last = world.now();
    }
}

impl Workload for Metered<'_> {
    fn start(&mut self, world: &mut World) {
        self.inner.start(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        if let Notice::Message { to, .. } = notice {
            self.count(world, to);
        }
        self.inner.happened(world, notice);
        // All workloads here close an acknowledged connection, and its number is used again.
        if let Notice::Acknowledged(end) = notice {
            self.counted.remove(&end);
            self.counted.remove(&end.peer());
        }
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }
}
