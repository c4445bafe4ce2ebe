//! Punts: what the control plane is shown beside misses.
//!
//! **Aim.** A control plane that is attached learns who is at which port, and answers for
//! neighbours (ARP, RFC 826; Neighbor Discovery, RFC 4861), without the switch waiting for it. The
//! switch shows it the heads of frames; it knows nothing of what is done with them.
//!
//! ```text
//!   frame of an access port
//!     ── ARP, NS, NA to a group ── beyond the budget of broadcasts? ── yes: `storm_limit`
//!            │ whole in its head, and a notice fits?
//!            ├─ yes: taken, until control answers it, floods it or refuses it
//!            └─ no:  a copy if there is room, and it is flooded like any broadcast
//!     ── RS, RA, Redirect; anything of neighbours to one address ── a copy, and it goes on
//!     ── source not known here? ── a copy, and it goes on
//!   frame out of a tunnel that is foreign: copies only
//! ```
//!
//! One frame gives one notice: what is ARP or ND says that, and its reader sees the source too.
//!
//! **What is taken is not lost.** It is `consumed` when it is taken. Control answers it in the
//! target's name, has it flooded as if it had just come in ([`Command::Flood`] and
//! [`Switch::flood`]: `injected` at the same input, no second charge), or says why it ended
//! ([`Command::Refuse`]). What still waits to be read when control goes ends under `stopped`.
//! Router discovery (RFC 4861 clause 6) and redirects (clause 8) are never taken: control has no
//! say in them. No budget of control takes a frame from its way; only the budget of broadcasts
//! does, which each port has for itself.
//!
//! **Fail static.** Punts happen while control is attached ([`Command::Control`]) and at no other
//! time. Without it ARP is flooded like any broadcast, and no notice waits for nobody.
//!
//! **Limits.** The places of the queue are a number of the configuration. A port has a quarter of
//! them at most, and of the same source one notice at a time, so that one port costs the others
//! nothing; what is beyond that is counted as suppressed. Misses have a queue of their own.
//!
//! [`Command::Control`]: crate::Command::Control
//! [`Command::Flood`]: crate::Switch::flood
//! [`Command::Refuse`]: crate::Command::Refuse

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use sluice_base::{Buf, DropReason, InputId, Mac, Nanos, PortId, Priority, TunnelId, VnetId};
use sluice_wire::{EtherType, ethernet, icmpv6, ipv6, vlan};

use crate::account;
use crate::inspect::Counter;
use crate::mac_table;
use crate::receive::Arrival;
use crate::slots::Home;
use crate::surface::{CommandError, Destination, Head, Notice, PuntCause, PuntFrom};
use crate::switch::Switch;

/// Router Solicitation, Router Advertisement, Neighbor Solicitation, Neighbor Advertisement and
/// Redirect (RFC 4861 section 4).
const ND_KINDS: core::ops::RangeInclusive<u8> = 133..=137;
/// The priority of what control sends: it must not wait behind data.
pub(crate) const CONTROL_PRIORITY: Priority = Priority::from_low_bits(7);
/// What a port may have of the queue: one part of so many.
const PORT_SHARE: u32 = 4;
/// No source has been asked about.
const NOBODY: u64 = u64::MAX;

/// How often frames of a port were punted for a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PuntCounters {
    /// Notices that were queued.
    pub admitted: u64,
    /// Notices that were not, as the port had its share of the queue, or the queue was full.
    pub suppressed: u64,
}

/// The share of one port.
#[derive(Clone, Copy, Debug)]
struct Share {
    waiting: u32,
    /// The (network, source) that was last asked about, while something of the port waits.
    asked: u64,
    counters: [PuntCounters; PuntCause::COUNT],
}

/// What the switch knows of the control plane. What every turn asks comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    queue: VecDeque<Notice>,
    pub(crate) attached: bool,
    /// How many punts may wait; as many decap flows may beside them.
    places: u32,
    punts: u32,
    /// By port.
    shares: Box<[Share]>,
}

impl Control {
    pub(crate) fn new(places: u16, ports: usize) -> Self {
        let share = Share {
            waiting: 0,
            asked: NOBODY,
            counters: [PuntCounters::default(); PuntCause::COUNT],
        };
        Self {
            attached: false,
            queue: VecDeque::with_capacity(usize::from(places) * 2),
            places: places.into(),
            punts: 0,
            shares: vec![share; ports].into(),
        }
    }

    /// Queues a punt of a frame of `port` if it has room. `source` is (network, source) of a frame
    /// that is shown for its source's sake.
    fn punt(
        &mut self,
        port: u16,
        source: Option<u64>,
        (cause, vnet, from): (PuntCause, VnetId, PuntFrom),
        head: &[u8],
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
        self.queue.push_back(Notice::Punt { cause, vnet, from, head });
        true
    }

    /// Queues the news of a decap flow if it has room.
    pub(crate) fn tell_decap(&mut self, vnet: VnetId, tunnel: TunnelId) -> bool {
        let waiting = self.queue.len() - self.punts as usize;
        let has_room = waiting < self.places as usize;
        if has_room {
            self.queue.push_back(Notice::Decap { vnet, tunnel });
        }
        has_room
    }

