//! Content of the network, found by a walk through its queues and links: for the checkers. The walk
//! changes nothing, takes time, and trusts no counter.

use sluice_base::{Nanos, Priority, PriorityMask};

use super::frames::State;
use super::link::Link;
use super::{Net, PathId, Payload};
use crate::ids::FrameId;
use crate::topology::{LinkId, Node, Path};

/// Place where a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In a queue, counted or sure to be counted.
    Queued,
    /// In a queue, from which the frame may be dropped when it is counted.
    Open,
    /// In a queue, and dropped.
    Dropped,
    /// Chosen by a link, or being sent.
    Sending,
    /// In no queue and at no link: on its way along a cable.
    Travelling,
}

/// A frame that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: FrameId,
    pub(crate) whereabouts: Whereabouts,
    /// The link that the frame waits for or is on, by its path.
    pub(crate) link: LinkId,
    /// The link in whose queue the frame was found, or that sends it.
    pub(crate) at: LinkId,
    pub(crate) path: PathId,
    pub(crate) hop: u8,
    pub(crate) priority: Priority,
    pub(crate) size: u32,
    pub(crate) ready: Nanos,
    /// The link behind which the frame occupies a buffer, or will.
    pub(crate) input: Option<LinkId>,
}

/// State of a link by its own account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkState {
    /// True if the link begins at a switch of the network, or at a host without a virtual switch:
    /// it applies pause frames.
    pub(crate) obeys: bool,
    /// True if the buffer at its end is part of the network, rather than of a virtual switch.
    pub(crate) ends_in_buffer: bool,
    pub(crate) queued: u32,
    pub(crate) backlog: PriorityMask,
    /// Priorities that the link does not send; `told`: the ones that received pause frames name.
    pub(crate) paused: PriorityMask,
    pub(crate) told: PriorityMask,
    /// The priority of a frame that was chosen and has not begun.
    pub(crate) chosen: Option<Priority>,
    pub(crate) idle: bool,
    pub(crate) sent_frames: u64,
}

/// State of the buffer at the end of a link by its own account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputState {
    pub(crate) held: [u32; Priority::COUNT],
    pub(crate) held_lossy: u32,
    pub(crate) open: u32,
    pub(crate) limit: u32,
    pub(crate) pausing: PriorityMask,
    /// A pause frame has to go, or is on its way to the neighbour.
    pub(crate) speaks: bool,
    pub(crate) drops: u64,
}

/// The whole census.
#[derive(Debug)]
pub(crate) struct Census {
    now: Nanos,
    pub(crate) frames: Vec<Seen>,
    /// A frame that was found in two places, or whose queue never ends.
    pub(crate) twice: Option<FrameId>,
    /// A queue whose list is broken: its last frame is not the last one of the list.
    pub(crate) torn: Option<(LinkId, Priority)>,
    pub(crate) links: Vec<LinkState>,
    /// Buffers by the link that leads into them.
    pub(crate) inputs: Vec<InputState>,
    /// Number of frames on each path, by its own account.
    pub(crate) ways: Vec<u32>,
    pub(crate) dropped: u64,
    pub(crate) hops_ended: u64,
    pub(crate) lossless: PriorityMask,
    pub(crate) xoff: u64,
    pub(crate) xon: u64,
}

impl Census {
    /// Iterates over the links by number.
    pub(crate) fn links(&self) -> impl Iterator<Item = (LinkId, &LinkState, &InputState)> {
        let both = self.links.iter().zip(&self.inputs);
        (0_u32..).map(LinkId).zip(both).map(|(id, (link, input))| (id, link, input))
    }

    /// Returns true if a frame on a cable is on its way into a switch, which it may leave later. A
    /// frame on its way to a host has left its last switch.
    pub(crate) fn enters(&self, seen: &Seen) -> bool {
        seen.whereabouts == Whereabouts::Travelling && seen.ready >= self.now
    }
}

