//! Usage of an endpoint's port on this host: counters that the switch keeps for the port anyway,
//! requested from the data process on demand.

use std::time::Duration;

use sluice_api::fabric::{Vport, VportUsage};
use sluice_api::trace::{Look, Looked};

use super::Fabric;
use crate::ipc::protocol;

/// Longest time for data's answer.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Fills in the counters.
pub(super) fn count(fabric: &Fabric, vport: &mut Vport) {
    let Some(usage) = &mut vport.usage else { return };
    let question = Look { ports: vec![usage.port], ..Look::default() };
    match super::trace::ask_data(fabric, question, LOOK_MAX) {
        Ok(looked) => take(usage, &vport.best.port, looked),
        Err(error) => usage.unknown = Some(protocol::silence(&error)),
    }
}

/// Takes the counters of the port of this number and name.
fn take(usage: &mut VportUsage, name: &str, looked: Looked) {
    let is_it =
        |look: &&sluice_api::trace::PortLook| look.index == usage.port && look.row.port == name;
    let Some(look) = looked.ports.iter().find(is_it) else {
        usage.unknown = Some("the data process does not have the port any more".to_owned());
        return;
    };
    usage.within_ns = looked.at_ns;
    let row = &look.row;
    (usage.rx_frames, usage.rx_bytes) = (row.rx_frames, row.rx_bytes);
    (usage.tx_frames, usage.tx_bytes) = (row.tx_frames, row.tx_bytes);
    usage.drops.clone_from(&look.drops);
    usage.losses = row.losses.iter().map(|loss| (loss.counter.clone(), loss.frames)).collect();
}

#[cfg(test)]
mod tests;
