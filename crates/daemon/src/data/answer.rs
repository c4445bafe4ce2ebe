//! Formats snapshots: numbers of ports, networks and tunnels become the names of the configuration.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_api::config::{ChipKind, Peer, Policy, Vnet};
use sluice_api::placement::{Followed, Stamped};
use sluice_api::show::{
    Answer, Audit, AuditRow, Balance, Body, ChipRow, DropRow, HeldSocketRow, Isolation, LossRow,
    MacRow, PauseRow, PlacementRow, PortRow, QueueRow, SocketsRow, TunnelRow, VERSION, WorkerTimes,
    losses_text,
};
use sluice_api::trace::{self, Looked, PortLook, TunnelLook};
use sluice_base::{Nanos, PortId, TunnelId, VnetId};
use sluice_host::inspect::{self, Source};
use sluice_ports::{HeldSocket, SocketsShot, UNREADABLE};
use sluice_switch::{Destination, FdbState, QueueGroupKind, TunnelCounters};

use super::guard::Guard;
use super::look;
use super::losses::Ledger;
use super::next_hops::NextHops;
use super::policy::PolicyWatch;
use super::rebalancer::{buckets, ports};
use super::registry::{Port, Ports};
use super::snapshot::{self, PortShot, Snapshot};
use super::worker::{Known, Times};
use crate::config::Plan;
use crate::ipc::handover::{At, KnownState};

/// The names of a host.
#[derive(Debug)]
pub(super) struct Names {
    host: String,
    policy: Policy,
    started: Nanos,
    ports: Ports,
    placement: Vec<PlacementRow>,
    buckets: buckets::Shown,
    balancer: ports::Shown,
    wanted: PolicyWatch,
    losses: Ledger,
    worker_cpus: Vec<Option<u32>>,
    places: Mutex<PlaceNames>,
    guard: Guard,
}

/// Names of networks and peers, by number.
#[derive(Debug, Default)]
struct PlaceNames {
    vnets: BTreeMap<VnetId, String>,
    peers: BTreeMap<TunnelId, (String, Ipv4Addr)>,
}

impl PlaceNames {
    fn of(plan: &Plan) -> Self {
        let vnet = |vnet: &Vnet| Some((plan.numbers.vnet(&vnet.name)?, vnet.name.clone()));
        let peer =
            |peer: &Peer| Some((plan.numbers.tunnel(&peer.name)?, (peer.name.clone(), peer.vtep)));
        Self {
            vnets: plan.config.vnets.iter().filter_map(vnet).collect(),
            peers: plan.config.peers.iter().filter_map(peer).collect(),
        }
    }
}

impl Names {
    pub(super) fn new(
        plan: &Plan,
        (started, ports): (Nanos, Ports),
        (buckets, balancer): (buckets::Shown, ports::Shown),
        wanted: PolicyWatch,
        guard: Guard,
    ) -> Self {
        let config = &plan.config;
        Self {
            host: config.host.name.clone(),
            policy: config.host.policy,
            started,
            ports,
            placement: placement(plan),
            buckets,
            balancer,
            wanted,
            losses: Ledger::default(),
            worker_cpus: (0..plan.workers.count).map(|at| super::cpu_of(plan, at)).collect(),
            places: Mutex::new(PlaceNames::of(plan)),
            guard,
        }
    }

    /// Takes the names of another plan.
    pub(super) fn follow_plan(&self, plan: &Plan) {
        *self.places() = PlaceNames::of(plan);
    }

    /// Returns the guard of the links to other hosts.
    pub(super) const fn guard(&self) -> &Guard {
        &self.guard
    }

