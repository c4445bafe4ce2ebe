//! The configuration in force at this host: a thread that gives control one whole configuration
//! after the other. What came meanwhile is skipped but for the newest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_api::config::HostConfig;

use super::{Event, InForce};
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// Configurations that may wait.
const WAITING_MAX: usize = 64;

/// The way to that thread.
#[derive(Debug)]
pub(super) struct Effect(SyncSender<(u64, Box<HostConfig>)>);

impl Effect {
    /// Starts the thread, which reports results as events.
    pub(super) fn start(
        force: Arc<dyn InForce>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Self> {
        let (sender, waiting) = sync_channel(WAITING_MAX);
        spawn("effect", move || run(&waiting, &*force, &events))?;
        Ok(Self(sender))
    }

    /// Puts a configuration in force, when the earlier ones are.
    pub(super) fn put(&self, revision: u64, config: HostConfig) {
        _ = self.0.send((revision, Box::new(config)));
    }
}

fn run(
    waiting: &Receiver<(u64, Box<HostConfig>)>,
    force: &dyn InForce,
    events: &SyncSender<Event>,
) {
    while let Ok(mut next) = waiting.recv() {
        while let Ok(newer) = waiting.try_recv() {
            next = newer;
        }
        let (revision, config) = next;
        let result = force.apply(*config);
        if let Err(why) = &result {
            say!(error: "revision {revision} of the configuration is not in force here: {why}");
        }
        if events.send(Event::Effect(revision, result)).is_err() {
            return;
        }
    }
}
