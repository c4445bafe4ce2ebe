//! Two endpoints and the path between them: a delay, a rate, and a rule that decides the fate of
//! each segment. Every step checks the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_base::Nanos;

use crate::tcp::sender::Phase;
use crate::tcp::{Config, Connection, Flags, Role, Segment};

/// Largest number of steps, more than any test needs: a livelock ends here.
const STEPS_MAX: u64 = 2_000_000;

/// Fate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    /// The segment arrives later by this.
    Late(Nanos),
    /// The segment arrives twice, the second time later by this.
    Twice(Nanos),
}

/// A segment that arrives in time.
pub(super) const IN_TIME: Fate = Fate::Late(Nanos::ZERO);

type Rule = Box<dyn FnMut(usize, &Segment) -> Fate>;

pub(super) struct Network {
    pub(super) now: Nanos,
    pub(super) ends: [Connection; 2],
    pub(super) config: Arc<Config>,
    /// Delay of one way.
    pub(super) delay: Nanos,
    /// Time that a full segment takes on the link.
    pub(super) spacing: Nanos,
    pub(super) rule: Rule,
    /// Segments of end 0 that would arrive between these times wait for the second.
    pub(super) pause: (Nanos, Nanos),
    /// Segments that end 0 sent, each with its time.
    pub(super) sent: Vec<(Nanos, Segment)>,
    free_at: [Nanos; 2],
    travelling: BTreeMap<(Nanos, u64), (usize, Segment)>,
    count: u64,
}

impl Network {
    pub(super) fn new(config: Config, roles: [Role; 2]) -> Self {
        let config = Arc::new(config);
        Self {
            now: Nanos::ZERO,
            ends: roles.map(|role| Connection::new(&config, role, Nanos::ZERO)),
            config,
            delay: Nanos::from_micros(50),
            spacing: Nanos(1_200),
            rule: Box::new(|_, _| IN_TIME),
            pause: (Nanos::MAX, Nanos::MAX),
            sent: Vec::new(),
            free_at: [Nanos::ZERO; 2],
            travelling: BTreeMap::new(),
            count: 0,
        }
    }

    pub(super) fn established(config: Config) -> Self {
        Self::new(config, [Role::Established; 2])
    }

    /// Writes `bytes` at end 0. Returns the time at which all of them are acknowledged and nothing
    /// moves any more.
    pub(super) fn transfer(&mut self, bytes: u64) -> Nanos {
        let now = self.now;
        self.ends[0].write(now, bytes);
        let mut done = None;
        for _ in 0..STEPS_MAX {
            if !self.step() {
                break;
            }
            if done.is_none() && self.ends[0].acknowledged() == self.ends[0].written() {
                done = Some(self.now);
            }
        }
        assert_eq!(self.ends[1].delivered(), self.ends[0].written(), "every byte once");
        done.expect("a transfer finishes")
    }

    /// Lets everything run until `end`.
    pub(super) fn run_until(&mut self, end: Nanos) {
        for _ in 0..STEPS_MAX {
            self.drain();
            if self.next_event().is_none_or(|next| next > end) {
                self.now = end;
                return;
            }
            self.step();
        }
        panic!("a livelock");
    }

    fn next_event(&self) -> Option<Nanos> {
        let arrival = self.travelling.keys().next().map(|key| key.0);
        let timers = self.ends.iter().filter_map(Connection::deadline);
        arrival.into_iter().chain(timers).min()
    }

    /// Handles one event. Returns true if there was one.
    pub(super) fn step(&mut self) -> bool {
        self.drain();
        let Some(next) = self.next_event() else { return false };
        assert!(next >= self.now, "time does not run backwards");
        self.now = next;
        let arrival = self.travelling.keys().next().copied();
        if let Some(key) = arrival.filter(|key| key.0 == next) {
            let (end, segment) = self.travelling.remove(&key).expect("it was there");
            self.ends[end].receive(next, &segment);
        }
        for end in &mut self.ends {
            end.expire(next);
        }
        self.drain();
        true
    }

