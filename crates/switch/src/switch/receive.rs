//! Ingress: one way in for every frame.
//!
//! ```text
//!   receive, receive_one
//!     │ careful port? ── sources are bad: each by itself ──┐
//!     │               └─ takes the long way ───────────────┤
//!     │ look ahead: its route, if it needs no more         │
//!     ├─ route ──> enter: counted, queued (`batch.rs`)     │
//!     └─ none ───> judge (headers, tunnel, network) <──────┘
//!                    └─> dispose ──> settle (`dispose.rs`)
//! ```
//!
//! A frame that another switch hands over, or that control made, is judged already: it begins at
//! `dispose`, or at `settle`.

use core::net::Ipv4Addr;
use core::slice;

use sluice_base::{Batch, Buf, DropReason, InputId, Mac, Nanos, Priority, TunnelId, VnetId};

use crate::classify::{self, Classified, Marking, OuterVerdict, Verdict};
use crate::config::{PortRole, Tags};
use crate::inspect::Counter;
use crate::slots::{Arrival, BufferOwner};
use crate::switch::Switch;
use crate::switch::dispose::Disposition;

/// The place at which frames come in.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) input: u16,
    pub(crate) port: u16,
}

/// The headers that frames come with.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// Those of a tenant.
    Access { vnet: u16 },
    /// Outer ones, to the addresses of the port.
    Underlay { local: Ipv4Addr, mac: Mac },
}

/// What the headers of a frame say.
enum Judged {
    /// It is a tenant's, for this address, and came through this tunnel.
    Forward(Mac, Option<u16>),
    /// It is not forwarded.
    Ends(Disposition),
}

impl<B: Buf> Switch<B> {
    /// Takes all frames of a batch. The batch must not be larger than the window that
    /// [`Self::window`] last promised for this input.
    ///
    /// # Panics
    /// If the window did not promise the frames a place, or the input does not exist, or is that of
    /// a handoff port.
    pub fn receive(&mut self, now: Nanos, input: InputId, batch: &mut Batch<B>) {
        debug_assert!(batch.len() <= self.window(input).frames as usize, "beyond the window");
        // Looking ahead is worthwhile from two frames on.
        if batch.len() < 2 {
            if let Some(buf) = batch.pop() {
                self.receive_one(now, input, buf);
            }
            return;
        }
        self.slots.enter(u32::try_from(batch.len()).expect("fewer than handles in the switch"));
        let entry = self.entry(input);
        if self.egress.port(usize::from(entry.port)).is_careful() {
            self.receive_carefully(now, entry, batch);
        } else {
            self.take_batch(now, entry, batch);
        }
    }

    /// Receives a batch of a careful port.
    #[inline(never)]
    fn receive_carefully(&mut self, now: Nanos, entry: Entry, batch: &mut Batch<B>) {
        if !self.sources_pass(entry, batch.as_slice()) {
            for buf in batch.drain() {
                self.receive_checked(now, entry, buf);
            }
        } else if self.takes_long_way(entry, batch.as_slice()) {
            for buf in batch.drain() {
                self.receive_slowly(now, entry, buf);
            }
        } else {
            self.take_batch(now, entry, batch);
        }
    }

    #[inline(always)]
    fn take_batch(&mut self, now: Nanos, entry: Entry, batch: &mut Batch<B>) {
        match self.way(entry) {
            Way::Access { vnet } => self.take_local_batch(now, entry, vnet, batch),
            Way::Underlay { local, mac } => self.take_outer_batch(now, entry, (local, mac), batch),
        }
    }

    /// Takes one frame as [`Self::receive`], for a driver that reads one at a time. The window must
    /// not be empty.
    ///
    /// # Panics
    /// As [`Self::receive`].
    #[inline]
    pub fn receive_one(&mut self, now: Nanos, input: InputId, buf: B) {
        self.slots.enter(1);
        let entry = self.entry(input);
        if self.egress.port(usize::from(entry.port)).is_careful() {
            self.receive_one_carefully(now, entry, buf);
        } else {
            self.take(now, entry, buf);
        }
    }

    /// Receives one frame of a careful port. It is a batch of one.
    #[inline(never)]
    fn receive_one_carefully(&mut self, now: Nanos, entry: Entry, buf: B) {
        if self.sources_pass(entry, slice::from_ref(&buf)) {
            self.receive_passed(now, entry, buf);
        } else {
            self.receive_checked(now, entry, buf);
        }
    }

