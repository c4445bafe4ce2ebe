//! A wake-up between two workers: the one that enqueues wakes the other only if that one sleeps,
//! and a worker that is awake costs no system call.
//!
//! A worker that is about to sleep sets the flag and then checks its queues once more. A worker
//! that enqueues does so first and then asks whether the other sleeps. Both set and ask by
//! *exchanging* the same flag. Exchanges of one flag have one order. If the enqueuer comes first,
//! the sleeper's exchange reads what the enqueuer wrote, and the sleeper sees the new entry. If the
//! enqueuer comes second, it finds that the other sleeps, and wakes it. With plain loads and
//! stores, both could miss each other.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is exchanged: an atomic of the machine, or of the model checker that tries every
/// order.
pub(super) trait Flag {
    /// Writes a value and reads the one before, as one step that orders what is around it.
    fn exchange(&self, value: bool) -> bool;
}

impl Flag for AtomicBool {
    fn exchange(&self, value: bool) -> bool {
        self.swap(value, Ordering::AcqRel)
    }
}

/// The flag of a worker that sleeps, or is about to.
#[derive(Debug, Default)]
pub(super) struct SleepFlag<F = AtomicBool> {
    asleep: F,
}

impl<F: Flag> SleepFlag<F> {
    /// Returns true if the sleeper must be woken. The caller has put something where the sleeper
    /// looks.
    pub(super) fn must_wake(&self) -> bool {
        self.asleep.exchange(false)
    }

    /// Marks this worker as asleep. It must check its queues once more before it sleeps.
    pub(super) fn prepare_sleep(&self) {
        self.asleep.exchange(true);
    }

    /// Marks this worker as awake.
    pub(super) fn cancel_sleep(&self) {
        self.asleep.exchange(false);
    }
}

#[cfg(test)]
mod tests;
