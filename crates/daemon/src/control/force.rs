//! Control as the configuration of a fabric sees it: checks a whole configuration of this host, and
//! puts it in force.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sluice_api::config::HostConfig;
use sluice_api::port::NewPort;
use sluice_api::reload::Reloaded;

use super::ports::AddedPorts;
use super::{Event, Reloads};
use crate::config::{self, KernelDevices, Plan, Report};
use crate::configuration::InForce;
use crate::ipc::protocol::Places;

/// The way to control.
#[derive(Debug)]
pub(super) struct Force {
    reloads: Reloads,
    events: SyncSender<Event>,
    ports: Arc<AddedPorts>,
}

impl Force {
    pub(super) fn new(reloads: Reloads, events: SyncSender<Event>, ports: Arc<AddedPorts>) -> Self {
        Self { reloads, events, ports }
    }
}

impl InForce for Force {
    /// Gives the data process's reasons without asking it, as far as control knows them all: a
    /// question would take several times as long as the rest of a change.
    fn check(&self, config: HostConfig) -> Result<(), String> {
        self.ports.check(&config)?;
        let Some(places) = self.ports.places() else {
            return self.reloads.check(config).map(drop);
        };
        judge(&self.ports.plan(), &config, &self.ports.open_ports(), places)
    }

    fn apply(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.reloads.apply(config)
    }

    fn left(&self, why: &str) {
        _ = self.events.send(Event::Left(why.to_owned()));
    }
}

/// Returns the reason against a configuration of this host that its data process would give.
fn judge(now: &Plan, next: &HostConfig, added: &[NewPort], places: Places) -> Result<(), String> {
    let wrong = |report: Report| format!("the configuration is wrong\n{report}");
    let dir = now.dir.as_deref();
    let next = config::checked(next, dir, &KernelDevices).map_err(wrong)?;
    if config::run_dir(&next.host) != now.run_dir {
        return Err(config::OTHER_RUN_DIR.to_owned());
    }
    let merged = config::merge(&now.config, &next, added)?;
    for (key, needs, has) in [
        ("spare_vnets", merged.config.vnets.len(), places.vnets),
        ("spare_tunnels", merged.config.peers.len(), places.tunnels),
    ] {
        if needs > has {
            return Err(config::no_place(key));
        }
    }
    if !merged.at_restart.is_empty() {
        let part = |report| format!("the part that can take effect now is wrong: {report}");
        config::checked(&merged.config, dir, &KernelDevices).map_err(part)?;
    }
    Ok(())
}
