//! Answers become series.

use std::collections::BTreeSet;

use sluice_api::config::{Policy, Role};
use sluice_api::fabric::{CertificateRow, Evpn, MemberRow};
use sluice_api::show::{Body, DropRow, PauseRow, PortRow, is_of_machine};
use sluice_api::transaction::Status;
use sluice_base::{DropClass, DropReason};

use super::catalog::Metric as M;
use super::series::{Series, Value};
use super::{DataAnswers, FabricAnswers, OTHERS, Sample};

/// Names of answers that are no ports of a tenant; there are few, and they keep their series.
const OWN: [&str; 2] = ["control", "underlay"];
/// Destination of frames whose address is not known yet.
const UNRESOLVED: &str = "unresolved";
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Names that have series of their own, and the number of those that share one.
pub(super) struct Named<'a> {
    names: BTreeSet<&'a str>,
    shared: usize,
}

impl<'a> Named<'a> {
    /// Takes the first `most` names, and those that are always there.
    pub(super) fn first(all: &BTreeSet<&'a str>, most: usize) -> Self {
        let (own, others): (Vec<&str>, Vec<&str>) = all.iter().partition(|name| OWN.contains(name));
        let names: BTreeSet<&str> = own.into_iter().chain(others.into_iter().take(most)).collect();
        Self { shared: all.len() - names.len(), names }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the name of the series.
    fn label<'n>(&self, name: &'n str) -> &'n str {
        if self.has(name) { name } else { OTHERS }
    }
}

/// Returns the names of ports in a sample.
pub(super) fn ports_of(sample: &Sample) -> BTreeSet<&str> {
    let Ok(data) = &sample.data else { return BTreeSet::new() };
    let mut names: BTreeSet<&str> = ports(data).iter().map(|row| row.port.as_str()).collect();
    names.extend(drops(data).iter().map(|row| row.port.as_str()));
    names.extend(pauses(data).iter().map(|row| row.port.as_str()));
    if let Body::Audit(audit) = &data.audit.body {
        names.extend(audit.rows.iter().map(|row| row.port.as_str()));
    }
    names
}

/// Returns the names of peers, members and BGP neighbors in a sample.
pub(super) fn peers_of(sample: &Sample) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    if let Ok(data) = &sample.data
        && let Body::Tunnels(rows) = &data.tunnels.body
    {
        names.extend(rows.iter().map(|row| row.peer.as_str()));
    }
    if let Some(Ok(fabric)) = &sample.fabric {
        names.extend(fabric.members.iter().map(|row| row.host.as_str()));
        let neighbors = fabric.evpn.iter().flat_map(|evpn| &evpn.neighbors);
        names.extend(neighbors.map(|row| row.address.as_str()));
    }
    if let Some(Ok(status)) = &sample.configuration {
        names.extend(status.members.iter().map(|member| member.name.as_str()));
    }
    names
}

fn ports(data: &DataAnswers) -> &[PortRow] {
    if let Body::Ports(rows) = &data.ports.body { rows } else { &[] }
}

fn drops(data: &DataAnswers) -> &[DropRow] {
    if let Body::Drops(rows) = &data.drops.body { rows } else { &[] }
}

fn pauses(data: &DataAnswers) -> &[PauseRow] {
    if let Body::Pauses(rows) = &data.pauses.body { rows } else { &[] }
}

/// Returns all series of a sample; ports and peers without a name of their own share one.
pub(super) fn all(sample: &Sample, ports: &Named<'_>, peers: &Named<'_>) -> Series {
    let mut series = Series::default();
    let out = &mut series;
    out.add(M::Build, &[env!("CARGO_PKG_VERSION")], true);
    out.add(M::DataUp, &[], sample.data.is_ok());
    out.add(M::TracesSent, &[], Value::Count(sample.traces.0));
    out.add(M::TracesDropped, &[], Value::Count(sample.traces.1));
    out.add(M::ScrapeDuration, &[], Value::Seconds(sample.took.as_secs_f64()));
    out.add(M::AggregatedNames, &["ports"], ports.shared);
    out.add(M::AggregatedNames, &["peers"], peers.shared);
    if let Ok(data) = &sample.data {
        out.add(M::Host, &[&sample.host, data.ports.policy.name()], true);
        out.add(M::DataUptime, &[], Value::of_ns(data.ports.at_ns));
        add_ports(out, data, ports);
        add_audit(out, data, ports);
        add_queues(out, data, ports, peers);
        add_drops(out, sample, data, ports);
        add_pauses(out, data, ports);
        add_peers(out, data, peers);
        add_workers(out, data);
    }
    if let Some(fabric) = &sample.fabric {
        out.add(M::FabricUp, &[], fabric.is_ok());
        fabric.iter().for_each(|fabric| add_fabric(out, fabric, peers));
    }
    if let Some(Ok(status)) = &sample.configuration {
        add_configuration(out, status, peers);
    }
    series
}

