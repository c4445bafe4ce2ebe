//! Punts: frames that the control plane sees beside misses.
//!
//! **Aim.** A control plane that is attached learns the machines of each port, and answers ARP (RFC
//! 826) and Neighbor Discovery (RFC 4861) for them, without the switch waiting for it. The switch
//! hands it the heads of frames, and knows nothing of their use.
//!
//! ```text
//!   frame of an access port
//!     ── ARP, NS, NA to a group ── beyond the budget of broadcasts? ── yes: `storm_limit`
//!            │ whole in its head, and an event fits?
//!            ├─ yes: taken, until control answers it, floods it or refuses it
//!            └─ no:  a copy if there is room, and it is flooded like any broadcast
//!     ── RS, RA, Redirect; anything of neighbours to one address ── a copy, and it goes on
//!     ── source not known here? ── a copy, and it goes on
//!   frame out of a tunnel that is foreign: copies only
//! ```
//!
//! One frame gives one event: an ARP or ND frame is punted as such, and its reader sees the source
//! too.
//!
//! **Taken frames are accounted for.** A frame is `consumed` when it is taken. Control answers it
//! in the target's name, floods it as if it had just come in ([`Switch::flood`]: `injected` at the
//! same input, no second charge), or drops it with a reason ([`Command::Refuse`]). Frames that
//! still wait to be read when control detaches end under `stopped`. Router discovery (RFC 4861
//! clause 6) and redirects (clause 8) are never taken: control does not decide about them. No limit
//! of control drops a frame of the data path; only the budget of broadcasts does, which each port
//! has for itself.
//!
//! **Fail static.** Punts happen while control is attached ([`Switch::attach_control`]) and at no
//! other time. Without it ARP is flooded like any broadcast, and no event waits without a reader.
//!
//! **Limits.** The configuration gives the size of the queue. A port has a quarter of it at most,
//! and one event of the same source at a time, so that one port costs the others nothing; punts
//! beyond that are counted as suppressed. Misses have a queue of their own.
//!
//! [`Command::Refuse`]: sluice_base::Command::Refuse

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use sluice_base::{
    Buf, Destination, DropReason, InputId, Mac, Nanos, PortId, Priority, PuntCause, TunnelId,
    VnetId,
};
use sluice_wire::{EtherType, ethernet, icmpv6, ipv6, vlan};

use crate::inspect::Counter;
use crate::mac_table;
use crate::slots::{Arrival, BufferOwner};
use crate::surface::{CommandError, Head, Notice};
use crate::switch::Switch;
use crate::switch::dispose::Disposition;

/// Router Solicitation, Router Advertisement, Neighbor Solicitation, Neighbor Advertisement and
/// Redirect (RFC 4861 section 4).
const ND_KINDS: core::ops::RangeInclusive<u8> = 133..=137;
/// The priority of frames that control sends: they must not wait behind data.
pub(crate) const CONTROL_PRIORITY: Priority = Priority::from_low_bits(7);
/// Divisor of the queue's size that gives the share of a port.
const PORT_SHARE: u32 = 4;
/// No source is remembered.
const NOBODY: u64 = u64::MAX;

/// Counters of the punts of a port for one cause. Misses are in no counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PuntCounters {
    /// Punts that were queued.
    pub admitted: u64,
    /// Punts that were suppressed: the port had its share of the queue, the source was punted
    /// already, or the queue was full.
    pub suppressed: u64,
}

/// State of one port.
#[derive(Clone, Copy, Debug)]
struct Share {
    waiting: u32,
    /// The (network, source) of the last punt, valid while a punt of the port waits.
    asked: u64,
    counters: [PuntCounters; PuntCause::COUNT],
}

/// A punt or decap flow that waits to be read.
#[derive(Clone, Copy, Debug)]
struct Queued {
    notice: Notice,
    /// Input of the frame, if it was taken.
    taken_at: Option<InputId>,
}

