//! Frames that were lost outside the switch: the kernel's counters of each port, and the time of
//! each counter's last increase.
//!
//! ```text
//!   watch, once a second ─┐  a few ports at a time, between two turns
//!   show, trace ──────────┴─▶ worker: counters of its ports ─▶ Ledger ─▶ rows with their times
//! ```
//!
//! A counter has no time of its own; the time of a loss is that of the first reading that shows it,
//! at most a second late. Counters begin at zero when their port is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_api::show::LossRow;
use sluice_base::{Nanos, PortId};
use sluice_ports::UNREADABLE;

use super::snapshot::PortShot;
use super::worker::WorkerRequest;
use super::{WorkerHandles, look, merge, spawn};

/// Time between two readings of a port.
const BEAT: Duration = Duration::from_secs(1);

/// Returns true if a counter's frames were sent after all, or were no frames.
fn is_no_loss(kind: &str, counter: &str) -> bool {
    match counter {
        "ring.checksum_open" | "series.parted" => true,
        // A full device or queueing discipline reports an error, and the port sends the frame
        // again.
        "device.tx_dropped" | "qdisc.dropped" => kind == "l2",
        "udp.sndbuf_errors" => true,
        _ => false,
    }
}

/// A counter, and the time of the reading that last showed an increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Risen {
    frames: u64,
    last: Nanos,
}

/// State of a port at the last reading.
#[derive(Debug, Default)]
struct Known {
    at: Nanos,
    counters: BTreeMap<&'static str, Risen>,
}

/// Counters of all ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<BTreeMap<PortId, Known>>>);

impl Ledger {
    fn ports(&self) -> MutexGuard<'_, BTreeMap<PortId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the counters of a port at one time, and returns its losses.
    pub(super) fn note(&self, at: Nanos, name: &str, shot: &PortShot) -> Vec<LossRow> {
        let mut now = BTreeMap::from([("driver.lost", shot.lost.frames)]);
        match &shot.outside.state().counters {
            Ok(rows) => now.extend(rows),
            // A counter that cannot be read is not zero. A closed port has none.
            Err(_) => now.extend(shot.gone.is_none().then_some(UNREADABLE)),
        }
        let lost = |(counter, frames): &(&str, u64)| *frames > 0 && !is_no_loss(shot.kind, counter);
        let mut ports = self.ports();
        let known = ports.entry(shot.id).or_default();
        let rows = now.into_iter().filter(lost).map(|(counter, frames)| {
            // A smaller value belongs to another port that has the number now.
            let same = known.counters.get(counter).filter(|risen| risen.frames == frames);
            let risen = same.copied().unwrap_or(Risen { frames, last: at });
            (counter, risen)
        });
        let rows: BTreeMap<_, _> = rows.collect();
        // Several threads note readings: an older one may come late.
        if at >= known.at {
            *known = Known { at, counters: rows.clone() };
        }
        let row = |(counter, risen): (&str, Risen)| LossRow {
            port: name.to_owned(),
            counter: counter.to_owned(),
            frames: risen.frames,
            ago_ns: at.since(risen.last).0,
        };
        rows.into_iter().map(row).collect()
    }
}

/// Asks all workers for the losses of these ports.
pub(super) fn shots(
    askers: &WorkerHandles,
    ports: &[PortId],
) -> Result<Vec<(Nanos, PortShot)>, String> {
    let mut all: Vec<(Nanos, PortShot)> = Vec::new();
    for some in ports.chunks(look::ITEMS_MAX) {
        let wanted = look::StateQuery::of_ports(some);
        for seen in askers.answers(|reply| WorkerRequest::Look(wanted.clone(), reply))? {
            for port in seen.ports {
                // An underlay may have a part at each worker, and is in every reading.
                let is_new = some.contains(&port.id);
                match all.iter_mut().find(|(_, known)| known.id == port.id) {
                    _ if !is_new => {}
                    Some((_, known)) => merge::part(known, port.shot),
                    None => all.push((seen.at, port.shot)),
                }
            }
        }
    }
    Ok(all)
}

/// Reads the counters of every port once a second, for as long as the process lives.
pub(super) fn watch(
    ledger: Ledger,
    askers: WorkerHandles,
    ports: impl Fn() -> Vec<PortId> + Send + 'static,
) -> anyhow::Result<()> {
    spawn("losses", move || {
        loop {
            std::thread::sleep(BEAT);
            // Another thread reports a worker that does not answer.
            for (at, shot) in shots(&askers, &ports()).unwrap_or_default() {
                _ = ledger.note(at, "", &shot);
            }
        }
    })
}

#[cfg(test)]
mod tests;
