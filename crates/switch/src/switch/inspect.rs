//! State of a switch that can be read at any time: counters, high-water marks, queues, tables.
//! Reading changes nothing.

use alloc::vec::Vec;

use sluice_base::{
    Destination, DropReason, InputId, Mac, Nanos, PortId, Priority, QueueGroupId, SourceId,
    TunnelId, VnetId,
};

use crate::config::Hold;
use crate::inspect::{Counter, FdbState, Marks, PauseState, TunnelCounters};
use crate::mac_table;
use crate::networks::DecapFlow;
use crate::surface::{QueueGroupKind, QueueState};
use crate::switch::Switch;

impl<B> Switch<B> {
    /// Returns the occupancy of the forwarding table.
    #[must_use]
    pub fn fdb_state(&self) -> FdbState {
        self.fdb.state()
    }

    /// Returns the frames that came in at an input, over all priorities.
    #[must_use]
    pub fn received(&self, input: InputId) -> Counter {
        let mut sum = Counter::default();
        for priority in Priority::all() {
            sum.add_all(self.ledger.received(input.0, priority.get()));
        }
        sum
    }

    /// Returns the frames that the driver of a port took, over all priorities, with their sizes on
    /// the wire.
    #[must_use]
    pub fn sent(&self, port: PortId) -> Counter {
        let mut sum = Counter::default();
        for priority in Priority::all() {
            sum.add_all(self.sent_priority(port, priority));
        }
        sum
    }

    /// Returns the frames that the driver of a port took in one priority.
    #[must_use]
    pub fn sent_priority(&self, port: PortId, priority: Priority) -> Counter {
        self.egress.sent(self.egress.class_of(port.index(), priority.index()))
    }

    /// Returns the frames of one (input, priority) that ended under a reason.
    #[must_use]
    pub fn dropped(&self, input: InputId, priority: Priority, reason: DropReason) -> Counter {
        self.ledger.dropped(input.0, priority.get(), reason)
    }

    /// Returns the frames that wait at an input now, with their bytes.
    #[must_use]
    pub fn held(&self, input: InputId) -> Counter {
        let held = self.ingress.input(input.0).held();
        Counter { frames: u64::from(held.frames), bytes: held.bytes }
    }

    /// Returns the frames of one priority that wait at an input that pauses its sender by priority;
    /// zero at other inputs.
    #[must_use]
    pub fn held_of(&self, input: InputId, priority: Priority) -> Counter {
        let held = self.ledger.held(input.index(), priority.index());
        Counter { frames: u64::from(held.frames), bytes: held.bytes }
    }

    /// Returns the frames that wait for a port now, over all its queue groups, with their bytes.
    #[must_use]
    pub fn queued(&self, port: PortId) -> Counter {
        let mut sum = Counter::default();
        for group in self.egress.groups_of(port.0) {
            sum.add_all(group.queued());
        }
        sum
    }

    /// Returns the high-water marks of an input.
    #[must_use]
    pub fn held_marks(&self, input: InputId) -> Marks {
        self.ingress.input(input.0).marks()
    }

    /// Returns the high-water marks of a port: the sums of the marks of its queue groups.
    #[must_use]
    pub fn queued_marks(&self, port: PortId) -> Marks {
        self.egress.marks_of(port.0)
    }

    /// Returns the frames in the host pool: from local ports, and from the underlay.
    #[must_use]
    pub fn pool_used(&self) -> [u32; 2] {
        [self.pool.frames(0), self.pool.frames(1)]
    }

    /// Returns the high-water marks of the two partitions of the host pool: for frames from local
    /// ports, and from the underlay.
    #[must_use]
    pub fn pool_marks(&self) -> [Marks; 2] {
        [self.pool.marks(0), self.pool.marks(1)]
    }

    /// Returns the state of flow control of one (port, priority).
    #[must_use]
    pub fn pause_state(&self, now: Nanos, port: PortId, priority: Priority) -> PauseState {
        let p = self.egress.port(port.index());
        let (out, received) = (p.pause_out(), p.pause_in());
        let (xoff_sent, xon_sent) = out.map_or((0, 0), |o| o.sent_count(priority));
        PauseState {
            xoff_sent,
            xon_sent,
            received: received.received_count(priority),
            paused_time: received.paused_time(now, priority),
            paused: received.paused().contains(priority),
            pausing: out.is_some_and(|o| o.pausing().contains(priority)),
        }
    }