/// State of the control plane and its events. The fields that every turn reads come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    /// Misses, which have a reader even while control is not attached.
    misses: VecDeque<Notice>,
    /// Punts and decap flows.
    queue: VecDeque<Queued>,
    attached: bool,
    /// Number of punts that may wait; as many decap flows may wait beside them.
    places: u32,
    punts: u32,
    /// State by port.
    shares: Box<[Share]>,
}

impl Control {
    /// Returns the state with room for so many punts and misses.
    pub(crate) fn new(places: u16, misses: u16, ports: usize) -> Self {
        let share = Share {
            waiting: 0,
            asked: NOBODY,
            counters: [PuntCounters::default(); PuntCause::COUNT],
        };
        Self {
            misses: VecDeque::with_capacity(misses.into()),
            attached: false,
            queue: VecDeque::with_capacity(usize::from(places) * 2),
            places: places.into(),
            punts: 0,
            shares: vec![share; ports].into(),
        }
    }

    /// Returns true while a control plane is attached.
    #[inline]
    pub(crate) const fn is_attached(&self) -> bool {
        self.attached
    }

    /// Returns true if no more misses have room until some are read.
    pub(crate) fn is_full_of_misses(&self) -> bool {
        self.misses.len() == self.misses.capacity()
    }

    /// Queues a miss, which must have room.
    pub(crate) fn tell_miss(&mut self, notice: Notice) {
        self.misses.push_back(notice);
    }

    /// Returns true if misses wait to be read.
    #[inline]
    pub(crate) fn has_misses(&self) -> bool {
        !self.misses.is_empty()
    }

    /// Takes the oldest miss out of the queue.
    #[inline]
    pub(crate) fn next_miss(&mut self) -> Option<Notice> {
        self.misses.pop_front()
    }

    /// Discards misses that `keep` returns false for.
    pub(crate) fn retain_misses(&mut self, keep: impl FnMut(&Notice) -> bool) {
        self.misses.retain(keep);
    }

    /// Queues a punt of a frame of `port` if it has room. `source` is (network, source) of a frame
    /// that is punted because of its source, `taken_at` the input of a frame that is taken.
    fn punt(
        &mut self,
        port: u16,
        source: Option<u64>,
        (cause, vnet, from): (PuntCause, VnetId, Destination),
        head: &[u8],
        taken_at: Option<InputId>,
    ) -> bool {
        let share_max = (self.places / PORT_SHARE).max(1);
        let share = &mut self.shares[usize::from(port)];
        let is_asked = share.waiting > 0 && source.is_some_and(|source| source == share.asked);
        let counters = &mut share.counters[cause.index()];
        if is_asked || share.waiting >= share_max || self.punts >= self.places {
            counters.suppressed += 1;
            return false;
        }
        counters.admitted += 1;
        share.waiting += 1;
        self.punts += 1;
        share.asked = source.unwrap_or(share.asked);
        let head = Head::copy_of(head);
        let notice = Notice::Punt { cause, vnet, from, head };
        self.queue.push_back(Queued { notice, taken_at });
        true
    }

    /// Queues the event of a decap flow if it has room.
    pub(crate) fn tell_decap(&mut self, vnet: VnetId, tunnel: TunnelId) -> bool {
        let waiting = self.queue.len() - self.punts as usize;
        let has_room = waiting < self.places as usize;
        if has_room {
            let notice = Notice::Decap { vnet, tunnel };
            self.queue.push_back(Queued { notice, taken_at: None });
        }
        has_room
    }

    /// Returns true if no punt and no decap flow waits to be read.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the frames that were taken and wait to be read: their inputs and sizes.
    fn taken(&self) -> impl Iterator<Item = (InputId, u32)> {
        self.queue.iter().filter_map(|queued| match (queued.taken_at, &queued.notice) {
            (Some(input), Notice::Punt { head, .. }) => {
                let bytes = u32::try_from(head.as_slice().len()).expect("at most 128");
                Some((input, bytes))
            }
            _ => None,
        })
    }

