//! A driver without room.

use sluice_base::Nanos;
use sluice_ports::Port;

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
