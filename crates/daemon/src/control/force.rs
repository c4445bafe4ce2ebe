//! Control as the configuration of a fabric sees it: checks a whole configuration of this host, and
//! puts it in force.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sluice_api::config::HostConfig;
use sluice_api::reload::Reloaded;

use super::ports::AddedPorts;
use super::{Event, Reloads};
use crate::configuration::InForce;

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
    fn check(&self, config: HostConfig) -> Result<(), String> {
        self.ports.check(&config)?;
        self.reloads.check(config).map(drop)
    }

    fn apply(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.reloads.apply(config)
    }

    fn left(&self, why: &str) {
        _ = self.events.send(Event::Left(why.to_owned()));
    }
}