fn add_ports(out: &mut Series, data: &DataAnswers, named: &Named<'_>) {
    for row in ports(data) {
        let port = named.label(&row.port);
        if named.has(&row.port) {
            // The reason has a time in it.
            let lossless = row.lossless.split(',').next().unwrap_or_default();
            out.add(M::Port, &[port, &row.kind, &row.vnet, lossless], true);
        }
        out.add(M::PortTxFrames, &[port], row.tx_frames);
        out.add(M::PortTxBytes, &[port], row.tx_bytes);
        out.add(M::PortQueuedFrames, &[port], row.queued_frames);
        add_outside(out, port, row);
        if let Some(sockets) = &row.sockets {
            let stuck = sockets.held.iter().filter(|socket| socket.stuck).count();
            out.add(M::PortHeldSockets, &[port], sockets.held.len());
            out.add(M::PortStuckSockets, &[port], stuck);
            out.add(M::PortSocketHolds, &[port], sockets.holds);
            out.add(M::PortSocketWaited, &[port], sockets.waited);
            out.add(M::PortSocketStuck, &[port], sockets.stuck);
        }
    }
}

/// Adds the losses outside the switch. A counter that may show one is there before it does:
/// otherwise its first value would be no increase.
fn add_outside(out: &mut Series, port: &str, row: &PortRow) {
    let lost = row.losses.iter().map(|loss| (loss.counter.as_str(), loss.frames));
    let may_come = row.kernel.keys().map(|counter| (counter.as_str(), 0));
    for (counter, frames) in may_come.chain([("driver.lost", 0)]).chain(lost) {
        if is_of_machine(counter) {
            out.add(M::MachineLostFrames, &[counter], frames);
        } else {
            out.add(M::OutsideLostFrames, &[port, counter], frames);
        }
    }
}

fn add_audit(out: &mut Series, data: &DataAnswers, named: &Named<'_>) {
    let Body::Audit(audit) = &data.audit.body else { return };
    out.add(M::AuditClosed, &[], audit.closed);
    for row in &audit.rows {
        let labels = &[named.label(&row.port), &row.priority.to_string()];
        out.add(M::PortRxFrames, labels, row.frames.received);
        out.add(M::PortRxBytes, labels, row.bytes.received);
        out.add(M::PortHeldFrames, labels, row.frames.resident);
        out.add(M::PortHeldBytes, labels, row.bytes.resident);
    }
}

fn add_queues(out: &mut Series, data: &DataAnswers, ports: &Named<'_>, peers: &Named<'_>) {
    let Body::Queues(rows) = &data.queues.body else { return };
    for row in rows {
        let to = row.lane.strip_prefix("held for ").unwrap_or(&row.lane);
        // Addresses of tenants are without bound.
        let to = match to {
            _ if to.starts_with("unresolved ") => UNRESOLVED,
            _ if ports.has(to) || peers.has(to) => to,
            _ => OTHERS,
        };
        let labels = &[to, &row.priority.to_string()];
        out.add(M::QueueFrames, labels, row.frames);
        out.add(M::QueueBytes, labels, row.bytes);
    }
}

/// Returns the reasons that a lossless priority may not know.
pub(super) fn lossless_reasons() -> impl Iterator<Item = DropReason> {
    let is_loss = |class| matches!(class, DropClass::Congestion | DropClass::Stuck);
    DropReason::ALL.iter().copied().filter(move |reason| is_loss(reason.class()))
}

fn add_drops(out: &mut Series, sample: &Sample, data: &DataAnswers, named: &Named<'_>) {
    let reasons: BTreeSet<&str> = lossless_reasons().map(DropReason::name).collect();
    for row in ports(data) {
        // There before the first loss: otherwise its first value would be no increase.
        for reason in &reasons {
            out.add(M::LosslessDroppedFrames, &[named.label(&row.port), reason], 0_u64);
        }
    }
    for row in drops(data) {
        let (port, priority) = (named.label(&row.port), row.priority.to_string());
        let labels = &[port, &priority, &row.reason, &row.class];
        out.add(M::PortDroppedFrames, labels, row.frames);
        out.add(M::PortDroppedBytes, labels, row.bytes);
        if is_lossless(sample, data.drops.policy, row.priority)
            && reasons.contains(row.reason.as_str())
        {
            out.add(M::LosslessDroppedFrames, &[port, &row.reason], row.frames);
        }
    }
}

pub(super) fn is_lossless(sample: &Sample, policy: Policy, priority: u8) -> bool {
    let by_policy = match sample.role {
        Role::Host => policy.virtual_lossless(),
        Role::Switch => policy.physical_lossless(),
    };
    by_policy && sample.lossless.get(usize::from(priority)).is_some_and(|is_so| *is_so)
}

