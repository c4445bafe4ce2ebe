//! Merges the snapshots of several workers. Each worker has its own ports, and its own part of
//! every tunnel: numbers of the same thing are added, and lists are concatenated.
//!
//! A frame that was handed off is counted twice in the audit: in the row of its ingress port, and
//! under `from worker N` at the worker that sent it. Each row balances.

use sluice_base::PortId;
use sluice_host::inspect::Dropped;
use sluice_switch::{AuditRow, Balance, FdbState, TunnelCounters};

use super::look::Seen;
use super::snapshot::{Body, PortShot, Snapshot};

/// Merges the snapshots of one question. `None` if there is none.
pub(super) fn snapshots(shots: Vec<Snapshot>) -> Option<Snapshot> {
    shots.into_iter().reduce(|mut all, one| {
        all.at = all.at.max(one.at);
        body(&mut all.body, one.body);
        all
    })
}

fn body(all: &mut Body, one: Body) {
    match (all, one) {
        (Body::Ports(all), Body::Ports(one)) => {
            for port in one {
                match all.iter_mut().find(|known| known.id == port.id) {
                    Some(known) => part(known, port),
                    None => all.push(port),
                }
            }
            all.sort_by_key(|port| port.id);
        }
        (Body::Queues(all), Body::Queues(one)) => all.extend(one),
        (Body::Drops(all), Body::Drops(one)) => {
            for row in one {
                let same = |known: &&mut Dropped| {
                    let key = |row: &Dropped| (row.port, row.priority, row.reason);
                    key(known) == key(&row)
                };
                match all.iter_mut().find(same) {
                    Some(known) => known.count.add_all(row.count),
                    None => all.push(row),
                }
            }
        }
        (Body::Audit(all), Body::Audit(one)) => {
            all.closed &= one.closed;
            for (port, row) in one.rows {
                let same = |known: &&mut (Option<PortId>, AuditRow)| {
                    (known.0, known.1.priority) == (port, row.priority)
                };
                match all.rows.iter_mut().find(same) {
                    Some((_, known)) => {
                        add(&mut known.frames, row.frames);
                        add(&mut known.bytes, row.bytes);
                    }
                    None => all.rows.push((port, row)),
                }
            }
        }
        (Body::Pauses(all, sockets), Body::Pauses(one, more)) => {
            all.extend(one);
            sockets.extend(more);
        }
        (Body::Tunnels(all), Body::Tunnels(one)) => {
            all.iter_mut().zip(one).for_each(|(all, one)| tunnel(all, one));
        }
        (Body::Macs(all), Body::Macs(one)) => {
            all.extend(one);
            all.sort_unstable_by_key(|(vnet, mac, _)| (*vnet, *mac));
            all.dedup();
        }
        (Body::Worker(all), Body::Worker(one)) => all.extend(one),
        (Body::Placement, Body::Placement) => {}
        (Body::Fdb(all), Body::Fdb(one)) => fdb(all, one),
        (_, other) => unreachable!("answers to one question are of one kind: {other:?}"),
    }
}

/// Joins the tables of two workers, which get the same commands of control: addresses that both
/// have count once.
fn fdb(all: &mut FdbState, one: FdbState) {
    all.macs = all.macs.max(one.macs);
    all.flows = all.flows.max(one.flows);
    all.macs_evicted += one.macs_evicted;
    all.flows_evicted += one.flows_evicted;
}

/// Adds a worker's part of a tunnel.
fn tunnel(all: &mut TunnelCounters, one: TunnelCounters) {
    all.sent.add_all(one.sent);
    all.received.add_all(one.received);
    all.queued_frames += one.queued_frames;
    // Each worker learns the path MTU from its own frames.
    all.path_mtu = all.path_mtu.into_iter().chain(one.path_mtu).min();
}

fn add(all: &mut Balance, one: Balance) {
    all.received += one.received;
    all.injected += one.injected;
    all.copied += one.copied;
    all.delivered += one.delivered;
    all.consumed += one.consumed;
    all.resident += one.resident;
    all.dropped += one.dropped;
    all.dropped_congestion += one.dropped_congestion;
}

/// Adds a worker's part of a port.
pub(super) fn part(all: &mut PortShot, one: PortShot) {
    let (state, other) = (&mut all.state, one.state);
    state.received.add_all(other.received);
    state.sent.add_all(other.sent);
    state.held.add_all(other.held);
    state.queued.add_all(other.queued);
    // The workers reached their maxima at different times: the sum is an upper bound.
    for (most, other) in
        [(&mut state.held_max, other.held_max), (&mut state.queued_max, other.queued_max)]
    {
        most.frames_max += other.frames_max;
        most.bytes_max += other.bytes_max;
    }
    for (sum, other) in [(&mut all.pending, one.pending), (&mut all.lost, one.lost)] {
        sum.frames += other.frames;
        sum.bytes += other.bytes;
    }
    all.ring.capacity_frames += one.ring.capacity_frames;
    let (aside, other) = (&mut all.aside, one.aside);
    aside.frames += other.frames;
    aside.bytes += other.bytes;
    aside.frames_max += other.frames_max;
    aside.bytes_max += other.bytes_max;
    let most = all.ring.waiting_frames_max.into_iter().chain(one.ring.waiting_frames_max);
    all.ring.waiting_frames_max = most.reduce(|a, b| a + b);
    all.gone = all.gone.take().or(one.gone);
    let (all, device) = (all.outside.state_mut(), &one.outside.state().device);
    all.device.up = all.device.up.into_iter().chain(device.up).reduce(|a, b| a && b);
    all.device.problem = all.device.problem.take().or_else(|| device.problem.clone());
    let rows = match one.outside.into_counters() {
        Ok(rows) => rows,
        // A counter that one worker cannot read is unknown for the port.
        Err(error) => return all.counters = Err(error),
    };
    let Ok(sums) = &mut all.counters else { return };
    for (name, count) in rows {
        let sum = sums.entry(name).or_default();
        // Counters of a socket belong to the worker; the kernel counts the others for all workers.
        let is_own = name.starts_with("socket.") || name.starts_with("ring.");
        *sum = if is_own { *sum + count } else { count.max(*sum) };
    }
}

/// Merges the workers' views of one frame's path. `None` if there is none.
pub(super) fn looks(seen: Vec<Seen>) -> Option<Seen> {
    seen.into_iter().reduce(|mut all, one| {
        all.at = all.at.max(one.at);
        for (all, one) in all.fdb.iter_mut().zip(one.fdb) {
            *all = all.or(one);
        }
        all.ports.extend(one.ports);
        for (tunnel, counters, decap) in one.tunnels {
            match all.tunnels.iter_mut().find(|(known, ..)| *known == tunnel) {
                None => all.tunnels.push((tunnel, counters, decap)),
                Some((_, sum, frames)) => {
                    self::tunnel(sum, counters);
                    *frames = frames.iter().chain(&decap).copied().reduce(|a, b| a + b);
                }
            }
        }
        all
    })
}

#[cfg(test)]
mod tests;
