//! Messages between stations, each at its time; some connections are closed when all is
//! acknowledged, so that their places are used again.

use std::sync::Arc;

use sluice_base::{Nanos, Priority};
use sluice_sim::tcp::Config;
use sluice_sim::world::{Connect, Notice, Workload, World};

/// A message over a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) at: Nanos,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    pub(crate) priority: Priority,
    pub(crate) path: u64,
    pub(crate) handshake: bool,
    /// True if its sender closes the connection when all is acknowledged.
    pub(crate) closes: bool,
    pub(crate) tcp: Arc<Config>,
}

#[derive(Debug)]
pub(crate) struct Mix {
    flows: Vec<Flow>,
    missing: usize,
    /// Completion times in the order in which they are done.
    pub(crate) fct: Vec<Nanos>,
}

impl Mix {
    pub(crate) fn new(flows: &[Flow]) -> Self {
        let missing = flows.iter().map(|flow| 1 + usize::from(flow.closes)).sum();
        Self { flows: flows.to_vec(), missing, fct: Vec::new() }
    }

    fn begin(&self, world: &mut World, at: u32) {
        let flow = &self.flows[at as usize];
        let with = Connect {
            from: flow.from,
            to: flow.to,
            priority: flow.priority,
            flow: flow.path,
            handshake: flow.handshake,
        };
        let id = world.connect(&flow.tcp, &with).unwrap();
        world.send(id.client(), flow.bytes, at);
        if flow.closes {
            world.tell_acknowledged(id.client());
        }
    }
}

impl Workload for Mix {
    fn start(&mut self, world: &mut World) {
        for (at, flow) in (0_u32..).zip(&self.flows) {
            world.at(flow.at, at);
        }
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Time(at) => self.begin(world, at),
            Notice::Message { tag, .. } => {
                self.fct.push(world.now().since(self.flows[tag as usize].at));
                self.missing -= 1;
            }
            Notice::Acknowledged(end) => {
                world.close(end.connection());
                self.missing -= 1;
            }
            Notice::Room(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.missing == 0
    }
}

/// Background traffic that ends: after `until` the workload gets no time notices, unless the token
/// belongs to a flow that has begun.
#[derive(Debug)]
pub(crate) struct Ending<W> {
    pub(crate) inner: W,
    pub(crate) until: Nanos,
}

/// Tokens below this number begin a flow; see `BackgroundTraffic`.
const BEGIN_BELOW: u32 = 1 << 24;

impl<W: Workload> Workload for Ending<W> {
    fn start(&mut self, world: &mut World) {
        self.inner.start(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Time(token) if token < BEGIN_BELOW && world.now() > self.until => {}
            notice => self.inner.happened(world, notice),
        }
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }
}
