//! Inputs, networks and tunnels, as tables; the places of egress are in `egress.rs`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{Batch, Mac, Priority, PriorityMask, Vni};

use crate::config::{InputFull, Limit};
use crate::decap::Decap;
use crate::egress::Key;
use crate::inspect::{Counter, Marks};
use crate::slots::List;

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
