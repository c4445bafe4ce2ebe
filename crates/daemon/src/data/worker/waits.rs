//! What waits in a driver, and what a driver without room waits for.

use sluice_base::Nanos;
use sluice_ports::Port;

use super::Attached;

/// What a driver without room waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    No,
    /// Until the poller tells of room.
    ForRoom,
    /// This long, for nobody will tell.
    For(Nanos),
}

impl Waits {
    pub(super) fn of(port: &dyn Port) -> Self {
        match (port.retry_after(), port.wants_write()) {
            (Some(span), _) => Self::For(span),
            (None, true) => Self::ForRoom,
            (None, false) => Self::No,
        }
    }
}

impl Attached {
    /// Frames in its driver, on their way out or set aside on their way in.
    pub(super) fn pending(&self) -> u64 {
        self.port.pending().frames + self.port.aside().frames
    }
}
