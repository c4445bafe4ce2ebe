//! Isolation: a receiver that does not take its frames holds up its own senders only.
//!
//! **Aim.** A receiver is a (port, priority). If it holds more than its share of a shared resource
//! (the host pool, the input of a wire) for [`patience`](crate::IsolationConfig::patience), it
//! loses its claim on all shared resources, whether it is slow or stuck.
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
//! An isolated receiver has:
//! - no claim on the pool. Its local senders are held in their own rings;
//! - no claim on the input of a wire. Its frames that came in there move into the **reserve**, so
//!   that no sender on that wire is paused for it. Hosts that send to it through tunnels are asked
//!   to hold its frames at their side ([`Notice::Receiver`]), and the reserve takes the frames
//!   under way meanwhile. A frame that does not fit waits in the input for `patience`, and ends as
//!   `receiver_stuck` then: the wire is never paused for longer than that.
//!
//! **Marks.** Senders start to hold its frames when more wait than it takes in twice `patience`,
//! and release them when fewer wait than it takes in half of `patience`, so that it never runs dry
//! and few frames wait.
//!
//! **Slower than it is given**: as many frames wait as left in all of `patience`, so that a frame
//! waits for as long (Little's law). This excludes a receiver that is merely busy while another one
//! causes the pause of its input.
//!
//! **Hold.** If no frame left for longer than the port's [hold](crate::Hold), all frames but the
//! oldest end under `receiver_stuck`, and so do new frames, until a frame leaves. The oldest one is
//! offered to the driver meanwhile.
//!
//! **Not its aim.** Isolation does not look at single frames, and costs nothing while no queue
//! waits. It checks the queues ten times per `patience` while a shared resource is pressed, and
//! once per five `patience` while any frame waits.

mod cable;
mod record;
mod reserve;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Buf, Nanos, PortId, Priority, ReceiverState, TunnelId};

use crate::config::{InputFull, PortRole, SwitchConfig};
use crate::place::{Full, Held};
use crate::pool::RECEIVERS_MAX;
use crate::surface::Notice;
use crate::switch::Switch;

pub(crate) use self::record::Record;

/// Checks of the queues per `patience` while a shared resource is pressed.
const FINE: u64 = 10;
/// Interval of checks, in `patience`, while frames wait and no shared resource is pressed.
const COARSE: u64 = 5;
/// Number of receivers that may be isolated at a time. One more is isolated once another one is
/// free.
const RECORDS: usize = RECEIVERS_MAX;
/// Index that means no record.
const NONE: u8 = u8::MAX;
const _: () = assert!(RECORDS < NONE as usize);
/// Divisor that gives a receiver's share of a partition of the pool and of the replicated frames. A
/// resource is pressed at half of that share.
const POOL_SHARE: u32 = 4;

/// State of a (port, priority) that is not isolated.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// Number of the last check at which frames waited for it.
    look: u64,
    /// Frames that had left at that check.
    sent: u64,
    /// Moment at which the last one of them was seen to have left.
    moved_at: Nanos,
    /// Moment since which it has held more than its share; [`Nanos::MAX`] if it does not.
    over_since: Nanos,
    /// Frames that had left at that moment.
    over_sent: u64,
    /// Time for which the neighbour had paused it by then.
    over_paused: Nanos,
}

/// Part of the shared resources that a (port, priority) holds.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// Frames in the pool, the reserve, and shared inputs.
    frames: u32,
    /// True if that is more than its share, or keeps others from their share.
    over: bool,
}

/// State of isolation in a switch.
#[derive(Debug)]
pub(crate) struct Isolation {
    /// `None` if there is no isolation.
    patience: Option<Nanos>,
    /// State by class.
    watches: Box<[Watch]>,
    /// Record by class, or [`NONE`].
    record_of: Box<[u8]>,
    records: Vec<Record>,
    used: usize,
    /// True if there is an event about a record.
    news: bool,
    /// Number of times that a receiver was isolated, free again, stuck, or stuck no more.
    changes: u64,
    /// Inputs that several senders share.
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
        let watch = Watch { over_since: Nanos::MAX, ..Watch::default() };
        let words = config.tunnel_places().div_ceil(64);
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
            leaves: Vec::with_capacity((inputs + config.tunnel_places()) * on),
        }
    }

    /// Returns true if any receiver is isolated.
    #[inline]
    pub(crate) const fn is_any(&self) -> bool {
        self.used > 0
    }

    /// Returns the moment of the next check.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        (self.look_at < Nanos::MAX).then_some(self.look_at)
    }

    /// Forgets a tunnel that is removed: nobody behind it is asked to hold.
    pub(crate) fn forget_sender(&mut self, tunnel: TunnelId) {
        self.records.iter_mut().for_each(|record| record.forget_sender(tunnel));
    }

    /// Returns the record of a class.
    pub(crate) fn record(&self, class: usize) -> Option<usize> {
        let record = *self.record_of.get(class)?;
        (record != NONE).then_some(usize::from(record))
    }
}

