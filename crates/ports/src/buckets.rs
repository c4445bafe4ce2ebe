//! Flow buckets of a port that is one of several at an address, and its part in moving one to
//! another of them. The kernel selects the port of each frame by a table of buckets
//! ([`Selector`](crate::udp::Selector)).
//!
//! Every frame that is read is counted under its bucket until its handle is back, and so is a copy
//! that replaces it, so that it is known when no frame of a bucket is under way. The cost is a
//! store per frame and direction, and nothing if an address has one socket.
//!
//! **A move** of a bucket from port A to port B delays no frame behind a later one and loses none.
//! The thread that moves it takes these steps, each after the one before:
//!
//! ```text
//!   1  B: hold       frames of the bucket that B reads stay in a list of the port
//!   2  set           the kernel gives its datagrams to B; earlier ones are in A's socket
//!   3  A: leave      A reads all that its socket has now, and says when no frame of the bucket is
//!                    under way: each was taken by the driver of its output, or has ended
//!   4  B: release    B hands over its list, and then further frames
//! ```
//!
//! Proof of correctness.
//!
//! *Order*: a frame of the bucket that B reads came to the host after every one that A reads, or
//! beside it on another CPU, since the kernel chose its socket by the newer program. It is handed
//! over in step 4. By then every frame that A read has left through the driver through which the
//! later one will leave, or has ended, or (if its remote reference was revoked) stands in the queue
//! in which the later one will be put behind it, for the port of that queue stays where it is until
//! the frame has left. The list keeps the order in which B read, and nothing is read while a frame
//! that may go is in it. A frame that comes to A after step 2 would be late; there is none
//! ([`Selector::set`](crate::udp::Selector::set)).
//!
//! *Contents of A's socket* in step 3 are known as a number of bytes: the socket is empty when the
//! kernel says so, or when datagrams were read since that take up as much, each reckoned as the
//! least that it can take. Under a load that never lets it become empty the second condition ends
//! the step.
//!
//! *Loss*: none of these steps drops a frame. The list is bounded, and the pool has slots for it
//! ([`HELD_MAX`]); if it is full B does not read its socket, whose buffer holds further datagrams
//! meanwhile, as with a closed window.
//!
//! *No deadlock*: in one round of moves no port gives and takes, so A, which reads in step 3, never
//! has a full list; and the frames that A has under way leave by ports that wait for no list.
//!
//! **Change of the flows of high priority** ([`HighFlows`]): flows that are under way come to other
//! buckets. The buckets that a flow can have, a low one and a high one, are of one *group*, of four
//! low ones and a high one, under any set of matches. So the thread that changes the set moves
//! buckets first, until those of each group are at one port; then it tells all ports
//! ([`Buckets::set_high`]), gives the kernel the new program, and only then moves buckets again.
//!
//! *Order*: by the old program as by the new one, a datagram comes to the port of its group. So no
//! flow changes its port, whichever of the two a CPU has used and whenever a port got the change;
//! and frames that a port reads, of any bucket, go on in the order in which they were read: nothing
//! is held back meanwhile. A frame that a port had read before it got the change may be of any
//! bucket of its group by the new rule. It is counted for the whole group from then on, and none of
//! its buckets leaves the port before that is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_base::{Batch, Buf as _, FlowMatch};
use sluice_switch::Window;

use crate::frame::FrameBuf;
use crate::port::HeldBack;

/// Number of buckets: the low ones first, then those of flows of high priority.
pub const BUCKETS: u16 = LOW_BUCKETS + HIGH_BUCKETS;
/// Number of buckets of flows that no match covers.
pub const LOW_BUCKETS: u16 = 256;
/// Number of buckets of flows of high priority.
pub const HIGH_BUCKETS: u16 = 64;
/// Number of groups of buckets: under any set of matches, the buckets of a flow are of one group.
pub const GROUPS: u16 = HIGH_BUCKETS;

/// The port of each bucket, in the order of opening.
pub type BucketTable = [u8; BUCKETS as usize];

