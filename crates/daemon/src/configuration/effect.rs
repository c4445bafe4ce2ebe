//! The configuration in force at this host: a thread that gives control one whole configuration
//! after the other. Configurations that came meanwhile are skipped but for the newest. One that
//! could not be put in force is tried again, with longer and longer times between, until it is in
//! force or another one comes: a device may be back, a disk may have room again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use sluice_api::config::HostConfig;
use sluice_api::fabric_config::{FabricConfig, Trust};
use sluice_api::placement::Stamped;
use sluice_api::reload::Reloaded;

use super::authority::Keeper;
use super::{Event, InForce};
use crate::sys::log::say;
use crate::sys::threads::spawn_behind;

/// Configurations that may wait.
const WAITING_MAX: usize = 64;
/// Times between attempts: the first one, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The way to that thread.
#[derive(Debug)]
pub(super) struct Effect {
    jobs: SyncSender<Job>,
    last: u64,
}

/// A configuration that is to be in force, with the authorities and the placement policy of the
/// fabric.
#[derive(Debug)]
struct Job {
    number: u64,
    revision: u64,
    config: Box<HostConfig>,
    trust: Trust,
    placement: Option<Stamped>,
}

impl Effect {
    /// Starts the thread, which reports results as events.
    pub(super) fn start(
        force: Arc<dyn InForce>,
        keeper: Arc<Keeper>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        spawn_behind("effect", move || {
            let settle = |trust: &Trust| keeper.settle_changed(trust);
            run(&waiting, &*force, settle, &events, WAITS);
        })?;
        Ok(Self { jobs, last: 0 })
    }

    /// Returns the number of the next job.
    pub(super) const fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Puts a configuration in force, when the earlier ones are. Returns the number of the job: the
    /// result of it, or of a later one, has at least this number.
    pub(super) fn put(&mut self, revision: u64, config: HostConfig, shared: &FabricConfig) -> u64 {
        self.last += 1;
        let config = Box::new(config);
        let (trust, placement) = (shared.trust.clone(), shared.placement.clone());
        _ = self.jobs.send(Job { number: self.last, revision, config, trust, placement });
        self.last
    }
}

fn run(
    waiting: &Receiver<Job>,
    force: &dyn InForce,
    settle: impl Fn(&Trust),
    events: &SyncSender<Event>,
    (wait_first, wait_max): (Duration, Duration),
) {
    let Ok(mut job) = waiting.recv() else { return };
    let (mut wait, mut failed) = (wait_first, None);
    loop {
        if let Some(newer) = waiting.try_iter().last() {
            (job, wait) = (newer, wait_first);
        }
        settle(&job.trust);
        // Each is put in force although the other cannot be.
        let followed = force.follow(job.placement.as_ref());
        let result = force.apply((*job.config).clone()).and_then(|done| followed.map(|()| done));
        log_change(job.revision, failed.as_deref(), &result);
        failed = result.as_ref().err().cloned();
        let (number, revision) = (job.number, job.revision);
        if events.send(Event::Effect { number, revision, result }).is_err() {
            return;
        }
        let next = match failed {
            None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => waiting.recv_timeout(wait),
        };
        match next {
            Ok(newer) => (job, wait) = (newer, wait_first),
            Err(RecvTimeoutError::Timeout) => wait = wait_max.min(wait * 2),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Logs a failure once for each reason, and its end.
fn log_change(revision: u64, before: Option<&str>, result: &Result<Reloaded, String>) {
    match (before, result) {
        (Some(_), Ok(_)) => say!("revision {revision} of the configuration is in force here"),
        (before, Err(why)) if before != Some(why) => {
            say!(
                error: "revision {revision} of the configuration is not in force here, and is \
                        tried again: {why}"
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
