//! Usage of the ports of endpoints on this host: counters that the switch keeps for each port
//! anyway, requested from the data process on demand.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_api::fabric::{VportRow, VportUsage};
use sluice_api::trace::{Look, Looked, PortLook};

use super::Fabric;
use crate::ipc::protocol;

/// Longest time for data's answer.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Fills in the counters of the endpoints that are at this host, with one question to data.
pub(super) fn count(fabric: &Fabric, rows: &mut [VportRow]) {
    let mut ports: Vec<u16> =
        rows.iter().filter_map(|row| Some(row.usage.as_ref()?.port)).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return;
    }
    match super::trace::ask_data(fabric, Look { ports, ..Look::default() }, LOOK_MAX) {
        Ok(looked) => take(rows, &looked),
        Err(error) => {
            let why = protocol::silence(&error);
            for usage in rows.iter_mut().filter_map(|row| row.usage.as_mut()) {
                usage.unknown = Some(why.clone());
            }
        }
    }
}

/// Takes the counters of each endpoint's port, by its number and name.
fn take(rows: &mut [VportRow], looked: &Looked) {
    let ports: BTreeMap<u16, &PortLook> =
        looked.ports.iter().map(|look| (look.index, look)).collect();
    for row in rows {
        let Some(usage) = &mut row.usage else { continue };
        match ports.get(&usage.port).filter(|look| look.row.port == row.port) {
            Some(look) => copy(usage, look, looked.at_ns),
            None => {
                let gone = "the data process does not have the port any more";
                usage.unknown = Some(gone.to_owned());
            }
        }
    }
}

fn copy(usage: &mut VportUsage, look: &PortLook, within_ns: u64) {
    usage.within_ns = within_ns;
    let counted = &look.row;
    (usage.rx_frames, usage.rx_bytes) = (counted.rx_frames, counted.rx_bytes);
    (usage.tx_frames, usage.tx_bytes) = (counted.tx_frames, counted.tx_bytes);
    usage.drops.clone_from(&look.drops);
    let losses = counted.losses.iter();
    usage.losses = losses.map(|loss| (loss.counter.clone(), loss.frames)).collect();
}

#[cfg(test)]
mod tests;