    /// Receives one frame of a careful port, whose source may be any.
    #[inline(never)]
    pub(crate) fn receive_passed(&mut self, now: Nanos, entry: Entry, buf: B) {
        if self.takes_long_way(entry, slice::from_ref(&buf)) {
            self.receive_slowly(now, entry, buf);
        } else {
            self.take(now, entry, buf);
        }
    }

    #[inline(always)]
    fn take(&mut self, now: Nanos, entry: Entry, buf: B) {
        match self.way(entry) {
            Way::Access { vnet } => self.take_local(now, entry, vnet, buf),
            Way::Underlay { local, mac } => self.take_outer(now, entry, (local, mac), buf),
        }
    }

    #[inline(always)]
    fn entry(&self, input: InputId) -> Entry {
        Entry { input: input.0, port: self.ingress.input(input.0).port() }
    }

    /// Returns the headers of frames that come in here.
    #[inline(always)]
    pub(crate) fn way(&self, entry: Entry) -> Way {
        match self.egress.port(usize::from(entry.port)).role() {
            PortRole::Access { vnet } => Way::Access { vnet: vnet.0 },
            PortRole::Underlay { local, mac } => Way::Underlay { local, mac },
            PortRole::Handoff => panic!("`receive_handoff` takes what another switch hands over"),
        }
    }