    /// Returns true if nothing waits to be read.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the frames that were taken and wait to be read: where they came in, and their sizes.
    fn taken(&self) -> impl Iterator<Item = (InputId, u32)> {
        self.queue.iter().filter_map(|notice| match notice {
            Notice::Punt { cause, from: PuntFrom::Input(input), head, .. } if cause.is_taken() => {
                let bytes = u32::try_from(head.as_slice().len()).expect("at most 128");
                Some((*input, bytes))
            }
            _ => None,
        })
    }

    /// A port goes away, and what waits to be said of its frames: its number may be another's when
    /// it is read.
    pub(crate) fn forget(&mut self, port: u16, is_its: impl Fn(InputId) -> bool) {
        let before = self.queue.len();
        self.queue.retain(|notice| match notice {
            Notice::Punt { from: PuntFrom::Input(input), .. } => !is_its(*input),
            _ => true,
        });
        let gone = u32::try_from(before - self.queue.len()).expect("at most its places");
        self.punts -= gone;
        self.shares[usize::from(port)].waiting -= gone;
    }

    /// Counts for a port from the beginning.
    pub(crate) fn restart(&mut self, port: usize) {
        let share = &mut self.shares[port];
        debug_assert!(share.waiting == 0, "a detached port has no punts");
        share.asked = NOBODY;
        share.counters = [PuntCounters::default(); PuntCause::COUNT];
    }

    /// Nobody reads what waits.
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

/// Whether a tenant's frame is one of neighbours, and of which kind: `Snooped` for those in which
/// control has no say, to whomever they go. A message behind an IPv6 extension header is not
/// looked for.
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

/// Type and payload of a frame, behind a priority tag of either kind if it has one: receivers look
/// behind it as well (802.1Q clause 6.9). What is behind the tag of a tenant's own VLAN is another
/// network's, with neighbours of its own.
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
    /// Shows a frame of neighbours that came in at an access port. Returns whether it was seen to:
    /// taken, flooded, or beyond the budget of broadcasts. Else it goes its way.
    pub(crate) fn punt_neighbors(&mut self, now: Nanos, slot: u32, dst: Mac) -> bool {
        let s = self.slots.get(slot);
        let (input, bytes, priority, vnet) = (s.input, s.bytes, s.priority, VnetId(s.vnet));
        let head = s.buf.as_ref().map_or(&[][..], Buf::head);
        let Some(mut cause) = neighbors(head) else { return false };
        let is_flood = dst.is_group() && cause != PuntCause::Snooped;
        // Control gives back what it does not answer: it needs all of it.
        let is_taken = is_flood && head.len() == bytes as usize;
        if !is_taken {
            cause = PuntCause::Snooped;
        }
        let port = self.inputs[usize::from(input)].port;
        let is_storm = is_flood && self.is_storm(now, slot);
        if is_storm {
            self.drop_frame(slot, DropReason::StormLimit);
            return true;
        }
        let head = self.slots.get(slot).buf.as_ref().map_or(&[][..], Buf::head);
        let what = (cause, vnet, PuntFrom::Input(InputId(input)));
        let is_told = self.control.punt(port, None, what, head);
        if is_taken && is_told {
            self.rare_rows[account::row(input, priority)].consumed.add(bytes);
            self.end(slot);
        } else if is_flood {
            self.hold_for_replication(slot);
        }
        is_flood
    }

    /// Floods a frame that was taken, or that control asks in a sender's name, as if it had come
    /// in `from` there: to the other members of the network, and through its tunnels if it is of a
    /// port. `buf` is of the host pool. Its copies are bounded as those of any broadcast.
    ///
    /// # Errors
    /// The frame, if there is no such place, or no room. It is counted under `punt_limit` if the
    /// place is there.
    pub fn flood(&mut self, vnet: VnetId, from: Destination, buf: B) -> Result<(), B> {
        let Ok(port) = self.place_of(vnet, from) else { return Err(buf) };
        let input = self.ports[usize::from(port)].first_input;
        let bytes = buf.size();
        if self.bodies >= self.replicated_frames || self.slots.free_count() == 0 {
            self.count_refused(input, DropReason::PuntLimit, Counter::of(bytes));
            return Err(buf);
        }
        self.rare_rows[account::row(input, CONTROL_PRIORITY.get())].injected.add(bytes);
        self.slots.enter(1);
        let (source, priority) = (self.source_of(input, from), CONTROL_PRIORITY);
        let arrival = Arrival { source, vnet: vnet.0, strip: 0, priority, ecn: None };
        let slot = self.new_slot(input, &arrival, Home::Output, buf);
        self.flood_body(slot);
        Ok(())
    }

