//! The simulated data centre: the network, the hosts at its ends, and the TCP on them.
//!
//! A [`Workload`] opens connections, writes to them and asks for notices when bytes have arrived;
//! everything between is the world's. One event at a time is taken from the queue, and the workload
//! gets its notices before the next one.
//!
//! ```text
//!   workload ── write ──> endpoint ── poll ──> host ──> network ──> host ──> endpoint
//!      ^                                                                       │
//!      └────────────────────────── Notice::Delivered ──────────────────────────┘
//! ```

mod census;
mod endpoints;
mod leaving;
mod observe;
mod plain;
mod room;
mod summary;
mod virt;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use sluice_base::{BitRate, Nanos};

use crate::event::{Event, Events};
use crate::events::Ties;
pub use crate::ids::{ConnectionId, EndpointId};
use crate::ledger::Ledger;
use crate::net::{Ends, Net, NetConfig, NetConfigError, Outcome, Overflow};
use crate::overlay::{Head, OverlayConfig, OverlayError};
use crate::packets::{PacketId, Packets};
use crate::slab::Slab;
use crate::tcp;
use crate::topology::{Routes, Topology, TopologyError};
pub(crate) use census::Census;
use endpoints::Endpoint;
pub use endpoints::{Connect, ConnectError};
pub use observe::{Departure, Flow, Observer};
pub use summary::{Place, Summary, TcpTotals};
use virt::Virtual;

/// Payload of a frame on the physical network.
#[derive(Debug)]
pub(crate) struct Load {
    packet: PacketId,
    /// Outer headers of a packet between VMs.
    head: Option<Rc<Head>>,
}

const _: () = assert!(size_of::<Option<Load>>() == 16, "four are one cache line");

/// Configuration of a simulated data centre.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Hosts, switches and cables.
    pub topology: Topology,
    /// The physical network.
    pub net: NetConfig,
    /// The virtual networks; `None`: the hosts' own TCP sends.
    pub overlay: Option<OverlayConfig>,
    /// Time of a host from its TCP to the first bit of a frame, or to the VM's ring.
    pub send_latency: Nanos,
    /// Time of a host from the last bit of a frame, or from the VM's ring, to its TCP.
    pub receive_latency: Nanos,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Order of events at the same time.
    pub ties: Ties,
}

/// A world that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// The topology.
    Topology(TopologyError),
    /// The physical network.
    Net(NetConfigError),
    /// The virtual switches.
    Switch(OverlayError),
}

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topology(error) => error.fmt(f),
            Self::Net(error) => error.fmt(f),
            Self::Switch(error) => write!(f, "the virtual switch: {error:?}"),
        }
    }
}

impl std::error::Error for WorldError {}

/// Notice that a workload has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A message has arrived whole.
    Message {
        /// The receiver.
        to: EndpointId,
        /// The tag that its sender gave it.
        tag: u32,
    },
    /// All bytes that an endpoint has written are acknowledged.
    Acknowledged(EndpointId),
    /// A time that the workload asked for has come.
    Time(u32),
    /// The ring that the workload waited for has room.
    Room(u32),
}

/// A load that runs in a world.
pub trait Workload: std::fmt::Debug {
    /// Begins the load.
    fn start(&mut self, world: &mut World);
    /// Takes a notice.
    fn happened(&mut self, world: &mut World, notice: Notice);
    /// Returns true if no more traffic is to come. Called after notices were delivered.
    fn is_done(&self) -> bool;
}

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The workload is done.
    Done,
    /// The time is over.
    Time,
    /// No event is left, and the workload is not done.
    Stalled,
    /// A lossless priority has lost a frame.
    Broken(Overflow),
}

/// A data centre.
#[derive(Debug)]
pub struct World {
    events: Events,
    net: Net<Load>,
    virt: Option<Virtual>,
    packets: Packets,
    routes: Routes,
    endpoints: Vec<Endpoint>,
    free: Vec<u32>,
    send_latency: Nanos,
    receive_latency: Nanos,
    /// Layer-3 MTU of the stations.
    mtu: u16,
    /// Notices to be delivered, each with the number of its workload.
    notices: VecDeque<(u8, Notice)>,
    /// True if a workload got a notice since the first one was asked if it is done.
    told: bool,
    /// Number of the workload that acts now.
    speaker: u8,
    /// Times that were asked for: the workload, and the token.
    times: Slab<(u8, u32)>,
    /// Number of segments that came for a closed connection.
    stale: u64,
    /// Counters of the TCP of closed connections.
    closed_tcp: TcpTotals,
    /// Settings of endpoints that send datagrams only.
    no_tcp: Arc<tcp::Config>,
    /// Ledger of sent and received packets, if the run is checked.
    ledger: Option<Box<Ledger>>,
}

