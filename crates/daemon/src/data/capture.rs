//! Captures: copies of frames as they enter and leave ports, and of frames that are dropped.
//!
//! ```text
//!   worker: port ─ read ─▶ batch ─┬─▶ switch ─┬─▶ offer ─▶ port
//!                                 │ copy      │ copy           a branch a burst without a capture
//!                                 ▼           ▼
//!                           ring of bytes: one writer, one reader, bounded; full: counted
//!                                 │
//!   session (session.rs): a thread of `server` ──▶ socket ──▶ `sluice capture`
//! ```
//!
//! A worker never waits for a capture: a record that finds no room in the ring is counted and not
//! copied. A client that does not read thus costs what it does not get. The memory of a capture is
//! taken and given back by the session, not by a worker.

pub(super) mod session;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rtrb::Producer;
use sluice_base::{Buf as _, DropReason, Nanos, PortId, PriorityMask};
use sluice_ports::{FrameBuf, Port, copy_egress, egress_size};
use sluice_switch::{DroppedFrame, Egress, Sink, Taken};

use crate::ipc::capture::{HEAD_SIZE, Head, Kind, Way};
use crate::sys::clock;

/// Captures of a worker at a time.
pub(super) const CAPTURES_MAX: usize = 4;
/// Dropped frames whose heads are kept until the end of a turn.
pub(super) const DROPS_MAX: usize = 512;
/// Ports that can be told apart; one with a higher number is not captured.
const PORTS_MAX: usize = 8_192;

/// Frames of a port that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Wanted {
    None = 0,
    All = 1,
    /// Frames of a network, or of a peer, of the filter.
    Tunnelled = 2,
}

/// Counts of a port.
#[derive(Debug, Default)]
struct Counts {
    /// Frames that were to be captured.
    seen: AtomicU64,
    /// Number of these that found no room.
    missed: AtomicU64,
}

/// The frames that are wanted, and their counts. Workers read it, the session changes it.
#[derive(Debug)]
pub(super) struct Filter {
    ports: Box<[AtomicU8]>,
    counts: Box<[Counts]>,
    vnis: Vec<u32>,
    vteps: Vec<Ipv4Addr>,
    frames: bool,
    drops: bool,
    reason: Option<DropReason>,
    snaplen: usize,
    /// Dropped frames of any port that found no room in the switch's list of them.
    drops_missed: AtomicU64,
}

impl Filter {
    /// Returns true if a frame is wanted whose outermost bytes are `head`.
    fn wants(&self, port: PortId, head: impl FnOnce() -> [u8; OUTER_HEAD]) -> bool {
        match self.ports.get(port.index()).map(|wanted| wanted.load(Ordering::Relaxed)) {
            Some(1) => true,
            Some(2) => self.wants_tunnelled(&head()),
            _ => false,
        }
    }

    fn wants_tunnelled(&self, head: &[u8; OUTER_HEAD]) -> bool {
        let Some(outer) = Outer::of(head) else { return false };
        let of_vnet = self.vnis.is_empty() || self.vnis.contains(&outer.vni);
        let is_peer = |vtep: &Ipv4Addr| outer.from == *vtep || outer.to == *vtep;
        of_vnet && (self.vteps.is_empty() || self.vteps.iter().any(is_peer))
    }

    fn set(&self, port: PortId, wanted: Wanted) {
        if let Some(of_port) = self.ports.get(port.index()) {
            of_port.store(wanted as u8, Ordering::Relaxed);
        }
    }
}

/// Bytes up to the VNI of a frame in a tunnel.
const OUTER_HEAD: usize = 50;

/// Outer headers of a frame in a tunnel (RFC 7348 section 5), without a tag and without options,
/// as this host and the kernel send them.
struct Outer {
    from: Ipv4Addr,
    to: Ipv4Addr,
    vni: u32,
}

impl Outer {
    fn of(head: &[u8; OUTER_HEAD]) -> Option<Self> {
        let is_ipv4 = head[12..15] == [0x08, 0x00, 0x45];
        let is_vxlan = head[23] == 17 && head[36..38] == 4789_u16.to_be_bytes();
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        let vni = u32::from_be_bytes([0, head[46], head[47], head[48]]);
        (is_ipv4 && is_vxlan).then(|| Self { from: address(26), to: address(30), vni })
    }
}

/// Copies the front of some bytes; the rest is zero.
fn front(bytes: &[u8]) -> [u8; OUTER_HEAD] {
    let mut head = [0; OUTER_HEAD];
    let size = bytes.len().min(OUTER_HEAD);
    head[..size].copy_from_slice(&bytes[..size]);
    head
}

/// A capture at one worker.
#[derive(Debug)]
pub(super) struct Capture {
    number: u64,
    ring: Producer<u8>,
    filter: Arc<Filter>,
    /// A record before it is put into the ring.
    record: Box<[u8]>,
}

impl Capture {
    fn new(number: u64, ring: Producer<u8>, filter: Arc<Filter>) -> Self {
        let record = vec![0; HEAD_SIZE + filter.snaplen].into();
        Self { number, ring, filter, record }
    }

