//! One picture of what several workers saw. Each has its own ports, and its own part of every
//! tunnel: sums are made of numbers of the same thing, and lists are put behind each other.
//!
//! A frame that crossed stands in the audit twice: in the row of the port where it came in, and
//! under `from worker N` at the worker that sent it. Each row closes.

use super::look::Seen;
use super::snapshot::{Body, Snapshot};

/// Of one question, at least one.
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
            all.extend(one);
            all.sort_by_key(|port| port.id);
        }
        (Body::Queues(all), Body::Queues(one)) => all.extend(one),
        (Body::Drops(all), Body::Drops(one)) => all.extend(one),
        (Body::Audit(all), Body::Audit(one)) => {
            all.closed &= one.closed;
            all.rows.extend(one.rows);
        }
        (Body::Pauses(all), Body::Pauses(one)) => all.extend(one),
        (Body::Tunnels(all), Body::Tunnels(one)) => {
            for (all, one) in all.iter_mut().zip(one) {
                all.sent.add_all(one.sent);
                all.received.add_all(one.received);
                all.queued_frames += one.queued_frames;
            }
        }
        (Body::Macs(all), Body::Macs(one)) => {
            all.extend(one);
            all.sort_unstable_by_key(|(vnet, mac, _)| (*vnet, *mac));
            all.dedup();
        }
        (Body::Worker(all), Body::Worker(one)) => all.extend(one),
        (Body::Placement, Body::Placement) => {}
        (_, other) => unreachable!("answers to one question are of one kind: {other:?}"),
    }
}

/// Of looks at one frame's way, at least one.
pub(super) fn looks(seen: Vec<Seen>) -> Option<Seen> {
    seen.into_iter().reduce(|mut all, one| {
        all.at = all.at.max(one.at);
        for (all, one) in all.chip.iter_mut().zip(one.chip) {
            *all = all.or(one);
        }
        all.ports.extend(one.ports);
        for (tunnel, counters, decap) in one.tunnels {
            match all.tunnels.iter_mut().find(|(known, ..)| *known == tunnel) {
                None => all.tunnels.push((tunnel, counters, decap)),
                Some((_, sum, frames)) => {
                    sum.sent.add_all(counters.sent);
                    sum.received.add_all(counters.received);
                    sum.queued_frames += counters.queued_frames;
                    *frames = frames.iter().chain(&decap).copied().reduce(|a, b| a + b);
                }
            }
        }
        all
    })
}

#[cfg(test)]
mod tests;
