//! The places at which frames wait, as tables: inputs, ports, queue groups, networks, tunnels.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{Batch, Mac, Nanos, Priority, PriorityMask, Vni};

use crate::config::{Hold, InputFull, Limit, PortRole, Tags, Trust};
use crate::decap::Decap;
use crate::inspect::{Counter, Marks};
use crate::pause::{PauseReceiver, PauseSender};
use crate::queues::Key;
use crate::shaper::Shaper;
use crate::slots::{List, NIL};
use crate::surface::QueueGroupKind;
use crate::tunnel::Outer;

/// The network of an input whose frames may belong to any network.
pub(crate) const NO_VNET: u16 = u16::MAX;

/// Ingress of frames. Every frame touches the first cache line; the second is touched when a frame
/// is charged and when it ends.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Input<B> {
    /// Frames that wait in this input's own memory and count against its window.
    pub(crate) held: Held,
    pub(crate) limit: Limit,
    /// Number of handles that ended and were not reclaimed yet, in `ended` and `ended_slots`.
    pub(crate) unreclaimed: u32,
    pub(crate) full: Full,
    pub(crate) port: u16,
    /// The network of its port; [`NO_VNET`] for the underlay and for control.
    pub(crate) vnet: u16,
    pub(crate) from_underlay: bool,
    /// Inputs that pause: the priorities with frames.
    pub(crate) holding: PriorityMask,
    /// Frames that could not even be queued as unresolved; in order, and no frame passes them.
    pub(crate) deferred: List,
    /// Stack of slots whose handles found no room in `ended`. Only lossy frames can be so many,
    /// since they wait in outputs and not in their input.
    pub(crate) ended_slots: u32,
    /// Handles that ended and were not reclaimed yet, at most as many as the input has slots of its
    /// own.
    pub(crate) ended: Batch<B>,
    pub(crate) marks: Marks,
    /// Number of slots that it uses beyond its own: lossy frames that waited in an output's share
    /// of the slots, ended, and were not reclaimed yet.
    pub(crate) excess: u32,
    /// Frames to be replicated once they are in the host pool.
    pub(crate) awaiting: List,
    /// Queues of this input that have outgrown their share, as far as the list has room.
    pub(crate) over: Vec<Key>,
    /// Frames of this input that wait in the host pool.
    pub(crate) pooled_frames: u32,
    /// The priorities that its frames may have. Only careful ports have inputs that are limited to
    /// some.
    pub(crate) priorities: PriorityMask,
    /// True if it may hold frames for isolated receivers, which belong into the reserve.
    pub(crate) sweep: bool,
}

impl<B> Input<B> {
    /// Returns the number of its own slots.
    #[inline]
    pub(crate) fn slots_max(&self) -> u32 {
        // An input that tells its handles apart has all of them in slots.
        match self.ended.limit() {
            0 => self.limit.frames,
            // Made from a `u32` in `build`.
            limit => u32::try_from(limit).unwrap_or(u32::MAX),
        }
    }
}

/// Behaviour of a full input; the thresholds of a pause are in the port.
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

/// Frames and bytes held at some place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
}

impl Held {
    /// No limit.
    pub(crate) const MAX: Self = Self { frames: u32::MAX, bytes: u64::MAX };
}

/// Egress of frames. The fields that every frame touches come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// Priorities with frames that may be sent.
    pub(crate) active: u8,
    /// True if it has a rate or flow control, which are checked before each frame.
    pub(crate) restrained: bool,
    /// True if its queues are grouped in bundles: it has a queue group per tunnel.
    pub(crate) has_bundles: bool,
    pub(crate) detached: bool,
    /// True if another switch reads and writes it.
    pub(crate) elsewhere: bool,
    /// Access ports: true if frames need more than the fast path, since their sources or tags are
    /// checked, or they may find the input full.
    pub(crate) careful: bool,
    pub(crate) tags: Tags,
    /// Its own queue group.
    pub(crate) group: u32,
    pub(crate) first_input: u16,
    pub(crate) queues: u8,
    pub(crate) class_turn: u8,
    pub(crate) role: PortRole,
    pub(crate) trust: Trust,
    pub(crate) default_priority: Priority,
    /// The largest frame without tag that may leave, Ethernet header included.
    pub(crate) frame_size_max: u32,
    /// Number of its queue groups that wait for their rate.
    pub(crate) timed_groups: u32,
    pub(crate) hold: [Hold; Priority::COUNT],
    pub(crate) shaper: Shaper,
    pub(crate) pause_out: Option<PauseSender>,
    /// Outer header of every frame through its tunnels.
    pub(crate) outer: Option<Outer>,
    pub(crate) pause_in: PauseReceiver,
}

impl Port {
    /// Returns true if it has no [`Self::deadline`]: no frame waits that a rate or a pause may hold
    /// back, and it pauses nobody.
    #[inline]
    pub(crate) fn is_timeless(&self) -> bool {
        let is_held = self.shaper.is_limited() || !self.pause_in.paused().is_empty();
        !self.restrained
            || ((self.active == 0 || !is_held)
                && self.pause_out.as_ref().is_none_or(PauseSender::is_silent))
    }

    /// Returns the next moment at which its rate allows a frame, a received pause that holds a
    /// frame ends, or a sent pause must be repeated.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.detached {
            return None;
        }
        let refresh = self.pause_out.as_ref().and_then(PauseSender::deadline);
        if self.active == 0 {
            return refresh;
        }
        let active = PriorityMask(self.active);
        let open = active.without(self.pause_in.paused());
        let rate = (!open.is_empty() && self.shaper.is_limited()).then(|| self.shaper.ready_at());
        let pause = self.pause_in.deadline(active);
        [rate, pause, refresh].into_iter().flatten().min()
    }
}