    /// Puts a frame of so many bytes into the ring, or counts it.
    fn put(&mut self, head: Head, size: usize, copy: impl FnOnce(&mut [u8]) -> usize) {
        let Some(counts) = self.filter.counts.get(usize::from(head.port)) else { return };
        counts.seen.fetch_add(1, Ordering::Relaxed);
        let kept = size.min(self.filter.snaplen);
        if self.ring.slots() < HEAD_SIZE + kept {
            counts.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copied = copy(&mut self.record[HEAD_SIZE..HEAD_SIZE + kept]);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.record[..HEAD_SIZE].copy_from_slice(&Head { size, ..head }.bytes(copied));
        let written = std::io::Write::write(&mut self.ring, &self.record[..HEAD_SIZE + copied]);
        debug_assert!(written.is_ok_and(|size| size == HEAD_SIZE + copied), "there was room");
    }
}

/// The captures of a worker.
#[derive(Debug, Default)]
pub(super) struct Captures(Vec<Capture>);

impl Captures {
    /// Begins one.
    pub(super) fn begin(&mut self, capture: Capture) {
        self.0.push(capture);
    }

    /// Ends one; its memory goes back to the session.
    pub(super) fn end(&mut self, number: u64) -> Option<Capture> {
        let at = self.0.iter().position(|capture| capture.number == number)?;
        Some(self.0.swap_remove(at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if one of them wants frames that are dropped.
    pub(super) fn want_drops(&self) -> bool {
        self.0.iter().any(|capture| capture.filter.drops)
    }

    fn of_frames(&mut self) -> impl Iterator<Item = &mut Capture> {
        self.0.iter_mut().filter(|capture| capture.filter.frames)
    }

    /// Copies frames that came in by a port.
    #[cold]
    pub(super) fn received(&mut self, port: PortId, frames: &[FrameBuf]) {
        let head = head(Way::In, port);
        for capture in self.of_frames() {
            for frame in frames {
                if capture.filter.wants(port, || front(frame.head())) {
                    let copy = |into: &mut [u8]| frame.copy_front(0, into);
                    capture.put(head, frame.stored_size(), copy);
                }
            }
        }
    }

    /// Copies a frame of flow control that came in by a port.
    #[cold]
    pub(super) fn heard(&mut self, port: PortId, frame: &[u8]) {
        let head = head(Way::In, port);
        for capture in self.of_frames() {
            if capture.filter.wants(port, || front(frame)) {
                capture.put(head, frame.len(), |into| copy_slice(frame, into));
            }
        }
    }

    /// Copies a frame that leaves by a port.
    fn sent(&mut self, head: Head, frame: &Egress<'_, FrameBuf>) {
        let port = PortId(head.port);
        for capture in self.of_frames() {
            let outer = || {
                let mut outer = [0; OUTER_HEAD];
                copy_egress(frame, &mut outer);
                outer
            };
            if capture.filter.wants(port, outer) {
                capture.put(head, egress_size(frame), |into| copy_egress(frame, into));
            }
        }
    }

    /// Copies the head of a frame that was dropped.
    #[cold]
    pub(super) fn dropped(&mut self, at: Nanos, frame: &DroppedFrame) {
        let Some(port) = frame.port else { return };
        let priority = frame.priority.get();
        let reason = frame.reason as u8;
        let head = Head { priority, reason, at_ns: at.0, ..head_at(Way::Dropped, port, at) };
        for capture in self.0.iter_mut().filter(|capture| capture.filter.drops) {
            let is_reason = capture.filter.reason.is_none_or(|reason| reason == frame.reason);
            let bytes = frame.head.as_slice();
            if is_reason && capture.filter.wants(port, || front(bytes)) {
                capture.put(head, frame.size as usize, |into| copy_slice(bytes, into));
            }
        }
    }

    /// Counts dropped frames whose heads found no room in the switch.
    pub(super) fn missed_drops(&mut self, missed: u64) {
        for capture in self.0.iter().filter(|capture| capture.filter.drops && missed > 0) {
            capture.filter.drops_missed.fetch_add(missed, Ordering::Relaxed);
        }
    }

    /// Returns the driver of a port, whose frames are copied when it takes them.
    #[cold]
    pub(super) fn sink<'a>(
        &'a mut self,
        port: PortId,
        driver: &'a mut Box<dyn Port>,
    ) -> Captured<'a> {
        Captured { head: head(Way::Out, port), captures: self, driver }
    }
}

fn head(way: Way, port: PortId) -> Head {
    head_at(way, port, clock::now())
}

fn head_at(way: Way, port: PortId, at: Nanos) -> Head {
    Head { way, priority: u8::MAX, at_ns: at.0, ..Head::of(Kind::Frame, port.0) }
}

fn copy_slice(bytes: &[u8], into: &mut [u8]) -> usize {
    let size = bytes.len().min(into.len());
    into[..size].copy_from_slice(&bytes[..size]);
    size
}

/// A driver whose frames are copied.
pub(super) struct Captured<'a> {
    head: Head,
    captures: &'a mut Captures,
    driver: &'a mut Box<dyn Port>,
}

impl Sink<FrameBuf> for Captured<'_> {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let taken = self.driver.offer(frame);
        // A super-frame is one record, when the first part of it is taken.
        if matches!(taken, Taken::All | Taken::Segments(_)) && frame.first == 0 {
            let head = Head { priority: frame.priority.get(), ..self.head };
            self.captures.sent(head, frame);
        }
        taken
    }

    fn refuses(&self) -> PriorityMask {
        self.driver.refuses()
    }

    fn hold_port(&mut self) {
        self.driver.hold_port();
    }
}

#[cfg(test)]
mod tests;
