//! Networks and tunnels, as tables; inputs are in `ingress.rs`, the places of egress in
//! `egress.rs`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{Mac, Priority, PriorityMask, SourceId, TunnelId, Vni};

use crate::changes::PlaceState;
use crate::config::{InputFull, Limit, TunnelConfig, VnetConfig};
use crate::decap::Decap;
use crate::inspect::Counter;
use crate::receive::NO_PORT;
use crate::underlay;

/// Size of the Ethernet header in front of a layer-3 packet.
const ETHERNET_BYTES: u32 = 14;

/// The network of an input whose frames may belong to any network.
pub(crate) const NO_VNET: u16 = u16::MAX;

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
    pub(crate) state: PlaceState,
}

impl Vnet {
    /// Returns a place without a network.
    pub(crate) fn free() -> Self {
        Self {
            vni: None,
            frame_size_max: 0,
            decaps: Box::default(),
            tunnel_bits: Box::default(),
            own_tags: false,
            tunnels: Box::default(),
            members: Vec::new(),
            state: PlaceState::Free,
        }
    }

    /// Returns a network without tunnels and members. Any of `ports` ports may become a member.
    pub(crate) fn new(config: &VnetConfig, ports: usize) -> Self {
        Self {
            vni: config.vni,
            frame_size_max: u32::from(config.mtu) + ETHERNET_BYTES,
            members: Vec::with_capacity(ports),
            state: PlaceState::InUse,
            ..Self::free()
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.state == PlaceState::InUse
    }

    /// Returns its layer-3 MTU.
    pub(crate) const fn mtu(&self) -> u32 {
        self.frame_size_max - ETHERNET_BYTES
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.frame_size_max = u32::from(mtu) + ETHERNET_BYTES;
    }

    /// Sets the tunnels of the network. Those that it had keep their decap flows. The source
    /// numbers of tunnels follow those of `inputs` inputs; `port_of` returns the port of a tunnel.
    pub(crate) fn set_tunnels(
        &mut self,
        tunnels: &[TunnelId],
        inputs: usize,
        port_of: impl Fn(usize) -> u16,
    ) {
        self.tunnels = tunnels.iter().map(|tunnel| tunnel.0).collect();
        self.tunnel_bits = bits_of(tunnels.iter().map(|tunnel| tunnel.index()));
        let count = tunnels.iter().map(|tunnel| tunnel.index() + 1).max().unwrap_or(0);
        let row = |at: usize| {
            let unused = || Decap::unused(port_of(at), SourceId::from_index(inputs + at).0);
            let kept = self
                .decaps
                .get(at)
                .copied()
                .filter(|_| tunnels.contains(&TunnelId::from_index(at)));
            kept.filter(|row| row.port == port_of(at)).unwrap_or_else(unused)
        };
        self.decaps = (0..count).map(row).collect();
    }

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
    pub(crate) state: PlaceState,
    /// The MTU of the path to its far end, if it is known to be less than the device's.
    pub(crate) path_mtu: u16,
    pub(crate) sent: Counter,
    /// Frames that came in outside the decap flows that are in use.
    pub(crate) received: Counter,
}

const _: () = assert!(size_of::<Tunnel>() == 64, "a tunnel is one cache line");

impl Tunnel {
    /// Returns a place without a tunnel.
    pub(crate) fn free(group: u32, source: u16) -> Self {
        Self {
            port: NO_PORT,
            remote: Ipv4Addr::UNSPECIFIED,
            next_hop: None,
            group,
            source,
            foreign: false,
            state: PlaceState::Free,
            path_mtu: underlay::UNKNOWN,
            sent: Counter::default(),
            received: Counter::default(),
        }
    }

    /// Puts a tunnel here. Its next hop is not known yet.
    pub(crate) fn begin(&mut self, config: &TunnelConfig) {
        *self = Self {
            port: config.port.0,
            remote: config.remote,
            foreign: config.foreign,
            state: PlaceState::InUse,
            ..Self::free(self.group, self.source)
        };
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.state == PlaceState::InUse
    }
}

/// Returns a set of small numbers, a bit each.
fn bits_of(members: impl Iterator<Item = usize>) -> Box<[u64]> {
    let mut bits = Vec::new();
    for member in members {
        if bits.len() <= member / 64 {
            bits.resize(member / 64 + 1, 0);
        }
        bits[member / 64] |= 1 << (member % 64);
    }
    bits.into()
}

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