    fn places(&self) -> MutexGuard<'_, PlaceNames> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a placement policy holds. Returns its state.
    pub(super) fn follow(&self, stamped: Stamped) -> Followed {
        self.wanted.set(stamped);
        let mut all = Followed::default();
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = self.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, notes) in [(&buckets.place, &buckets.notes), (&ports.place, &ports.notes)] {
            all.places.extend(place.clone());
            all.notes.extend(notes.iter().cloned());
        }
        // Buckets and ports may have the same note on the same workers.
        all.notes.dedup();
        if all.places.is_empty() {
            all.notes.push(
                "nothing of its data plane can follow a policy; with several workers an underlay \
                 of kind `udp` can, and ports without a `worker` unless `placement` is `rss`"
                    .to_owned(),
            );
        }
        all
    }

    /// Returns an address with the names of its network and destination.
    pub(super) fn known(&self, (vnet, mac, to): Known) -> Option<KnownState> {
        let at = match to {
            Destination::Port(port) => At::Port(self.ports.name(port)?),
            Destination::Tunnel(tunnel) => At::Peer(self.places().peers.get(&tunnel)?.0.clone()),
        };
        let vnet = self.places().vnets.get(&vnet)?.clone();
        Some(KnownState { vnet, mac: mac.to_string(), at })
    }

    /// Reverses [`Self::known`], as far as this configuration has the names.
    pub(super) fn find(&self, known: &KnownState) -> Option<Known> {
        let vnet = {
            let places = self.places();
            places.vnets.iter().find(|(_, name)| **name == known.vnet).map(|(id, _)| *id)?
        };
        let to = match &known.at {
            At::Port(name) => {
                let ports = self.ports.lock();
                let (id, _) = ports.named(name)?;
                Destination::Port(id)
            }
            At::Peer(name) => {
                let places = self.places();
                let peer = places.peers.iter().find(|(_, (peer, _))| peer == name);
                Destination::Tunnel(*peer?.0)
            }
        };
        Some((vnet, known.mac.parse().ok()?, to))
    }

    /// Notes the counters of these ports, and returns their losses.
    pub(super) fn losses(&self, shots: &[(Nanos, PortShot)]) -> Vec<LossRow> {
        let of = |(at, shot): &(Nanos, PortShot)| self.losses.note(*at, &self.port(shot.id), shot);
        shots.iter().flat_map(of).collect()
    }

    /// Returns the ledger of losses.
    pub(super) fn ledger(&self) -> Ledger {
        self.losses.clone()
    }

    /// Answers the question that a snapshot was taken for.
    pub(super) fn answer(&self, shot: Snapshot, next_hops: &NextHops) -> Answer {
        let at_ns = shot.at.since(self.started).0;
        let body = match shot.body {
            snapshot::Body::Ports(rows) => {
                // Before the lock: it may wait for the kernel.
                rows.iter().for_each(|row| _ = row.outside.state());
                let ports = self.ports.lock();
                let rows = rows.into_iter().filter_map(|row| {
                    let names = ports.get(row.id)?;
                    let losses = self.losses.note(shot.at, &names.name, &row);
                    let sockets = row.sockets.as_ref().map(|shot| self.sockets(shot));
                    Some(PortRow { sockets, ..port_row(row, names, losses) })
                });
                Body::Ports(rows.collect())
            }
            snapshot::Body::Queues(rows) => {
                Body::Queues(rows.iter().map(|row| self.queue_row(row)).collect())
            }
            snapshot::Body::Drops(rows) => {
                let of_switch = rows.iter().map(|row| self.drop_row(row));
                Body::Drops(of_switch.chain(self.guard.drops()).collect())
            }
            snapshot::Body::Audit(audit) => Body::Audit(self.audit(&audit)),
            snapshot::Body::Pauses(rows, sockets) => {
                let mut rows: Vec<PauseRow> = rows.iter().map(|row| self.pause_row(row)).collect();
                for (port, socket) in &sockets {
                    self.add_socket(&mut rows, *port, socket);
                }
                Body::Pauses(rows)
            }
            snapshot::Body::Tunnels(rows) => {
                let places = self.places();
                let rows = places.peers.iter().filter_map(|(id, (peer, vtep))| {
                    let row = rows.get(id.index())?;
                    Some(tunnel_row(row, peer, *vtep, next_hops.text(*id)))
                });
                Body::Tunnels(rows.collect())
            }
            snapshot::Body::Worker(workers) => {
                let of = |(at, times): (usize, &Times)| {
                    worker_times(times, self.worker_cpus.get(at).copied().flatten())
                };
                Body::Worker(workers.iter().enumerate().map(of).collect())
            }
            snapshot::Body::Placement => Body::Placement(self.placed()),
            snapshot::Body::Fdb(state) => Body::Chip(of_switch(&state)),
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
        let (host, policy) = (self.host.clone(), self.policy);
        let guard = match &body {
            Body::Ports(_) | Body::Drops(_) => self.guard.rows(),
            _ => Vec::new(),
        };
        Answer { version: VERSION, host, policy, at_ns, outside: Vec::new(), guard, body }
    }

    /// Returns a row for each port; the shared port's parts follow its row.
    fn placed(&self) -> Vec<PlacementRow> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = self.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(at, row): (usize, &PlacementRow)| {
            let parts = buckets.rows.iter().filter(|part| part.port == row.port).cloned();
            let mut row = row.clone();
            if let Some((worker, why)) = ports.rows.get(&PortId::from_index(at)) {
                row.worker = Some(u16::try_from(*worker).unwrap_or(u16::MAX));
                row.cpu = self.worker_cpus.get(*worker).copied().flatten();
                row.why.clone_from(why);
            }
            std::iter::once(row).chain(parts).collect::<Vec<_>>()
        };
        self.placement.iter().enumerate().flat_map(of).collect()
    }

    fn port(&self, port: PortId) -> String {
        self.ports.name(port).unwrap_or_else(|| port.to_string())
    }

    fn peer(&self, tunnel: TunnelId) -> String {
        let places = self.places();
        places.peers.get(&tunnel).map_or_else(|| tunnel.to_string(), |peer| peer.0.clone())
    }

    fn vnet(&self, vnet: VnetId) -> String {
        self.places().vnets.get(&vnet).cloned().unwrap_or_else(|| vnet.to_string())
    }

    fn queue_row(&self, row: &inspect::Queue) -> QueueRow {
        QueueRow {
            source: self.source(row.source),
            lane: match row.to {
                QueueGroupKind::Port(port) => self.port(port),
                QueueGroupKind::Tunnel(tunnel) => self.peer(tunnel),
                QueueGroupKind::Held(tunnel) => format!("held for {}", self.peer(tunnel)),
                QueueGroupKind::Unresolved(_, mac) => format!("unresolved {mac}"),
                QueueGroupKind::Free => "nowhere".to_owned(),
            },
            priority: row.priority.get(),
            frames: u32::try_from(row.held.frames).unwrap_or(u32::MAX),
            bytes: row.held.bytes,
        }
    }

    /// Formats the state on one frame's path.
    pub(super) fn looked(&self, seen: look::Seen, next_hops: &NextHops) -> Looked {
        let known = self.ports.lock().clone();
        let ports = seen.ports.into_iter().filter_map(|port| {
            let names = known.get(port.id)?;
            let losses = self.losses.note(seen.at, &names.name, &port.shot);
            Some(PortLook {
                index: port.id.0,
                gone: port.shot.gone.clone(),
                up: port.shot.outside.state().device.up,
                row: port_row(port.shot, names, losses),
                window_frames: port.window_frames,
                blocked: port.blocked,
                pauses: port.pauses.iter().map(|row| self.pause_row(row)).collect(),
                drops: port.drops.iter().map(|row| self.drop_row(row)).collect(),
            })
        });
        let tunnels = seen.tunnels.into_iter().filter_map(|(tunnel, row, decap)| {
            let (peer, vtep) = self.places().peers.get(&tunnel).cloned()?;
            let row = tunnel_row(&row, &peer, vtep, next_hops.text(tunnel));
            Some(TunnelLook { index: tunnel.0, row, decap_frames: decap })
        });
        let destination = |to: &Destination| match to {
            Destination::Port(port) => trace::Destination::Port(port.0),
            Destination::Tunnel(tunnel) => trace::Destination::Tunnel(tunnel.0),
        };
        Looked {
            at_ns: seen.at.since(self.started).0,
            fdb: seen.fdb.iter().map(|to| to.as_ref().map(destination)).collect(),
            ports: ports.collect(),
            tunnels: tunnels.collect(),
        }
    }

    fn pause_row(&self, row: &inspect::Pause) -> PauseRow {
        let state = &row.state;
        PauseRow {
            port: self.port(row.port),
            priority: row.priority.get(),
            xoff_sent: state.xoff_sent,
            xon_sent: state.xon_sent,
            received: state.received,
            paused_ns: state.paused_time.0,
            paused: state.paused,
            pausing: state.pausing,
            isolated: row.isolated.as_ref().map(|isolation| self.isolation(isolation)),
            sockets: Vec::new(),
        }
    }

    /// Adds a held socket to the row of its port and priority.
    fn add_socket(&self, rows: &mut Vec<PauseRow>, port: PortId, socket: &HeldSocket) {
        let (port, priority) = (self.port(port), socket.priority.get());
        let at = rows.iter().position(|row| row.port == port && row.priority == priority);
        let at = at.unwrap_or_else(|| {
            rows.push(PauseRow { port, priority, ..PauseRow::default() });
            rows.len() - 1
        });
        rows[at].sockets.push(self.held_socket(socket));
    }

    fn held_socket(&self, socket: &HeldSocket) -> HeldSocketRow {
        HeldSocketRow {
            address: socket.address,
            priority: socket.priority.get(),
            since_ns: socket.since.since(self.started).0,
            frames: socket.frames,
            stuck: socket.is_stuck,
        }
    }

    fn sockets(&self, shot: &SocketsShot) -> SocketsRow {
        let SocketsShot { lacks, is_signalled, held, counters } = shot;
        SocketsRow {
            lacks: lacks.clone(),
            signalled: *is_signalled,
            held: held.iter().map(|socket| self.held_socket(socket)).collect(),
            holds: counters.holds,
            waited: counters.waited,
            asked: counters.asked,
            full: counters.full,
            beyond: counters.beyond,
            port_held: counters.ports,
            stuck: counters.stuck,
            written_off: counters.written_off,
        }
    }

    fn isolation(&self, isolation: &inspect::Isolation) -> Isolation {
        let state = &isolation.state;
        Isolation {
            since_ns: state.since.since(self.started).0,
            moved_ns: state.moved_at.since(self.started).0,
            endpoints: isolation.endpoints.iter().map(ToString::to_string).collect(),
            waiting: isolation.waiting.iter().map(|source| self.source(*source)).collect(),
            reserve_frames: state.reserve_frames,
            reserve_bytes: state.reserve_bytes,
            held_at_senders: state.asks,
            stuck: state.stuck,
        }
    }

    fn source(&self, source: Source) -> String {
        match source {
            Source::Port(port) => self.port(port),
            Source::Tunnel(tunnel) => self.peer(tunnel),
            Source::Control => "control".to_owned(),
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

/// Returns the chip that is the switch itself.
fn of_switch(state: &FdbState) -> ChipRow {
    ChipRow {
        kind: ChipKind::Software.name().to_owned(),
        macs: state.macs as u64,
        macs_max: state.macs_max as u64,
        flows: state.flows as u64,
        flows_max: state.flows_max as u64,
        evicted: state.macs_evicted + state.flows_evicted,
        ..ChipRow::default()
    }
}

fn worker_times(times: &Times, cpu: Option<u32>) -> WorkerTimes {
    WorkerTimes {
        busy_ns: times.busy.0,
        looking_ns: times.looking.0,
        asleep_ns: times.asleep.0,
        turns: times.turns,
        cpu,
    }
}

/// Returns the worker of each port.
fn placement(plan: &Plan) -> Vec<PlacementRow> {
    let rows = plan.ports.iter().zip(&plan.workers.ports).map(|(port, placed)| PlacementRow {
        port: port.name.clone(),
        worker: placed.worker.map(|worker| u16::try_from(worker).unwrap_or(u16::MAX)),
        cpu: placed.worker.and_then(|worker| super::cpu_of(plan, worker)),
        why: placed.why.to_string(),
        buckets: None,
    });
    rows.collect()
}

fn tunnel_row(row: &TunnelCounters, peer: &str, vtep: Ipv4Addr, next_hop: String) -> TunnelRow {
    TunnelRow {
        peer: peer.to_owned(),
        vtep,
        next_hop,
        tx_frames: row.sent.frames,
        rx_frames: row.received.frames,
        queued_frames: row.queued_frames,
        path_mtu: row.path_mtu,
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

fn port_row(shot: PortShot, names: &Port, losses: Vec<LossRow>) -> PortRow {
    let frames = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let state = shot.state;
    let lossless = lossless(&shot, &names.vnet, names.policy_lacks, &losses);
    // A counter that cannot be read is not zero: it is shown as an unknown loss.
    let kernel = match shot.outside.into_counters() {
        Ok(counters) => counters.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        Err(_) => [(UNREADABLE.0.to_owned(), UNREADABLE.1)].into(),
    };
    PortRow {
        port: names.name.clone(),
        kind: shot.kind.to_owned(),
        vnet: names.vnet.clone(),
        lossless,
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
        aside_frames: shot.aside.frames,
        aside_bytes: shot.aside.bytes,
        aside_frames_max: shot.aside.frames_max,
        aside_bytes_max: shot.aside.bytes_max,
        kernel,
        allowed: names.allowed.clone(),
        losses,
        sockets: None,
    }
}

/// Returns `yes`, or the missing requirement: the device, the policy, and then the needs of the
/// kind of port itself. Losses are named in any case.
fn lossless(shot: &PortShot, vnet: &str, policy: Option<&str>, losses: &[LossRow]) -> String {
    let promise = promise(shot, vnet, policy);
    match (losses_text(losses), promise.as_str()) {
        (None, _) => promise,
        (Some(lost), "yes") => format!("no, {lost}"),
        (Some(lost), _) => format!("{promise}; {lost}"),
    }
}

fn promise(shot: &PortShot, vnet: &str, policy: Option<&str>) -> String {
    match (&shot.gone, policy, &shot.outside.state().device.problem) {
        // An underlay is reopened when its device is back.
        (Some(error), ..) if shot.kind == "l2" && vnet == "underlay" => {
            format!("no, needs its device back ({error})")
        }
        (Some(error), ..) => format!("no, needs its device back ({error}) and a restart"),
        // A port on which nothing passes comes first.
        (None, _, Some(problem)) => format!("no, {problem}"),
        (None, Some(policy), None) => format!("no, needs {policy}"),
        (None, None, None) => shot.lossless.to_string(),
    }
}
