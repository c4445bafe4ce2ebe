//! The places at which frames wait, as tables: inputs, ports, lanes, networks, tunnels.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{Mac, Nanos, Priority, Vni};

use crate::config::{InputFull, Limit, PortRole, Trust};
use crate::inspect::{Counter, Marks};
use crate::pause::{PauseReceiver, PauseSender};
use crate::queues::Key;
use crate::shaper::Shaper;
use crate::slots::{List, NIL};
use crate::surface::LaneKind;

/// Where frames enter.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) port: u16,
    pub(crate) limit: Limit,
    pub(crate) full: InputFull,
    pub(crate) from_underlay: bool,
    /// Frames that wait in this input's own memory and count against its window.
    pub(crate) held_frames: u32,
    pub(crate) held_bytes: u64,
    pub(crate) held: [Held; Priority::COUNT],
    /// Handles that ended and were not reclaimed yet.
    pub(crate) unreclaimed: u32,
    pub(crate) ended: List,
    /// Frames to be replicated once they are in the host pool.
    pub(crate) awaiting: List,
    /// Frames that could not even be queued as unresolved; in order, and nothing passes them.
    pub(crate) deferred: List,
    /// A queue of this input that has outgrown its share.
    pub(crate) over: Option<Key>,
    /// Frames of this input that wait in the host pool.
    pub(crate) pooled_frames: u32,
    pub(crate) marks: Marks,
    pub(crate) counters: [InputCounters; Priority::COUNT],
}

/// What one priority holds at an input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

/// What happened to the frames of one (input, priority).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InputCounters {
    pub(crate) received: Counter,
    pub(crate) delivered: Counter,
    pub(crate) injected: Counter,
    pub(crate) copied: Counter,
    pub(crate) consumed: Counter,
}

/// Where frames leave.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) role: PortRole,
    pub(crate) detached: bool,
    /// Its own lane.
    pub(crate) lane: u32,
    pub(crate) first_input: u16,
    pub(crate) queues: u8,
    /// Tails of the rings of queues (or bundles) with frames, by priority.
    pub(crate) rings: [u32; Priority::COUNT],
    /// Priorities whose ring is not empty.
    pub(crate) active: u8,
    pub(crate) class_deficit: [i32; Priority::COUNT],
    pub(crate) class_turn: u8,
    pub(crate) shaper: Shaper,
    /// How many of its lanes wait for their rate.
    pub(crate) timed_lanes: u32,
    pub(crate) pause_in: PauseReceiver,
    pub(crate) pause_out: Option<PauseSender>,
    pub(crate) trust: Trust,
    pub(crate) default_priority: Priority,
    /// The largest frame without tag that may leave, Ethernet header included.
    pub(crate) frame_size_max: u32,
    pub(crate) sent: [Counter; Priority::COUNT],
    pub(crate) queued_frames: u32,
    pub(crate) queued_bytes: u64,
    pub(crate) marks: Marks,
}

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

/// What can be held back by itself.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) kind: LaneKind,
    pub(crate) port: u16,
    pub(crate) gate: Gate,
    /// Tail of the ring of its parked queues.
    pub(crate) parked: u32,
    pub(crate) frames: u32,
    /// Of these, frames that wait in the output's own buffer (lossy priorities).
    pub(crate) buffered: Held,
    pub(crate) limit: Limit,
    pub(crate) copies: u32,
    pub(crate) shaper: Shaper,
    /// Closed lanes: when their frames end.
    pub(crate) deadline: Nanos,
    /// Unresolved lanes: when the next punt may go.
    pub(crate) punt_at: Nanos,
}

impl Lane {
    pub(crate) const fn new(kind: LaneKind, port: u16, limit: Limit, shaper: Shaper) -> Self {
        Self {
            kind,
            port,
            gate: Gate::Open,
            parked: NIL,
            frames: 0,
            buffered: Held { frames: 0, bytes: 0 },
            limit,
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
