//! One tunnel: its far end, the way there, and its counters.

use core::net::Ipv4Addr;

use sluice_base::Mac;

use crate::config::TunnelConfig;
use crate::inspect::Counter;
use crate::place::NO_PORT;

use super::PlaceState;

/// A path whose MTU is not known: the MTU of its device applies.
const UNKNOWN: u16 = u16::MAX;

/// A tunnel, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Tunnel {
    port: u16,
    remote: Ipv4Addr,
    next_hop: Option<Mac>,
    group: u32,
    source: u16,
    foreign: bool,
    state: PlaceState,
    /// The MTU of the path to its far end, if it is known to be less than the device's.
    path_mtu: u16,
    sent: Counter,
    /// Frames that came in outside the decap flows that are in use.
    received: Counter,
}

const _: () = assert!(size_of::<Tunnel>() == 64, "a tunnel is one cache line");

impl Tunnel {
    /// Returns a place without a tunnel.
    pub(super) fn free(group: u32, source: u16) -> Self {
        Self {
            port: NO_PORT,
            remote: Ipv4Addr::UNSPECIFIED,
            next_hop: None,
            group,
            source,
            foreign: false,
            state: PlaceState::Free,
            path_mtu: UNKNOWN,
            sent: Counter::default(),
            received: Counter::default(),
        }
    }

    /// Puts a tunnel here. Its next hop is not known yet.
    pub(super) fn begin(&mut self, config: &TunnelConfig) {
        *self = Self {
            port: config.port.0,
            remote: config.remote,
            foreign: config.foreign,
            state: PlaceState::InUse,
            ..Self::free(self.group, self.source)
        };
    }

    /// Returns the underlay port that it leads through.
    #[inline]
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of its far end.
    #[inline]
    pub(crate) const fn remote(&self) -> Ipv4Addr {
        self.remote
    }

    #[inline]
    pub(crate) const fn next_hop(&self) -> Option<Mac> {
        self.next_hop
    }

    /// Returns its queue group.
    #[inline]
    pub(crate) const fn group(&self) -> u32 {
        self.group
    }

    /// Returns the source number of frames that come out of it.
    #[inline]
    pub(crate) const fn source(&self) -> u16 {
        self.source
    }

    /// Returns true if its far end is no member of the fabric.
    pub(crate) const fn is_foreign(&self) -> bool {
        self.foreign
    }

    pub(crate) const fn state(&self) -> PlaceState {
        self.state
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.state == PlaceState::InUse
    }

    /// Returns the MTU of the path to its far end; the largest number if it is not known.
    #[inline]
    pub(crate) const fn path_mtu(&self) -> u16 {
        self.path_mtu
    }

    /// Returns the MTU of the path to its far end, if it is known to be less than the device's.
    pub(crate) fn learned_path_mtu(&self) -> Option<u16> {
        (self.path_mtu != UNKNOWN).then_some(self.path_mtu)
    }

    /// Returns the frames that a driver took.
    pub(crate) const fn sent(&self) -> Counter {
        self.sent
    }

    /// Returns the frames that came in outside the decap flows that are in use.
    pub(super) const fn received(&self) -> Counter {
        self.received
    }

    /// Counts frames that came in outside the decap flows that are in use.
    pub(super) fn add_received(&mut self, sum: Counter) {
        self.received.add_all(sum);
    }

    /// Counts frames that a driver took.
    #[inline]
    pub(super) fn add_sent(&mut self, sum: Counter) {
        self.sent.add_all(sum);
    }

    /// Sets the next hop. Returns true if there was one.
    pub(super) const fn set_next_hop(&mut self, mac: Option<Mac>) -> bool {
        let had = self.next_hop.is_some();
        self.next_hop = mac;
        had
    }

    /// Sets or forgets the MTU of the path.
    pub(super) fn set_path_mtu(&mut self, mtu: Option<u16>) {
        self.path_mtu = mtu.unwrap_or(UNKNOWN);
    }

    /// Marks the tunnel as removed.
    pub(super) const fn remove(&mut self) {
        (self.state, self.next_hop) = (PlaceState::Removed, None);
    }

    /// Makes the place of a removed tunnel free.
    pub(super) fn make_free(&mut self) {
        debug_assert!(self.state != PlaceState::InUse, "a tunnel would be lost");
        self.state = PlaceState::Free;
    }
}
