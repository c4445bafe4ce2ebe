//! Content of a world, found by a walk through it, and reports as things happen: for the checkers.

use sluice_base::Nanos;

use super::World;
use crate::ids::{ConnectionId, EndpointId};
use crate::ledger::{Ledger, Stream, Violation};
use crate::net::{self, Shape};

/// Content of the virtual switches and of the rings and queues between them and the VMs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VirtualCensus {
    /// Packets that have a handle.
    pub(crate) packets: u64,
    /// Number of frames in the rings of VMs.
    pub(crate) rings: u64,
    /// Packets on their way to the TCP of a VM.
    pub(crate) arriving: u64,
    /// Frames in the switches; `dropped`: frames that they dropped.
    pub(crate) resident: u64,
    pub(crate) dropped: u64,
    /// Frames among these that were dropped for congestion.
    pub(crate) congested: u64,
    /// A host whose audit does not close.
    pub(crate) unclosed: Option<u32>,
}

/// The whole census.
#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) now: Nanos,
    pub(crate) net: net::Census,
    pub(crate) virt: Option<VirtualCensus>,
    pub(crate) streams: Vec<Stream>,
}

impl World {
    /// Begins a ledger. To be called before anything has happened.
    pub(crate) fn keep_ledger(&mut self) {
        let hosts = self.routes.host_count();
        self.ledger = Some(Box::new(Ledger::new(hosts, self.virt.is_some())));
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().expect("kept from the beginning")
    }

    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        self.ledger.as_mut().expect("kept from the beginning")
    }

    /// Walks the world.
    pub(crate) fn census(&self) -> Census {
        let ends = (0_u32..).map(EndpointId).zip(&self.endpoints).filter(|(_, e)| e.is_open());
        Census {
            now: self.now(),
            net: self.net.census(self.now()),
            virt: self.virt.as_ref().map(|_| self.virtual_census()),
            streams: ends.map(|(id, _)| self.stream(id)).collect(),
        }
    }

    fn stream(&self, to: EndpointId) -> Stream {
        let from = &self.endpoints[to.peer().0 as usize];
        Stream {
            to,
            written: (from.written, from.tcp.written()),
            acknowledged: from.tcp.acknowledged(),
            delivered: self.endpoints[to.0 as usize].tcp.delivered(),
        }
    }

    fn virtual_census(&self) -> VirtualCensus {
        let Some(virt) = &self.virt else { return VirtualCensus::default() };
        let mut census = VirtualCensus {
            packets: self.packets.count() as u64,
            arriving: virt.arriving.iter().map(|queue| queue.len() as u64).sum(),
            ..VirtualCensus::default()
        };
        for (at, host) in (0_u32..).zip(&virt.hosts) {
            let audit = host.host().switch().audit();
            census.rings += host.all_ring_frames() as u64;
            census.resident += audit.total(|row| row.frames.resident);
            census.dropped += audit.total(|row| row.frames.dropped);
            census.congested += audit.total(|row| row.frames.dropped_congestion);
            if !audit.is_closed() {
                census.unclosed = Some(at);
            }
        }
        census
    }

    /// Checks a frame that has come in at a host: frames of one link cannot be closer than its rate
    /// allows.
    #[inline]
    pub(super) fn check_arrival(&mut self, host: u32, shape: Shape) {
        if let Some(ledger) = &mut self.ledger {
            let link = self.routes.link_of(host).reverse();
            ledger.arrived(self.events.now(), host, self.net.time_on(link, shape.size));
        }
    }

    /// Checks messages to an endpoint that have arrived whole: packets have brought all their
    /// bytes, not faster than the links carry them.
    pub(super) fn check_messages(&mut self, to: EndpointId) {
        let Some(mut ledger) = self.ledger.take() else { return };
        let now = self.now();
        let end = &self.endpoints[to.0 as usize];
        let delivered = end.tcp.delivered();
        let path = self.endpoints[to.peer().0 as usize].path;
        let latencies = self.send_latency.0 + self.receive_latency.0;
        for (message_end, _) in end.messages.iter().take_while(|(end, _)| *end <= delivered) {
            ledger.message_arrived(now, (to, end.generation), *message_end, |bytes| {
                let on_links = path.map_or(Nanos::ZERO, |path| self.net.time_min(path, bytes));
                Nanos(latencies + on_links.0)
            });
        }
        self.ledger = Some(ledger);
    }

    /// Checks a connection that ends: no endpoint may have a report of bytes that did not arrive.
    pub(super) fn check_closed(&mut self, id: ConnectionId) {
        if self.ledger.is_none() {
            return;
        }
        for to in [id.client(), id.server()] {
            if let Err(violation) = self.stream(to).check(self.ledger()) {
                self.ledger_mut().found(violation);
            }
        }
    }

    /// Returns the violation that the ledger has found since the last call.
    pub(crate) fn found(&mut self) -> Option<Violation> {
        self.ledger.as_mut().and_then(|ledger| ledger.take_violation())
    }
}