impl World {
    /// Creates a data centre in which nothing has happened.
    ///
    /// # Errors
    /// The part of the configuration that cannot work.
    pub fn new(config: &WorldConfig) -> Result<Self, WorldError> {
        let routes = Routes::new(&config.topology).map_err(WorldError::Topology)?;
        for cable in &config.topology.cables {
            config.net.check(cable.rate, cable.delay).map_err(WorldError::Net)?;
        }
        let link = config.topology.cables.first().map_or(BitRate(0), |cable| cable.rate);
        let hosts = config.topology.hosts;
        let make = |overlay: &OverlayConfig| {
            Virtual::new(overlay, &routes, hosts, link, config.receive_latency, config.seed)
        };
        let virt = config.overlay.as_ref().map(make).transpose()?;
        let ends = Ends {
            latency: if virt.is_some() { Nanos::ZERO } else { config.receive_latency },
            are_switches: virt.is_some(),
        };
        Ok(Self {
            events: Events::new(config.ties),
            net: Net::new(&config.topology, config.net, ends),
            virt,
            packets: Packets::default(),
            routes,
            endpoints: Vec::new(),
            free: Vec::new(),
            send_latency: config.send_latency,
            receive_latency: config.receive_latency,
            mtu: config.overlay.as_ref().map_or(config.net.frame_max - 14, |o| o.mtu),
            notices: VecDeque::new(),
            told: true,
            speaker: 0,
            times: Slab::default(),
            stale: 0,
            closed_tcp: TcpTotals::default(),
            no_tcp: Arc::new(tcp::Config {
                mss: 1,
                ..tcp::Config::linux_2013(tcp::Algorithm::NewReno)
            }),
            ledger: None,
        })
    }

    /// Runs one workload until it is done, or until `end`.
    pub fn run(&mut self, workload: &mut dyn Workload, end: Nanos) -> End {
        self.run_all(&mut [workload], end)
    }

    /// Runs several workloads beside each other, until the first one is done, or until `end`.
    ///
    /// # Panics
    /// If there are no workloads, or more than 256.
    pub fn run_all(&mut self, workloads: &mut [&mut dyn Workload], end: Nanos) -> End {
        self.start(workloads);
        loop {
            let event = match self.next_event(workloads, end) {
                Ok(event) => event,
                Err(end) => return end,
            };
            if let Some(end) = self.handle(event) {
                return end;
            }
        }
    }

    /// Begins all workloads.
    pub(crate) fn start(&mut self, workloads: &mut [&mut dyn Workload]) {
        for (at, workload) in workloads.iter_mut().enumerate() {
            self.speaker = u8::try_from(at).expect("256 workloads at most");
            workload.start(self);
        }
        self.told = true;
    }

    /// Delivers notices, and takes the next event, unless the run has ended.
    #[inline(always)]
    pub(crate) fn next_event(
        &mut self,
        workloads: &mut [&mut dyn Workload],
        end: Nanos,
    ) -> Result<Event, End> {
        while let Some((speaker, notice)) = self.notices.pop_front() {
            self.speaker = speaker;
            workloads[usize::from(speaker)].happened(self, notice);
            self.told = true;
        }
        // Only a notice makes a workload done.
        if self.told {
            if workloads[0].is_done() {
                return Err(End::Done);
            }
            self.told = false;
        }
        let over = |world: &Self| if world.now() == end { End::Time } else { End::Stalled };
        self.events.pop_until(end).ok_or_else(|| over(self))
    }

    /// Returns the next event of a world without notices to workloads.
    pub(crate) fn next_event_unheard(&mut self) -> Option<Event> {
        self.notices.clear();
        self.events.pop_until(Nanos::MAX)
    }

    /// Handles an event.
    #[inline(always)]
    pub(crate) fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Timer(at) => self.timer(EndpointId(at)),
            Event::Host(host) => self.host_event(host),
            Event::Packet(station) => self.deliver_packet(station),
            Event::App(at) => self.time_has_come(at),
            event => match self.net.handle(&mut self.events, event) {
                Outcome::Nothing => {}
                Outcome::Arrived { payload: Load { head: None, packet }, host, shape } => {
                    self.check_arrival(host, shape);
                    let packet = self.packets.remove(packet);
                    self.deliver(&packet);
                }
                Outcome::Dropped { payload } => self.dropped_on_wire(&payload),
                Outcome::Broken(overflow) => return Some(End::Broken(overflow)),
                outcome => return self.at_host(outcome).map(End::Broken),
            },
        }
        None
    }

    /// [`Self::next_event`] of runs that are checked or observed. They share one copy, and the
    /// plain loop has one of its own, inlined: a call for each event costs 4 % of the speed.
    #[inline(never)]
    pub(crate) fn next_event_apart(
        &mut self,
        workloads: &mut [&mut dyn Workload],
        end: Nanos,
    ) -> Result<Event, End> {
        self.next_event(workloads, end)
    }

    /// [`Self::handle`] of runs that are checked or observed.
    #[inline(never)]
    pub(crate) fn handle_apart(&mut self, event: Event) -> Option<End> {
        self.handle(event)
    }

    /// Gives every arrival at a switch an event of its own, as if the cables into it differed in
    /// delay. For comparisons and debugging: with [`Ties::ByPlace`], only the number of events and
    /// the marks of the fullest buffers may change. To be called before anything has happened.
    pub fn split_arrivals(&mut self) {
        self.net.split_arrivals();
    }

    /// Returns the time.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.events.now()
    }

    /// Schedules a [`Notice::Time`] with this token.
    pub fn at(&mut self, at: Nanos, token: u32) {
        let place = self.times.insert((self.speaker, token));
        self.events.push(at.max(self.now()), Event::App(place));
    }

    fn time_has_come(&mut self, place: u32) {
        let (speaker, token) = self.times.remove(place);
        self.notices.push_back((speaker, Notice::Time(token)));
    }

    /// Number of frames that left a port onto a link, so far.
    #[must_use]
    pub fn hops(&self) -> u64 {
        self.net.hops()
    }

    /// Number of events so far.
    #[must_use]
    pub const fn event_count(&self) -> u64 {
        self.events.popped()
    }

    /// Number of frames dropped by physical switches so far.
    #[must_use]
    pub const fn drops(&self) -> u64 {
        self.net.dropped
    }
}
