//! Record of one isolated receiver, from its isolation until it is free again.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Buf, DropReason, Nanos, PortId, Priority, TunnelId};

use super::NONE;
use crate::inspect::IsolatedState;
use crate::place::Held;
use crate::slots::{BufferOwner, NIL};
use crate::surface::QueueGroupKind;
use crate::switch::Switch;

/// Time, in `patience`, for which a receiver has to be below its marks before it is free again: a
/// slow receiver fills shared resources only once in that time.
const PROBATION: u64 = 100;
/// Lower bounds of the marks in frames: senders hold above the one, and release below the other.
const HIGH_MIN: u64 = 64;
const LOW_MIN: u64 = 16;

/// An isolated (port, priority).
#[derive(Debug)]
pub(crate) struct Record {
    used: bool,
    port: u16,
    priority: u8,
    since: Nanos,
    /// Frames that had left at the last check.
    sent: u64,
    /// Moment at which a frame was last seen to have left.
    moved_at: Nanos,
    /// Frames that left in the last whole `patience`; then start and count of the one that runs.
    drained: u64,
    window_at: Nanos,
    window_sent: u64,
    /// Time for which the neighbour had paused it by then.
    window_paused: Nanos,
    /// True if senders are asked to hold its frames.
    asked: bool,
    /// True if its hold contract is over.
    stuck: bool,
    /// Moment since which the reserve has no room for it; [`Nanos::MAX`] if it has room.
    full_since: Nanos,
    /// True if frames that do not fit into the reserve end instead of waiting.
    overflows: bool,
    /// Moment at which it was last seen above its marks.
    pressed_at: Nanos,
    has_news: bool,
    /// True if it is isolated no more, or its port is gone, and its frames in the reserve are on
    /// their way back.
    leaves: bool,
    /// Tunnels whose hosts send to it, a bit each.
    senders: Box<[u64]>,
}

impl Record {
    pub(crate) fn free(words: usize) -> Self {
        Self {
            used: false,
            port: 0,
            priority: 0,
            since: Nanos::ZERO,
            sent: 0,
            moved_at: Nanos::ZERO,
            drained: 0,
            window_at: Nanos::ZERO,
            window_sent: 0,
            window_paused: Nanos::ZERO,
            asked: false,
            stuck: false,
            full_since: Nanos::MAX,
            overflows: false,
            pressed_at: Nanos::ZERO,
            has_news: false,
            leaves: false,
            senders: vec![0; words].into(),
        }
    }

    pub(crate) const fn is_used(&self) -> bool {
        self.used
    }

    /// Returns true if its receiver is isolated.
    pub(crate) const fn is_isolating(&self) -> bool {
        self.used && !self.leaves
    }

    /// Returns true if senders are asked to hold its frames.
    pub(crate) const fn asks(&self) -> bool {
        self.is_isolating() && self.asked
    }

    /// Returns its port.
    pub(super) fn port(&self) -> usize {
        self.port.into()
    }

    pub(super) const fn priority(&self) -> Priority {
        Priority::from_low_bits(self.priority)
    }

    /// Returns true if its hold contract is over.
    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Takes the event about it, if there is one. Returns its port.
    pub(super) fn take_news(&mut self) -> Option<PortId> {
        core::mem::take(&mut self.has_news).then_some(PortId(self.port))
    }

    /// Makes the event about it due again.
    pub(super) const fn tell_again(&mut self) {
        self.has_news = true;
    }

    /// Notes that the reserve has no room for it since now.
    pub(super) const fn full_at(&mut self, now: Nanos) {
        self.full_since = now;
    }

    /// Notes that the reserve has no room for it now.
    pub(super) fn full_by(&mut self, now: Nanos) {
        self.full_since = self.full_since.min(now);
    }

    pub(crate) fn has_sender(&self, tunnel: TunnelId) -> bool {
        let bits = self.senders.get(tunnel.index() / 64).copied().unwrap_or(0);
        bits >> (tunnel.index() % 64) & 1 == 1
    }

