//! Frames that were lost outside the switch: the kernel's counters of each port, and when each rose
//! last.
//!
//! ```text
//!   watch, once a second ─┐  a few ports at a time, between two turns
//!   show, trace ──────────┴─▶ worker: counters of its ports ─▶ Ledger ─▶ rows with their times
//! ```
//!
//! A counter knows how many, not when; the time of a loss is that of the look that first saw it, at
//! most a second late. Counters begin at zero when their port is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_api::show::LossRow;
use sluice_base::{Nanos, PortId};

use super::snapshot::PortShot;
use super::worker::Ask;
use super::{Askers, look, merge, spawn};

/// How often every port is looked at.
const BEAT: Duration = Duration::from_secs(1);

/// Whether a counter is of frames that went all the same, or were none.
fn is_no_loss(kind: &str, counter: &str) -> bool {
    match counter {
        "ring.checksum_open" => true,
        // A full device or queueing discipline says so, and the port sends the frame again.
        "device.tx_dropped" | "qdisc.dropped" => kind == "l2",
        "udp.sndbuf_errors" => true,
        _ => false,
    }
}

/// A counter when it was last seen to rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Risen {
    frames: u64,
    last: Nanos,
}

/// A port when it was looked at last.
#[derive(Debug, Default)]
struct Known {
    at: Nanos,
    counters: BTreeMap<&'static str, Risen>,
}

/// The counters of all ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<BTreeMap<PortId, Known>>>);

impl Ledger {
    fn ports(&self) -> MutexGuard<'_, BTreeMap<PortId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a port's counters were at a moment, and tells its losses.
    pub(super) fn note(&self, at: Nanos, name: &str, shot: &PortShot) -> Vec<LossRow> {
        let mut now = BTreeMap::from([("driver.lost", shot.lost.frames)]);
        match &shot.kernel {
            Ok(rows) => now.extend(rows),
            // A counter that cannot be read is not zero. A port that is closed has none.
            Err(_) => now.extend(shot.gone.is_none().then_some(("kernel.unreadable", 1))),
        }
        let lost = |(counter, frames): &(&str, u64)| *frames > 0 && !is_no_loss(shot.kind, counter);
        let mut ports = self.ports();
        let known = ports.entry(shot.id).or_default();
        let rows = now.into_iter().filter(lost).map(|(counter, frames)| {
            // Fewer than before: another port has the number now.
            let same = known.counters.get(counter).filter(|risen| risen.frames == frames);
            let risen = same.copied().unwrap_or(Risen { frames, last: at });
            (counter, risen)
        });
        let rows: BTreeMap<_, _> = rows.collect();
        // Looks are noted by several threads: one that was taken earlier may come late.
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

/// Asks all workers what these ports have lost.
pub(super) fn shots(askers: &Askers, ports: &[PortId]) -> Result<Vec<(Nanos, PortShot)>, String> {
    let mut all: Vec<(Nanos, PortShot)> = Vec::new();
    for some in ports.chunks(look::WANTED_MAX) {
        let wanted = look::Wanted::of_ports(some);
        for seen in askers.answers(|reply| Ask::Look(wanted.clone(), reply))? {
            for port in seen.ports {
                // An underlay may have a part at each worker, and stands in every look.
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

/// Looks at every port once a second, for as long as the process lives.
pub(super) fn watch(
    ledger: Ledger,
    askers: Askers,
    ports: impl Fn() -> Vec<PortId> + Send + 'static,
) -> anyhow::Result<()> {
    spawn("losses", move || {
        loop {
            std::thread::sleep(BEAT);
            // A worker that does not answer is somebody else's to report.
            for (at, shot) in shots(&askers, &ports()).unwrap_or_default() {
                _ = ledger.note(at, "", &shot);
            }
        }
    })
}

#[cfg(test)]
mod tests;
