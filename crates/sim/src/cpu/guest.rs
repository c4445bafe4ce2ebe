//! A virtual machine with one vCPU and one receive ring.

/// A machine.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// The core to which its vCPU is pinned.
    pub(crate) pin: Option<usize>,
    /// Datagrams that wait in its ring, with the one at work: (flow, number).
    pub(crate) ring: std::collections::VecDeque<(usize, u64)>,
    /// What the datagram at work still takes; zero if it was not begun.
    pub(crate) remaining: u64,
    /// The core on which it runs or was interrupted.
    pub(crate) on: Option<usize>,
}

impl Guest {
    pub(crate) fn new(pin: Option<u16>) -> Self {
        let ring = std::collections::VecDeque::new();
        Self { pin: pin.map(usize::from), ring, remaining: 0, on: None }
    }

    /// Whether a core may run it now.
    pub(crate) fn may_run(&self, core: usize) -> bool {
        !self.ring.is_empty() && self.on.is_none() && self.pin.is_none_or(|pin| pin == core)
    }
}
