//! What this host has against a configuration that others are about to commit: a thread, since
//! control may be busy with its data process.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_api::config::HostConfig;
use sluice_control::commit::{CheckTicket, TxnId};

use super::{Event, InForce};
use crate::sys::threads::spawn;

/// Checks that may wait.
const WAITING_MAX: usize = 256;

/// A check: of a configuration, or with a reason against it that is known already.
type Job = (CheckTicket, TxnId, Result<Option<Box<HostConfig>>, String>);

/// The way to that thread.
#[derive(Debug)]
pub(super) struct Checker(SyncSender<Job>);

impl Checker {
    /// Starts the thread, which reports results as events.
    pub(super) fn start(
        force: Arc<dyn InForce>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Self> {
        let (sender, jobs) = sync_channel(WAITING_MAX);
        spawn("checker", move || run(&jobs, &*force, &events))?;
        Ok(Self(sender))
    }

    /// Checks a configuration; `None` has nothing to say about this host. Returns false if too many
    /// wait already.
    pub(super) fn check(
        &self,
        ticket: CheckTicket,
        id: TxnId,
        config: Result<Option<HostConfig>, String>,
    ) -> bool {
        self.0.try_send((ticket, id, config.map(|config| config.map(Box::new)))).is_ok()
    }
}

fn run(jobs: &Receiver<Job>, force: &dyn InForce, events: &SyncSender<Event>) {
    while let Ok((ticket, id, config)) = jobs.recv() {
        let result = match config {
            Ok(Some(config)) => force.check(*config),
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        if events.send(Event::Checked(ticket, id, result)).is_err() {
            return;
        }
    }
}
