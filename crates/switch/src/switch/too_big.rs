//! Events about tenants' frames that are too large for their output. The code that drives the
//! switch makes the answer to the sender (RFC 1191, RFC 4443) and injects it at the sender's port.
//!
//! Each port has an allowance of answers, so that a port that only sends such frames costs little.
//! A frame beyond it, or one that finds the list of events full, is counted as `oversize` without
//! an answer. The sender's next frame may be answered. The sender of a frame out of a tunnel, or
//! from another switch of the host, is not at a local port: the answer goes to its address, as any
//! frame would. All senders behind an underlay share the allowance of its port, and so do those
//! behind another switch.
//!
//! The answer to a frame with a tenant's own tag has the same tag. In a tunnel the tag takes room
//! from the packet; on a port it does not (802.3 clause 3.2.7).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use sluice_base::{Buf, Mac, Nanos, PortId, VnetId};

use crate::config::PortRole;
use crate::place::NO_PORT;
use crate::surface::{Head, Notice, QueueGroupKind, Target};
use crate::switch::Switch;
use crate::tunnel::OUTER_BYTES;

/// Upper bound of events that wait.
const WAITING_MAX: usize = 32;
/// Interval of the answers of a port, and the number that it may save up.
const ANSWER_EVERY: Nanos = Nanos::from_millis(10);
const SAVED_MAX: u64 = 16;
/// A tag that the tenant has in its frame (802.1Q clause 9.3).
const TAG_BYTES: u32 = 4;

/// Events that wait, and the allowances of ports.
#[derive(Debug)]
pub(crate) struct TooBig {
    notices: VecDeque<Notice>,
    /// By port: moment at which its allowance is, or was, full.
    whole_at: Box<[Nanos]>,
}

impl TooBig {
    pub(crate) fn new(ports: usize) -> Self {
        let notices = VecDeque::with_capacity(WAITING_MAX);
        let whole_at = (0..ports).map(|_| Nanos::ZERO).collect();
        Self { notices, whole_at }
    }

    /// Adds an event, if there is room.
    pub(crate) fn tell(&mut self, notice: Notice) {
        if self.notices.len() < WAITING_MAX {
            self.notices.push_back(notice);
        }
    }

    /// Discards the events that `keep` returns false for.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Notice) -> bool) {
        self.notices.retain(keep);
    }

    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.notices.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Takes one answer out of a port's allowance.
    fn allows(&mut self, now: Nanos, port: u16) -> bool {
        let Some(whole_at) = self.whole_at.get_mut(usize::from(port)) else { return false };
        let spent = whole_at.since(now);
        if spent.0 > ANSWER_EVERY.0 * (SAVED_MAX - 1) {
            return false;
        }
        *whole_at = now.after(Nanos(spent.0 + ANSWER_EVERY.0));
        true
    }
}

impl<B: Buf> Switch<B> {
    /// Reports that the frame in a slot is too large for a queue group. The frame is about to end.
    #[cold]
    pub(crate) fn tell_too_big(&mut self, now: Nanos, slot: u32, group: u32) {
        let s = self.slots.get(slot);
        let body = self.slots.body_of(s);
        let (input, vnet, strip) = (s.input(), s.vnet(), usize::from(s.strip()));
        let head = body.buf().and_then(|buf| buf.head().get(strip..)).map(Head::copy_of);
        if let Some(head) = head {
            self.tell_too_big_of(now, (input, vnet), group, head);
        }
    }

    /// Reports as [`Self::tell_too_big`], for a frame of an input and a network.
    #[cold]
    pub(crate) fn tell_too_big_of(
        &mut self,
        now: Nanos,
        (input, vnet): (u16, u16),
        group: u32,
        head: Head,
    ) {
        let port = self.ingress.input(input).port();
        if port == NO_PORT {
            return;
        }
        let Some(to) = self.way_back(port, vnet, &head) else { return };
        let Some(mtu) = self.mtu_of(vnet, group, head.as_slice()) else { return };
        if !self.too_big.is_full() && self.too_big.allows(now, port) {
            self.too_big.tell(Notice::TooBig { to, mtu, head });
        }
    }

    /// Returns the target of an answer to the sender of a frame, if there is one.
    fn way_back(&self, port: u16, vnet: u16, head: &Head) -> Option<Target> {
        let p = self.egress.port(usize::from(port));
        if let PortRole::Access { .. } = p.role() {
            return (!p.is_detached()).then_some(Target::Port(PortId(port)));
        }
        let src = Mac(*head.as_slice().get(6..)?.first_chunk()?);
        let is_there = usize::from(vnet) < self.networks.vnets().len() && !src.is_group();
        is_there.then_some(Target::Address(VnetId(vnet), src))
    }

    /// Returns the largest layer-3 packet of a network that a queue group takes in a frame with
    /// this head.
    fn mtu_of(&self, vnet: u16, group: u32, head: &[u8]) -> Option<u16> {
        let mtu = match self.egress.group(group).kind() {
            QueueGroupKind::Port(port) => self.egress.port(port.index()).mtu(),
            QueueGroupKind::Tunnel(tunnel) | QueueGroupKind::Held(tunnel) => {
                let t = self.networks.tunnel(tunnel.0);
                let device = self.egress.port(usize::from(t.port())).mtu();
                let tag = if head.get(12..14) == Some(&[0x81, 0]) { TAG_BYTES } else { 0 };
                let outer = device.min(t.path_mtu().into()).saturating_sub(OUTER_BYTES + tag);
                outer.min(self.networks.vnets().get(usize::from(vnet))?.mtu())
            }
            QueueGroupKind::Unresolved(..) | QueueGroupKind::Free => return None,
        };
        u16::try_from(mtu).ok()
    }
}

impl TooBig {
    fn is_full(&self) -> bool {
        self.notices.len() == WAITING_MAX
    }
}
