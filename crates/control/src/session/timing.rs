//! Times and bounds of a session.

use sluice_base::Nanos;

/// Times and bounds of a session.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Silence of this side after which it sends [`Alive`](sluice_wire::fabric::Message::Alive).
    pub alive_after: Nanos,
    /// Silence of the peer after which it counts as hung. Several times [`Self::alive_after`].
    pub silence_max: Nanos,
    /// Period of the comparison of claims.
    pub digest_every: Nanos,
    /// First wait before connecting again; it doubles.
    pub retry_min: Nanos,
    /// Longest wait before connecting again.
    pub retry_max: Nanos,
    /// First wait between two requests for a snapshot; it doubles.
    pub resync_min: Nanos,
    /// Longest wait between two requests for a snapshot.
    pub resync_max: Nanos,
    /// Bytes of claims that may be sent and not acknowledged.
    pub flight_bytes_max: usize,
}

impl Timing {
    /// Detects a peer that hangs within 0.3 s, even if one
    /// [`Alive`](sluice_wire::fabric::Message::Alive) in two is late.
    pub const DEFAULT: Self = Self {
        alive_after: Nanos::from_millis(80),
        silence_max: Nanos::from_millis(250),
        digest_every: Nanos::from_millis(5_000),
        retry_min: Nanos::from_millis(50),
        retry_max: Nanos::from_millis(500),
        resync_min: Nanos::from_millis(1_000),
        resync_max: Nanos::from_millis(60_000),
        flight_bytes_max: 256 * 1024,
    };
}
