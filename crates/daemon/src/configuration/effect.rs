//! The configuration in force at this host: a thread that gives control one whole configuration
//! after the other. What came meanwhile is skipped but for the newest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_api::config::HostConfig;
use sluice_api::fabric_config::Trust;

use super::authority::Keeper;
use super::{Event, InForce};
use crate::sys::log::say;
use crate::sys::threads::spawn;

/// Configurations that may wait.
const WAITING_MAX: usize = 64;

/// The way to that thread.
#[derive(Debug)]
pub(super) struct Effect(SyncSender<Job>);

/// A revision, the configuration of this host, and the authorities of the fabric.
type Job = (u64, Box<(HostConfig, Trust)>);

impl Effect {
    /// Starts the thread, which reports results as events.
    pub(super) fn start(
        force: Arc<dyn InForce>,
        keeper: Arc<Keeper>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Self> {
        let (sender, waiting) = sync_channel(WAITING_MAX);
        spawn("effect", move || run(&waiting, (&*force, &keeper), &events))?;
        Ok(Self(sender))
    }

    /// Puts a configuration in force, when the earlier ones are.
    pub(super) fn put(&self, revision: u64, config: HostConfig, trust: Trust) {
        _ = self.0.send((revision, Box::new((config, trust))));
    }
}

fn run(
    waiting: &Receiver<Job>,
    (force, keeper): (&dyn InForce, &Keeper),
    events: &SyncSender<Event>,
) {
    while let Ok(mut next) = waiting.recv() {
        while let Ok(newer) = waiting.try_recv() {
            next = newer;
        }
        let (revision, wanted) = next;
        let (config, trust) = *wanted;
        // Its failure is shown, and keeps nothing else from being in force.
        _ = keeper.settle(&trust);
        let result = force.apply(config);
        if let Err(why) = &result {
            say!(error: "revision {revision} of the configuration is not in force here: {why}");
        }
        if events.send(Event::Effect(revision, result)).is_err() {
            return;
        }
    }
}