impl<B: Buf> Switch<B> {
    /// Checks the queues, if it is time.
    pub(crate) fn watch_receivers(&mut self, now: Nanos) {
        let Some(patience) = self.isolation.patience else { return };
        let Some(pace) = self.watch_pace(patience) else {
            self.isolation.look_at = Nanos::MAX;
            return;
        };
        let isolation = &mut self.isolation;
        isolation.now = now;
        if isolation.look_at == Nanos::MAX {
            // The state of earlier checks is void.
            isolation.looks += 2;
            isolation.look_at = now;
        }
        isolation.look_at = isolation.look_at.min(now.after(pace));
        if now < isolation.look_at {
            return;
        }
        isolation.looks += 1;
        isolation.look_at = now.after(pace);
        for at in 0..self.egress.ports().len() {
            let waiting = self.egress.port(at).active().and(self.egress.lossless());
            for priority in Priority::all().filter(|p| waiting.contains(*p)) {
                if self.isolation.record(self.egress.class_of(at, priority.index())).is_none() {
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

    /// Returns the interval of checks; `None` if no frame waits.
    fn watch_pace(&self, patience: Nanos) -> Option<Nanos> {
        if self.isolation.is_any() || self.is_pressed() {
            return Some(Nanos((patience.0 / FINE).max(1)));
        }
        (!self.egress.is_at_rest()).then_some(Nanos(patience.0 * COARSE))
    }

    /// Returns true if a shared resource is pressed: a good part of it is in use.
    fn is_pressed(&self) -> bool {
        self.pool.is_used_beyond(2 * POOL_SHARE)
            || self.isolation.shared.iter().any(|&i| self.is_input_pressed(i))
    }

    fn is_input_pressed(&self, input: u16) -> bool {
        let i = self.ingress.input(input);
        match i.full() {
            Full::Pause(_) => {
                self.egress.pause_of(i.port()).is_some_and(|pause| !pause.pausing().is_empty())
            }
            Full::Wait | Full::Drop => {
                i.held().frames >= i.limit().frames / 2 || i.held().bytes >= i.limit().bytes.0 / 2
            }
        }
    }

    /// Returns the frames that left a class so far, whichever switch had its port; the count wraps.
    pub(crate) fn progress(&self, class: usize) -> u64 {
        self.egress.sent(class).frames.wrapping_add(self.remote_refs.left_beside(class))
    }

    fn look_at_class(&mut self, now: Nanos, patience: Nanos, at: usize, priority: Priority) {
        let class = self.egress.class_of(at, priority.index());
        let sent = self.progress(class);
        let claim = self.claim(at, priority);
        let look = self.isolation.looks;
        let mut watch = self.isolation.watches[class];
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
            let paused = self.paused_time(now, at, priority);
            (watch.over_since, watch.over_sent, watch.over_paused) = (now, sent, paused);
        }
        let hold = self.egress.port(at).hold(priority);
        let is_beyond_hold = hold.is_over(now.since(watch.moved_at));
        let mut isolates = is_beyond_hold;
        if claim.over && now.since(watch.over_since) >= patience {
            let (span, left) = (now.since(watch.over_since), sent.wrapping_sub(watch.over_sent));
            let paused = self.paused_time(now, at, priority);
            let is_slow = u64::from(claim.frames) >= left;
            isolates |= is_slow && !self.is_overloaded(span, left, paused.since(watch.over_paused));
            (watch.over_since, watch.over_sent, watch.over_paused) = (now, sent, paused);
        }
        self.isolation.watches[class] = watch;
        if isolates {
            self.isolate(now, at, priority, watch.moved_at);
        }
    }

    /// Returns the part of the shared resources that a class holds.
    fn claim(&self, at: usize, priority: Priority) -> Claim {
        let mut claim = Claim::default();
        let mut pooled = Held::default();
        let class = self.egress.class_of(at, priority.index());
        for leaf in self.egress.leaves_of(class) {
            let node = self.egress.queue(leaf);
            pooled.frames += node.frames() - node.ring_frames();
            pooled.bytes += node.bytes().saturating_sub(node.ring_bytes().into());
            if node.ring_frames() == 0 {
                continue;
            }
            if let Some(input) = self.shared_input_of(node.source()) {
                claim.frames += node.ring_frames();
                claim.over |= self.presses(input, priority, node.ring_frames(), node.ring_bytes());
            }
        }
        for tag in self.egress.tags(class).filter(|tag| self.ingress.input(tag.input()).is_shared())
        {
            claim.frames += 1;
            claim.over |= self.presses(tag.input(), priority, 1, tag.bytes().into());
        }
        claim.frames += pooled.frames;
        // Each copy keeps the body that it shares in memory.
        let copies = self.egress.group(self.egress.port(at).group()).copies();
        claim.over |= copies > 0 && copies > self.pool.bodies_max() / POOL_SHARE;
        claim.over |= self.pool.is_claimed_by(pooled, POOL_SHARE);
        claim
    }

    /// Returns true if so many frames of one class in a shared input are more than its share, or
    /// are a part of the frames that keep others out.
    fn presses(&self, input: u16, priority: Priority, frames: u32, bytes: u32) -> bool {
        let i = self.ingress.input(input);
        match (i.full(), self.egress.pause_of(i.port())) {
            (Full::Pause(paused), Some(pause)) if paused.contains(priority) => {
                pause.pausing().contains(priority)
                    || pause.weight(frames, bytes.into()) > pause.xoff() / 2
            }
            _ => {
                self.is_input_pressed(input)
                    || frames > i.limit().frames / 2
                    || u64::from(bytes) > i.limit().bytes.0 / 2
            }
        }
    }

    /// Returns the input of a source's frames, if it is shared.
    pub(crate) fn shared_input_of(&self, source: u16) -> Option<u16> {
        let input = match usize::from(source).checked_sub(self.ingress.count()) {
            None => source,
            Some(tunnel) => self.first_input_of(tunnel),
        };
        self.ingress.input(input).is_shared().then_some(input)
    }

    /// Returns the input at which frames of a tunnel come in.
    fn first_input_of(&self, tunnel: usize) -> u16 {
        self.egress.port(usize::from(self.networks.tunnels()[tunnel].port())).first_input()
    }

    /// Returns true if a class is isolated.
    #[inline]
    pub(crate) fn is_isolated(&self, port: u16, priority: u8) -> bool {
        self.isolation.is_any()
            && usize::from(port) < self.egress.ports().len()
            && self.isolation.record(self.egress.class_of(port.into(), priority.into())).is_some()
    }

    /// Returns true if any priority of a port is isolated.
    pub(crate) fn is_port_isolated(&self, port: u16) -> bool {
        Priority::all().any(|priority| self.is_isolated(port, priority.get()))
    }

    /// Recomputes which queue groups of a port are plain, after a change of its isolation.
    pub(crate) fn refresh_plain(&mut self, port: u16) {
        let isolated = self.is_port_isolated(port);
        let networks = &self.networks;
        let is_up = |tunnel: TunnelId| networks.tunnel(tunnel.0).next_hop().is_some();
        self.egress.refresh_plain(port, isolated, is_up);
    }

    /// Returns the next event about a record.
    #[cold]
    pub(crate) fn next_receiver(&mut self) -> Option<Notice> {
        let isolation = &mut self.isolation;
        let port = isolation.records.iter_mut().find_map(Record::take_news);
        isolation.news = port.is_some();
        port.map(|port| Notice::Receiver { port })
    }

    /// Returns true if [`Self::next_receiver`] has an event.
    #[inline]
    pub(crate) const fn has_receiver_news(&self) -> bool {
        self.isolation.news
    }

    /// Reports all receivers that senders have to hold again, to a control plane that has just
    /// attached.
    pub(crate) fn tell_receivers_again(&mut self) {
        for record in self.isolation.records.iter_mut().filter(|record| record.asks()) {
            record.tell_again();
            self.isolation.news = true;
        }
    }

    /// Returns the state of a port as a receiver.
    #[must_use]
    pub fn receiver(&self, port: PortId) -> ReceiverState {
        let mut state = ReceiverState::default();
        for record in self.records_of(port) {
            let priority = record.priority();
            state.isolated.insert(priority);
            if record.asks() {
                state.held.insert(priority);
            }
            if record.asks() && record.is_stuck() {
                state.stuck.insert(priority);
            }
        }
        state
    }

    /// Returns the tunnels whose hosts sent to a port since it was isolated, or before if their
    /// frames still wait.
    pub fn senders(&self, port: PortId) -> impl Iterator<Item = TunnelId> + '_ {
        let tunnels = (0..self.networks.tunnels().len()).map(TunnelId::from_index);
        tunnels.filter(move |tunnel| self.records_of(port).any(|record| record.has_sender(*tunnel)))
    }

    fn records_of(&self, port: PortId) -> impl Iterator<Item = &Record> + '_ {
        let used = self.isolation.records.iter().filter(|record| record.is_isolating());
        used.filter(move |record| record.port() == port.index())
    }

    /// Returns the isolated receivers, for inspection.
    pub fn isolated(&self) -> impl Iterator<Item = crate::inspect::IsolatedState> + '_ {
        let records = self.isolation.records.iter().enumerate();
        let isolating = records.filter(|(_, record)| record.is_isolating());
        isolating.map(|(at, record)| record.state(self.pool.reserved(at)))
    }

    /// Returns the number of times that a receiver was isolated, was free again, was beyond its
    /// hold or was so no more. Reading it is a cheap test for a change.
    #[inline]
    #[must_use]
    pub const fn isolation_changes(&self) -> u64 {
        self.isolation.changes
    }
}

#[cfg(test)]
mod tests;
