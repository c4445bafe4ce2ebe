//! Control as the configuration of a fabric sees it: checks a whole configuration of this host, and
//! puts it in force.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use sluice_api::config::HostConfig;

use super::ports::AddedPorts;
use super::{Event, waiting};
use crate::configuration::InForce;

/// The way to control.
#[derive(Debug)]
pub(super) struct Force {
    events: SyncSender<Event>,
    ports: Arc<AddedPorts>,
}

impl Force {
    pub(super) fn new(events: SyncSender<Event>, ports: Arc<AddedPorts>) -> Self {
        Self { events, ports }
    }
}

impl InForce for Force {
    fn check(&self, config: &HostConfig) -> Result<(), String> {
        waiting::check(config)?;
        self.ports.check(config)
    }

    fn apply(&self, config: HostConfig) -> Result<Vec<String>, String> {
        let (done, result) = sync_channel(1);
        _ = self.events.send(Event::Configure(Box::new(config), done));
        result.recv().unwrap_or_else(|_| Err("the host is being stopped".to_owned()))
    }

    fn left(&self, why: &str) {
        _ = self.events.send(Event::Left(why.to_owned()));
    }
}
