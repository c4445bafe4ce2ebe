//! Egress: the scheduler of a port picks among priorities and sources and offers frames to the
//! port's driver until no frame may go or the driver has no room.
//!
//! Priorities: strict ones first, highest number first; the others by deficit round robin in bytes,
//! with their weights; there a deficit may fall below zero by one frame; a priority keeps this debt
//! when it is empty. Sources within a priority: deficit round robin in bytes as in its paper
//! (Shreedhar and Varghese, SIGCOMM 1995), one quantum each. A frame goes when the deficit covers
//! it, and a queue that empties has no deficit and no debt: queues are unbound then, so a debt
//! would be lost, and a source that sends little at a time would get more than its share.
//!
//! A queue is only served at its head. A driver that refuses a frame ends the walk, at least for
//! the priorities that it has no room for: an output that was found full stays full, and no frame
//! overtakes another.

use sluice_base::{Buf, DropReason, Nanos, PortId, Priority, PriorityMask, TunnelId};

use crate::classify;
use crate::egress::Turn;
use crate::inspect::Counter;
use crate::place::ETHERNET_BYTES;
use crate::surface::{Egress, QueueGroupKind, Sink, Taken};
use crate::switch::Switch;
use crate::tunnel::{OUTER_BYTES, OUTER_SIZE, To, Wrap};

/// Upper bound of the bytes that the switch puts in front of a frame.
const HEADER_SIZE_MAX: usize = 128;

/// Outcome of the frame whose turn it was.
pub(crate) enum Served {
    /// The driver took it.
    Taken,
    /// The frame could not go and does not block others any more.
    Skipped,
    /// The driver has no room.
    Refused,
}

impl<B: Buf> Switch<B> {
    /// Offers frames of `port` to its driver: first a pause frame that is due, then frames that
    /// wait, in the order of the scheduler. Returns the number of frames that the driver took.
    pub fn transmit(&mut self, now: Nanos, port: PortId, sink: &mut impl Sink<B>) -> u32 {
        let at = port.index();
        let mut taken = 0;
        if self.egress.port(at).is_restrained() && !self.ask_restraints(now, at, sink, &mut taken) {
            return 0;
        }
        let mut refused = PriorityMask::NONE;
        while !sink.is_full() && self.egress.port(at).may_send(now) {
            let Some(priority) = self.egress.next_priority(at, refused) else { break };
            let class = self.egress.class_of(at, priority);
            let served = if !self.egress.has_common(class) {
                let node = self.egress.next_node(&self.slots, at, priority);
                match self.egress.plain_leaf(node) {
                    Some(leaf) => self.serve_leaf(now, at, priority, leaf, sink, &mut taken),
                    None => self.serve(now, at, priority, sink, &mut taken),
                }
            } else if self.egress.port(at).has_bundles() {
                self.serve_tunnels(now, at, priority, sink, &mut taken)
            } else {
                self.serve_common(now, at, priority, sink, &mut taken)
            };
            if let Served::Refused = served {
                // Frames of other priorities that the driver takes do not wait for this one.
                refused = sink.refuses();
                if refused.0 >> priority & 1 == 0 {
                    break;
                }
            }
        }
        self.egress.rest(now, at);
        taken
    }