    /// Frames that were taken at a port, and end: control does not answer or flood them.
    pub(crate) fn refuse_taken(
        &mut self,
        port: PortId,
        reason: DropReason,
        sum: Counter,
    ) -> Result<(), CommandError> {
        let there = self.ports.get(port.index()).filter(|port| !port.detached);
        let input = there.ok_or(CommandError::NoSuchPort(port))?.first_input;
        self.count_refused(input, reason, sum);
        Ok(())
    }

    /// They are in no slot: they were consumed, so that they come from control once more.
    fn count_refused(&mut self, input: u16, reason: DropReason, sum: Counter) {
        let row = account::row(input, CONTROL_PRIORITY.get());
        self.rare_rows[row].injected.add_all(sum);
        self.drops[row][reason.index()].add_all(sum);
    }

    /// Returns the port by which frames of a place come in, if it is in the network.
    fn place_of(&self, vnet: VnetId, from: Destination) -> Result<u16, CommandError> {
        if vnet.index() >= self.vnets.len() {
            return Err(CommandError::NoSuchVnet(vnet));
        }
        let lane = self.lane_of(vnet, from)?;
        Ok(self.lanes[lane as usize].port)
    }

    const fn source_of(&self, input: u16, from: Destination) -> u16 {
        match from {
            Destination::Port(_) => input,
            Destination::Tunnel(tunnel) => self.tunnels[tunnel.index()].source,
        }
    }

    /// Shows a frame for the sake of its source, unless it is shown for a better reason.
    pub(crate) fn punt_source(
        &mut self,
        port: u16,
        is_known: bool,
        source: u64,
        (vnet, from): (VnetId, PuntFrom),
        head: &[u8],
    ) {
        if neighbors(head).is_none() {
            let cause = if is_known { PuntCause::Moved } else { PuntCause::NewSource };
            self.control.punt(port, Some(source), (cause, vnet, from), head);
        }
    }

    /// Shows a frame that came out of a foreign tunnel, if there is something to be seen in it. It
    /// goes on in any case.
    #[cold]
    pub(crate) fn watch_tunnel(&mut self, slot: u32, tunnel: u16) {
        let s = self.slots.get(slot);
        let (vnet, strip) = (VnetId(s.vnet), usize::from(s.strip));
        let head = s.buf.as_ref().and_then(|buf| buf.head().get(strip..)).unwrap_or(&[]);
        let from = PuntFrom::Tunnel(TunnelId(tunnel));
        let (port, lane) = {
            let tunnel = &self.tunnels[usize::from(tunnel)];
            (tunnel.port, tunnel.lane)
        };
        if neighbors(head).is_some() {
            self.control.punt(port, None, (PuntCause::Snooped, vnet, from), head);
            return;
        }
        let Ok(frame) = ethernet::Frame::new_checked(head) else { return };
        let source = mac_table::key(vnet.0, frame.src());
        let known = self.chip.meet(source);
        if known != Some(lane) {
            let cause = if known.is_some() { PuntCause::Moved } else { PuntCause::NewSource };
            self.control.punt(port, Some(source), (cause, vnet, from), head);
        }
    }

    /// A control plane reads the notices from now on, or none does.
    pub(crate) fn attach_control(&mut self, attached: bool) {
        if self.control.attached == attached {
            return;
        }
        self.control.attached = attached;
        self.end_taken(None);
        self.control.clear();
        self.sources_changed();
        self.foreign_changed();
        if attached {
            self.tell_receivers_again();
        }
    }

    /// What was taken, at one port or at any, and will not be read ends.
    pub(crate) fn end_taken(&mut self, port: Option<PortId>) {
        let (inputs, rows) = (&self.inputs, &mut self.rare_rows);
        for (input, bytes) in self.control.taken() {
            if port.is_none_or(|port| port.0 == inputs[input.index()].port) {
                let row = account::row(input.0, CONTROL_PRIORITY.get());
                rows[row].injected.add(bytes);
                self.drops[row][DropReason::Stopped.index()].add(bytes);
            }
        }
    }

    /// Returns the next punt, or news of a decap flow.
    #[cold]
    pub(crate) fn next_punt(&mut self) -> Option<Notice> {
        let notice = self.control.queue.pop_front()?;
        if let Notice::Punt { from, .. } = notice {
            let port = match from {
                PuntFrom::Input(input) => self.inputs[input.index()].port,
                PuntFrom::Tunnel(tunnel) => self.tunnels[tunnel.index()].port,
            };
            self.control.punts -= 1;
            self.control.shares[usize::from(port)].waiting -= 1;
        }
        Some(notice)
    }
}

impl<B> Switch<B> {
    /// How often frames of a port were punted for a cause; those out of tunnels count at the
    /// underlay port.
    ///
    /// # Panics
    /// If there is no such port.
    #[must_use]
    pub fn punt_counters(&self, port: PortId, cause: PuntCause) -> PuntCounters {
        self.control.shares[port.index()].counters[cause.index()]
    }

    /// Returns true if a control plane is attached.
    #[must_use]
    pub const fn is_control_attached(&self) -> bool {
        self.control.attached
    }
}

#[cfg(test)]
mod tests;