fn add_pauses(out: &mut Series, data: &DataAnswers, named: &Named<'_>) {
    for row in ports(data) {
        let labels = &[named.label(&row.port)];
        out.add(M::PortIsolatedPriorities, labels, 0_u64);
        out.add(M::PortStuckPriorities, labels, 0_u64);
    }
    for row in pauses(data) {
        let port = named.label(&row.port);
        let labels = &[port, &row.priority.to_string()];
        out.add(M::PortXoffSent, labels, row.xoff_sent);
        out.add(M::PortXonSent, labels, row.xon_sent);
        out.add(M::PortPausesReceived, labels, row.received);
        out.add(M::PortPausedTime, labels, Value::of_ns(row.paused_ns));
        out.add(M::PortIsPaused, labels, row.paused);
        out.add(M::PortIsPausing, labels, row.pausing);
        if let Some(isolated) = &row.isolated {
            out.add(M::PortIsolatedPriorities, &[port], 1_u64);
            out.add(M::PortStuckPriorities, &[port], isolated.stuck);
            out.add(M::PortReserveFrames, &[port], isolated.reserve_frames);
        }
    }
}

fn add_peers(out: &mut Series, data: &DataAnswers, named: &Named<'_>) {
    let Body::Tunnels(rows) = &data.tunnels.body else { return };
    for row in rows {
        let labels = &[named.label(&row.peer)];
        out.add(M::PeerTxFrames, labels, row.tx_frames);
        out.add(M::PeerRxFrames, labels, row.rx_frames);
        out.add(M::PeerQueuedFrames, labels, row.queued_frames);
        out.add(M::PeerNextHop, labels, row.next_hop != "unresolved");
        if let Some(mtu) = row.path_mtu {
            out.add(M::PeerPathMtu, labels, u32::from(mtu));
        }
    }
}

fn add_workers(out: &mut Series, data: &DataAnswers) {
    let Body::Worker(rows) = &data.worker.body else { return };
    for (at, row) in rows.iter().enumerate() {
        let worker = &at.to_string();
        out.add(M::WorkerBusy, &[worker], Value::of_ns(row.busy_ns));
        out.add(M::WorkerLooking, &[worker], Value::of_ns(row.looking_ns));
        out.add(M::WorkerAsleep, &[worker], Value::of_ns(row.asleep_ns));
        out.add(M::WorkerTurns, &[worker], row.turns);
        if let Some(cpu) = row.cpu {
            out.add(M::Worker, &[worker, &cpu.to_string()], true);
        }
    }
}

fn add_fabric(out: &mut Series, fabric: &FabricAnswers, named: &Named<'_>) {
    let is_member = |row: &&MemberRow| row.kind != "foreign";
    out.add(M::FabricMembers, &[], fabric.members.iter().filter(is_member).count());
    for row in fabric.members.iter().filter(is_member).filter(|row| row.kind != "own") {
        let labels = &[named.label(&row.host)];
        out.add(M::MemberAlive, labels, row.health == "alive");
        out.add(M::MemberConnected, labels, row.connected);
        out.add(M::MemberVports, labels, row.vports);
        out.add(M::MemberLag, labels, row.lag);
        out.add(M::MemberRecordsSent, labels, row.records_sent);
        out.add(M::MemberRecordsReceived, labels, row.records_received);
    }
    let certificates = &fabric.certificates;
    out.add(M::CertificatesRefused, &[], certificates.refused.is_some());
    certificates.rows.iter().for_each(|row| add_certificate(out, row, named));
    if let Some(evpn) = &fabric.evpn {
        add_evpn(out, evpn, named);
    }
}

fn add_evpn(out: &mut Series, evpn: &Evpn, named: &Named<'_>) {
    out.add(M::EvpnRoutesOwn, &[], evpn.announced_routes);
    for row in &evpn.neighbors {
        let labels = &[named.label(&row.address)];
        let kept_out: u64 = row.kept_out.reasons().map(|(_, count)| count).sum();
        out.add(M::EvpnNeighborUp, labels, row.state == "established");
        out.add(M::EvpnNeighborRoutes, labels, row.routes);
        out.add(M::EvpnRoutesKeptOut, labels, kept_out);
        out.add(M::EvpnRoutesUnsent, labels, row.unsent_routes);
    }
}

#[expect(clippy::cast_precision_loss, reason = "days are few")]
fn add_certificate(out: &mut Series, row: &CertificateRow, named: &Named<'_>) {
    let member = if row.host.is_empty() { "" } else { named.label(&row.host) };
    let left = row.days_left as f64 * SECONDS_PER_DAY;
    out.add(M::CertificateRemaining, &[row.kind.name(), member], Value::Seconds(left));
}

fn add_configuration(out: &mut Series, status: &Status, named: &Named<'_>) {
    out.add(M::ConfigRevision, &[], status.revision);
    out.add(M::ConfigWritable, &[], status.writable);
    out.add(M::ConfigInForce, &[], status.not_in_force.is_none());
    for member in &status.members {
        if let Some(lag) = member.lag {
            out.add(M::ConfigLag, &[named.label(&member.name)], lag);
        }
    }
}