    /// Handles pause frames and rates, which come before data, on a port that has them. Returns
    /// false if the driver has no room even for a pause frame.
    fn ask_restraints(
        &mut self,
        now: Nanos,
        at: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> bool {
        if self.egress.port(at).owes_pause(now) {
            if !self.transmit_pause(now, at, sink) {
                return false;
            }
            *taken += 1;
        }
        self.egress.ask_restraints(now, at);
        true
    }

    /// Returns true if [`Self::transmit`] would offer a frame now.
    #[must_use]
    pub fn has_work(&self, now: Nanos, port: PortId) -> bool {
        self.egress.has_work(now, port.index())
    }

    #[inline(never)]
    fn transmit_pause(&mut self, now: Nanos, at: usize, sink: &mut impl Sink<B>) -> bool {
        let (control, priority) = (self.control_input().0, Priority::from_low_bits(7));
        let mut size = 0;
        let offer = |header: &[u8]| {
            size = u32::try_from(header.len()).expect("60");
            let (buf, tunnel) = (None, None);
            let egress = Egress { header, buf, strip: 0, size, first: 0, priority, tunnel };
            !matches!(sink.offer(&egress), Taken::No | Taken::Later)
        };
        if !self.egress.send_pause(now, at, offer) {
            return false;
        }
        self.egress.add_sent(self.egress.class_of(at, priority.index()), size);
        self.ledger.inject(control, priority.get(), Counter::of(size));
        self.ledger.deliver(control, priority.get(), Counter::of(size));
        true
    }

    #[inline(never)]
    pub(crate) fn serve(
        &mut self,
        now: Nanos,
        port: usize,
        priority: usize,
        sink: &mut impl Sink<B>,
        taken: &mut u32,
    ) -> Served {
        let turn = self.egress.head_turn(port, priority);
        if self.egress.park_timed(now, &turn) {
            return Served::Skipped;
        }
        let mut header = [0; HEADER_SIZE_MAX];
        let offered = match self.egress(&turn, &mut header) {
            Ok(egress) => (sink.offer(&egress), egress.size),
            Err(reason) => {
                if reason == DropReason::Oversize {
                    self.tell_too_big(now, turn.slot, turn.group);
                }
                let slot = self.egress.dequeue(&mut self.slots, &turn);
                self.drop_frame(slot, reason);
                return Served::Skipped;
            }
        };
        match offered {
            (Taken::No, _) => Served::Refused,
            (Taken::Later, _) if self.set_aside(&turn) => Served::Skipped,
            (Taken::Later, _) => {
                sink.hold_port();
                Served::Refused
            }
            (Taken::All, size) => {
                *taken += self.taken(now, &turn, size);
                Served::Taken
            }
            (Taken::Segments(count), size) => {
                *taken += self.taken_in_part(now, &turn, size, count);
                Served::Taken
            }
        }
    }

    /// Returns the frame as the driver sees it, or the reason why it cannot go.
    #[inline]
    fn egress<'a>(
        &'a self,
        turn: &Turn,
        header: &'a mut [u8; HEADER_SIZE_MAX],
    ) -> Result<Egress<'a, B>, DropReason> {
        let slot = self.slots.get(turn.slot);
        let body = self.slots.body_of(slot);
        let buf = body.buf().expect("a queued frame has its handle, or its body has");
        let priority = Priority::from_low_bits(slot.priority());
        // One segment has to fit.
        let size = if slot.is_super() {
            buf.segment_size() - u32::from(slot.strip())
        } else {
            slot.bytes_left()
        };
        let (header_size, strip, tunnel) = match self.egress.group(turn.group).kind() {
            QueueGroupKind::Tunnel(tunnel) => {
                let header = header.first_chunk_mut().expect("128 bytes");
                self.encapsulate(tunnel, slot.vnet(), priority, buf, size, header)?;
                (OUTER_SIZE, 0, Some(tunnel))
            }
            _ => {
                let size_max = self.egress.port(turn.port).frame_size_max();
                if size > size_max && !fits_with_tag(buf, slot.strip(), size, size_max) {
                    return Err(DropReason::Oversize);
                }
                match slot.ecn() {
                    None => (0, slot.strip(), None),
                    Some(ecn) => {
                        let inner = &buf.head()[usize::from(slot.strip())..];
                        let rewritten = classify::with_ecn(inner, ecn, header);
                        let skip = u16::try_from(rewritten).expect("at most 128");
                        (rewritten, slot.strip() + skip, None)
                    }
                }
            }
        };
        // In front of each segment, as what is skipped was.
        let added = u32::try_from(header_size).expect("at most 128");
        let segments = u32::from(slot.segments_left());
        let (sent, sent_bytes) = slot.sent();
        let size = slot.bytes() - sent_bytes + added * segments - u32::from(strip) * segments;
        let (header, first) = (&header[..header_size], sent);
        Ok(Egress { header, buf: Some(buf), strip, size, first, priority, tunnel })
    }

    /// Writes the outer headers of a tenant's frame, or returns the reason why it may not go
    /// through this tunnel.
    #[inline]
    pub(crate) fn encapsulate(
        &self,
        tunnel: TunnelId,
        vnet: u16,
        priority: Priority,
        buf: &B,
        size: u32,
        header: &mut [u8; OUTER_SIZE],
    ) -> Result<(), DropReason> {
        let size_max = self.networks.vnet(vnet).frame_size_max();
        if size > size_max && !fits_with_tag(buf, 0, size, size_max) {
            return Err(DropReason::Oversize);
        }
        let t = self.networks.tunnel(tunnel.0);
        let device = self.egress.port(usize::from(t.port())).frame_size_max();
        // An inner tag counts here: it is payload of the outer packet.
        let outer = size + OUTER_BYTES;
        if outer > device || outer > u32::from(t.path_mtu()) + ETHERNET_BYTES {
            return Err(DropReason::Oversize);
        }
        let wrap = self.wrap(tunnel, vnet, priority).ok_or(DropReason::TunnelDown)?;
        wrap.write(buf.head(), size, header);
        Ok(())
    }

    /// Returns the outer headers of frames of a network through a tunnel, if they may go there.
    #[inline]
    pub(crate) fn wrap(&self, id: TunnelId, vnet: u16, priority: Priority) -> Option<Wrap> {
        let tunnel = self.networks.tunnel(id.0);
        let outer = self.egress.port(usize::from(tunnel.port())).outer()?.clone();
        let (next_hop, vni) = (tunnel.next_hop()?, self.networks.vnet(vnet).vni()?);
        let to = To { next_hop, remote: tunnel.remote(), vni };
        Some(Wrap { outer, to, dscp: self.dscp.of(priority), tunnel: id })
    }

    /// Ends the frame of this turn, which the driver took whole or the rest of it. Returns the
    /// number of frames on the wire.
    #[inline]
    fn taken(&mut self, now: Nanos, turn: &Turn, size: u32) -> u32 {
        let frames = self.slots.get(turn.slot).segments_left().into();
        // Charges before the frame leaves, because its queue may end with it.
        self.charge_turn(now, turn, frames, size);
        let slot = self.egress.dequeue(&mut self.slots, turn);
        self.deliver_slot(slot);
        frames
    }

    /// Counts segments that the driver took of the super-frame of this turn, of which `size` bytes
    /// were offered. The frame stays in its queue, and charged to its input, until the last segment
    /// is taken. Returns the number of segments.
    #[cold]
    fn taken_in_part(&mut self, now: Nanos, turn: &Turn, size: u32, count: u16) -> u32 {
        let slot = self.slots.get(turn.slot);
        if count >= slot.segments_left() {
            debug_assert!(false, "a driver took more segments than there are, or all of them");
            return self.taken(now, turn, size);
        }
        let body = self.slots.body_of(slot);
        let each = body.buf().expect("as when it was offered").segment_size();
        let came = each * u32::from(count);
        let inner = came - u32::from(slot.strip()) * u32::from(count);
        let outer = match self.egress.group(turn.group).tunnel() {
            Some(_) => OUTER_BYTES * u32::from(count),
            None => 0,
        };
        self.slots.get_mut(turn.slot).add_sent(count, came);
        self.charge_turn(now, turn, count.into(), inner + outer);
        count.into()
    }

    /// Charges the frames that the driver took in this turn to rates, deficits and counters.
    #[inline]
    fn charge_turn(&mut self, now: Nanos, turn: &Turn, frames: u32, size: u32) {
        if let Some(tunnel) = self.egress.charge_turn(now, turn, frames, size) {
            let sum = Counter { frames: frames.into(), bytes: size.into() };
            self.networks.add_sent(tunnel, sum);
        }
    }
}

/// Returns true if a frame fits without its 802.1Q tag, which does not count against the MTU (802.3
/// clause 3.2.7).
#[cold]
fn fits_with_tag<B: Buf>(buf: &B, strip: u16, size: u32, size_max: u32) -> bool {
    let tagged = buf.head()[usize::from(strip)..].get(12..14) == Some(&[0x81, 0x00]);
    tagged && size <= size_max + 4
}
