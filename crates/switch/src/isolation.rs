//! Isolation: a receiver that does not take what comes costs its own senders only.
//!
//! **Aim.** A receiver, a (port, priority), that holds more than its share of something that others
//! need too (the host pool, the input of a wire) for [`patience`](crate::IsolationConfig::patience)
//! loses its claim on all of it, whatever the reason: it is slow, or it stands still.
//!
//! ```text
//!          over its share, and slower than it is given, for `patience`; or beyond its hold
//!   FREE ─────────────────────────────────────────────────────────────────> ISOLATED
//!    ^                                                                       │    ^
//!    └── all it needs for `PROBATION` is below its marks ── on probation <───┘    │ a frame left
//!                                                                   STUCK <───────┘
//!                                                      no frame left for longer than its hold
//! ```
//!
//! What is isolated has:
//! - no claim on the pool. Its local senders are held in their own rings;
//! - no claim on the input of a wire. What came by one moves into the **reserve**, so that nobody
//!   on that wire is paused for it. Those who send to it through tunnels are asked to hold it at
//!   their side ([`Notice::Receiver`]), and what is under way meanwhile
//!   fits into the reserve. What does not fit waits in the input for `patience`, and ends as
//!   `receiver_stuck` then: the wire is never paused for longer than that.
//!
//! **Marks.** Senders hold it while more waits than it takes in twice `patience`, and let go when
//! less waits than it takes in half of it, so that it never runs dry and little waits.
//!
//! **Slower than it is given**: as much waits as left in all of `patience`, so that a frame waits
//! for as long (Little's law). A receiver that is merely busy while somebody else has its input
//! paused is not meant.
//!
//! **Hold.** If no frame left for longer than the port's [hold](crate::Hold), all frames but the
//! oldest end under `receiver_stuck`, and so does what comes, until a frame leaves. The oldest one
//! is what is offered to the driver meanwhile.
//!
//! **Not its aim.** It does not look at single frames, and costs nothing while no queue waits: ten
//! times in `patience` while something is pressed, once in five of them while any frame waits, it
//! looks at the queues.

mod record;
mod reserve;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Buf, Nanos, PortId, Priority, PriorityMask, TunnelId};

use crate::config::{InputFull, PortRole, SwitchConfig};
use crate::place::Full;
use crate::slots::NIL;
use crate::surface::{LaneKind, Notice, ReceiverState};
use crate::switch::Switch;

pub(crate) use self::record::Record;

/// How many times in `patience` a switch looks at its queues while something is pressed.
const FINE: u64 = 10;
/// For how many times `patience` it does not look while something waits and nothing is pressed.
const COARSE: u64 = 5;
/// The receivers that may be isolated at a time. One more is left as it is, until one is free.
const RECORDS: usize = 64;
/// What stands for no record.
const NONE: u8 = u8::MAX;
const _: () = assert!(RECORDS < NONE as usize);
/// A receiver's share of a partition of the pool, and of what makes an input pressed: a part of so
/// many.
const POOL_SHARE: u32 = 4;

/// What is remembered of a (port, priority) that is not isolated.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// The number of the look at which something waited for it.
    look: u64,
    /// The frames that had left.
    sent: u64,
    /// When the last one of them was seen to have left.
    moved_at: Nanos,
    /// Since when it has held more than its share; [`Nanos::MAX`]: it does not.
    over_since: Nanos,
    /// The frames that had left then.
    over_sent: u64,
}

/// What a (port, priority) holds of what all share.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// Frames in the pool, the reserve, and inputs that others share.
    frames: u32,
    /// True if that is more than its share, or keeps others from theirs.
    over: bool,
}

/// The isolation of a switch.
#[derive(Debug)]
pub(crate) struct Isolation {
    /// `None`: there is none.
    patience: Option<Nanos>,
    /// By class.
    watches: Box<[Watch]>,
    /// By class.
    record_of: Box<[u8]>,
    records: Vec<Record>,
    used: usize,
    /// Somebody has to be told of a record.
    news: bool,
    /// How often a receiver was isolated, free again, stuck, or stuck no more.
    changes: u64,
    /// The inputs that several senders share.
    shared: Box<[u16]>,
    looks: u64,
    look_at: Nanos,
    now: Nanos,
    /// Leaves of one class, while they are walked.
    leaves: Vec<u32>,
}

