//! Ingress fast path: unicast IPv4 to known destinations, the content of most batches.
//!
//! The heads and the table entries of a whole batch are read before its first frame is queued;
//! successive frames for one source's queue are queued together; counters are updated once per
//! batch and priority. The result is the same as for each frame by itself, and one frame is a batch
//! of one.
//!
//! The loops are never inlined, and neither is the function that they call rarely
//! (`receive_slowly`): each has the registers to itself, and sums stay out of memory.

use core::iter;
use core::net::Ipv4Addr;
use core::slice;

use sluice_base::{Buf, DropReason, Mac, Nanos, Priority};

use crate::classify;
use crate::egress::Tag;
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::Held;
use crate::receive::{Arrival, Entry, Way};
use crate::slots::{BufferOwner, List, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::{BATCH_MAX, Switch};
use crate::tunnel::OUTER_BYTES;

const BATCH: usize = BATCH_MAX as usize;
/// Bytes in front of the tenant's frame in a plain VXLAN packet.
const PLAIN_STRIP: u8 = 50;
const _: () = assert!(OUTER_BYTES == PLAIN_STRIP as u32);

/// The way of a frame through the switch, in one number, found before any frame of its batch is
/// queued: its priority, its queue group, and, if it came out of a tunnel, the tunnel and the
/// network. Frames of one route wait in one queue.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Route(u64);

const GROUP_SHIFT: u32 = Priority::COUNT.ilog2();
const GROUP_MASK: u64 = 0xf_ffff << GROUP_SHIFT;
const TUNNEL_SHIFT: u32 = GROUP_SHIFT + 20;
const VNET_SHIFT: u32 = TUNNEL_SHIFT + 16;
const _: () = assert!(VNET_SHIFT + 16 < u64::BITS, "a route is never `SLOW`");

impl Route {
    /// A frame that takes the slow path.
    const SLOW: Self = Self(u64::MAX);

    /// Returns the route of a frame whose queue group is not known yet.
    #[inline]
    const fn new(priority: u8, (vnet, tunnel): (u16, u16)) -> Self {
        Self((vnet as u64) << VNET_SHIFT | (tunnel as u64) << TUNNEL_SHIFT | priority as u64)
    }

    #[inline]
    const fn with_group(self, group: u32) -> Self {
        Self(self.0 | (group as u64) << GROUP_SHIFT)
    }

    #[inline]
    const fn group(self) -> u32 {
        (self.0 >> GROUP_SHIFT & 0xf_ffff) as u32
    }

    #[inline]
    const fn priority(self) -> Priority {
        Priority::from_low_bits((self.0 & 7) as u8)
    }

    /// Returns the network and the tunnel.
    #[inline]
    const fn place(self) -> (u16, u16) {
        ((self.0 >> VNET_SHIFT & 0xffff) as u16, (self.0 >> TUNNEL_SHIFT & 0xffff) as u16)
    }

    /// Returns the part that frames have in common which are counted together.
    #[inline]
    const fn kin(self) -> u64 {
        self.0 & !GROUP_MASK
    }
}

/// The routes of a batch.
pub(crate) struct Outlook<const N: usize>([Route; N]);

impl<const N: usize> Outlook<N> {
    /// Every frame takes the slow path.
    pub(crate) const SLOW: Self = Self([Route::SLOW; N]);

    #[inline]
    fn of(&self, at: usize) -> Route {
        self.0.get(at).copied().unwrap_or(Route::SLOW)
    }

    /// Returns the number of successive frames from `at` on with the same route.
    #[inline]
    fn run(&self, at: usize) -> usize {
        let Some((first, rest)) = self.0.get(at..).and_then(<[Route]>::split_first) else {
            return 0;
        };
        1 + rest.iter().take_while(|route| *route == first).count()
    }
}

/// The kin of no route.
const NO_KIN: u64 = Route::SLOW.kin();

/// Fields that frames of one batch have in common, and their sums before they are counted.
struct Tally {
    kin: u64,
    input: u16,
    source: u16,
    vnet: u16,
    strip: u8,
    priority: Priority,
    owner: BufferOwner,
    /// Index of the first class of the priority.
    classes: usize,
    received: Counter,
}

impl Tally {
    /// Returns the tally of no frame.
    #[inline]
    fn none(input: u16) -> Self {
        let (priority, owner, received) = (Priority::ZERO, BufferOwner::Output, Counter::default());
        let (source, vnet, strip, classes) = (input, 0, 0, 0);
        Self { kin: NO_KIN, input, source, vnet, strip, priority, owner, classes, received }
    }
}

impl<B: Buf> Switch<B> {
    /// Reads the heads of a whole batch, then their table entries, so that the cache misses of one
    /// frame overlap with those of the next.
    #[inline(never)]
    pub(crate) fn look_ahead(&mut self, entry: &Entry, frames: &[B], outlook: &mut Outlook<BATCH>) {
        self.look_at(entry, frames, outlook);
    }

    /// Finds the routes of frames, as [`Self::look_ahead`].
    #[inline(always)]
    fn look_at<const N: usize>(&mut self, entry: &Entry, frames: &[B], outlook: &mut Outlook<N>) {
        match entry.way {
            Way::Access { vnet } => self.look_at_local(entry.port, vnet, frames, outlook),
            Way::Underlay { local, mac } => {
                self.look_at_outer(entry, (local, mac), frames, outlook);
            }
        }
    }

    #[inline(always)]
    fn look_at_local<const N: usize>(
        &mut self,
        port: u16,
        vnet: u16,
        frames: &[B],
        outlook: &mut Outlook<N>,
    ) {
        let mut keys = [0; N];
        let marking = self.marking(port);
        for ((key, route), buf) in keys.iter_mut().zip(&mut outlook.0).zip(frames) {
            if let Some((dst, priority)) = classify::plain(buf.head(), marking) {
                *key = mac_table::key_of(vnet, dst);
                *route = Route::new(priority, (0, 0));
            }
        }
        let (mut last, mut size_max) = (NIL, 0);
        for ((key, route), buf) in keys.iter().zip(&mut outlook.0).zip(frames) {
            if *route == Route::SLOW {
                continue;
            }
            let Some(group) = self.fdb.lookup(*key) else {
                *route = Route::SLOW;
                continue;
            };
            if group != last {
                last = group;
                let l = self.egress.group(group);
                let may = l.is_plain() && l.port() != port;
                size_max = if may { l.plain_size_max() } else { 0 };
            }
            let fits = buf.plain_size() <= size_max;
            *route = if fits { route.with_group(group) } else { Route::SLOW };
        }
    }

    /// Finds the routes of frames from the underlay: for local ports, out of tunnels whose frames
    /// need no further checks.
    #[inline(always)]
    fn look_at_outer<const N: usize>(
        &mut self,
        entry: &Entry,
        (local, mac): (Ipv4Addr, Mac),
        frames: &[B],
        outlook: &mut Outlook<N>,
    ) {
        let is_blocked = !self.ingress.input(entry.input).deferred().is_empty();
        if is_blocked || self.may_be_full(entry.input) {
            return;
        }
        let mut keys = [0; N];
        let marking = self.marking(entry.port);
        for ((key, route), buf) in keys.iter_mut().zip(&mut outlook.0).zip(frames) {
            let plain = classify::plain_underlay(buf.head(), buf.plain_size(), local, mac, marking);
            let Some(frame) = plain else { continue };
            let Some(tunnel) = self.fdb.vtep(frame.remote) else { continue };
            let Some(vnet) = self.fdb.vnet_of(frame.vni) else { continue };
            let flow = self.vnets[usize::from(vnet)].decaps.get(usize::from(tunnel));
            if flow.is_some_and(|flow| flow.is_plain && flow.port == entry.port) {
                *key = mac_table::key_of(vnet, frame.dst);
                *route = Route::new(frame.priority, (vnet, tunnel));
            }
        }
        for ((key, route), buf) in keys.iter().zip(&mut outlook.0).zip(frames) {
            if *route == Route::SLOW {
                continue;
            }
            let Some(group) = self.fdb.lookup(*key) else {
                *route = Route::SLOW;
                continue;
            };
            let l = self.egress.group(group);
            let is_local = l.is_plain() && matches!(l.kind(), QueueGroupKind::Port(_));
            // The tag of a frame in a common queue has 16 bits for the size.
            let size_max = (l.plain_size_max() + OUTER_BYTES).min(u16::MAX.into());
            let fits = is_local && buf.plain_size() <= size_max;
            *route = if fits { route.with_group(group) } else { Route::SLOW };
        }
    }

    /// Takes a batch in, as [`Self::take_in`].
    #[inline(never)]
    pub(crate) fn take_in_batch(
        &mut self,
        now: Nanos,
        entry: &Entry,
        outlook: &Outlook<BATCH>,
        frames: impl Iterator<Item = B>,
    ) {
        match entry.way {
            Way::Access { .. } => self.take_in::<BATCH, false>(now, entry, outlook, frames),
            Way::Underlay { .. } => self.take_in::<BATCH, true>(now, entry, outlook, frames),
        }
    }

    /// Takes one frame of an access port.
    #[inline(never)]
    pub(crate) fn take_local(&mut self, now: Nanos, entry: &Entry, vnet: u16, buf: B) {
        let mut outlook = Outlook::<1>::SLOW;
        self.look_at_local(entry.port, vnet, slice::from_ref(&buf), &mut outlook);
        self.take_one::<false>(now, entry, outlook.0[0], buf);
    }

    /// Takes one frame from the underlay.
    #[inline(never)]
    pub(crate) fn take_outer(&mut self, now: Nanos, entry: &Entry, to: (Ipv4Addr, Mac), buf: B) {
        let mut outlook = Outlook::<1>::SLOW;
        self.look_at_outer(entry, to, slice::from_ref(&buf), &mut outlook);
        self.take_one::<true>(now, entry, outlook.0[0], buf);
    }

    /// Takes one frame in by its route, as [`Self::take_in`].
    #[inline(always)]
    fn take_one<const OUTER: bool>(&mut self, now: Nanos, entry: &Entry, route: Route, buf: B) {
        if route == Route::SLOW || !self.ingress.input(entry.input).deferred().is_empty() {
            return self.receive_slowly(now, entry, buf);
        }
        let mut tally = self.tally::<OUTER>(entry, route);
        let out = self.egress.port_of(route.group());
        if self.egress.common_room(tally.classes + out) > 0 {
            self.enter_common::<1, OUTER>(&mut tally, route, out, buf);
        } else {
            self.enter_queue::<1, OUTER>(&mut tally, route, iter::once(buf));
        }
    }

    /// Takes frames in by their routes. A frame without one takes the slow path in its turn, so
    /// that the order of every pair is kept. `OUTER`: the frames have outer headers.
    #[inline(always)]
    fn take_in<const N: usize, const OUTER: bool>(
        &mut self,
        now: Nanos,
        entry: &Entry,
        outlook: &Outlook<N>,
        mut frames: impl Iterator<Item = B>,
    ) {
        let mut tally = Tally::none(entry.input);
        // No frame passes one that could not be queued.
        let mut blocked = !self.ingress.input(entry.input).deferred().is_empty();
        let mut at = 0;
        loop {
            let route = outlook.of(at);
            if route == Route::SLOW || blocked {
                self.book(&mut tally);
                let Some(buf) = frames.next() else { break };
                self.receive_slowly(now, entry, buf);
                blocked = !self.ingress.input(entry.input).deferred().is_empty();
                at += 1;
                continue;
            }
            if route.kin() != tally.kin {
                self.book(&mut tally);
                tally = self.tally::<OUTER>(entry, route);
            }
            at += self.enter::<N, OUTER>(&mut tally, route, || outlook.run(at), &mut frames);
        }
    }

    /// Queues the next frames of a route: one of them if it goes into the common queue of its
    /// output, or else all of its run, into the queue of their source. Returns their number.
    #[inline(always)]
    fn enter<const N: usize, const OUTER: bool>(
        &mut self,
        tally: &mut Tally,
        route: Route,
        run: impl FnOnce() -> usize,
        frames: &mut impl Iterator<Item = B>,
    ) -> usize {
        let out = self.egress.port_of(route.group());
        if self.egress.common_room(tally.classes + out) > 0 {
            if let Some(buf) = frames.next() {
                self.enter_common::<N, OUTER>(tally, route, out, buf);
            }
            return 1;
        }
        // Frames that are counted by themselves are queued by themselves.
        let run = if Self::counts_each::<N, OUTER>() { 1 } else { run() };
        self.enter_queue::<N, OUTER>(tally, route, frames.take(run));
        run
    }

    /// Puts a frame into the common queue of port `out`, which has room.
    #[inline(always)]
    fn enter_common<const N: usize, const OUTER: bool>(
        &mut self,
        tally: &mut Tally,
        route: Route,
        out: usize,
        buf: B,
    ) {
        let (input, strip, owner) = (tally.input, tally.strip, tally.owner);
        let (group, bytes) = (route.group(), buf.plain_size());
        self.count_in::<N, OUTER>(tally, route, bytes);
        let is_local = (group as usize) < self.egress.ports().len();
        #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
        let source_or_group = if is_local { tally.source } else { group as u16 };
        #[expect(clippy::cast_possible_truncation, reason = "a plain group takes it")]
        let tag = Tag { bytes: bytes as u16, input, source_or_group, strip, owner };
        if !self.room(group, owner).takes(bytes) {
            self.drop_loose(buf, tag, tally.priority.get(), DropReason::OutputFull);
            return;
        }
        let (class, place) = (tally.classes + out, (out, tally.priority.index()));
        self.egress.push_common(class, place, group, buf, tag);
    }

    /// Puts successive frames of a route into the queue of their source.
    #[inline(never)]
    fn enter_queue<const N: usize, const OUTER: bool>(
        &mut self,
        tally: &mut Tally,
        route: Route,
        frames: impl Iterator<Item = B>,
    ) {
        let Tally { input, source, vnet, strip, priority, owner, .. } = *tally;
        let arrival = Arrival { source, vnet, strip: strip.into(), priority, ecn: None };
        let mut room = self.room(route.group(), owner);
        let (mut received, mut queued) = (Counter::default(), Held::default());
        let mut list = List::EMPTY;
        for buf in frames {
            let bytes = buf.plain_size();
            if Self::counts_each::<N, OUTER>() {
                self.count_in::<N, OUTER>(tally, route, bytes);
            } else {
                received.add(bytes);
            }
            let slot = self.new_slot(input, &arrival, owner, buf);
            if !room.takes(bytes) {
                self.drop_frame(slot, DropReason::OutputFull);
                continue;
            }
            queued.frames += 1;
            queued.bytes += u64::from(bytes);
            self.slots.push(&mut list, slot);
        }
        tally.received.add_all(received);
        if queued.frames > 0 {
            self.push_queue((route.group(), source, priority.get()), list, queued, owner);
        }
    }

    /// Returns the tally of the first frame of a route.
    #[inline]
    fn tally<const OUTER: bool>(&self, entry: &Entry, route: Route) -> Tally {
        let (input, priority) = (entry.input, route.priority());
        let (source, vnet, strip) = match entry.way {
            Way::Access { vnet } if !OUTER => (input, vnet, 0),
            _ => {
                let (vnet, tunnel) = route.place();
                (self.source_of_tunnel(vnet, tunnel), vnet, PLAIN_STRIP)
            }
        };
        let (owner, kin) = (self.owner_of(priority), route.kin());
        let (classes, received) = (self.egress.class_of(0, priority.index()), Counter::default());
        Tally { kin, input, source, vnet, strip, priority, owner, classes, received }
    }

    /// True if each frame is booked before it is queued. A batch of a local port is booked by
    /// priority, behind its last frame.
    #[inline(always)]
    const fn counts_each<const N: usize, const OUTER: bool>() -> bool {
        N == 1 || OUTER
    }

    #[inline(always)]
    fn count_in<const N: usize, const OUTER: bool>(
        &mut self,
        tally: &mut Tally,
        route: Route,
        bytes: u32,
    ) {
        tally.received.add(bytes);
        if OUTER {
            let (vnet, tunnel) = route.place();
            self.vnets[usize::from(vnet)].decaps[usize::from(tunnel)].received.add(bytes);
        }
        if Self::counts_each::<N, OUTER>() {
            self.book(tally);
        }
    }

    /// Books the frames that came in.
    #[inline]
    fn book(&mut self, tally: &mut Tally) {
        if tally.received.frames == 0 {
            return;
        }
        let (input, priority) = (tally.input, tally.priority.get());
        self.ledger.receive(input, priority, tally.received);
        if tally.owner == BufferOwner::Ring {
            self.charge_input_all(input, priority, tally.received);
        }
        tally.received = Counter::default();
    }
}
