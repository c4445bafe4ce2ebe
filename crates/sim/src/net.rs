//! The physical network: links, switches with a buffer per input and a queue per output, and
//! priority flow control between them, frame by frame.
//!
//! **Events.** A link has at most one pending event: its frame has left. That event frees the
//! frame's place in the buffer before the link, puts the frame into its next queue, with the time
//! from which it may leave, and starts the next frame. So a hop costs one event. The result is the
//! same as with an event for the arrival, because the effects of an arrival are known when the
//! frame leaves:
//!
//! ```text
//!   LinkEnd at e ──────────── e + delay ──────────────> e + delay + latency
//!     frame out of the          counted in the            may leave the switch
//!     buffer behind,            buffer of this input:
//!     into the next queue       XOFF, drop, mark
//! ```
//!
//! If the frame could pass a threshold when it is counted, a second event, `Settle`, counts it at
//! its time; otherwise it is counted at once. Frames of one queue arrive in the order in which they
//! left, since all cables into a switch have the same delay. If the delays differ, every arrival
//! has an event of its own. `tests/swarm/early.rs` runs scenarios both ways and compares them.
//!
//! **Buffers.** A frame occupies the buffer of the input it came through until its last bit has
//! left. On a lossless priority the input pauses its neighbour with the product's own
//! [`sluice_switch::PauseSender`]; a frame that finds the buffer full there is a fault of the
//! configuration or of this program: it stops the run. On the other priorities it is dropped.

mod arrive;
mod census;
mod config;
mod frames;
mod input;
mod link;
mod observe;
mod pause;
mod serve;

use sluice_base::{DropReason, Nanos, Priority};
use sluice_wire::mac_control::Message;

pub(crate) use census::{Census, Seen, Whereabouts};
pub(crate) use config::Ends;
use config::FRAME_MIN;
pub use config::{Buffering, NetConfig, NetConfigError};
pub(crate) use frames::Payload;
pub use frames::{Ecn, Shape};
pub use link::LinkCounters;
pub use observe::Waiting;

use crate::event::{Event, Events};
use crate::ids::FrameId;
use crate::slab::Slab;
use crate::topology::{LinkId, Node, Path, Topology};
use frames::Frames;
use input::Input;
use link::{Link, Queue};

/// A path that a frame follows, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(u32);

impl PathId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A path with the frames that are on it.
#[derive(Debug)]
struct ActivePath {
    path: Path,
    frames: u32,
    /// True if the path is closed: it goes when its last frame has arrived.
    closed: bool,
}

/// Result of an event of the network, if a host has to do something.
#[derive(Debug)]
pub(crate) enum Outcome<P> {
    /// No effect on a host.
    Nothing,
    /// A frame has arrived at a host.
    Arrived { host: u32, shape: Shape, payload: P },
    /// A pause frame has arrived at a host that handles them itself.
    Paused { host: u32, message: Message },
    /// The network card of a host that is asked for its frames is free.
    Free { host: u32 },
    /// A frame found no room.
    Dropped { payload: P },
    /// Losslessness was lost.
    Broken(Overflow),
}

/// A frame of a lossless priority that found no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The link that leads into the buffer.
    pub link: LinkId,
    /// The priority.
    pub priority: Priority,
    /// Bytes of the priority that the buffer would hold.
    pub held: u32,
    /// Bytes that it may hold.
    pub limit: u32,
}

impl std::fmt::Display for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the buffer behind link {} would hold {} bytes of lossless priority {}, but has room \
             for {}: headroom or XOFF is wrong",
            self.link.0,
            self.held,
            self.priority.get(),
            self.limit
        )
    }
}

/// The network. `P` is the payload of a frame.
#[derive(Debug)]
pub(crate) struct Net<P> {
    config: NetConfig,
    hosts_are_switches: bool,
    frames: Frames<P>,
    links: Vec<Link>,
    /// Queues by priority and link ([`Net::queue_of`]): queues that are used together lie together.
    queues: Vec<Queue>,
    /// The buffer at the end of each link.
    inputs: Vec<Input>,
    receivers: Vec<sluice_switch::PauseReceiver>,
    ways: Vec<ActivePath>,
    free_ways: Vec<u32>,
    /// Pause frames on their way: (the link they travel on, their content).
    messages: Slab<(LinkId, Message)>,
    broken: Option<Overflow>,
    pub(crate) dropped: u64,
    /// Links that ended frames have passed.
    hops_ended: u64,
}

impl<P: Payload> Net<P> {
    /// Creates a network of this topology.
    pub(crate) fn new(topology: &Topology, config: NetConfig, ends: Ends) -> Self {
        let uniform = arrive::uniform_inputs(topology);
        let on_links = arrive::bytes_on_links(topology, u32::from(config.frame_max));
        let measured = arrive::queues_are_measured(&config);
        let links: Vec<Link> = topology
            .links()
            .map(|(id, cable)| {
                let (from, to) = topology.ends(id);
                let uneven = matches!(to, Node::Switch(s) if !uniform[s as usize]);
                let late = measured || uneven;
                let (may_come, asks) = match from {
                    Node::Switch(s) => (on_links[s as usize], false),
                    Node::Host(_) => (0, ends.are_switches),
                };
                let latency = match to {
                    Node::Host(_) => ends.latency,
                    Node::Switch(_) => config.latency,
                };
                Link::new(to, cable, &config, latency, asks, late, may_come)
            })
            .collect();
        let inputs = topology.links().map(|(_, cable)| Input::new(cable, &config)).collect();
        let receivers = topology
            .links()
            .map(|(_, cable)| sluice_switch::PauseReceiver::new(true, cable.rate))
            .collect();
        let queues = vec![Queue::EMPTY; links.len() * Priority::COUNT];
        Self {
            config,
            hosts_are_switches: ends.are_switches,
            frames: Frames::default(),
            links,
            queues,
            inputs,
            receivers,
            ways: Vec::new(),
            free_ways: Vec::new(),
            messages: Slab::default(),
            broken: None,
            dropped: 0,
            hops_ended: 0,
        }
    }