    /// Forgets a tunnel that is removed.
    pub(super) fn forget_sender(&mut self, tunnel: TunnelId) {
        if let Some(word) = self.senders.get_mut(tunnel.index() / 64) {
            *word &= !(1 << (tunnel.index() % 64));
        }
    }

    /// Notes a tunnel whose host sends to it. Returns true if the tunnel is new.
    fn note_sender(&mut self, tunnel: usize) -> bool {
        let bit = 1 << (tunnel % 64);
        let word = &mut self.senders[tunnel / 64];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Returns its state for inspection; `held` are its frames in the reserve.
    pub(crate) fn state(&self, held: Held) -> IsolatedState {
        IsolatedState {
            port: PortId(self.port),
            priority: self.priority(),
            since: self.since,
            moved_at: self.moved_at,
            reserve_frames: held.frames,
            reserve_bytes: held.bytes,
            asks: self.asks(),
            stuck: self.stuck,
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Isolates a receiver, which loses its claim on shared resources.
    #[cold]
    pub(super) fn isolate(&mut self, now: Nanos, at: usize, priority: Priority, moved_at: Nanos) {
        let class = self.egress.class_of(at, priority.index());
        let (sent, paused) = (self.progress(class), self.paused_time(now, at, priority));
        let Some(index) = self.isolation.records.iter().position(|record| !record.used) else {
            return;
        };
        debug_assert!(self.pool.reserved(index).frames == 0, "its frames would be another's");
        let record = &mut self.isolation.records[index];
        record.used = true;
        record.port = PortId::from_index(at).0;
        record.priority = priority.get();
        (record.since, record.moved_at, record.pressed_at) = (now, moved_at, now);
        (record.sent, record.window_sent, record.window_at) = (sent, sent, now);
        (record.window_paused, record.drained) = (paused, 0);
        (record.asked, record.stuck, record.overflows) = (false, false, false);
        (record.full_since, record.leaves, record.has_news) = (Nanos::MAX, false, false);
        record.senders.fill(0);
        self.isolation.used += 1;
        self.isolation.changes += 1;
        self.isolation.record_of[class] = u8::try_from(index).expect("fewer than 255 records");
        self.refresh_plain(PortId::from_index(at).0);
        for group in 0..self.egress.group_count() {
            let group = u32::try_from(group).expect("fewer than 2^20 queue groups");
            let l = self.egress.group(group);
            let has_common =
                matches!(l.kind(), QueueGroupKind::Port(_) | QueueGroupKind::Tunnel(_));
            if usize::from(l.port()) == at && has_common {
                self.leave_common(group);
            }
        }
        self.discard_where(class, DropReason::ReplicationLimit, |switch, slot| {
            switch.slots.get(slot).owner() == BufferOwner::Copy
        });
        self.move_to_reserve(now, class, index);
        self.sweep_later();
    }

    /// Returns true if senders of a record's port can be asked to hold its frames: they are behind
    /// tunnels.
    fn has_remote_senders(&self, index: usize) -> bool {
        let port = self.egress.port(usize::from(self.isolation.records[index].port));
        !port.has_bundles() && !self.networks.tunnels().is_empty()
    }

    /// Checks an isolated receiver again.
    pub(super) fn look_at_record(&mut self, now: Nanos, patience: Nanos, index: usize) {
        let record = &self.isolation.records[index];
        if record.leaves {
            if self.pool.reserved(index).frames == 0 {
                self.isolation.records[index].used = false;
                self.isolation.used -= 1;
            }
            return;
        }
        let (at, priority) = (usize::from(record.port), Priority::from_low_bits(record.priority));
        let class = self.egress.class_of(at, priority.index());
        let (sent, waits) = (self.progress(class), !self.egress.is_idle(class));
        let claim = self.claim(at, priority);
        let has_remote_senders = self.has_remote_senders(index);
        let room = self.pool.reserve_has_room_again(index);
        let paused = self.paused_time(now, at, priority);
        let hold = self.egress.port(at).hold(priority);
        let is_overloaded = self.is_overloaded_again(now, patience, index, paused);
        let record = &mut self.isolation.records[index];
        let before = (record.asked, record.stuck);
        if sent != record.sent || !waits {
            record.moved_at = now;
            record.sent = sent;
            record.stuck = false;
        }
        if is_overloaded {
            (record.leaves, record.has_news) = (true, false);
            return self.end_isolation(PortId::from_index(at).0, priority.get());
        }
        if now.since(record.window_at) >= patience {
            record.drained = sent.wrapping_sub(record.window_sent);
            (record.window_at, record.window_sent, record.window_paused) = (now, sent, paused);
        }
        record.stuck |= waits && hold.is_over(now.since(record.moved_at));
        let backlog = u64::from(claim.frames);
        let high = (2 * record.drained).max(HIGH_MIN);
        let low = (record.drained / 2).max(LOW_MIN);
        record.asked =
            has_remote_senders && (record.stuck || backlog > if record.asked { low } else { high });
        self.isolation.changes += u64::from(record.stuck != before.1);
        if (record.asked, record.stuck) != before {
            record.has_news = has_remote_senders;
            self.isolation.news |= has_remote_senders;
        }
        if room && record.full_since < Nanos::MAX {
            (record.full_since, record.overflows) = (Nanos::MAX, false);
        } else if record.full_since < Nanos::MAX {
            record.overflows |= now.since(record.full_since) >= patience;
        }
        let is_pressed = claim.over || record.asked || record.stuck || backlog > high;
        if is_pressed {
            record.pressed_at = now;
        }
        let is_over = now.since(record.pressed_at) >= Nanos(patience.0 * PROBATION);
        let (stuck, overflows) = (record.stuck, record.overflows);
        let is_clear = self.pool.reserved(index).frames == 0;
        if stuck {
            self.discard(class);
        } else if overflows {
            self.discard_overflow(class);
        } else if is_over && is_clear {
            self.free_record(index);
            return;
        }
        self.sweep_later();
    }

    /// Returns true if the neighbour of a physical switch takes what its cable carries: the cable
    /// was overloaded for the last `patience`, and its senders are to be paused.
    fn is_overloaded_again(
        &self,
        now: Nanos,
        patience: Nanos,
        index: usize,
        paused: Nanos,
    ) -> bool {
        let record = &self.isolation.records[index];
        let span = now.since(record.window_at);
        let class = self.egress.class_of(record.port.into(), record.priority.into());
        let left = self.progress(class).wrapping_sub(record.window_sent);
        span >= patience && self.is_overloaded(span, left, paused.since(record.window_paused))
    }

    fn free_record(&mut self, index: usize) {
        let record = &mut self.isolation.records[index];
        record.used = false;
        let (port, priority) = (record.port, record.priority);
        self.isolation.used -= 1;
        self.end_isolation(port, priority);
    }

    /// Ends the isolation of a class whose record is free, or leaves.
    fn end_isolation(&mut self, port: u16, priority: u8) {
        self.isolation.changes += 1;
        let class = self.egress.class_of(port.into(), priority.into());
        self.isolation.record_of[class] = NONE;
        self.refresh_plain(port);
    }

    /// Ends the isolation of a port that goes away. Its frames in the reserve are still counted
    /// there.
    pub(crate) fn end_isolation_of(&mut self, port: u16) {
        if !self.isolation.is_any() {
            return;
        }
        for index in 0..self.isolation.records.len() {
            let record = &mut self.isolation.records[index];
            if record.used && record.port == port && !record.leaves {
                (record.leaves, record.has_news) = (true, false);
                let class = self
                    .egress
                    .class_of(port.into(), self.isolation.records[index].priority.into());
                self.isolation.record_of[class] = NONE;
            }
        }
    }

    /// Ends the frames of a receiver that is beyond its hold, but for the oldest one.
    fn discard(&mut self, class: usize) {
        let Some(first) = self.egress.leaves_of(class).next() else { return };
        let keep = self.egress.queue(first).list().head();
        let has_others = |switch: &Self, leaf: u32| !switch.egress.queue(leaf).list().is_only(keep);
        loop {
            let found = self.egress.leaves_of(class).find(|&leaf| has_others(self, leaf));
            let Some(leaf) = found else { return };
            self.drop_from_leaf(leaf, DropReason::ReceiverStuck, |_, slot| slot != keep);
        }
    }

    /// Ends frames that wait in shared inputs, and for which the reserve has no room.
    fn discard_overflow(&mut self, class: usize) {
        self.discard_where(class, DropReason::ReceiverStuck, |switch, slot| {
            let s = switch.slots.get(slot);
            s.owner() == BufferOwner::Ring
                && switch.ingress.input(s.input()).is_shared()
                && s.sent().0 == 0
        });
    }

    fn discard_where(
        &mut self,
        class: usize,
        reason: DropReason,
        goes: impl Fn(&Self, u32) -> bool,
    ) {
        let some = |switch: &Self, leaf: u32| {
            let list = switch.egress.queue(leaf).list();
            switch.slots.walk(list).any(|slot| goes(switch, slot))
        };
        loop {
            let found = self.egress.leaves_of(class).find(|&leaf| some(self, leaf));
            let Some(leaf) = found else { return };
            self.drop_from_leaf(leaf, reason, &goes);
        }
    }

    /// Returns the reason why a frame may not join the queue of an isolated receiver.
    pub(crate) fn refused_by_isolation(&self, slot: u32, group: u32) -> Option<DropReason> {
        let s = self.slots.get(slot);
        if s.owner() != BufferOwner::Ring {
            return None;
        }
        let port = usize::from(self.egress.group(group).port());
        let class = self.egress.class_of(port, s.priority().into());
        let index = self.isolation.record(class)?;
        let record = &self.isolation.records[index];
        if record.stuck && record.sent == self.progress(class) && !self.egress.is_idle(class) {
            return Some(DropReason::ReceiverStuck);
        }
        let is_beyond = record.overflows
            && self.ingress.input(s.input()).is_shared()
            && !self.pool.reserve_takes(index);
        is_beyond.then_some(DropReason::ReceiverStuck)
    }

    /// Notes a frame that joined the queue of an isolated receiver.
    pub(crate) fn joined_isolated(&mut self, port: u16, priority: u8, input: u16, source: u16) {
        let class = self.egress.class_of(port.into(), priority.into());
        let Some(index) = self.isolation.record(class) else { return };
        if self.ingress.input(input).is_shared() {
            self.ingress.set_sweep(input, true);
        }
        self.note_sender_of(index, source);
    }

    pub(super) fn note_sender_of(&mut self, index: usize, source: u16) {
        let Some(tunnel) = usize::from(source).checked_sub(self.ingress.count()) else { return };
        let record = &mut self.isolation.records[index];
        if record.note_sender(tunnel) && record.asked {
            record.has_news = true;
            self.isolation.news = true;
        }
    }

    /// Returns the queues of a class, to be walked while they change. The caller gives the list
    /// back.
    pub(super) fn take_leaves(&mut self, class: usize) -> Vec<u32> {
        let mut leaves = core::mem::take(&mut self.isolation.leaves);
        leaves.clear();
        // A class has at most one queue for each source, for which the list has room, except on an
        // underlay: there the rest is left out.
        let room = leaves.capacity();
        leaves.extend(self.egress.leaves_of(class).take(room).filter(|leaf| *leaf != NIL));
        leaves
    }
}
