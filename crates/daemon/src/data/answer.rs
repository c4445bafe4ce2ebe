//! Snapshots in words: numbers of ports, networks and tunnels become the names of the
//! configuration.

use std::net::Ipv4Addr;

use sluice_api::config::Policy;
use sluice_api::show::{
    Answer, Audit, AuditRow, Balance, Body, DropRow, MacRow, PauseRow, PortRow, QueueRow,
    TunnelRow, VERSION,
};
use sluice_base::{Nanos, PortId, TunnelId, VnetId};
use sluice_host::inspect::{self, Source};
use sluice_ports::Lossless;
use sluice_switch::{Destination, LaneKind};

use super::next_hops::NextHops;
use super::snapshot::{self, PortShot, Snapshot};
use crate::config::Plan;

/// The names of a host.
#[derive(Debug)]
pub(super) struct Names {
    host: String,
    policy: Policy,
    started: Nanos,
    ports: Vec<PortNames>,
    vnets: Vec<String>,
    peers: Vec<(String, Ipv4Addr)>,
}

#[derive(Debug)]
struct PortNames {
    name: String,
    vnet: String,
    policy_lacks: Option<&'static str>,
}

impl Names {
    pub(super) fn new(plan: &Plan, started: Nanos) -> Self {
        let ports = plan.ports.iter().map(|port| PortNames {
            name: port.name.clone(),
            vnet: port.vnet.clone(),
            policy_lacks: port.policy_lacks,
        });
        let config = &plan.config;
        Self {
            host: config.host.name.clone(),
            policy: config.host.policy,
            started,
            ports: ports.collect(),
            vnets: config.vnets.iter().map(|vnet| vnet.name.clone()).collect(),
            peers: config.peers.iter().map(|peer| (peer.name.clone(), peer.vtep)).collect(),
        }
    }

    /// The answer to the question that a snapshot was taken for.
    pub(super) fn answer(&self, shot: Snapshot, next_hops: &NextHops) -> Answer {
        let at_ns = shot.at.since(self.started).0;
        let body = match shot.body {
            snapshot::Body::Ports(rows) => {
                let rows = rows.into_iter().zip(&self.ports);
                Body::Ports(rows.map(|(row, names)| port_row(row, names)).collect())
            }
            snapshot::Body::Queues(rows) => {
                Body::Queues(rows.iter().map(|row| self.queue_row(row)).collect())
            }
            snapshot::Body::Drops(rows) => {
                Body::Drops(rows.iter().map(|row| self.drop_row(row)).collect())
            }
            snapshot::Body::Audit(audit) => Body::Audit(self.audit(&audit)),
            snapshot::Body::Pauses(rows) => Body::Pauses(
                rows.iter()
                    .map(|(port, priority, state)| PauseRow {
                        port: self.port(*port),
                        priority: priority.get(),
                        xoff_sent: state.xoff_sent,
                        xon_sent: state.xon_sent,
                        received: state.received,
                        paused_ns: state.paused_time.0,
                        paused: state.paused,
                        pausing: state.pausing,
                    })
                    .collect(),
            ),
            snapshot::Body::Tunnels(rows) => {
                let rows = rows.into_iter().zip(&self.peers).enumerate();
                Body::Tunnels(
                    rows.map(|(index, (row, (peer, vtep)))| TunnelRow {
                        peer: peer.clone(),
                        vtep: *vtep,
                        next_hop: next_hops.text(TunnelId::from_index(index)),
                        tx_frames: row.sent.frames,
                        rx_frames: row.received.frames,
                        queued_frames: row.queued_frames,
                    })
                    .collect(),
                )
            }
            snapshot::Body::Macs(rows) => Body::Mac(
                rows.into_iter()
                    .map(|(vnet, mac, to)| MacRow {
                        vnet: self.vnet(vnet),
                        mac: mac.to_string(),
                        to: match to {
                            Destination::Port(port) => self.port(port),
                            Destination::Tunnel(tunnel) => self.peer(tunnel),
                        },
                    })
                    .collect(),
            ),
        };
        Answer { version: VERSION, host: self.host.clone(), policy: self.policy, at_ns, body }
    }

