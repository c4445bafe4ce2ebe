//! Who sleeps is woken by whoever has something for it; who does not costs nobody a system call.
//!
//! Who is about to sleep says so and then looks once more; who has something puts it where the
//! other looks and then asks whether the other sleeps. Both say and ask by *exchanging* the same
//! flag. Exchanges of one flag have one order: either the one who puts comes first, and then the
//! other, whose exchange reads what that one wrote, sees what it put before; or it comes second,
//! finds that the other sleeps, and wakes it. With plain loads and stores, both could miss each
//! other.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is exchanged: an atomic of the machine, or of the model that tries every order.
pub(super) trait Flag {
    /// Writes a value and reads the one before, as one step that orders what is around it.
    fn exchange(&self, value: bool) -> bool;
}

impl Flag for AtomicBool {
    fn exchange(&self, value: bool) -> bool {
        self.swap(value, Ordering::AcqRel)
    }
}

/// Whether somebody sleeps.
#[derive(Debug, Default)]
pub(super) struct Bell<F = AtomicBool> {
    asleep: F,
}

impl<F: Flag> Bell<F> {
    /// Something was put where the sleeper looks. Whether it must be woken.
    pub(super) fn ring(&self) -> bool {
        self.asleep.exchange(false)
    }

    /// This one looks once more, and then sleeps.
    pub(super) fn lie_down(&self) {
        self.asleep.exchange(true);
    }

    /// It does not sleep any more.
    pub(super) fn get_up(&self) {
        self.asleep.exchange(false);
    }
}

#[cfg(test)]
mod tests;
