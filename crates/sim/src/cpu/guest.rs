//! A virtual machine with one vCPU and one receive ring.

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// The core to which its vCPU is pinned.
    pub(crate) pin: Option<usize>,
    /// Datagrams that wait in its ring, with the one at work: (flow, number).
    pub(crate) ring: std::collections::VecDeque<(usize, u64)>,
    /// Remaining time of the datagram at work; zero if it was not begun.
    pub(crate) remaining: u64,
    /// The core on which it runs or was interrupted.
    pub(crate) on: Option<usize>,
    /// Time since which it waits for a core with work to do.
    pub(crate) waits_since: Option<u64>,
}

impl Guest {
    pub(crate) fn new(pin: Option<u16>) -> Self {
        let ring = std::collections::VecDeque::new();
        Self { pin: pin.map(usize::from), ring, remaining: 0, on: None, waits_since: None }
    }

    /// Notes whether the machine waits now. Returns the core to which it is pinned and the time
    /// that it has waited, if a wait is over.
    pub(crate) fn note_wait(&mut self, now: u64) -> Option<(usize, u64)> {
        let waits = !self.ring.is_empty() && self.on.is_none();
        match (self.waits_since, waits) {
            (None, true) => self.waits_since = Some(now),
            (Some(since), false) => {
                self.waits_since = None;
                return Some((self.pin?, now - since));
            }
            _ => {}
        }
        None
    }

    /// Returns the core to which the machine is pinned and the time that it has waited until now,
    /// in a wait that goes on.
    pub(crate) fn waited(&mut self, now: u64) -> Option<(usize, u64)> {
        let since = self.waits_since?;
        self.waits_since = Some(now);
        Some((self.pin?, now - since))
    }

    /// Returns true if a core may run the machine now.
    pub(crate) fn may_run(&self, core: usize) -> bool {
        !self.ring.is_empty() && self.on.is_none() && self.pin.is_none_or(|pin| pin == core)
    }
}