    /// Discards the punts of a port that goes away: its number may belong to another port when they
    /// are read.
    pub(crate) fn forget(&mut self, port: PortId) {
        let before = self.queue.len();
        self.queue.retain(|queued| match queued.notice {
            Notice::Punt { from, .. } => from != Destination::Port(port),
            _ => true,
        });
        let gone = u32::try_from(before - self.queue.len()).expect("at most its places");
        self.punts -= gone;
        self.shares[port.index()].waiting -= gone;
    }

    /// Discards the punts and decap flows that `goes` selects. `port_of` returns the port of a
    /// tunnel. No frame that was taken may be among them.
    pub(crate) fn forget_that(
        &mut self,
        goes: impl Fn(&Notice) -> bool,
        port_of: impl Fn(TunnelId) -> usize,
    ) {
        let (punts, shares) = (&mut self.punts, &mut self.shares);
        self.queue.retain(|queued| {
            if !goes(&queued.notice) {
                return true;
            }
            debug_assert!(queued.taken_at.is_none(), "only ports have frames taken");
            if let Notice::Punt { from, .. } = queued.notice {
                let port = match from {
                    Destination::Port(port) => port.index(),
                    Destination::Tunnel(tunnel) => port_of(tunnel),
                };
                *punts -= 1;
                shares[port].waiting -= 1;
            }
            false
        });
    }

    /// Resets the counters of a port.
    pub(crate) fn restart(&mut self, port: usize) {
        let share = &mut self.shares[port];
        debug_assert!(share.waiting == 0, "a detached port has no punts");
        share.asked = NOBODY;
        share.counters = [PuntCounters::default(); PuntCause::COUNT];
    }

    /// Discards all punts and decap flows, which nobody reads any more.
    fn clear(&mut self) {
        self.queue.clear();
        self.punts = 0;
        for share in &mut self.shares {
            share.waiting = 0;
        }
    }
}

/// Returns true if a message of ICMPv6 is one of Neighbor Discovery.
pub(crate) fn is_discovery(kind: icmpv6::Kind) -> bool {
    ND_KINDS.contains(&kind.0)
}

/// Returns the cause of a punt if a tenant's frame is ARP or Neighbor Discovery: `Snooped` for
/// messages that control never decides about, whatever their destination. A message behind an IPv6
/// extension header is not recognised.
fn neighbors(head: &[u8]) -> Option<PuntCause> {
    let (ethertype, payload) = behind_tag(&ethernet::Frame::new_checked(head).ok()?)?;
    match ethertype {
        EtherType::ARP => Some(PuntCause::Arp),
        EtherType::IPV6 => {
            let packet = ipv6::Packet::new_checked(payload).ok()?;
            let kind = icmpv6::Kind::of(packet.payload())?;
            if packet.next_header() != icmpv6::PROTOCOL || !is_discovery(kind) {
                return None;
            }
            Some(if kind.is_neighbor() { PuntCause::Nd } else { PuntCause::Snooped })
        }
        _ => None,
    }
}

/// Returns type and payload of a frame, behind a priority tag of either kind if it has one:
/// receivers look behind it as well (802.1Q clause 6.9). A tenant's own VLAN is another network,
/// with neighbours of its own, so its tags are not looked behind.
pub(crate) fn behind_tag<'a>(frame: &ethernet::Frame<'a>) -> Option<(EtherType, &'a [u8])> {
    if !frame.ethertype().is_tag() {
        return Some((frame.ethertype(), frame.payload()));
    }
    let tag = vlan::Tag::new_checked(frame.payload()).ok()?;
    if tag.vid() != vlan::VID_NONE {
        return Some((frame.ethertype(), frame.payload()));
    }
    Some((tag.ethertype(), tag.payload()))
}