/// The high bucket of a flow is the upper bits of its low one.
pub(crate) const HIGH_SHIFT: u32 = 2;
const _: () = assert!(HIGH_BUCKETS == LOW_BUCKETS >> HIGH_SHIFT);

/// Maximum of matches for flows of high priority.
pub const HIGH_MATCHES_MAX: usize = 32;
/// Maximum of frames that a port keeps of buckets on hold.
pub const HELD_MAX: usize = 2048;
/// Minimum cost of a datagram in a receive buffer beside its bytes: the kernel's metadata.
pub(crate) const RECEIVE_COST_MIN: u64 = 512;
/// Tag of a slot whose frame is counted under no bucket.
const NO_BUCKET: u16 = u16::MAX;

const WORDS: usize = (BUCKETS as usize).div_ceil(64);
/// Number of tags under which frames are counted: buckets, and then groups, for frames that were
/// read under an earlier set of matches.
const TAGS: usize = (BUCKETS + GROUPS) as usize;
const _: () = assert!(TAGS < NO_BUCKET as usize);

/// Returns the group of a bucket.
///
/// # Panics
/// If there is no such bucket.
#[must_use]
pub fn group_of(bucket: u16) -> u16 {
    assert!(bucket < BUCKETS, "{bucket} is no bucket");
    if is_high(bucket) { bucket - LOW_BUCKETS } else { bucket >> HIGH_SHIFT }
}

/// Returns true if a bucket is one of flows of high priority.
#[must_use]
pub const fn is_high(bucket: u16) -> bool {
    bucket >= LOW_BUCKETS
}

/// Flows of high priority: every flow that one of these matches covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HighFlows(Vec<FlowMatch>);

impl HighFlows {
    /// Makes a set of matches; `None` if there are too many.
    #[must_use]
    pub fn new(matches: &[FlowMatch]) -> Option<Self> {
        (matches.len() <= HIGH_MATCHES_MAX).then(|| Self(matches.to_vec()))
    }

    /// Number of matches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no flow is of high priority.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The matches.
    pub(crate) fn matches(&self) -> &[FlowMatch] {
        &self.0
    }
}

/// A set of buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketSet([u64; WORDS]);

impl BucketSet {
    /// Adds a bucket.
    pub fn insert(&mut self, bucket: u16) {
        self.0[usize::from(bucket) / 64] |= 1 << (bucket % 64);
    }

    /// Returns true if a bucket is in the set.
    #[must_use]
    pub const fn contains(&self, bucket: u16) -> bool {
        self.0[bucket as usize / 64] & 1 << (bucket % 64) != 0
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Buckets in the set.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let set = *self;
        (0..BUCKETS).filter(move |bucket| set.contains(*bucket))
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }

    fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own &= !other);
    }
}

impl FromIterator<u16> for BucketSet {
    fn from_iter<I: IntoIterator<Item = u16>>(buckets: I) -> Self {
        let mut set = Self::default();
        buckets.into_iter().for_each(|bucket| set.insert(bucket));
        set
    }
}

/// Counters by bucket; the port writes them and any thread may read.
#[derive(Debug)]
pub struct Gauges {
    seen: [AtomicU32; BUCKETS as usize],
    /// By tag.
    under_way: [AtomicU32; TAGS],
}

impl Gauges {
    /// Frames of a bucket read so far, wrapping.
    #[must_use]
    pub fn seen(&self, bucket: u16) -> u32 {
        self.seen[usize::from(bucket)].load(Ordering::Relaxed)
    }

    /// Frames of a bucket whose handles are not back yet, including frames that may be of it
    /// because they were read under an earlier set of matches.
    #[must_use]
    pub fn under_way(&self, bucket: u16) -> u32 {
        let of = |tag: u16| self.under_way[usize::from(tag)].load(Ordering::Relaxed);
        of(bucket) + of(old_tag(bucket))
    }
}

/// Tag for frames of a bucket after the flows of high priority have changed: its group.
fn old_tag(bucket: u16) -> u16 {
    BUCKETS + group_of(bucket)
}

