//! Runs with an observer, which samples the world at a steady interval and sees each frame that
//! leaves a link.
//!
//! The loop is another one than that of a plain run, so that an observer costs nothing where there
//! is none. It adds no event and changes nothing: a run is the same with an observer and without.

use sluice_base::Nanos;

use super::{End, Workload, World};
use crate::event::Event;
use crate::ids::{ConnectionId, EndpointId};
use crate::net::Waiting;
use crate::topology::LinkId;

/// An observer of a run.
pub trait Observer: std::fmt::Debug {
    /// Takes a sample. The world is as it is just before the moment `at`: no event of that moment
    /// has happened.
    fn sample(&mut self, world: &World, at: Nanos);

    /// Takes note of a frame whose last bit leaves a link.
    fn left(&mut self, departure: &Departure);
}

/// A frame whose last bit leaves a link. Pause frames are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The time.
    pub at: Nanos,
    /// The link.
    pub link: LinkId,
    /// Time from the moment at which the frame could leave its node until its first bit left:
    /// behind other frames, or paused. At a host it begins when the send latency is over; a virtual
    /// switch gives a frame to the card when that is free, so that the frame waits in the switch.
    pub wait: Nanos,
    /// The size of the frame in bytes, from the destination address to the end of the payload.
    pub bytes: u16,
    /// The endpoint that the frame is for.
    pub to: EndpointId,
}

/// One direction of a connection: the bytes from one endpoint to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sending endpoint.
    pub id: EndpointId,
    /// Number of earlier connections that had this place.
    pub generation: u32,
    /// The station that sends.
    pub from: u32,
    /// The station that receives.
    pub to: u32,
    /// The congestion window in bytes; `None` for datagrams.
    pub window: Option<u64>,
    /// Bytes that were sent and are not acknowledged.
    pub outstanding: u64,
    /// Bytes that have arrived, in order if it is TCP.
    pub delivered: u64,
}

impl World {
    /// Runs workloads as [`World::run_all`] does, with an observer. `every` is the interval of its
    /// samples, the first of which is taken at that time; zero: none is taken.
    ///
    /// # Panics
    /// If there are no workloads, or more than 256.
    pub fn run_observed(
        &mut self,
        workloads: &mut [&mut dyn Workload],
        end: Nanos,
        every: Nanos,
        observer: &mut dyn Observer,
    ) -> End {
        self.start(workloads);
        let mut due = if every == Nanos::ZERO { Nanos::MAX } else { self.now().after(every) };
        loop {
            let event = self.next_event_apart(workloads, end);
            while due <= self.now() && due < Nanos::MAX {
                observer.sample(self, due);
                due = due.after(every);
            }
            let event = match event {
                Ok(event) => event,
                Err(reason) => return reason,
            };
            if let Event::LinkEnd(link) = event
                && let Some(departure) = self.departure(link)
            {
                observer.left(&departure);
            }
            if let Some(reason) = self.handle_apart(event) {
                return reason;
            }
        }
    }

    fn departure(&self, link: LinkId) -> Option<Departure> {
        let at = self.now();
        let (wait, bytes, load) = self.net.ending(link, at)?;
        Some(Departure { at, link, wait, bytes, to: self.packets.to(load.packet) })
    }

    /// Returns the frames that wait for a link just before the moment `at`: at an observer's
    /// sample, its time.
    #[must_use]
    pub fn waiting(&self, link: LinkId, at: Nanos) -> Waiting {
        self.net.waiting(link, at)
    }

    /// Number of links; their numbers are those of the topology.
    #[must_use]
    pub const fn link_count(&self) -> usize {
        self.net.link_count()
    }

    /// Iterates over the flows of open connections that have carried bytes.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + '_ {
        let connections = (0_u32..).map(ConnectionId).take(self.endpoints.len() / 2);
        let ends = connections.flat_map(|id| [id.client(), id.server()]);
        ends.filter_map(|id| self.flow(id))
    }

    fn flow(&self, id: EndpointId) -> Option<Flow> {
        let from = &self.endpoints[id.index()];
        let to = &self.endpoints[id.peer().index()];
        if !from.is_open() || from.written == 0 && to.datagram_bytes == 0 {
            return None;
        }
        Some(Flow {
            id,
            generation: from.generation,
            from: from.station,
            to: to.station,
            window: (from.written > 0).then(|| from.tcp.cwnd()),
            outstanding: from.tcp.sent() - from.tcp.acknowledged(),
            delivered: to.tcp.delivered() + to.datagram_bytes,
        })
    }
}