    #[inline]
    pub(crate) fn marking(&self, port: u16) -> Marking<'_> {
        let port = self.egress.port(usize::from(port));
        Marking {
            trust: port.trust(),
            default: port.default_priority(),
            dscp_to_priority: self.dscp.priorities(),
        }
    }

    /// Classifies a frame of an access port.
    #[inline]
    pub(crate) fn classify_access(&self, input: u16, port: u16, buf: &B) -> Verdict {
        let (head, size, marking) = (buf.head(), buf.size(), self.marking(port));
        let verdict = if self.egress.port(usize::from(port)).tags() == Tags::Kept {
            classify::access(head, size, marking)
        } else {
            classify::behind_driver(head, size, marking, buf.vlan_tag())
        };
        match verdict {
            Verdict::Forward(c) => {
                let priority = self.ingress.input(input).priorities().nearest(c.priority);
                Verdict::Forward(Classified { priority, ..c })
            }
            verdict => verdict,
        }
    }

    /// Receives any frame on the slow path.
    #[inline(never)]
    pub(crate) fn receive_slowly(&mut self, now: Nanos, entry: Entry, mut buf: B) {
        let mut arrival =
            Arrival { source: entry.input, vnet: 0, strip: 0, priority: Priority::ZERO, ecn: None };
        let judged = match self.way(entry) {
            Way::Access { vnet } => {
                arrival.vnet = vnet;
                self.judge_access(now, entry, &mut arrival, &buf)
            }
            Way::Underlay { local, mac } => {
                self.judge_outer(now, entry, (local, mac), &mut arrival, &mut buf)
            }
        };
        let slot = self.arrive(entry.input, &arrival, buf);
        let disposition = match judged {
            Judged::Ends(disposition) => disposition,
            Judged::Forward(dst, tunnel) => match self.show(now, slot, dst, tunnel) {
                Some(disposition) => disposition,
                None => self.dispose(now, slot, dst),
            },
        };
        self.settle(slot, disposition);
    }

    /// Judges the headers of a frame of an access port.
    fn judge_access(&mut self, now: Nanos, entry: Entry, arrival: &mut Arrival, buf: &B) -> Judged {
        match self.classify_access(entry.input, entry.port, buf) {
            Verdict::Forward(c) => {
                arrival.priority = c.priority;
                Judged::Forward(c.dst, None)
            }
            Verdict::Pause(message) => {
                self.egress.hear_pause(entry.port, now, &message);
                Judged::Ends(Disposition::Consume)
            }
            Verdict::Drop(reason) => {
                let priorities = self.ingress.input(entry.input).priorities();
                let default = self.egress.port(usize::from(entry.port)).default_priority();
                arrival.priority = priorities.nearest(default);
                Judged::Ends(Disposition::Drop(reason))
            }
        }
    }

    /// Judges the outer headers of a frame from the underlay, and the peer that it came from.
    fn judge_outer(
        &mut self,
        now: Nanos,
        entry: Entry,
        (local, mac): (Ipv4Addr, Mac),
        arrival: &mut Arrival,
        buf: &mut B,
    ) -> Judged {
        let marking = self.marking(entry.port);
        // Of a super-frame, the head is that of each segment but the last.
        let size = buf.segment_size();
        let frame = match classify::underlay(buf.head(), size, local, mac, marking) {
            OuterVerdict::Forward(frame) => frame,
            OuterVerdict::Pause(message) => {
                self.egress.hear_pause(entry.port, now, &message);
                return Judged::Ends(Disposition::Consume);
            }
            OuterVerdict::Drop(reason, priority) => {
                arrival.priority = priority;
                let is_heard = reason == DropReason::NotForUs
                    && self.hear_too_big(now, entry.port, local, buf);
                let disposition =
                    if is_heard { Disposition::Consume } else { Disposition::Drop(reason) };
                return Judged::Ends(disposition);
            }
        };
        if frame.size < size {
            if buf.segments() > 1 {
                debug_assert!(false, "a driver joins no frames with padding");
                arrival.priority = frame.inner.priority;
                return Judged::Ends(Disposition::Drop(DropReason::BadIp));
            }
            buf.truncate(frame.size);
        }
        arrival.priority = frame.inner.priority;
        arrival.strip = frame.strip;
        arrival.ecn = frame.ecn;
        let refused = |reason| Judged::Ends(Disposition::Drop(reason));
        let Some(tunnel) = self.tunnel_from(frame.remote.to_bits(), entry.port) else {
            return refused(DropReason::UnknownVtep);
        };
        // A peer may use only the networks that it has.
        let vnet = self.fdb.vnet_of(frame.vni);
        let vnet = vnet.filter(|vnet| self.networks.vnet(*vnet).has_tunnel(tunnel));
        let Some(vnet) = vnet else { return refused(DropReason::UnknownVni) };
        if let Some(reason) = frame.own_tag.filter(|_| !self.networks.vnet(vnet).has_own_tags()) {
            return refused(reason);
        }
        arrival.vnet = vnet;
        arrival.source = self.networks.tunnel(tunnel).source();
        self.count_decap((vnet, tunnel), frame.inner.dst, buf.size());
        Judged::Forward(frame.inner.dst, Some(tunnel))
    }

    /// Counts a frame that was accepted on the slow path, and makes its decap flow if there is
    /// none.
    fn count_decap(&mut self, (vnet, tunnel): (u16, u16), dst: Mac, bytes: u32) {
        let is_watched = self.is_watched(tunnel);
        let control = &mut self.control;
        let report =
            || !control.is_attached() || control.tell_decap(VnetId(vnet), TunnelId(tunnel));
        self.networks.count_decap((vnet, tunnel), (dst, bytes), is_watched, report);
    }

    /// Returns true if frames out of a tunnel are punted to control.
    fn is_watched(&self, tunnel: u16) -> bool {
        self.control.is_attached() && self.networks.tunnel(tunnel).is_foreign()
    }

    /// Shows control a frame that it should see. Returns the disposition of a frame that is not
    /// forwarded then.
    fn show(
        &mut self,
        now: Nanos,
        slot: u32,
        dst: Mac,
        tunnel: Option<u16>,
    ) -> Option<Disposition> {
        if !self.control.is_attached() {
            return None;
        }
        let Some(tunnel) = tunnel else { return self.punt_neighbors(now, slot, dst) };
        if self.is_watched(tunnel) {
            self.watch_tunnel(slot, tunnel);
        }
        None
    }

    /// Returns a slot for a new frame, charged to nothing yet.
    #[inline]
    pub(crate) fn arrive(&mut self, input: u16, arrival: &Arrival, buf: B) -> u32 {
        let bytes = buf.size();
        self.ledger.receive(input, arrival.priority.get(), Counter::of(bytes));
        self.slots.put(input, arrival, BufferOwner::Output, buf)
    }

    /// Puts a frame that control made into a slot of the control input.
    pub(crate) fn injected_slot(&mut self, vnet: u16, priority: Priority, buf: B) -> u32 {
        let input = self.control_input().0;
        let bytes = buf.size();
        self.ledger.inject(input, priority.get(), Counter::of(bytes));
        self.slots.enter(1);
        let arrival = Arrival { source: input, vnet, strip: 0, priority, ecn: None };
        self.slots.put(input, &arrival, BufferOwner::Output, buf)
    }
}