    fn port(&self, port: PortId) -> String {
        self.ports.get(port.index()).map_or_else(|| port.to_string(), |names| names.name.clone())
    }

    fn peer(&self, tunnel: TunnelId) -> String {
        self.peers.get(tunnel.index()).map_or_else(|| tunnel.to_string(), |peer| peer.0.clone())
    }

    fn vnet(&self, vnet: VnetId) -> String {
        self.vnets.get(vnet.index()).cloned().unwrap_or_else(|| vnet.to_string())
    }

    fn queue_row(&self, row: &inspect::Queue) -> QueueRow {
        QueueRow {
            source: match row.source {
                Source::Port(port) => self.port(port),
                Source::Tunnel(tunnel) => self.peer(tunnel),
                Source::Control => "control".to_owned(),
            },
            lane: match row.to {
                LaneKind::Port(port) => self.port(port),
                LaneKind::Tunnel(tunnel) => self.peer(tunnel),
                LaneKind::Unresolved(_, mac) => format!("unresolved {mac}"),
                LaneKind::Free => "nowhere".to_owned(),
            },
            priority: row.priority.get(),
            frames: u32::try_from(row.held.frames).unwrap_or(u32::MAX),
            bytes: row.held.bytes,
        }
    }

    fn drop_row(&self, row: &inspect::Dropped) -> DropRow {
        DropRow {
            port: row.port.map_or_else(|| "control".to_owned(), |port| self.port(port)),
            priority: row.priority.get(),
            reason: row.reason.name().to_owned(),
            class: row.reason.class().name().to_owned(),
            frames: row.count.frames,
            bytes: row.count.bytes,
        }
    }

    fn audit(&self, audit: &inspect::AuditOfPorts) -> Audit {
        let rows = audit.rows.iter().map(|(port, row)| AuditRow {
            port: port.map_or_else(|| "control".to_owned(), |port| self.port(port)),
            priority: row.priority.get(),
            frames: balance(row.frames),
            bytes: balance(row.bytes),
        });
        Audit { closed: audit.closed, rows: rows.collect() }
    }
}

fn balance(sum: sluice_switch::Balance) -> Balance {
    Balance {
        received: sum.received,
        injected: sum.injected,
        copied: sum.copied,
        delivered: sum.delivered,
        consumed: sum.consumed,
        resident: sum.resident,
        dropped: sum.dropped,
        dropped_congestion: sum.dropped_congestion,
    }
}

fn port_row(shot: PortShot, names: &PortNames) -> PortRow {
    let frames = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let state = shot.state;
    // A counter that cannot be read is not zero: it is told as an unknown loss.
    let kernel = match shot.kernel {
        Ok(counters) => counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        Err(_) => [("kernel.unreadable".to_owned(), 1)].into(),
    };
    PortRow {
        port: names.name.clone(),
        kind: shot.kind.to_owned(),
        vnet: names.vnet.clone(),
        lossless: lossless(shot.gone.as_deref(), names.policy_lacks, shot.lossless),
        rx_frames: state.received.frames,
        rx_bytes: state.received.bytes,
        tx_frames: state.sent.frames,
        tx_bytes: state.sent.bytes,
        driver_pending: shot.pending.frames,
        driver_lost: shot.lost.frames,
        held_frames: frames(state.held.frames),
        held_bytes_max: state.held_max.bytes_max,
        held_frames_max: state.held_max.frames_max,
        queued_frames: frames(state.queued.frames),
        queued_bytes_max: state.queued_max.bytes_max,
        queued_frames_max: state.queued_max.frames_max,
        ring_frames_max: shot.ring.waiting_frames_max.unwrap_or(0),
        ring_frames: shot.ring.capacity_frames,
        kernel,
    }
}

/// `yes`, or what it needs: the device, the policy, and then what the kind of port itself needs.
fn lossless(gone: Option<&str>, policy: Option<&str>, port: Lossless) -> String {
    match (gone, policy) {
        (Some(error), _) => format!("no, needs its device back ({error}) and a restart"),
        (None, Some(policy)) => format!("no, needs {policy}"),
        (None, None) => port.to_string(),
    }
}
