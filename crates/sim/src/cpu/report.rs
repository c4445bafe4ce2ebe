//! Result of a run.

/// A flow in the measured span. Counts are of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Datagrams sent.
    pub offered: u64,
    /// Datagrams that the guest's program has taken.
    pub delivered: u64,
    /// Datagrams of which a segment found no descriptor of its core.
    pub lost_descriptor: u64,
    /// Datagrams that were reassembled, and found no place on the core that was to deliver them.
    pub lost_delivery: u64,
    /// Datagrams that found the guest's ring full.
    pub lost_guest: u64,
    /// Datagrams under way at the end, less the ones at the begin.
    pub queued: i64,
    /// Payload delivered, in bit/s.
    pub throughput_bps: u64,
}

impl FlowReport {
    /// Number of datagrams lost for any reason.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_descriptor + self.lost_delivery + self.lost_guest
    }

    /// Share of lost datagrams among the ones whose end is known, in millionths.
    #[must_use]
    pub fn loss_ppm(&self) -> u64 {
        let ended = self.lost() + self.delivered;
        (self.lost() * 1_000_000).checked_div(ended).unwrap_or(0)
    }
}

/// A core in the measured span; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreReport {
    /// Time of tunnel work, with its interrupts.
    pub softirq_ns: u64,
    /// Pieces of tunnel work: segments that it received, and datagrams that it delivered for
    /// another core.
    pub softirq_pieces: u64,
    /// Time of vCPUs.
    pub user_ns: u64,
    /// Idle time.
    pub idle_ns: u64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Flows in the order of the scenario.
    pub flows: Vec<FlowReport>,
    /// Cores in the order of their numbers.
    pub cores: Vec<CoreReport>,
    /// Number of entries that moved, the warm-up included.
    pub moves: u64,
}

impl Report {
    /// Payload delivered to all, in bit/s.
    #[must_use]
    pub fn total_bps(&self) -> u64 {
        self.flows.iter().map(|flow| flow.throughput_bps).sum()
    }
}