    /// Returns the counters of a tunnel.
    #[must_use]
    pub fn tunnel_counters(&self, tunnel: TunnelId) -> TunnelCounters {
        let t = self.networks.tunnel(tunnel.0);
        TunnelCounters {
            sent: t.sent(),
            received: self.networks.received_from(tunnel.index()),
            queued_frames: self.egress.group(t.group()).frames(),
            up: t.next_hop().is_some(),
            path_mtu: t.learned_path_mtu(),
        }
    }

    /// Returns the decap flows in use.
    pub fn decap_flows(&self) -> impl Iterator<Item = DecapFlow> + '_ {
        self.networks.decap_flows()
    }

    /// Returns the entries of the forwarding table.
    pub fn macs(&self) -> impl Iterator<Item = (VnetId, Mac, Destination)> + '_ {
        self.fdb.iter().filter_map(|(vnet, mac, group)| match self.egress.group(group).kind() {
            QueueGroupKind::Port(port) => Some((vnet, mac, Destination::Port(port))),
            QueueGroupKind::Tunnel(tunnel) | QueueGroupKind::Held(tunnel) => {
                Some((vnet, mac, Destination::Tunnel(tunnel)))
            }
            QueueGroupKind::Unresolved(..) | QueueGroupKind::Free => None,
        })
    }

    /// Returns the destination of frames for an address; `None` if the forwarding table does not
    /// have it. The call does not count as a use of the entry.
    #[must_use]
    pub fn mac(&self, vnet: VnetId, mac: Mac) -> Option<Destination> {
        let group = self.fdb.peek(mac_table::key(vnet.0, mac))?;
        match self.egress.group(group).kind() {
            QueueGroupKind::Port(port) => Some(Destination::Port(port)),
            QueueGroupKind::Tunnel(tunnel) | QueueGroupKind::Held(tunnel) => {
                Some(Destination::Tunnel(tunnel))
            }
            QueueGroupKind::Unresolved(..) | QueueGroupKind::Free => None,
        }
    }

    /// Returns the queues that hold frames; a common queue is split by queue group and source.
    pub fn queues(&self) -> impl Iterator<Item = QueueState> + '_ {
        let leaves = self.egress.leaves().map(|leaf| {
            let queue = self.egress.queue(leaf);
            QueueState {
                group: QueueGroupId(queue.group()),
                to: self.egress.group(queue.group()).kind(),
                source: SourceId(queue.source()),
                priority: Priority::from_low_bits(queue.priority()),
                frames: queue.frames(),
                bytes: queue.bytes(),
            }
        });
        leaves.chain((0..self.egress.ports().len()).flat_map(|port| self.common_queues(port)))
    }

    fn common_queues(&self, port: usize) -> Vec<QueueState> {
        let mut rows: Vec<QueueState> = Vec::new();
        for priority in Priority::all() {
            let first = rows.len();
            for tag in self.egress.tags(self.egress.class_of(port, priority.index())) {
                let bytes = u64::from(tag.bytes());
                let (group, source) =
                    (self.egress.group_of_tag(port, tag), self.egress.source_of_tag(port, tag));
                let (group, source) = (QueueGroupId(group), SourceId(source));
                let same = |row: &&mut QueueState| row.group == group && row.source == source;
                match rows[first..].iter_mut().find(same) {
                    Some(row) => {
                        row.frames += 1;
                        row.bytes += bytes;
                    }
                    None => rows.push(QueueState {
                        group,
                        to: self.egress.group(group.0).kind(),
                        source,
                        priority,
                        frames: 1,
                        bytes,
                    }),
                }
            }
        }
        rows
    }

    /// Returns the time for which a receiver of a port may hold its senders, by priority; `None`
    /// for a lossy priority, whose senders are not held.
    #[must_use]
    pub fn holds_of(&self, port: PortId) -> [Option<Hold>; Priority::COUNT] {
        let (port, lossless) = (self.egress.port(port.index()), self.egress.lossless());
        let mut holds = [None; Priority::COUNT];
        for priority in Priority::all().filter(|priority| lossless.contains(*priority)) {
            holds[priority.index()] = Some(port.hold(priority));
        }
        holds
    }

    /// Returns the tunnel of a source that is a remote host; `None` for a local input, which has
    /// the number of the source.
    #[must_use]
    pub fn source_tunnel(&self, source: SourceId) -> Option<TunnelId> {
        source.index().checked_sub(self.ingress.count()).map(TunnelId::from_index)
    }
}