impl Isolation {
    pub(crate) fn new(config: &SwitchConfig, inputs: usize) -> Self {
        let patience = config.isolation.map(|isolation| isolation.patience);
        let on = usize::from(patience.is_some());
        let classes = config.ports.len() * Priority::COUNT * on;
        let watch =
            Watch { look: 0, sent: 0, moved_at: Nanos::ZERO, over_since: Nanos::MAX, over_sent: 0 };
        let words = config.tunnels.len().div_ceil(64);
        let mut shared = Vec::new();
        let mut first = 0;
        for port in &config.ports {
            let is_wire = matches!(port.role, PortRole::Underlay { .. })
                || !matches!(port.input_full, InputFull::Wait);
            for queue in 0..u16::from(port.queues) {
                if is_wire {
                    shared.push(first + queue);
                }
            }
            first += u16::from(port.queues);
        }
        Self {
            patience,
            watches: vec![watch; classes].into(),
            record_of: vec![NONE; classes].into(),
            records: (0..RECORDS * on).map(|_| Record::free(words)).collect(),
            used: 0,
            news: false,
            changes: 0,
            shared: shared.into(),
            looks: 0,
            look_at: Nanos::MAX,
            now: Nanos::ZERO,
            leaves: Vec::with_capacity((inputs + config.tunnels.len()) * on),
        }
    }

    /// Returns true if any receiver is isolated.
    #[inline]
    pub(crate) const fn is_any(&self) -> bool {
        self.used > 0
    }

    /// When it looks next, if nothing happens before.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        (self.look_at < Nanos::MAX).then_some(self.look_at)
    }

    /// Returns the record of a class.
    pub(crate) fn record(&self, class: usize) -> Option<usize> {
        let record = *self.record_of.get(class)?;
        (record != NONE).then_some(usize::from(record))
    }
}

impl<B: Buf> Switch<B> {
    /// Looks at the queues, if it is time.
    pub(crate) fn watch_receivers(&mut self, now: Nanos) {
        let Some(patience) = self.isolation.patience else { return };
        let Some(pace) = self.watch_pace(patience) else {
            self.isolation.look_at = Nanos::MAX;
            return;
        };
        let isolation = &mut self.isolation;
        isolation.now = now;
        if isolation.look_at == Nanos::MAX {
            // Of what was before nothing is known.
            isolation.looks += 2;
            isolation.look_at = now;
        }
        isolation.look_at = isolation.look_at.min(now.after(pace));
        if now < isolation.look_at {
            return;
        }
        isolation.looks += 1;
        isolation.look_at = now.after(pace);
        for at in 0..self.ports.len() {
            let waiting = PriorityMask(self.ports[at].active).and(self.lossless);
            for priority in Priority::all().filter(|p| waiting.contains(*p)) {
                if self.isolation.record(self.class_of(at, priority.index())).is_none() {
                    self.look_at_class(now, patience, at, priority);
                }
            }
        }
        for index in 0..self.isolation.records.len() {
            if self.isolation.used > 0 && self.isolation.records[index].is_used() {
                self.look_at_record(now, patience, index);
            }
        }
    }

    /// How often to look; `None`: nothing waits.
    fn watch_pace(&self, patience: Nanos) -> Option<Nanos> {
        if self.isolation.is_any() || self.is_pressed() {
            return Some(Nanos((patience.0 / FINE).max(1)));
        }
        self.busy.iter().any(|word| *word != 0).then_some(Nanos(patience.0 * COARSE))
    }

    /// Returns true if something that all share is used in good part.
    fn is_pressed(&self) -> bool {
        let used = |at: usize| {
            let part = &self.pool[at];
            part.frames > part.limit.frames / (2 * POOL_SHARE)
                || part.bytes > part.limit.bytes.0 / u64::from(2 * POOL_SHARE)
        };
        let copies = self.bodies > self.replicated_frames / (2 * POOL_SHARE);
        copies
            || used(0)
            || used(1)
            || self.isolation.shared.iter().any(|&i| self.is_input_pressed(i))
    }

    fn is_input_pressed(&self, input: u16) -> bool {
        let i = &self.inputs[usize::from(input)];
        match i.full {
            Full::Pause(_) => self.pause_of(i).is_some_and(|pause| !pause.pausing.is_empty()),
            Full::Wait | Full::Drop => {
                i.held.frames >= i.limit.frames / 2 || i.held.bytes >= i.limit.bytes.0 / 2
            }
        }
    }