impl<B: Buf> Switch<B> {
    /// Punts an ARP or ND frame that came in at an access port. Returns the disposition of a frame
    /// that is taken, flooded, or beyond the budget of broadcasts. Any other is forwarded.
    pub(crate) fn punt_neighbors(
        &mut self,
        now: Nanos,
        slot: u32,
        dst: Mac,
    ) -> Option<Disposition> {
        let s = self.slots.get(slot);
        let (input, bytes, vnet) = (s.input(), s.bytes(), VnetId(s.vnet()));
        let head = s.buf().map_or(&[][..], Buf::head);
        let mut cause = neighbors(head)?;
        let is_flood = dst.is_group() && cause != PuntCause::Snooped;
        // Control hands back a frame that it does not answer, so it needs the whole frame.
        let is_taken = is_flood && head.len() == bytes as usize;
        if !is_taken {
            cause = PuntCause::Snooped;
        }
        let port = self.ingress.input(input).port();
        let is_storm = is_flood && self.is_storm(now, slot);
        if is_storm {
            return Some(Disposition::Drop(DropReason::StormLimit));
        }
        let head = self.slots.get(slot).buf().map_or(&[][..], Buf::head);
        let what = (cause, vnet, Destination::Port(PortId(port)));
        let taken_at = is_taken.then_some(InputId(input));
        let is_queued = self.control.punt(port, None, what, head, taken_at);
        if is_taken && is_queued {
            return Some(Disposition::Consume);
        }
        is_flood.then_some(Disposition::Replicate)
    }

    /// Floods a frame that was taken, or a question of control in a sender's name, as if it had
    /// come in at `from`: to the other members of the network, and through its tunnels if `from` is
    /// a port. `buf` is of the host pool. Its copies are bounded as those of any broadcast.
    ///
    /// # Errors
    /// The frame, if there is no such place, or no room. Without room it is counted under
    /// `punt_limit`.
    pub fn flood(&mut self, vnet: VnetId, from: Destination, buf: B) -> Result<(), B> {
        let Ok(port) = self.place_of(vnet, from) else { return Err(buf) };
        let input = self.egress.port(usize::from(port)).first_input();
        let bytes = buf.size();
        if self.pool.is_full_of_bodies() || self.slots.free_count() == 0 {
            self.count_refused(input, DropReason::PuntLimit, Counter::of(bytes));
            return Err(buf);
        }
        self.ledger.inject(input, CONTROL_PRIORITY.get(), Counter::of(bytes));
        self.slots.enter(1);
        let (source, priority) = (self.source_of(input, from), CONTROL_PRIORITY);
        let arrival = Arrival { source, vnet: vnet.0, strip: 0, priority, ecn: None };
        let slot = self.slots.put(input, &arrival, BufferOwner::Output, buf);
        self.flood_body(slot);
        Ok(())
    }

    /// Drops frames that were taken at a port, which control neither answers nor floods.
    pub(crate) fn refuse_taken(
        &mut self,
        port: PortId,
        reason: DropReason,
        sum: Counter,
    ) -> Result<(), CommandError> {
        let there = self.egress.ports().get(port.index()).filter(|port| !port.is_detached());
        let input = there.ok_or(CommandError::NoSuchPort(port))?.first_input();
        self.count_refused(input, reason, sum);
        Ok(())
    }

    /// Counts frames that end and are in no slot. They were `consumed` before, so they are
    /// `injected` first.
    fn count_refused(&mut self, input: u16, reason: DropReason, sum: Counter) {
        self.ledger.inject(input, CONTROL_PRIORITY.get(), sum);
        self.ledger.drop(input, CONTROL_PRIORITY.get(), reason, sum);
    }

    /// Returns the port by which frames of a place come in, if it is in the network.
    fn place_of(&self, vnet: VnetId, from: Destination) -> Result<u16, CommandError> {
        self.networks.check(vnet)?;
        let group = self.group_of(vnet, from)?;
        Ok(self.egress.group(group).port())
    }

    fn source_of(&self, input: u16, from: Destination) -> u16 {
        match from {
            Destination::Port(_) => input,
            Destination::Tunnel(tunnel) => self.networks.tunnel(tunnel.0).source(),
        }
    }