    /// Gives every arrival at a switch an event of its own, as if the cables into it differed in
    /// delay. For comparisons: only the number of events may change.
    pub(crate) fn split_arrivals(&mut self) {
        for link in &mut self.links {
            link.late = matches!(link.to, Node::Switch(_));
        }
    }

    /// Opens a path; it stays until [`Self::close_path`].
    pub(crate) fn open_path(&mut self, path: Path) -> PathId {
        let active = ActivePath { path, frames: 0, closed: false };
        match self.free_ways.pop() {
            Some(at) => {
                self.ways[at as usize] = active;
                PathId(at)
            }
            None => {
                self.ways.push(active);
                PathId(u32::try_from(self.ways.len() - 1).expect("fewer than 2^32 paths"))
            }
        }
    }

    /// Closes a path: no frame will be sent on it any more.
    pub(crate) fn close_path(&mut self, path: PathId) {
        let active = &mut self.ways[path.0 as usize];
        active.closed = true;
        if active.frames == 0 {
            self.free_ways.push(path.0);
        }
    }

    fn leave_path(&mut self, path: PathId) {
        let active = &mut self.ways[path.0 as usize];
        active.frames -= 1;
        if active.closed && active.frames == 0 {
            self.free_ways.push(path.0);
        }
    }

    /// Puts a frame into the queue of its host's network card, from where it may leave at `ready`
    /// and no earlier than the frames before it.
    pub(crate) fn send(
        &mut self,
        events: &mut Events,
        path: PathId,
        ready: Nanos,
        shape: Shape,
        payload: P,
    ) {
        debug_assert!(shape.size <= self.config.frame_max, "headroom is for frames of that size");
        // A shorter frame is padded by its sender, and stays so (802.3 clause 4.2.3.3).
        let shape = Shape { size: shape.size.max(FRAME_MIN), ..shape };
        let active = &mut self.ways[path.0 as usize];
        active.frames += 1;
        let link = active.path.link(0);
        let frame = self.frames.take(path, ready, shape, payload);
        self.enqueue(link, frame, shape);
        self.links[link.index()].queued += u32::from(shape.size);
        if self.links[link.index()].is_idle() {
            self.start_next(events, link);
        }
    }

    /// Sends a pause frame that a host made. Its network card must be free.
    pub(crate) fn send_pause(&mut self, events: &mut Events, link: LinkId, message: Message) {
        debug_assert!(self.links[link.index()].is_idle(), "asked for when the card is free");
        self.begin_pause(events, link, message);
    }

    /// Notes that a host has a frame for a link: the host is asked once, when the link is free.
    #[inline]
    pub(crate) fn want(&mut self, link: LinkId) {
        self.links[link.index()].is_wanted = true;
    }

    /// Returns true if a link sends nothing now.
    pub(crate) fn is_idle(&self, link: LinkId) -> bool {
        self.links[link.index()].is_idle()
    }

    /// Handles an event of the network.
    #[inline]
    pub(crate) fn handle(&mut self, events: &mut Events, event: Event) -> Outcome<P> {
        match event {
            Event::LinkEnd(link) => return self.link_end(events, link),
            Event::Arrive(frame) => return self.arrive_at_host(frame),
            Event::Enter(frame) => self.enter(events, frame),
            Event::Settle(frame) => {
                if let Some(payload) = self.settle(events, frame) {
                    return Outcome::Dropped { payload };
                }
            }
            Event::Pause(at) => return self.pause_arrives(events, at),
            Event::PauseEnd(link) => self.pause_ends(events, link),
            Event::PauseAgain(link) => self.pause_again(events, link),
            Event::Timer(_) | Event::Host(_) | Event::Packet(_) | Event::App(_) => {
                unreachable!("not an event of the network")
            }
        }
        match self.broken.take() {
            Some(overflow) => Outcome::Broken(overflow),
            None => Outcome::Nothing,
        }
    }

    /// Delivers a frame to the host at the end of its path.
    fn arrive_at_host(&mut self, id: FrameId) -> Outcome<P> {
        let frame = self.frames.get(id);
        let (path, hop, shape) = (frame.path, frame.hop, frame.shape());
        let link = self.ways[path.0 as usize].path.link(hop);
        let Node::Host(host) = self.links[link.index()].to else {
            unreachable!("a path ends at a host")
        };
        self.leave_path(path);
        self.hops_ended += u64::from(hop) + 1;
        Outcome::Arrived { host, shape, payload: self.frames.give_back(id) }
    }

    /// Drops a frame. Its place in the queue goes when its turn comes.
    fn drop_frame(&mut self, id: FrameId, link: LinkId, reason: DropReason) -> P {
        self.dropped += 1;
        self.inputs[link.index()].drops.add(reason);
        let frame = self.frames.get_mut(id);
        frame.state = frames::State::Dropped;
        self.hops_ended += u64::from(frame.hop);
        self.frames.end(id)
    }

    pub(crate) const fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Returns the node at the end of a link.
    pub(crate) fn end_of(&self, link: LinkId) -> Node {
        self.links[link.index()].to
    }

    /// Number of frames that the links have sent: each is a hop.
    pub(crate) fn hops(&self) -> u64 {
        self.links.iter().map(|l| l.sent_frames).sum()
    }
}

#[cfg(test)]
mod tests;