    /// Returns true if an input is one that several senders share.
    #[inline]
    pub(crate) fn is_shared(&self, input: u16) -> bool {
        let i = &self.inputs[usize::from(input)];
        i.from_underlay || !matches!(i.full, Full::Wait)
    }

    /// Returns the frames that left a class so far, wherever its port was; it wraps.
    pub(crate) fn progress(&self, class: usize) -> u64 {
        self.classes[class].sent.frames.wrapping_add(self.lending.left_beside(class))
    }

    fn look_at_class(&mut self, now: Nanos, patience: Nanos, at: usize, priority: Priority) {
        let class = self.class_of(at, priority.index());
        let sent = self.progress(class);
        let claim = self.claim(at, priority);
        let look = self.isolation.looks;
        let watch = &mut self.isolation.watches[class];
        let gap = watch.look + 1 != look;
        watch.look = look;
        if gap || watch.sent != sent {
            watch.moved_at = now;
            watch.sent = sent;
        }
        if gap || !claim.over {
            watch.over_since = Nanos::MAX;
        }
        if claim.over && watch.over_since == Nanos::MAX {
            (watch.over_since, watch.over_sent) = (now, sent);
        }
        let is_beyond_hold =
            self.ports[at].hold[priority.index()].is_over(now.since(watch.moved_at));
        let mut isolates = is_beyond_hold;
        if claim.over && now.since(watch.over_since) >= patience {
            isolates |= u64::from(claim.frames) >= sent - watch.over_sent;
            (watch.over_since, watch.over_sent) = (now, sent);
        }
        if isolates {
            let moved_at = watch.moved_at;
            self.isolate(now, at, priority, moved_at);
        }
    }

    /// What a class holds of what all share.
    fn claim(&self, at: usize, priority: Priority) -> Claim {
        let mut claim = Claim::default();
        let (mut pooled, mut pooled_bytes) = (0, 0);
        let class = self.class_of(at, priority.index());
        for leaf in self.leaves_of(class) {
            let node = self.queues.get(leaf);
            pooled += node.frames - node.ring_frames;
            pooled_bytes += node.bytes.saturating_sub(node.ring_bytes.into());
            if node.ring_frames == 0 {
                continue;
            }
            if let Some(input) = self.shared_input_of(node.source) {
                claim.frames += node.ring_frames;
                claim.over |= self.presses(input, priority, node.ring_frames, node.ring_bytes);
            }
        }
        for tag in self.classes[class].common.tags().filter(|tag| self.is_shared(tag.input)) {
            claim.frames += 1;
            claim.over |= self.presses(tag.input, priority, 1, tag.bytes.into());
        }
        claim.frames += pooled;
        // Each copy keeps the body that it shares.
        let copies = self.lanes[self.ports[at].lane as usize].copies;
        claim.over |= copies > 0 && copies > self.replicated_frames / POOL_SHARE;
        for part in &self.pool[..2] {
            let is_full = part.frames >= part.limit.frames || part.bytes >= part.limit.bytes.0;
            claim.over |= pooled > part.limit.frames / POOL_SHARE
                || pooled_bytes > part.limit.bytes.0 / u64::from(POOL_SHARE)
                || (is_full && pooled > 0);
        }
        claim
    }

    /// Returns true if so much of one class in a shared input is more than its share, or is a part
    /// of what keeps others out.
    fn presses(&self, input: u16, priority: Priority, frames: u32, bytes: u32) -> bool {
        let i = &self.inputs[usize::from(input)];
        match (i.full, self.pause_of(i)) {
            (Full::Pause(paused), Some(pause)) if paused.contains(priority) => {
                pause.pausing.contains(priority)
                    || pause.weight(frames, bytes.into()) > pause.config.xoff.0 / 2
            }
            _ => {
                self.is_input_pressed(input)
                    || frames > i.limit.frames / 2
                    || u64::from(bytes) > i.limit.bytes.0 / 2
            }
        }
    }

    /// Returns the shared input that frames of a source come by.
    fn shared_input_of(&self, source: u16) -> Option<u16> {
        let input = match usize::from(source).checked_sub(self.inputs.len()) {
            None => source,
            Some(tunnel) => self.ports[usize::from(self.tunnels[tunnel].port)].first_input,
        };
        self.is_shared(input).then_some(input)
    }

