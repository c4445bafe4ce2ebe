//! What came out.

/// A flow in the measured span. Counts are of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Sent.
    pub offered: u64,
    /// Taken by the guest's program.
    pub delivered: u64,
    /// A segment found no descriptor of its core.
    pub lost_descriptor: u64,
    /// Put together, and found no place on the core that was to deliver it.
    pub lost_delivery: u64,
    /// Found the guest's ring full.
    pub lost_guest: u64,
    /// Under way at the end, less those at the begin.
    pub queued: i64,
    /// Payload delivered, in bit/s.
    pub throughput_bps: u64,
}

impl FlowReport {
    /// Lost for any reason.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_descriptor + self.lost_delivery + self.lost_guest
    }

    /// Lost of those whose end is known, in millionths.
    #[must_use]
    pub fn loss_ppm(&self) -> u64 {
        let ended = self.lost() + self.delivered;
        (self.lost() * 1_000_000).checked_div(ended).unwrap_or(0)
    }
}

/// A core in the measured span; times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreReport {
    /// Tunnel work, with its interrupts.
    pub softirq_ns: u64,
    /// Its pieces: segments that it received, and datagrams that it delivered for another core.
    pub softirq_pieces: u64,
    /// vCPUs.
    pub user_ns: u64,
    /// Neither.
    pub idle_ns: u64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order of the scenario.
    pub flows: Vec<FlowReport>,
    /// In the order of their numbers.
    pub cores: Vec<CoreReport>,
    /// How many entries moved, the warm-up included.
    pub moves: u64,
}

impl Report {
    /// Payload delivered to all, in bit/s.
    #[must_use]
    pub fn total_bps(&self) -> u64 {
        self.flows.iter().map(|flow| flow.throughput_bps).sum()
    }
}