    /// Sends all segments that the ends have ready.
    pub(super) fn drain(&mut self) {
        for from in 0..2 {
            let now = self.now;
            loop {
                let new_from = self.ends[from].sender.nxt;
                let Some(segment) = self.ends[from].poll(now) else { break };
                self.check_sent(from, &segment, new_from);
                if from == 0 {
                    self.sent.push((now, segment));
                }
                self.carry(from, segment);
            }
            self.check_idle(from);
        }
    }

    fn carry(&mut self, from: usize, segment: Segment) {
        let start = self.now.max(self.free_at[from]);
        let wire = u64::from(segment.len + 78) * self.spacing.0 / u64::from(self.config.mss + 78);
        self.free_at[from] = start.after(Nanos(wire));
        let mut arrival = self.free_at[from].after(self.delay);
        if from == 0 && arrival >= self.pause.0 && arrival < self.pause.1 {
            arrival = self.pause.1;
        }
        match (self.rule)(from, &segment) {
            Fate::Lost => {}
            Fate::Late(by) => self.travel(1 - from, arrival.after(by), segment),
            Fate::Twice(by) => {
                self.travel(1 - from, arrival, segment);
                self.travel(1 - from, arrival.after(by), segment);
            }
        }
    }

    fn travel(&mut self, to: usize, arrival: Nanos, segment: Segment) {
        self.travelling.insert((arrival, self.count), (to, segment));
        self.count += 1;
    }

    /// Checks the invariants of a segment that just left.
    fn check_sent(&self, from: usize, segment: &Segment, new_from: u64) {
        let end = &self.ends[from];
        let sender = &end.sender;
        let other = &self.ends[1 - from];
        assert!(segment.len <= self.config.mss);
        assert!(segment.ack <= other.written(), "only what exists is acknowledged");
        if segment.len == 0 {
            return;
        }
        assert!(segment.end() <= end.written(), "only what was written is sent");
        let probe = segment.seq == sender.nxt && segment.len == 1;
        assert!(probe || segment.end() <= sender.edge, "the peer has room");
        let is_new = segment.seq >= new_from && !probe;
        let window = sender.window.cwnd + sender.inflation;
        if is_new && (sender.phase == Phase::Open || !self.config.sack) {
            let outstanding = match sender.phase {
                Phase::Loss => sender.pipe,
                Phase::Open | Phase::Recovery => sender.nxt - sender.una,
            };
            // A tail loss probe is one segment, whatever the window.
            let probe = if self.config.tail_loss_probe { u64::from(self.config.mss) } else { 0 };
            assert!(outstanding <= window + probe, "{outstanding} bytes in a window of {window}");
        } else if is_new {
            assert!(sender.pipe <= sender.window.cwnd, "the pipe is full");
        }
        assert!(sender.nxt - sender.una <= u64::from(self.config.send_buffer));
    }

    /// Checks the invariants of an end that has nothing to send now.
    fn check_idle(&self, from: usize) {
        let end = &self.ends[from];
        if let Some(deadline) = end.deadline() {
            assert!(deadline > self.now, "a deadline that nobody acted on: {deadline}");
        }
        let sender = &end.sender;
        if end.is_open() && sender.una < sender.end {
            assert!(sender.deadline != Nanos::MAX, "data waits and no timer runs");
        }
        assert!(sender.una <= sender.nxt && sender.nxt <= sender.end);
    }
}

/// Drops the `counts[i]` first copies of the data segment that begins with byte `offsets[i]`.
pub(super) fn drop_data(mut victims: Vec<(u64, u32)>) -> Rule {
    Box::new(move |from, segment| {
        if from == 0 && segment.len > 0 && !segment.flags.contains(Flags::SYN) {
            let victim = victims.iter_mut().find(|v| v.0 == segment.seq && v.1 > 0);
            if let Some(victim) = victim {
                victim.1 -= 1;
                return Fate::Lost;
            }
        }
        IN_TIME
    })
}
