//! The places at which frames wait, as tables: inputs, ports, lanes, networks, tunnels.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{Mac, Nanos, Priority, PriorityMask, Vni};

use crate::config::{InputFull, Limit, PortRole, Trust};
use crate::inspect::{Counter, Marks};
use crate::pause::{PauseReceiver, PauseSender};
use crate::queues::Key;
use crate::shaper::Shaper;
use crate::slots::{List, NIL};
use crate::surface::LaneKind;

/// Where frames enter.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Input {
    /// Frames that wait in this input's own memory and count against its window.
    pub(crate) held: Held,
    /// Handles that ended and were not reclaimed yet: how many, and the stack of their slots.
    pub(crate) unreclaimed: u32,
    /// How many slots are its own, and how many it uses beyond them: lossy frames that waited in
    /// an output's share of the slots, ended, and were not reclaimed yet.
    pub(crate) slots_max: u32,
    pub(crate) excess: u32,
    pub(crate) ended: u32,
    pub(crate) port: u16,
    pub(crate) from_underlay: bool,
    pub(crate) full: Full,
    pub(crate) limit: Limit,
    pub(crate) marks: Marks,
    /// Frames to be replicated once they are in the host pool.
    pub(crate) awaiting: List,
    /// Frames that could not even be queued as unresolved; in order, and nothing passes them.
    pub(crate) deferred: List,
    /// A queue of this input that has outgrown its share.
    pub(crate) over: Option<Key>,
    /// Frames of this input that wait in the host pool.
    pub(crate) pooled_frames: u32,
}

/// What happens at a full input; the numbers of a pause are with the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Wait,
    Drop,
    Pause(PriorityMask),
}

impl From<InputFull> for Full {
    fn from(full: InputFull) -> Self {
        match full {
            InputFull::Wait => Self::Wait,
            InputFull::Drop => Self::Drop,
            InputFull::Pause(pause) => Self::Pause(pause.priorities),
        }
    }
}

/// Frames and bytes that are somewhere now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

/// The books of one (input, priority), as far as every frame touches them: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Row {
    /// What waits at the input in this priority; kept for inputs that pause only.
    pub(crate) held: Held,
    pub(crate) received: Counter,
    pub(crate) delivered: Counter,
}

/// The rest of the books of one (input, priority).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RareRow {
    pub(crate) injected: Counter,
    pub(crate) copied: Counter,
    pub(crate) consumed: Counter,
}

/// Where frames leave. What every frame touches comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// Priorities with frames that may be sent.
    pub(crate) active: u8,
    /// Whether it has a rate or flow control, which have to be asked before each frame.
    pub(crate) restrained: bool,
    /// Whether its queues stand in bundles: it has a lane per tunnel.
    pub(crate) has_bundles: bool,
    pub(crate) detached: bool,
    /// Its own lane.
    pub(crate) lane: u32,
    pub(crate) first_input: u16,
    pub(crate) queues: u8,
    pub(crate) class_turn: u8,
    pub(crate) classes: [Class; Priority::COUNT],
    pub(crate) role: PortRole,
    pub(crate) shaper: Shaper,
    /// How many of its lanes wait for their rate.
    pub(crate) timed_lanes: u32,
    pub(crate) pause_in: PauseReceiver,
    pub(crate) pause_out: Option<PauseSender>,
    pub(crate) trust: Trust,
    pub(crate) default_priority: Priority,
    /// The largest frame without tag that may leave, Ethernet header included.
    pub(crate) frame_size_max: u32,
}

/// One priority of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// Tail of the ring of queues (or bundles) with frames.
    pub(crate) ring: u32,
    pub(crate) common: Common,
    pub(crate) deficit: i32,
    pub(crate) sent: Counter,
}

impl Class {
    pub(crate) const EMPTY: Self = Self {
        ring: NIL,
        common: Common::EMPTY,
        deficit: 0,
        sent: Counter { frames: 0, bytes: 0 },
    };
}

/// While few frames wait for a local port they stand in one queue, in order of arrival; beyond
/// [`COMMON_FRAMES_MAX`] every source gets a queue of its own, until all of those are empty again.
/// What stands in the common queue is older than what stands in a source's, and is sent first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub(crate) list: List,
    pub(crate) frames: u32,
}

impl Common {
    pub(crate) const EMPTY: Self = Self { list: List::EMPTY, frames: 0 };
}

/// How many frames may wait in a common queue: the most by which a source can be ahead of its
/// share when an output becomes congested.
pub(crate) const COMMON_FRAMES_MAX: u32 = 16;

/// Why a lane's queues stand in no port's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They do stand there.
    Open,
    /// Its rate allows the next frame later.
    Timed,
    /// It leads nowhere yet: unresolved, or a tunnel without a next hop.
    Closed,
}

/// What can be held back by itself. The first cache line is what every frame touches.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    pub(crate) port: u16,
    pub(crate) gate: Gate,
    /// Whether a frame may be queued and sent without further questions: a local port that is
    /// not detached, and no rate of its own.
    pub(crate) plain: bool,
    /// Plain lanes: the largest frame without tag that may leave, Ethernet header included.
    pub(crate) frame_size_max: u32,
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
    pub(crate) marks: Marks,
    /// Of these, frames that wait in the output's own buffer (lossy priorities).
    pub(crate) buffered: Held,
    pub(crate) limit: Limit,
    pub(crate) kind: LaneKind,
    /// Tail of the ring of its parked queues.
    pub(crate) parked: u32,
    pub(crate) copies: u32,
    pub(crate) shaper: Shaper,
    /// Closed lanes: when their frames end.
    pub(crate) deadline: Nanos,
    /// Unresolved lanes: when the next punt may go.
    pub(crate) punt_at: Nanos,
}

impl Lane {
    pub(crate) fn new(kind: LaneKind, port: u16, limit: Limit, shaper: Shaper) -> Self {
        Self {
            port,
            gate: Gate::Open,
            plain: matches!(kind, LaneKind::Port(_)) && !shaper.is_limited(),
            frame_size_max: 0,
            frames: 0,
            bytes: 0,
            buffered: Held::default(),
            limit,
            marks: Marks::default(),
            kind,
            parked: NIL,
            copies: 0,
            shaper,
            deadline: Nanos::MAX,
            punt_at: Nanos::MAX,
        }
    }
}

/// A network.
#[derive(Debug)]
pub(crate) struct Vnet {
    pub(crate) vni: Option<Vni>,
    pub(crate) frame_size_max: u32,
    /// Its local ports.
    pub(crate) members: Vec<u16>,
    pub(crate) tunnels: Vec<u16>,
}

/// A tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) port: u16,
    pub(crate) remote: Ipv4Addr,
    pub(crate) next_hop: Option<Mac>,
    pub(crate) lane: u32,
    pub(crate) source: u16,
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
}

/// One partition of the host pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    pub(crate) limit: Limit,
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}