/// Adds to a counter that only this thread writes: no atomic exchange is needed.
#[inline]
fn count(gauge: &AtomicU32, change: i32) {
    let now = gauge.load(Ordering::Relaxed);
    gauge.store(now.wrapping_add_signed(change), Ordering::Relaxed);
}

/// State of a port that is to release buckets.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    set: BucketSet,
    /// Bytes of its socket's memory that may hold earlier datagrams; `None` before the first look.
    unread: Option<u64>,
}

/// The buckets of one port.
#[derive(Debug)]
pub struct Buckets {
    gauges: Arc<Gauges>,
    /// Tag of the frame in each slot of the pool.
    tags: Vec<u16>,
    high: HighFlows,
    held: BucketSet,
    /// Frames on hold, in the order of reading; `aside` is their amount.
    kept: VecDeque<(u16, FrameBuf)>,
    aside: HeldBack,
    /// True if a frame in `kept` may go.
    ready: bool,
    leaving: Option<Leaving>,
}

impl Buckets {
    pub(crate) fn new() -> Self {
        let gauges = Gauges {
            seen: std::array::from_fn(|_| AtomicU32::new(0)),
            under_way: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        Self {
            gauges: Arc::new(gauges),
            tags: Vec::new(),
            high: HighFlows::default(),
            held: BucketSet::default(),
            kept: VecDeque::with_capacity(HELD_MAX),
            aside: HeldBack::default(),
            ready: false,
            leaving: None,
        }
    }

    /// This port's counters.
    #[must_use]
    pub fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    /// Flows of high priority.
    #[inline]
    pub(crate) const fn high(&self) -> &HighFlows {
        &self.high
    }

    /// Sets other flows of high priority. No bucket may be on its way.
    pub fn set_high(&mut self, high: &HighFlows) {
        debug_assert!(self.held.is_empty(), "no bucket is on its way");
        self.high = high.clone();
        for tag in self.tags.iter_mut().filter(|tag| **tag < BUCKETS) {
            let old = old_tag(*tag);
            count(&self.gauges.under_way[usize::from(old)], 1);
            count(&self.gauges.under_way[usize::from(*tag)], -1);
            *tag = old;
        }
    }

    /// Holds frames of these buckets from now on.
    pub fn hold(&mut self, set: &BucketSet) {
        self.held.add(set);
    }

    /// Releases frames of these buckets: held ones first.
    pub fn release(&mut self, set: &BucketSet) {
        self.held.remove(set);
        self.ready = self.kept.iter().any(|(bucket, _)| !self.held.contains(*bucket));
    }

    /// Begins to release buckets of which no more datagrams will come; [`Self::has_left`] tells
    /// when earlier ones are done.
    pub fn leave(&mut self, set: &BucketSet) {
        self.leaving = Some(Leaving { set: *set, unread: None });
    }

    /// Returns true once all frames of the leaving buckets are done. Then these have left.
    pub fn has_left(&mut self) -> bool {
        let Some(Leaving { set, unread }) = self.leaving else { return true };
        let is_done = unread == Some(0) && set.iter().all(|b| self.gauges.under_way(b) == 0);
        if is_done {
            self.leaving = None;
        }
        is_done
    }

    /// Number of frames on hold.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Frames on hold, now and at most.
    #[must_use]
    pub(crate) const fn aside(&self) -> HeldBack {
        self.aside
    }

    /// Releases all frames, since the socket is read no more: a move has nothing to wait for.
    pub(crate) fn release_all(&mut self) {
        self.held = BucketSet::default();
        self.ready = !self.kept.is_empty();
    }

    /// Notes that a frame goes on as a copy in the same pool, whose handle comes back, too: until
    /// then the copy is under way.
    pub fn copied(&mut self, from: &FrameBuf, copy: &FrameBuf) {
        let slot = |buf: &FrameBuf| buf.pool_slot().map(|(slot, _)| slot as usize);
        let bucket = slot(from).and_then(|slot| self.tags.get(slot)).copied();
        let Some(gauge) = self.gauges.under_way.get(usize::from(bucket.unwrap_or(NO_BUCKET)))
        else {
            return;
        };
        if let Some(tag) = slot(copy).and_then(|slot| self.tags.get_mut(slot)) {
            *tag = bucket.unwrap_or(NO_BUCKET);
            count(gauge, 1);
        }
    }

    /// Notes that a frame's handle is back.
    #[inline]
    pub fn ended(&mut self, buf: &FrameBuf) {
        let Some((slot, _)) = buf.pool_slot() else { return };
        let Some(tag) = self.tags.get_mut(slot as usize) else { return };
        let bucket = std::mem::replace(tag, NO_BUCKET);
        if let Some(gauge) = self.gauges.under_way.get(usize::from(bucket)) {
            count(gauge, -1);
        }
    }

    /// Notes before a read the slots of the pool, and the bytes in the socket.
    #[inline]
    pub(crate) fn reads(&mut self, slots: u32, waiting_bytes: u64) {
        if self.tags.len() < slots as usize {
            self.tags.resize(slots as usize, NO_BUCKET);
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.unread.get_or_insert(waiting_bytes);
        }
    }

    /// Notes the sizes of the datagrams that were read; `empty` if there were no more.
    #[inline]
    pub(crate) fn were_read(&mut self, sizes: impl Iterator<Item = usize>, empty: bool) {
        if let Some(Leaving { unread: Some(unread), .. }) = &mut self.leaving {
            let least: u64 = sizes.map(|size| RECEIVE_COST_MIN + size as u64).sum();
            *unread = if empty { 0 } else { unread.saturating_sub(least) };
        }
    }

    /// Counts a frame of a bucket that was read. Returns it if it may go on.
    #[inline]
    pub(crate) fn pass(&mut self, bucket: Option<u16>, buf: FrameBuf) -> Option<FrameBuf> {
        let Some(bucket) = bucket else { return Some(buf) };
        if let Some((slot, _)) = buf.pool_slot() {
            debug_assert_eq!(self.tags[slot as usize], NO_BUCKET, "its last frame has ended");
            self.tags[slot as usize] = bucket;
        }
        count(&self.gauges.seen[usize::from(bucket)], 1);
        count(&self.gauges.under_way[usize::from(bucket)], 1);
        if self.held.contains(bucket) {
            self.keep(bucket, buf);
            return None;
        }
        Some(buf)
    }

    #[cold]
    fn keep(&mut self, bucket: u16, buf: FrameBuf) {
        self.aside.frames += 1;
        self.aside.bytes += u64::from(buf.size());
        self.aside.frames_max = self.aside.frames_max.max(self.aside.frames);
        self.aside.bytes_max = self.aside.bytes_max.max(self.aside.bytes);
        self.kept.push_back((bucket, buf));
    }

    /// Returns true if the socket may be read: no held frame may go first, and `more` frames have
    /// room.
    #[inline]
    pub(crate) fn may_read(&self, more: usize) -> bool {
        !self.ready && self.kept.len() + more <= HELD_MAX
    }

    /// Hands over held frames that may go. Returns their number and bytes.
    #[inline]
    pub(crate) fn hand_over(
        &mut self,
        window: Window,
        limit: usize,
        batch: &mut Batch<FrameBuf>,
    ) -> (usize, u64) {
        if self.ready { self.hand_over_ready(window, limit, batch) } else { (0, 0) }
    }

    #[cold]
    fn hand_over_ready(
        &mut self,
        window: Window,
        limit: usize,
        batch: &mut Batch<FrameBuf>,
    ) -> (usize, u64) {
        let (mut frames, mut bytes) = (0, 0);
        self.ready = false;
        // One pass: frames that stay keep their order.
        for _ in 0..self.kept.len() {
            let Some((bucket, buf)) = self.kept.pop_front() else { break };
            let may_go = !self.held.contains(bucket);
            if !may_go || frames == limit || bytes >= window.bytes.0 {
                self.ready |= may_go;
                self.kept.push_back((bucket, buf));
                continue;
            }
            frames += 1;
            bytes += u64::from(buf.size());
            batch.push(buf).expect("room was counted before");
        }
        self.aside.frames -= frames as u64;
        self.aside.bytes -= bytes;
        (frames, bytes)
    }
}
