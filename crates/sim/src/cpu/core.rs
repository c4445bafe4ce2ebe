//! A core: its queue of softirq work, its present work, and its accounts of time.
//!
//! ```text
//!                 arrival                      queue empty
//!   Idle ───────────────────────> Softirq ───────────────────> Idle
//!    │ a vCPU has work              ^  │ ran for long, a vCPU waits
//!    v          arrival             │  v
//!   Thread ─────────────────────────┘ Thread (protected until its turn is over)
//! ```

use std::collections::VecDeque;

use super::params::Params;
use super::work::Item;

/// Present work of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Idle,
    /// A piece of tunnel work.
    Softirq(Item),
    /// The vCPU of this machine.
    Thread(usize),
}

/// Times of a core by kind of work, in nanoseconds, and its number of pieces of softirq work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) softirq: u64,
    pub(crate) user: u64,
    pub(crate) idle: u64,
    pub(crate) pieces: u64,
}

/// A core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) queue: VecDeque<Item>,
    /// Number of descriptors that hold a segment or were not given back yet.
    taken: u64,
    /// Number of these descriptors whose segment is done.
    used: u64,
    pub(crate) doing: Doing,
    /// Time up to which its time is accounted for.
    since: u64,
    /// Time at which its present work ends; the maximum when idle.
    pub(crate) ends: u64,
    /// Time since which softirq work goes on without a pause.
    pub(crate) busy_since: u64,
    /// Time until which an arrival does not take the core from a vCPU.
    pub(crate) protected_until: u64,
    /// Time since which the last vCPU runs, and the number of that vCPU.
    pub(crate) turn_since: u64,
    pub(crate) last_vm: usize,
    pub(crate) times: Times,
}

impl Core {
    pub(crate) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            taken: 0,
            used: 0,
            doing: Doing::Idle,
            since: 0,
            ends: u64::MAX,
            busy_since: 0,
            protected_until: 0,
            turn_since: 0,
            last_vm: 0,
            times: Times { softirq: 0, user: 0, idle: 0, pieces: 0 },
        }
    }

    /// Returns true if a segment finds a descriptor.
    pub(crate) const fn has_room(&self, params: &Params) -> bool {
        self.taken < params.descriptors
    }

    /// Returns true if a datagram of another core finds a place. The bound is twice the number of
    /// descriptors.
    pub(crate) fn has_room_to_deliver(&self, params: &Params) -> bool {
        self.queue.len() as u64 <= params.descriptors * 2
    }

    /// Takes a descriptor for a segment.
    pub(crate) fn take(&mut self, item: Item) {
        self.taken += 1;
        self.queue.push_back(item);
    }

    /// Notes that a segment is done. True if descriptors were given back.
    pub(crate) fn give_back(&mut self, params: &Params) -> bool {
        self.used += 1;
        let is_due = self.used >= params.refill || self.used == self.taken;
        if is_due {
            self.taken -= self.used;
            self.used = 0;
        }
        is_due
    }

    /// Accounts for the time until now.
    pub(crate) fn settle(&mut self, now: u64) -> u64 {
        let spent = now - self.since;
        self.since = now;
        match self.doing {
            Doing::Idle => self.times.idle += spent,
            Doing::Softirq(_) => self.times.softirq += spent,
            Doing::Thread(_) => self.times.user += spent,
        }
        spent
    }

    /// Begins other work; the work before is accounted for.
    pub(crate) fn begin(&mut self, now: u64, doing: Doing, takes: u64) {
        debug_assert_eq!(self.since, now, "settled before");
        self.doing = doing;
        self.ends = if doing == Doing::Idle { u64::MAX } else { now + takes.max(1) };
    }
}
