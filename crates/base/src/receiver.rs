//! State of receivers.

use crate::PriorityMask;

/// State of a port as a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverState {
    /// Priorities that have lost their claim on the shared buffer.
    pub isolated: PriorityMask,
    /// Priorities that senders behind tunnels are to hold.
    pub held: PriorityMask,
    /// Held priorities whose hold contract is over.
    pub stuck: PriorityMask,
}

impl ReceiverState {
    /// Returns true if nothing is wrong with the port.
    #[must_use]
    pub const fn is_fine(&self) -> bool {
        self.isolated.is_empty() && self.held.is_empty()
    }
}