/// Reason why a queue group's queues stand in no port's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The queues stand in their port's ring.
    Open,
    /// The rate of the queue group does not allow the next frame yet.
    Timed,
    /// The queue group has no destination yet: unresolved, or a tunnel without a next hop.
    Closed,
}

/// A destination that can be held back by itself. Every frame touches the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueGroup {
    pub(crate) port: u16,
    pub(crate) gate: Gate,
    /// True if a frame may be queued without further checks: a local port, or a tunnel with a next
    /// hop, that is not detached and has no rate of its own.
    pub(crate) plain: bool,
    /// Plain queue groups: tenants' frames up to this size fit.
    pub(crate) plain_size_max: u16,
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
    pub(crate) marks: Marks,
    /// Room left in the output's own buffer (lossy priorities).
    pub(crate) room: Held,
    pub(crate) kind: QueueGroupKind,
    /// Tail of the ring of its parked queues.
    pub(crate) parked: u32,
    pub(crate) copies: u32,
    pub(crate) shaper: Shaper,
    /// Closed queue groups: when their frames end.
    pub(crate) deadline: Nanos,
    /// Unresolved queue groups: when the next punt may go.
    pub(crate) punt_at: Nanos,
    /// Unresolved queue groups: the input whose frame was the first.
    pub(crate) asker: u16,
}

impl QueueGroup {
    pub(crate) fn new(kind: QueueGroupKind, port: u16, limit: Limit, shaper: Shaper) -> Self {
        Self {
            port,
            gate: Gate::Open,
            plain: matches!(kind, QueueGroupKind::Port(_)) && !shaper.is_limited(),
            plain_size_max: 0,
            frames: 0,
            bytes: 0,
            room: Held { frames: limit.frames, bytes: limit.bytes.0 },
            marks: Marks::default(),
            kind,
            parked: NIL,
            copies: 0,
            shaper,
            deadline: Nanos::MAX,
            punt_at: Nanos::MAX,
            asker: 0,
        }
    }
}

/// A network. The fields that frames need are in the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Vnet {
    pub(crate) vni: Option<Vni>,
    pub(crate) frame_size_max: u32,
    /// Decap flows of its tunnels, by tunnel number: every frame from the underlay looks its own
    /// up.
    pub(crate) decaps: Box<[Decap]>,
    /// Its tunnels, a bit each.
    pub(crate) tunnel_bits: Box<[u64]>,
    /// True if its frames may have 802.1Q tags of their own.
    pub(crate) own_tags: bool,
    pub(crate) tunnels: Box<[u16]>,
    /// Its local ports.
    pub(crate) members: Vec<u16>,
}

impl Vnet {
    /// Returns true if frames of the network may come through a tunnel.
    #[inline]
    pub(crate) fn has_tunnel(&self, tunnel: u16) -> bool {
        let bits = self.tunnel_bits.get(usize::from(tunnel / 64)).copied().unwrap_or(0);
        bits >> (tunnel % 64) & 1 == 1
    }
}

/// A tunnel, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Tunnel {
    pub(crate) port: u16,
    pub(crate) remote: Ipv4Addr,
    pub(crate) next_hop: Option<Mac>,
    pub(crate) group: u32,
    pub(crate) source: u16,
    pub(crate) foreign: bool,
    /// The MTU of the path to its far end, if it is known to be less than the device's.
    pub(crate) path_mtu: u16,
    pub(crate) sent: Counter,
    /// Frames that came in outside the decap flows that are in use.
    pub(crate) received: Counter,
}

const _: () = assert!(size_of::<Tunnel>() == 64, "a tunnel is one cache line");

/// One partition of the host pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partition {
    pub(crate) limit: Limit,
    pub(crate) frames: u32,
    pub(crate) bytes: u64,
    /// Its frames, by priority.
    by_priority: [u32; Priority::COUNT],
    /// Frames of each priority for which room is reserved.
    guarantee: u32,
}

impl Partition {
    /// Returns an empty partition. With `apart`, a sixteenth of it is reserved for each priority.
    pub(crate) const fn new(limit: Limit, apart: bool) -> Self {
        let guarantee = if apart { limit.frames / 16 } else { 0 };
        Self { limit, frames: 0, bytes: 0, by_priority: [0; Priority::COUNT], guarantee }
    }

    /// Returns true if it has room at all.
    #[inline]
    pub(crate) const fn has_room(&self) -> bool {
        self.frames < self.limit.frames && self.bytes < self.limit.bytes.0
    }

    /// Returns true if it has room for a frame of this priority beside the reservations of the
    /// others.
    pub(crate) fn takes(&self, priority: u8) -> bool {
        if !self.has_room() {
            return false;
        }
        let own = usize::from(priority);
        if self.guarantee == 0 || self.by_priority[own] < self.guarantee {
            return true;
        }
        let others = self.by_priority.iter().enumerate().filter(|(other, _)| *other != own);
        let promised: u32 = others.map(|(_, held)| self.guarantee.saturating_sub(*held)).sum();
        self.limit.frames - self.frames > promised
    }

    pub(crate) fn add(&mut self, priority: u8, sum: Held) {
        self.frames += sum.frames;
        self.bytes += sum.bytes;
        self.by_priority[usize::from(priority)] += sum.frames;
    }

    pub(crate) fn sub(&mut self, priority: u8, sum: Held) {
        self.frames -= sum.frames;
        self.bytes -= sum.bytes;
        self.by_priority[usize::from(priority)] -= sum.frames;
    }
}