impl<P: Payload> Net<P> {
    /// Walks the network.
    pub(crate) fn census(&self, now: Nanos) -> Census {
        let mut frames = Vec::new();
        let mut marks = vec![false; self.frames.places()];
        let (mut twice, mut torn) = (None, None);
        let mut see = |id: FrameId, at: LinkId, whereabouts| {
            let is_new = !std::mem::replace(&mut marks[id.0 as usize], true);
            if is_new {
                frames.push(self.seen(id, at, whereabouts));
            } else {
                twice = Some(id);
            }
            is_new
        };
        for (at, link) in self.links.iter().enumerate() {
            let id = LinkId(u32::try_from(at).expect("fewer than 2^32 links"));
            for priority in Priority::all() {
                let queue = self.queues[self.queue_of(id, priority)];
                let (mut next, mut last) = (queue.head, FrameId::NIL);
                while next != FrameId::NIL {
                    let whereabouts = match self.frames.get(next).state {
                        State::Settled => Whereabouts::Queued,
                        State::Open => Whereabouts::Open,
                        State::Dropped => Whereabouts::Dropped,
                    };
                    if !see(next, id, whereabouts) {
                        break;
                    }
                    last = next;
                    next = self.frames.get(next).next;
                }
                if last != queue.tail {
                    torn = Some((id, priority));
                }
            }
            if !link.is_idle() && link.current != Link::PAUSE {
                see(link.current, id, Whereabouts::Sending);
            }
        }
        for (id, frame) in self.frames.resident() {
            if !marks[id.0 as usize] {
                let link = self.ways[frame.path.0 as usize].path.link(frame.hop);
                frames.push(self.seen(id, link, Whereabouts::Travelling));
            }
        }
        Census {
            now,
            frames,
            twice,
            torn,
            links: (0..self.links.len()).map(|at| self.link_state(at, now)).collect(),
            inputs: (0..self.inputs.len()).map(|at| self.input_state(at, now)).collect(),
            ways: self.ways.iter().map(|path| path.frames).collect(),
            dropped: self.dropped,
            hops_ended: self.hops_ended,
            lossless: self.config.lossless,
            xoff: self.config.xoff.0,
            xon: self.config.xon.0,
        }
    }

    fn seen(&self, id: FrameId, at: LinkId, whereabouts: Whereabouts) -> Seen {
        let frame = self.frames.get(id);
        Seen {
            id,
            whereabouts,
            link: self.ways[frame.path.0 as usize].path.link(frame.hop),
            at,
            path: frame.path,
            hop: frame.hop,
            priority: frame.priority,
            size: u32::from(frame.size),
            ready: frame.ready,
            input: frame.input.map(super::frames::LinkIndex::link),
        }
    }

    fn link_state(&self, at: usize, now: Nanos) -> LinkState {
        let link = &self.links[at];
        let chosen = link.has_not_begun(now) && link.current != Link::PAUSE;
        LinkState {
            obeys: !link.asks,
            ends_in_buffer: matches!(link.to, Node::Switch(_)) || !self.hosts_are_switches,
            queued: link.queued,
            backlog: link.backlog,
            paused: link.paused,
            told: self.receivers[at].paused(),
            chosen: chosen.then(|| self.frames.get(link.current).priority),
            idle: link.is_idle(),
            sent_frames: link.sent_frames,
        }
    }

    fn input_state(&self, at: usize, now: Nanos) -> InputState {
        let input = &self.inputs[at];
        let back = LinkId(u32::try_from(at).expect("fewer than 2^32 links")).reverse();
        let travels = self.messages.iter().any(|(on, _)| *on == back);
        InputState {
            held: input.held,
            held_lossy: input.held_lossy,
            open: input.open,
            limit: input.limit,
            pausing: input.sender.pausing(),
            speaks: travels || input.sender.is_due(now),
            drops: input.drops.input_full + input.drops.output_full,
        }
    }

    /// Returns the least time in which so many bytes of payload get from the first bit of the first
    /// frame to the end of a path: at the rate of its slowest link, without any header.
    pub(crate) fn time_min(&self, path: PathId, bytes: u64) -> Nanos {
        let path: Path = self.ways[path.0 as usize].path;
        let (mut slowest, mut delays) = (0, 0);
        for id in path.links() {
            let link = &self.links[id.index()];
            slowest = slowest.max(u64::from(link.byte_ps()));
            delays += u64::from(link.delay);
            if matches!(link.to, Node::Switch(_)) {
                delays += u64::from(link.latency);
            }
        }
        Nanos(delays + bytes * slowest / 1000)
    }

    /// Returns the time of a frame of this size on a link.
    pub(crate) fn time_on(&self, link: LinkId, size: u16) -> Nanos {
        self.links[link.index()].time_for(size)
    }
}
