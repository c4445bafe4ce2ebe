//! Times of the protocol.

use sluice_base::Nanos;

/// Times of the protocol. None of them decides what is committed, only when somebody gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Period of the log's clock.
    pub tick: Nanos,
    /// Ticks between two heartbeats of the leader.
    pub heartbeat: usize,
    /// Ticks without a heartbeat before an election; up to twice as many.
    pub election: usize,
    /// Longest wait for a majority that is away for a moment, as while a connection is made again.
    pub majority: Nanos,
    /// Longest wait for the votes of RESERVE, of a small change.
    pub reserve: Nanos,
    /// Longest wait of a member that is behind, before it says so.
    pub catch_up: Nanos,
    /// Longest wait for an entry of the log, before the answer is that it is in doubt.
    pub propose: Nanos,
    /// Period of repetitions of messages without an answer.
    pub resend: Nanos,
    /// Age of a reservation at which its host asks about it.
    pub orphan: Nanos,
    /// Time without a connection to an originator, before the leader ends its transactions.
    pub silence: Nanos,
    /// Period in which members tell each other their progress.
    pub progress: Nanos,
    /// Time before a failed write is tried again.
    pub disk_retry: Nanos,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            tick: Nanos::from_millis(25),
            heartbeat: 4,
            election: 20,
            majority: Nanos::from_millis(1_000),
            reserve: Nanos::from_millis(2_000),
            catch_up: Nanos::from_millis(1_000),
            propose: Nanos::from_millis(5_000),
            resend: Nanos::from_millis(250),
            orphan: Nanos::from_millis(3_000),
            silence: Nanos::from_millis(5_000),
            progress: Nanos::from_millis(2_000),
            disk_retry: Nanos::from_millis(1_000),
        }
    }
}

impl Timing {
    /// Returns a wait that is longer by the size of the change: members plan all of it.
    pub(super) const fn longer(wait: Nanos, change: &[u8]) -> Nanos {
        Nanos(wait.0.saturating_add(Nanos::from_millis(change.len() as u64 / BYTES_PER_MS).0))
    }
}

/// Bytes of a change for which one millisecond is added to the waits: a hundred times of what a
/// member needs that has nothing else to do.
const BYTES_PER_MS: u64 = 64;