    /// Punts a frame because of its source, unless it is an ARP or ND frame, which is punted as
    /// such.
    pub(crate) fn punt_source(
        &mut self,
        port: u16,
        is_known: bool,
        source: u64,
        (vnet, from): (VnetId, Destination),
        head: &[u8],
    ) {
        if neighbors(head).is_none() {
            let cause = if is_known { PuntCause::Moved } else { PuntCause::NewSource };
            self.control.punt(port, Some(source), (cause, vnet, from), head, None);
        }
    }

    /// Punts a frame out of a foreign tunnel if it is ARP or ND, or if its source is new or moved.
    /// The frame is forwarded in any case.
    #[cold]
    pub(crate) fn watch_tunnel(&mut self, slot: u32, tunnel: u16) {
        let s = self.slots.get(slot);
        let (vnet, strip) = (VnetId(s.vnet()), usize::from(s.strip()));
        let head = s.buf().and_then(|buf| buf.head().get(strip..)).unwrap_or(&[]);
        let from = Destination::Tunnel(TunnelId(tunnel));
        let tunnel = self.networks.tunnel(tunnel);
        let (port, group) = (tunnel.port(), tunnel.group());
        if neighbors(head).is_some() {
            self.control.punt(port, None, (PuntCause::Snooped, vnet, from), head, None);
            return;
        }
        let Ok(frame) = ethernet::Frame::new_checked(head) else { return };
        let source = mac_table::key(vnet.0, frame.src());
        let known = self.fdb.meet(source);
        if known != Some(group) {
            let cause = if known.is_some() { PuntCause::Moved } else { PuntCause::NewSource };
            self.control.punt(port, Some(source), (cause, vnet, from), head, None);
        }
    }

    /// Attaches a control plane, which reads [`Notice::Punt`] and [`Notice::Decap`] from now on, or
    /// detaches it: then the punts that wait are discarded, and the switch floods ARP like any
    /// broadcast. A switch starts without a control plane.
    pub fn attach_control(&mut self, attached: bool) {
        if self.control.attached == attached {
            return;
        }
        self.control.attached = attached;
        self.end_taken(None);
        self.control.clear();
        self.sources_changed();
        self.networks.foreign_changed(attached);
        if attached {
            self.tell_receivers_again();
        }
    }

    /// Ends the frames that were taken, at one port or at any, and will not be read.
    pub(crate) fn end_taken(&mut self, port: Option<PortId>) {
        let (ingress, ledger) = (&self.ingress, &mut self.ledger);
        let priority = CONTROL_PRIORITY.get();
        for (input, bytes) in self.control.taken() {
            if port.is_none_or(|port| port.0 == ingress.input(input.0).port()) {
                ledger.inject(input.0, priority, Counter::of(bytes));
                ledger.drop(input.0, priority, DropReason::Stopped, Counter::of(bytes));
            }
        }
    }

    /// Returns the next punt, or the event of a decap flow.
    #[cold]
    pub(crate) fn next_punt(&mut self) -> Option<Notice> {
        let notice = self.control.queue.pop_front()?.notice;
        if let Notice::Punt { from, .. } = notice {
            let port = match from {
                Destination::Port(port) => port.index(),
                Destination::Tunnel(tunnel) => usize::from(self.networks.tunnel(tunnel.0).port()),
            };
            self.control.punts -= 1;
            self.control.shares[port].waiting -= 1;
        }
        Some(notice)
    }
}

impl<B> Switch<B> {
    /// Returns the counters of punts of a port for one cause; frames out of tunnels count at the
    /// underlay port.
    ///
    /// # Panics
    /// If there is no such port.
    #[must_use]
    pub fn punt_counters(&self, port: PortId, cause: PuntCause) -> PuntCounters {
        self.control.shares[port.index()].counters[cause.index()]
    }
}

#[cfg(test)]
mod tests;
