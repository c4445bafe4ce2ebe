//! Traces of a run: congestion windows, rates of flows, queues of links and waits in them, sampled
//! at a steady interval.
//!
//! ```text
//!   World::run_observed ── sample, left ──> Trace ── Sample ──> sink of the caller
//! ```
//!
//! A sample goes to the caller as soon as it is taken, so that a long trace needs no memory. What
//! is at rest gives no sample: a flow without outstanding bytes that has delivered nothing since
//! the last sample, and a link without a queue that no frame has left. The part of a run behind its
//! last whole interval is not sampled.

use sluice_base::Nanos;

use crate::ids::EndpointId;
use crate::net::Waiting;
use crate::topology::LinkId;
use crate::world::{Departure, Flow, Observer, World};

/// Kinds of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The congestion window of each flow.
    pub window: bool,
    /// The rate of each flow.
    pub rate: bool,
    /// The queue of each link.
    pub queue: bool,
    /// The waits at each link.
    pub wait: bool,
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Of a flow.
    Flow(FlowSample),
    /// Of a link.
    Link(LinkSample),
}

/// A sample of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample {
    /// The time.
    pub at: Nanos,
    /// The sending endpoint.
    pub id: EndpointId,
    /// Number of earlier connections that had this place.
    pub generation: u32,
    /// The station that sends.
    pub from: u32,
    /// The station that receives.
    pub to: u32,
    /// The congestion window in bytes, if it was asked for and there is one.
    pub window: Option<u64>,
    /// Bits of payload a second: the mean over the interval that ends now, of what has arrived.
    pub rate: Option<u64>,
}

/// A sample of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSample {
    /// The time.
    pub at: Nanos,
    /// The link.
    pub link: LinkId,
    /// The frames that wait now.
    pub queue: Option<Waiting>,
    /// The waits of the frames that have left since the last sample.
    pub wait: Option<Waits>,
}

/// Waits of several frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of frames.
    pub frames: u64,
    /// Sum of their waits.
    pub sum: Nanos,
    /// The longest wait.
    pub max: Nanos,
}

impl Waits {
    /// Returns the mean wait, zero without frames.
    #[must_use]
    pub const fn mean(&self) -> Nanos {
        Nanos(match self.sum.0.checked_div(self.frames) {
            Some(mean) => mean,
            None => 0,
        })
    }

    fn add(&mut self, wait: Nanos) {
        self.frames += 1;
        self.sum = self.sum.after(wait);
        self.max = self.max.max(wait);
    }
}

/// An observer that gives samples to `sink`.
pub struct Trace<S> {
    kinds: Kinds,
    every: Nanos,
    sink: S,
    /// By endpoint: the generation of its connection, and its delivered bytes at the last sample.
    delivered: Vec<(u32, u64)>,
    /// By link: waits since the last sample.
    waits: Vec<Waits>,
}

impl<S> std::fmt::Debug for Trace<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("kinds", &self.kinds).field("every", &self.every).finish()
    }
}

impl<S: FnMut(&Sample)> Trace<S> {
    /// Creates a trace of these kinds. `every` is the interval of its samples, which the run must
    /// have as well.
    pub const fn new(kinds: Kinds, every: Nanos, sink: S) -> Self {
        Self { kinds, every, sink, delivered: Vec::new(), waits: Vec::new() }
    }

    /// Returns the bytes that a flow has delivered since the last sample.
    fn progress(&mut self, flow: &Flow) -> u64 {
        let at = flow.id.index();
        if at >= self.delivered.len() {
            self.delivered.resize(at + 1, (0, 0));
        }
        let now = (flow.generation, flow.delivered);
        let before = std::mem::replace(&mut self.delivered[at], now);
        let known = if before.0 == flow.generation { before.1 } else { 0 };
        flow.delivered - known
    }

    fn sample_flow(&mut self, at: Nanos, flow: &Flow) {
        let bytes = self.progress(flow);
        if bytes == 0 && flow.outstanding == 0 {
            return;
        }
        let rate = u128::from(bytes) * 8_000_000_000 / u128::from(self.every.0.max(1));
        let sample = FlowSample {
            at,
            id: flow.id,
            generation: flow.generation,
            from: flow.from,
            to: flow.to,
            window: flow.window.filter(|_| self.kinds.window),
            rate: self.kinds.rate.then(|| u64::try_from(rate).unwrap_or(u64::MAX)),
        };
        (self.sink)(&Sample::Flow(sample));
    }

    fn sample_link(&mut self, world: &World, at: Nanos, link: LinkId) {
        let waits = self.waits.get_mut(link.index()).map(std::mem::take).unwrap_or_default();
        let waiting = if self.kinds.queue { world.waiting(link, at) } else { Waiting::default() };
        if waits.frames == 0 && waiting.frames == 0 {
            return;
        }
        let queue = self.kinds.queue.then_some(waiting);
        let wait = self.kinds.wait.then_some(waits);
        (self.sink)(&Sample::Link(LinkSample { at, link, queue, wait }));
    }
}

impl<S: FnMut(&Sample)> Observer for Trace<S> {
    fn sample(&mut self, world: &World, at: Nanos) {
        if self.kinds.window || self.kinds.rate {
            for flow in world.flows() {
                self.sample_flow(at, &flow);
            }
        }
        if self.kinds.queue || self.kinds.wait {
            for link in (0_u32..).map(LinkId).take(world.link_count()) {
                self.sample_link(world, at, link);
            }
        }
    }

    fn left(&mut self, departure: &Departure) {
        if !self.kinds.queue && !self.kinds.wait {
            return;
        }
        let at = departure.link.index();
        if at >= self.waits.len() {
            self.waits.resize(at + 1, Waits::default());
        }
        self.waits[at].add(departure.wait);
    }
}
