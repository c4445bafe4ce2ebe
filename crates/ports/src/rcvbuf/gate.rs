//! The decision about each datagram for a socket: pass, wait, or hold the port.
//!
//! ```text
//!            no room: arm, ask again            queue full, or too many sockets held
//!   PASSING ────────────────────────▶ HELD ───────────────────────────────▶ the port is held
//!      ▲                               │  │
//!      └── drained, queue is empty ────┘  │ no frame left for longer than its hold
//!      └── a frame left ◀──── STUCK ◀─────┘ its frames end, but for the oldest
//! ```
//!
//! A datagram of a held socket goes behind those that wait, so that the order of a flow is kept.
//! Credit is kept in `credits.rs`.

use std::collections::VecDeque;

use sluice_base::{Buf as _, Nanos, Priority};
use sluice_switch::{Egress, Hold};

use super::credits::Credits;
use super::flow::{Flow, HEAD_SIZE};
use super::room::{Room, RoomSource};
use super::{HeldSocket, SocketCounts, SocketHolds};
use crate::frame::{FrameBuf, frame_size, gather};
use crate::net_header::HEADER_SIZE;
use crate::port::Amount;

/// Sockets that a port holds at a time; one more holds the port.
pub(super) const HELD_MAX: usize = 64;
/// Frames that wait for a socket in the port; one more holds the port.
pub(super) const FRAMES_MAX: usize = 64;
/// Interval of questions for a held socket whose drain is signalled, and for one whose is not.
const LOOK_SIGNALLED: Nanos = Nanos::from_millis(20);
const LOOK_POLLED: Nanos = Nanos::from_millis(1);

/// Answer to an offered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Write it.
    Pass,
    /// It was taken: it waits here.
    Waits,
    /// It was taken and ended: its socket is beyond its hold.
    Stuck,
    /// There is no room for it: the port is held.
    Full,
}

/// A frame that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) header: [u8; HEADER_SIZE],
    pub(crate) bytes: Box<[u8]>,
    pub(crate) priority: Priority,
    charge: u32,
}

impl Waiting {
    /// The frame, to be offered to the kernel.
    pub(crate) fn frame(&self) -> Egress<'_, FrameBuf> {
        Egress {
            header: &self.bytes,
            buf: None,
            strip: 0,
            size: u32::try_from(self.bytes.len()).expect("a frame"),
            first: 0,
            priority: self.priority,
            tunnel: None,
        }
    }
}

#[derive(Debug)]
struct Held {
    socket: u64,
    flow: Flow,
    since: Nanos,
    /// When a frame left last.
    moved: Nanos,
    is_stuck: bool,
    /// True if its buffer has room, and what is under way to it may fill that.
    waits_for_flight: bool,
    queue: VecDeque<Waiting>,
}

/// All receivers behind a port.
#[derive(Debug)]
pub(crate) struct Gate<S> {
    source: S,
    holds: SocketHolds,
    credits: Credits,
    held: Vec<Held>,
    waiting: Amount,
    counts: SocketCounts,
    now: Nanos,
    /// When held sockets are asked for next, and the interval of the source's signals.
    look_at: Nanos,
    ticking: Option<Nanos>,
    /// True since the port is held, until a frame leaves.
    is_full: bool,
    /// True if a frame was refused for a socket that is not held, and whose drain is therefore not
    /// signalled: it is offered again at the next look.
    has_unwatched: bool,
    /// Frames that ended and were not reported yet, by priority.
    ended: Vec<(Priority, usize)>,
}

impl<S: RoomSource> Gate<S> {
    pub(crate) fn new(source: S, holds: SocketHolds) -> Self {
        Self {
            source,
            holds,
            credits: Credits::new(),
            held: Vec::new(),
            waiting: Amount::default(),
            counts: SocketCounts::default(),
            now: Nanos::ZERO,
            look_at: Nanos::MAX,
            ticking: None,
            is_full: false,
            has_unwatched: false,
            ended: Vec::new(),
        }
    }

