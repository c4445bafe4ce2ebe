//! Result of a run: counted at its end by a walk through all counters.

use std::collections::BTreeMap;

use sluice_base::Nanos;

use super::World;
use crate::tcp::Stats;
use crate::topology::{LinkId, Node};

/// Place of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A virtual switch, at a VM's input.
    VirtualFromVm,
    /// A virtual switch, at the network card's input.
    VirtualFromWire,
    /// A physical switch.
    Physical,
}

impl Place {
    /// Returns the word used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VirtualFromVm => "vm to switch",
            Self::VirtualFromWire => "wire to switch",
            Self::Physical => "physical switch",
        }
    }
}

/// Counters of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTotals {
    /// Segments sent.
    pub segments: u64,
    /// Segments that carried bytes for a second time or more.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Fast recoveries.
    pub fast_recoveries: u64,
}

impl TcpTotals {
    pub(super) fn add(&mut self, stats: &Stats) {
        self.segments += stats.segments_sent;
        self.retransmissions += stats.retransmissions;
        self.timeouts += u64::from(stats.timeouts);
        self.fast_recoveries += u64::from(stats.fast_recoveries);
    }
}

/// A run in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Time of its end.
    pub time: Nanos,
    /// Number of events.
    pub events: u64,
    /// Frames that left a port onto a link.
    pub hops: u64,
    /// Frames dropped, by place and reason.
    pub drops: BTreeMap<(Place, &'static str), u64>,
    /// Frames among these that were dropped for congestion.
    pub drops_congestion: u64,
    /// XOFF and XON sent by physical switches, and by hosts.
    pub pauses: [(u64, u64); 2],
    /// The most bytes that a physical switch's input held in one priority, as exact as
    /// [`crate::net::LinkCounters::held_max`].
    pub physical_held_max: u64,
    /// The most frames that a VM's output queue held.
    pub vm_queue_max: u64,
    /// The most bytes that a network card's input held.
    pub card_held_max: u64,
    /// Number of virtual switches whose audit closes, and of all.
    pub audits_closed: (u32, u32),
    /// The sum over all TCP endpoints, also of closed connections.
    pub tcp: TcpTotals,
    /// Number of segments that came for a closed connection.
    pub stale: u64,
}

impl World {
    /// Returns the result so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            time: self.now(),
            events: self.event_count(),
            hops: self.hops(),
            stale: self.stale,
            tcp: self.closed_tcp,
            ..Summary::default()
        };
        for endpoint in self.endpoints.iter().filter(|e| e.is_open()) {
            summary.tcp.add(endpoint.tcp.stats());
        }
        self.sum_links(&mut summary);
        self.sum_hosts(&mut summary);
        summary
    }

    fn sum_links(&self, summary: &mut Summary) {
        for at in 0..self.net.link_count() {
            let link = LinkId(u32::try_from(at).expect("fewer than 2^32 links"));
            let counters = self.net.counters(link, self.now());
            let by = &mut summary.pauses[0];
            by.0 += counters.pauses.0;
            by.1 += counters.pauses.1;
            for (reason, count) in counters.drops() {
                if count > 0 {
                    *summary.drops.entry((Place::Physical, reason.name())).or_default() += count;
                    summary.drops_congestion += count;
                }
            }
            if matches!(self.net.end_of(link), Node::Switch(_)) {
                summary.physical_held_max = summary.physical_held_max.max(counters.held_max.0);
            }
        }
    }

    fn sum_hosts(&self, summary: &mut Summary) {
        let Some(virt) = &self.virt else { return };
        for host in &virt.hosts {
            let switch = host.host().switch();
            let audit = switch.audit();
            summary.audits_closed.0 += u32::from(audit.is_closed());
            summary.audits_closed.1 += 1;
            summary.drops_congestion += audit.total(|row| row.frames.dropped_congestion);
            for dropped in sluice_host::inspect::drops(switch) {
                let is_wire = dropped.port == Some(host.underlay());
                let place = if is_wire { Place::VirtualFromWire } else { Place::VirtualFromVm };
                let count = dropped.count.frames;
                *summary.drops.entry((place, dropped.reason.name())).or_default() += count;
            }
            let (xoff, xon) = host.pauses_sent(self.now());
            summary.pauses[1].0 += xoff;
            summary.pauses[1].1 += xon;
            summary.vm_queue_max = summary.vm_queue_max.max(host.vm_queue_max());
            summary.card_held_max = summary.card_held_max.max(host.card_held_max());
        }
    }
}