    /// Returns the queues of a class that stand in its port's ring.
    pub(crate) fn leaves_of(&self, class: usize) -> impl Iterator<Item = u32> + '_ {
        self.queues.ring(self.classes[class].ring).flat_map(|node| self.queues.children_of(node))
    }

    /// Returns true if a class is isolated.
    #[inline]
    pub(crate) fn is_isolated(&self, port: u16, priority: u8) -> bool {
        self.isolation.is_any()
            && usize::from(port) < self.ports.len()
            && self.isolation.record(self.class_of(port.into(), priority.into())).is_some()
    }

    /// Returns true if any priority of a port is.
    pub(crate) fn is_port_isolated(&self, port: u16) -> bool {
        Priority::all().any(|priority| self.is_isolated(port, priority.get()))
    }

    /// The lanes of a port are plain, or are asked about, as its isolation says.
    pub(crate) fn refresh_plain(&mut self, port: u16) {
        let isolated = self.is_port_isolated(port);
        let p = &self.ports[usize::from(port)];
        let (detached, is_access) = (p.detached, matches!(p.role, PortRole::Access { .. }));
        for (at, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.port == port) {
            let may = match lane.kind {
                LaneKind::Port(_) => is_access,
                LaneKind::Tunnel(tunnel) => {
                    // A tag has 16 bits for a lane.
                    self.tunnels[tunnel.index()].next_hop.is_some() && u16::try_from(at).is_ok()
                }
                LaneKind::Unresolved(..) | LaneKind::Held(_) | LaneKind::Free => continue,
            };
            lane.plain = may && !detached && !isolated && !lane.shaper.is_limited();
        }
    }

    /// Returns the next record that somebody has to be told of.
    #[cold]
    pub(crate) fn next_receiver(&mut self) -> Option<Notice> {
        let isolation = &mut self.isolation;
        let Some(record) = isolation.records.iter_mut().find(|record| record.has_news) else {
            isolation.news = false;
            return None;
        };
        record.has_news = false;
        Some(Notice::Receiver { port: PortId(record.port) })
    }

    /// Returns true if [`Self::next_receiver`] has something.
    #[inline]
    pub(crate) const fn has_receiver_news(&self) -> bool {
        self.isolation.news
    }

    /// Whoever comes new is told of all that stands.
    pub(crate) fn tell_receivers_again(&mut self) {
        for record in self.isolation.records.iter_mut().filter(|record| record.asks()) {
            record.has_news = true;
            self.isolation.news = true;
        }
    }

    /// How those who send to a port through tunnels should treat it.
    #[must_use]
    pub fn receiver(&self, port: PortId) -> ReceiverState {
        let mut state = ReceiverState::default();
        for record in self.records_of(port).filter(|record| record.asks()) {
            let priority = Priority::from_low_bits(record.priority);
            state.held.insert(priority);
            if record.stuck {
                state.stuck.insert(priority);
            }
        }
        state
    }

    /// Those who sent to a port through tunnels since it was isolated, or before and it waits.
    pub fn senders(&self, port: PortId) -> impl Iterator<Item = TunnelId> + '_ {
        let tunnels = (0..self.tunnels.len()).map(TunnelId::from_index);
        tunnels.filter(move |tunnel| self.records_of(port).any(|record| record.has_sender(*tunnel)))
    }

    fn records_of(&self, port: PortId) -> impl Iterator<Item = &Record> + '_ {
        let used = self.isolation.records.iter().filter(|record| record.is_used());
        used.filter(move |record| record.port == port.0)
    }

    /// What is isolated, for inspection.
    pub fn isolated(&self) -> impl Iterator<Item = crate::inspect::IsolatedState> + '_ {
        self.isolation.records.iter().filter(|record| record.is_used()).map(Record::state)
    }

    /// How often a receiver was isolated, was free again, was beyond its hold or no more: whoever
    /// tells people looks at this first.
    #[inline]
    #[must_use]
    pub const fn isolation_changes(&self) -> u64 {
        self.isolation.changes
    }

    /// Returns the reserve, for inspection: frames that are in it, and the most there were.
    #[must_use]
    pub fn reserve_marks(&self) -> crate::inspect::Marks {
        self.pool_marks[reserve::PART]
    }

    /// Returns true if a class has nothing waiting.
    fn is_empty_class(&self, class: usize) -> bool {
        self.classes[class].ring == NIL && self.classes[class].common.is_empty()
    }
}

#[cfg(test)]
mod tests;
