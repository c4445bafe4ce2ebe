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
use core::mem;
use core::net::Ipv4Addr;
use core::slice;

use sluice_base::{Batch, Buf, DropReason, Mac, Nanos, Priority};

use crate::classify;
use crate::egress::{GROUPS_MAX, Tag};
use crate::inspect::Counter;
use crate::mac_table;
use crate::place::Held;
use crate::sizes::BATCH_MAX;
use crate::slots::{Arrival, BufferOwner, List, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;
use crate::switch::receive::Entry;
use crate::tunnel::OUTER_BYTES;

const BATCH: usize = BATCH_MAX as usize;
/// Bytes in front of the tenant's frame in a plain VXLAN packet.
const PLAIN_STRIP: u8 = 50;
const _: () = assert!(OUTER_BYTES == PLAIN_STRIP as u32);

/// Queue group and priority of a frame, in one number, found before any frame of its batch is
/// queued.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Route(u32);

/// Shift of a queue group's number, which stands above its frame's priority.
const GROUP_SHIFT: u32 = Priority::COUNT.ilog2();
const _: () = assert!(GROUPS_MAX << GROUP_SHIFT < u32::MAX as usize, "a route is never `SLOW`");

impl Route {
    /// A frame that takes the slow path.
    const SLOW: Self = Self(u32::MAX);

    /// Returns the route of a frame whose queue group is not known yet.
    #[inline]
    const fn new(priority: u8) -> Self {
        Self(priority as u32)
    }

    #[inline]
    const fn with_group(self, group: u32) -> Self {
        Self(group << GROUP_SHIFT | self.0)
    }

    #[inline]
    const fn group(self) -> u32 {
        self.0 >> GROUP_SHIFT
    }

    #[inline]
    const fn priority(self) -> Priority {
        Priority::from_low_bits((self.0 & 7) as u8)
    }
}

/// The network and the tunnel of a frame from the underlay.
#[derive(Clone, Copy, Default)]
struct Origin {
    vnet: u16,
    tunnel: u16,
}

/// The routes of a batch.
struct Outlook<const N: usize>([Route; N]);

impl<const N: usize> Outlook<N> {
    /// Every frame takes the slow path.
    const SLOW: Self = Self([Route::SLOW; N]);

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

/// Fields that the frames of one batch and priority have in common.
struct Kin {
    input: u16,
    source: u16,
    vnet: u16,
    priority: Priority,
    owner: BufferOwner,
    /// Index of the first class of the priority.
    classes: usize,
}

/// The common queue that a frame goes to: that of this port.
#[derive(Clone, Copy)]
struct Output {
    port: usize,
    /// See [`Tag`].
    source_or_group: u16,
}

impl<B: Buf> Switch<B> {
    /// Takes a batch of an access port.
    #[inline(never)]
    pub(crate) fn take_local_batch(
        &mut self,
        now: Nanos,
        entry: Entry,
        vnet: u16,
        batch: &mut Batch<B>,
    ) {
        let mut outlook = Outlook::<BATCH>::SLOW;
        self.look_ahead_local(entry.port, vnet, batch.as_slice(), &mut outlook);
        let from = (entry.input, vnet);
        let mut kin = self.kin(entry.input, from, Priority::ZERO);
        let mut received = Counter::default();
        // No frame passes one that could not be queued.
        let mut blocked = !self.ingress.input(entry.input).deferred().is_empty();
        let mut at = 0;
        let count = batch.len();
        let mut frames = batch.drain();
        while at < count {
            let route = outlook.of(at);
            if route == Route::SLOW || blocked {
                self.book(&kin, mem::take(&mut received));
                let Some(buf) = frames.next() else { break };
                self.receive_slowly(now, entry, buf);
                blocked = !self.ingress.input(entry.input).deferred().is_empty();
                at += 1;
                continue;
            }
            if route.priority() != kin.priority {
                self.book(&kin, mem::take(&mut received));
                kin = self.kin(entry.input, from, route.priority());
            }
            let (group, output) = (route.group(), self.output_of(&kin, route.group()));
            if self.egress.common_room(kin.classes + output.port) > 0 {
                let Some(buf) = frames.next() else { break };
                received.add(buf.plain_size());
                self.enter_common(&kin, 0, group, output, buf);
                at += 1;
            } else {
                let run = outlook.run(at);
                received.add_all(self.enter_queue(&kin, 0, group, frames.by_ref().take(run)));
                at += run;
            }
        }
        self.book(&kin, received);
    }

    /// Takes a batch from the underlay.
    #[inline(never)]
    pub(crate) fn take_outer_batch(
        &mut self,
        now: Nanos,
        entry: Entry,
        to: (Ipv4Addr, Mac),
        batch: &mut Batch<B>,
    ) {
        let (mut outlook, mut origins) = (Outlook::<BATCH>::SLOW, [Origin::default(); BATCH]);
        self.look_ahead_outer(entry, to, batch.as_slice(), &mut outlook, &mut origins);
        for (at, buf) in batch.drain().enumerate() {
            let origin = origins.get(at).copied().unwrap_or_default();
            self.enter_outer(now, entry, outlook.of(at), origin, buf);
        }
    }

    /// Takes one frame of an access port. It is a batch of one.
    #[inline(never)]
    pub(crate) fn take_local(&mut self, now: Nanos, entry: Entry, vnet: u16, buf: B) {
        let mut outlook = Outlook::<1>::SLOW;
        self.look_at_local(entry.port, vnet, slice::from_ref(&buf), &mut outlook);
        let route = outlook.0[0];
        if route == Route::SLOW || !self.ingress.input(entry.input).deferred().is_empty() {
            return self.receive_slowly(now, entry, buf);
        }
        self.enter(entry.input, (entry.input, vnet), 0, route, buf);
    }

    /// Takes one frame from the underlay. It is a batch of one.
    #[inline(never)]
    pub(crate) fn take_outer(&mut self, now: Nanos, entry: Entry, to: (Ipv4Addr, Mac), buf: B) {
        let (mut outlook, mut origins) = (Outlook::<1>::SLOW, [Origin::default()]);
        self.look_at_outer(entry, to, slice::from_ref(&buf), &mut outlook, &mut origins);
        self.enter_outer(now, entry, outlook.0[0], origins[0], buf);
    }

    /// Takes a frame from the underlay in by its route.
    #[inline(always)]
    fn enter_outer(&mut self, now: Nanos, entry: Entry, route: Route, origin: Origin, buf: B) {
        if route == Route::SLOW || !self.ingress.input(entry.input).deferred().is_empty() {
            return self.receive_slowly(now, entry, buf);
        }
        let Origin { vnet, tunnel } = origin;
        let source = self.networks.count_plain(vnet, tunnel, buf.plain_size());
        self.enter(entry.input, (source, vnet), PLAIN_STRIP, route, buf);
    }

    /// Counts a frame and queues it.
    #[inline(always)]
    fn enter(&mut self, input: u16, from: (u16, u16), strip: u8, route: Route, buf: B) {
        let kin = self.kin(input, from, route.priority());
        self.count_in(&kin, Counter::of(buf.plain_size()));
        let (group, output) = (route.group(), self.output_of(&kin, route.group()));
        if self.egress.common_room(kin.classes + output.port) > 0 {
            self.enter_common(&kin, strip, group, output, buf);
        } else {
            self.enter_queue(&kin, strip, group, iter::once(buf));
        }
    }

    /// Reads the heads of a whole batch, then their table entries, so that the cache misses of one
    /// frame overlap with those of the next.
    #[inline(never)]
    fn look_ahead_local(
        &mut self,
        port: u16,
        vnet: u16,
        frames: &[B],
        outlook: &mut Outlook<BATCH>,
    ) {
        self.look_at_local(port, vnet, frames, outlook);
    }

    /// Reads heads and table entries as [`Self::look_ahead_local`], of frames from the underlay.
    #[inline(never)]
    fn look_ahead_outer(
        &mut self,
        entry: Entry,
        to: (Ipv4Addr, Mac),
        frames: &[B],
        outlook: &mut Outlook<BATCH>,
        origins: &mut [Origin; BATCH],
    ) {
        self.look_at_outer(entry, to, frames, outlook, origins);
    }

    /// Finds the routes of frames of an access port.
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
                *route = Route::new(priority);
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
                let may = l.is_plain() && l.port() != port && !self.is_offloaded(port, l.port());
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
        entry: Entry,
        (local, mac): (Ipv4Addr, Mac),
        frames: &[B],
        outlook: &mut Outlook<N>,
        origins: &mut [Origin; N],
    ) {
        let is_blocked = !self.ingress.input(entry.input).deferred().is_empty();
        if is_blocked || self.ingress.input(entry.input).may_be_full(self.egress.lossless()) {
            return;
        }
        let mut keys = [0; N];
        let marking = self.marking(entry.port);
        let places = keys.iter_mut().zip(&mut outlook.0).zip(origins);
        for (((key, route), origin), buf) in places.zip(frames) {
            let plain = classify::plain_underlay(buf.head(), buf.plain_size(), local, mac, marking);
            let Some(frame) = plain else { continue };
            let Some(tunnel) = self.fdb.vtep(frame.remote) else { continue };
            let Some(vnet) = self.fdb.vnet_of(frame.vni) else { continue };
            if self.networks.is_plain_flow(vnet, tunnel, entry.port) {
                *key = mac_table::key_of(vnet, frame.dst);
                (*route, *origin) = (Route::new(frame.priority), Origin { vnet, tunnel });
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

    /// Returns the place of frames for a queue group among the common queues.
    #[inline(always)]
    fn output_of(&self, kin: &Kin, group: u32) -> Output {
        // The queue group of a local port has the port's number.
        if (group as usize) < self.egress.ports().len() {
            return Output { port: group as usize, source_or_group: kin.source };
        }
        let port = usize::from(self.egress.group(group).port());
        #[expect(clippy::cast_possible_truncation, reason = "a plain group has such a number")]
        Output { port, source_or_group: group as u16 }
    }

    /// Puts a frame, which is counted, into the common queue of its place, which has room. `strip`
    /// is the number of bytes in front of the tenant's frame.
    #[inline(always)]
    fn enter_common(&mut self, kin: &Kin, strip: u8, group: u32, output: Output, buf: B) {
        let (input, owner, bytes) = (kin.input, kin.owner, buf.plain_size());
        let Output { port, source_or_group } = output;
        #[expect(clippy::cast_possible_truncation, reason = "a plain group takes it")]
        let tag = Tag::new(bytes as u16, input, source_or_group, strip, owner);
        if owner == BufferOwner::Output && !self.room(group, owner).takes(bytes) {
            self.drop_loose(buf, tag, kin.priority.get(), DropReason::OutputFull);
            return;
        }
        let (class, at) = (kin.classes + port, (port, kin.priority.index()));
        self.egress.push_common(class, at, group, buf, tag);
    }

    /// Puts successive frames of a route into the queue of their source. Returns their sum.
    #[inline(never)]
    fn enter_queue(
        &mut self,
        kin: &Kin,
        strip: u8,
        group: u32,
        frames: impl Iterator<Item = B>,
    ) -> Counter {
        let Kin { input, source, vnet, priority, owner, .. } = *kin;
        let arrival = Arrival { source, vnet, strip: strip.into(), priority, ecn: None };
        let mut room = self.room(group, owner);
        let (mut received, mut queued) = (Counter::default(), Held::default());
        let mut list = List::EMPTY;
        for buf in frames {
            let bytes = buf.plain_size();
            received.add(bytes);
            let slot = self.slots.put(input, &arrival, owner, buf);
            if !room.takes(bytes) {
                self.drop_frame(slot, DropReason::OutputFull);
                continue;
            }
            queued.frames += 1;
            queued.bytes += u64::from(bytes);
            self.slots.push(&mut list, slot);
        }
        if queued.frames > 0 {
            self.push_queue((group, source, priority.get()), list, queued, owner);
        }
        received
    }

    #[inline]
    fn kin(&self, input: u16, (source, vnet): (u16, u16), priority: Priority) -> Kin {
        let (owner, classes) =
            (self.egress.owner_of(priority), self.egress.class_of(0, priority.index()));
        Kin { input, source, vnet, priority, owner, classes }
    }

    /// Books frames that came in, if there are any.
    #[inline(never)]
    fn book(&mut self, kin: &Kin, received: Counter) {
        if received.frames > 0 {
            self.count_in(kin, received);
        }
    }

    #[inline(always)]
    fn count_in(&mut self, kin: &Kin, received: Counter) {
        let (input, priority) = (kin.input, kin.priority.get());
        self.ledger.receive(input, priority, received);
        if kin.owner == BufferOwner::Ring {
            self.charge_input_all(input, priority, received);
        }
    }
}