    /// Decides about a frame, and copies it if it waits. `header` is written in front of it.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        header: &[u8; HEADER_SIZE],
        frame: &Egress<'_, FrameBuf>,
    ) -> Admit {
        let flow = match frame.buf {
            Some(buf) if frame.header.is_empty() => {
                Flow::of(buf.head().get(frame.strip.into()..).unwrap_or_default())
            }
            _ => flow_of_parts(frame),
        };
        let Some(flow) = flow else { return Admit::Pass };
        if self.holds[frame.priority.index()].is_none() {
            return Admit::Pass;
        }
        let charge = self.charge_of(frame);
        if self.credits.spend(&flow, charge) {
            return Admit::Pass;
        }
        self.decide(header, frame, flow, charge)
    }

    /// Returns true if the socket of a super-frame has room for all its segments, which are charged
    /// to it then. Otherwise the segments are to be offered one by one.
    #[cold]
    pub(crate) fn takes_whole(&mut self, frame: &Egress<'_, FrameBuf>) -> bool {
        let head = frame.buf.and_then(|buf| buf.head().get(frame.strip.into()..));
        let Some(flow) = head.and_then(Flow::of) else { return true };
        if self.holds[frame.priority.index()].is_none() {
            return true;
        }
        let charge = self.charge_of(frame);
        self.credits.spend(&flow, charge)
            || match self.ask(&flow) {
                None => true,
                Some(room) => {
                    let is_held = self.held.iter().any(|held| held.socket == room.socket);
                    let fits = room.filled().saturating_add(charge) <= room.limit;
                    !is_held && fits && self.grant(room, charge)
                }
            }
    }

    #[inline(never)]
    fn decide(
        &mut self,
        header: &[u8; HEADER_SIZE],
        frame: &Egress<'_, FrameBuf>,
        flow: Flow,
        charge: u32,
    ) -> Admit {
        // Most offers for a held socket need no question.
        if let Some(at) = self.held_of(&flow) {
            return self.enqueue(at, header, frame, charge);
        }
        let room = self.ask(&flow);
        let socket = room.map_or(0, |room| room.socket);
        self.credits.know(flow, socket);
        let Some(room) = room else { return Admit::Pass };
        if let Some(at) = self.held.iter().position(|held| held.socket == room.socket) {
            return self.enqueue(at, header, frame, charge);
        }
        if self.grant(room, charge) {
            return Admit::Pass;
        }
        if self.held.len() == HELD_MAX {
            self.counts.beyond += 1;
            self.has_unwatched = true;
            return Admit::Full;
        }
        self.source.arm(room.socket, room.mark(charge));
        // A drain before it was armed is seen now, and one after it is signalled.
        let again = self.ask(&flow);
        let is_held = again
            .is_some_and(|again| again.socket == room.socket && again.filled() > room.mark(charge));
        if !is_held {
            self.source.disarm(room.socket);
            if again.is_some_and(|again| !self.grant(again, charge)) {
                // Another socket has just taken its place; it is looked up again.
                self.has_unwatched = true;
                self.look_at = self.now;
                self.tick(Some(LOOK_POLLED));
                return Admit::Full;
            }
            return Admit::Pass;
        }
        let waits_for_flight = again.is_some_and(|again| again.used <= room.mark(charge));
        if waits_for_flight {
            self.source.disarm(room.socket);
        }
        self.begin(room.socket, flow, waits_for_flight);
        self.enqueue(self.held.len() - 1, header, frame, charge)
    }

    /// The held socket of a known flow.
    fn held_of(&self, flow: &Flow) -> Option<usize> {
        if self.held.is_empty() {
            return None;
        }
        let socket = self.credits.socket_of(flow)?;
        self.held.iter().position(|held| held.socket == socket)
    }

    fn ask(&mut self, flow: &Flow) -> Option<Room> {
        self.counts.asked += 1;
        self.credits.ask(&mut self.source, self.now, flow)
    }

    /// Gives a socket credit for this datagram and more, if it has room.
    fn grant(&mut self, room: Room, charge: u32) -> bool {
        self.credits.grant(room, charge)
    }

    /// Upper bound of what a frame takes of its socket's buffer: of a super-frame all its segments,
    /// which the kernel may give to the socket one by one.
    #[inline]
    fn charge_of(&self, frame: &Egress<'_, FrameBuf>) -> u32 {
        match frame.buf.and_then(FrameBuf::offload) {
            Some(left) if left.is_super() && frame.first == 0 => {
                let segment = self.source.charge(left.segment_size());
                segment.saturating_mul(u32::from(left.segments()).max(1))
            }
            _ => self.source.charge(u32::try_from(frame_size(frame)).unwrap_or(u32::MAX / 4)),
        }
    }

    fn begin(&mut self, socket: u64, flow: Flow, waits_for_flight: bool) {
        self.credits.end(socket);
        let (since, queue) = (self.now, VecDeque::new());
        let moved = since;
        self.held.push(Held {
            socket,
            flow,
            since,
            moved,
            is_stuck: false,
            waits_for_flight,
            queue,
        });
        self.counts.holds += 1;
        self.look_sooner(self.interval());
    }

    fn enqueue(
        &mut self,
        at: usize,
        header: &[u8; HEADER_SIZE],
        frame: &Egress<'_, FrameBuf>,
        charge: u32,
    ) -> Admit {
        let held = &mut self.held[at];
        if held.is_stuck && !held.queue.is_empty() {
            self.counts.stuck += 1;
            return Admit::Stuck;
        }
        if held.queue.len() >= FRAMES_MAX {
            self.counts.full += 1;
            return Admit::Full;
        }
        let mut bytes = vec![0; frame_size(frame)].into_boxed_slice();
        gather(frame, 0, &mut bytes);
        self.waiting.add(bytes.len());
        let priority = frame.priority;
        held.queue.push_back(Waiting { header: *header, bytes, priority, charge });
        self.counts.waited += 1;
        Admit::Waits
    }

    /// Writes frames of sockets that were drained, by `write`, which returns the number of frames
    /// that the port has sent since it was opened, or `None` if the kernel takes no more now; and
    /// ends those of sockets beyond their hold. Returns true if frames that were refused may find
    /// room now.
    pub(crate) fn resume(
        &mut self,
        now: Nanos,
        mut write: impl FnMut(&Waiting) -> Option<u64>,
    ) -> bool {
        self.now = now;
        if self.held.is_empty() && !self.has_unwatched {
            return false;
        }
        let mut left = false;
        while let Some(socket) = self.source.next_drained() {
            if let Some(at) = self.held.iter().position(|held| held.socket == socket) {
                left |= self.release(at, &mut write);
            }
        }
        if now >= self.look_at {
            for at in (0..self.held.len()).rev() {
                left |= self.release(at, &mut write);
            }
            left |= self.end_stuck();
            left |= self.has_unwatched;
            self.look_again();
        }
        self.is_full &= !left;
        left
    }

    /// Writes the frames of a held socket for which there is room now, and ends the hold once none
    /// waits. The last socket takes its place in the list.
    fn release(&mut self, at: usize, write: &mut impl FnMut(&Waiting) -> Option<u64>) -> bool {
        let mut left = false;
        while let Some(first) = self.held[at].queue.front() {
            let (flow, charge, socket) = (self.held[at].flow, first.charge, self.held[at].socket);
            let mut credit = match self.ask(&flow) {
                Some(room) if room.socket != socket => {
                    if !self.follow(at, room.socket) {
                        return left;
                    }
                    continue;
                }
                None => u32::MAX,
                Some(room) if room.takes(charge) => room.credit(charge),
                Some(room) => {
                    self.source.arm(socket, room.mark(charge));
                    match self.ask(&flow) {
                        Some(again) if again.filled() > room.mark(charge) => {
                            let waits = again.used <= room.mark(charge);
                            if waits {
                                // Each read of its empty buffer would tell of a drain.
                                self.source.disarm(socket);
                                self.look_sooner(LOOK_POLLED);
                            }
                            self.held[at].waits_for_flight = waits;
                            return left;
                        }
                        _ => continue,
                    }
                }
            };
            let held = &mut self.held[at];
            while let Some(first) = held.queue.front()
                && first.charge <= credit
            {
                let Some(sent) = write(first) else { return left };
                // Now: a port that sends what it has staged may have sent those before this one.
                self.source.note_sent(sent);
                credit -= first.charge;
                self.credits.note_spent(socket, first.charge);
                self.waiting.remove(first.bytes.len());
                held.queue.pop_front();
                (held.moved, held.is_stuck, left) = (self.now, false, true);
            }
        }
        let held = self.held.swap_remove(at);
        self.source.disarm(held.socket);
        if self.held.is_empty() && !self.has_unwatched {
            self.look_no_more();
        }
        left
    }

    /// Gives a queue to the socket that has taken the place of its own. Returns false if that is
    /// held, too: then its queue has all of them, and the last socket takes the place in the list.
    fn follow(&mut self, at: usize, socket: u64) -> bool {
        let (old, flow) = (self.held[at].socket, self.held[at].flow);
        self.source.disarm(old);
        self.credits.know(flow, socket);
        if let Some(other) = self.held.iter().position(|held| held.socket == socket) {
            let moved = std::mem::take(&mut self.held[at].queue);
            self.held[other].queue.extend(moved);
            self.held.swap_remove(at);
            self.look_sooner(LOOK_POLLED);
            return false;
        }
        self.credits.end(socket);
        self.held[at].socket = socket;
        true
    }

    /// Ends the frames of sockets beyond their hold, but for the oldest one of each.
    fn end_stuck(&mut self) -> bool {
        let mut any = false;
        for held in &mut self.held {
            let Some(first) = held.queue.front() else { continue };
            let Some(Hold::For(most)) = self.holds[first.priority.index()] else { continue };
            // Before the switch would end the frames of all receivers behind the port.
            if self.now.since(held.moved).0 < most.0 - most.0 / 8 {
                continue;
            }
            any |= !held.is_stuck;
            held.is_stuck = true;
            for frame in held.queue.drain(1..) {
                self.waiting.remove(frame.bytes.len());
                self.counts.stuck += 1;
                self.ended.push((frame.priority, frame.bytes.len()));
            }
        }
        any
    }

    /// Interval of looks at held sockets: an arrival is not signalled.
    fn interval(&self) -> Nanos {
        let is_signalled =
            self.source.is_signalled() && self.held.iter().all(|held| !held.waits_for_flight);
        if is_signalled { LOOK_SIGNALLED } else { LOOK_POLLED }
    }

    /// Sets the next look after one.
    fn look_again(&mut self) {
        self.has_unwatched = false;
        if self.held.is_empty() {
            return self.look_no_more();
        }
        self.look_at = Nanos::MAX;
        self.look_sooner(self.interval());
    }

    /// Looks after this time at the latest: a look that is due earlier is not put off, since it may
    /// be the only one that sees a drain.
    fn look_sooner(&mut self, interval: Nanos) {
        let at = self.now.after(interval);
        if at < self.look_at {
            self.look_at = at;
            self.tick(Some(interval));
        }
    }

    fn look_no_more(&mut self) {
        self.look_at = Nanos::MAX;
        self.tick(None);
    }

    fn tick(&mut self, interval: Option<Nanos>) {
        if self.ticking != interval {
            self.ticking = interval;
            self.source.tick(interval);
        }
    }

    /// Frames that ended since the last call, with their priorities and sizes.
    pub(crate) fn take_ended(&mut self) -> impl Iterator<Item = (Priority, usize)> + '_ {
        self.ended.drain(..)
    }

    /// Gives up all frames that wait, and returns their sizes.
    pub(crate) fn give_up(&mut self) -> Vec<usize> {
        let all = self.held.drain(..).flat_map(|held| held.queue);
        let sizes = all.map(|frame| frame.bytes.len()).collect();
        self.waiting = Amount::default();
        self.tick(None);
        sizes
    }

    /// Notes that the port is held for a socket.
    pub(crate) fn hold_port(&mut self) {
        self.is_full = true;
        self.counts.ports += 1;
    }

    /// Returns true while the port is held for a socket.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns true while a socket is held only for what is under way to it.
    pub(crate) fn waits_for_flight(&self) -> bool {
        self.held.iter().any(|held| held.waits_for_flight)
    }

    /// Returns true if no socket is held.
    pub(crate) const fn is_open(&self) -> bool {
        self.held.is_empty()
    }

    /// Looks at all held sockets at the next call of [`Self::resume`].
    pub(crate) const fn look_now(&mut self) {
        self.look_at = Nanos::ZERO;
    }

    /// Frames that wait here.
    pub(crate) const fn waiting(&self) -> Amount {
        self.waiting
    }

    /// Sets for how long frames are held.
    pub(crate) fn set_holds(&mut self, holds: SocketHolds) {
        self.holds = holds;
    }

    pub(crate) const fn counts(&self) -> SocketCounts {
        self.counts
    }

    pub(crate) const fn source(&self) -> &S {
        &self.source
    }

    pub(crate) const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The sockets that are held.
    pub(crate) fn held(&self) -> Vec<HeldSocket> {
        let shot = |held: &Held| HeldSocket {
            address: held.flow.receiver(),
            priority: held.queue.front().map_or(Priority::ZERO, |first| first.priority),
            since: held.since,
            frames: held.queue.len() as u64,
            is_stuck: held.is_stuck,
        };
        self.held.iter().map(shot).collect()
    }
}

/// The flow of a frame whose head the switch has rewritten.
#[cold]
fn flow_of_parts(frame: &Egress<'_, FrameBuf>) -> Option<Flow> {
    let mut head = [0; HEAD_SIZE];
    let front = frame.header.len().min(HEAD_SIZE);
    head[..front].copy_from_slice(&frame.header[..front]);
    let mut size = front;
    if let Some(buf) = frame.buf {
        let rest = buf.head().get(frame.strip.into()..).unwrap_or_default();
        let count = rest.len().min(HEAD_SIZE - front);
        head[front..front + count].copy_from_slice(&rest[..count]);
        size += count;
    }
    Flow::of(&head[..size])
}
