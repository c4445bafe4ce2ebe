//! What this host has against a configuration that others are about to commit: a thread, since
//! control may be busy with its data process.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sluice_api::config::HostConfig;
use sluice_api::fabric_config::Trust;
use sluice_api::placement::Policy;
use sluice_control::commit::{CheckTicket, TxnId};

use super::authority::Keeper;
use super::{Event, InForce};
use crate::sys::threads::spawn_behind;

/// Checks that may wait.
const WAITING_MAX: usize = 256;

/// This host as a change would make it.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Its configuration.
    pub(super) config: HostConfig,
    /// Authorities before the change and after it, if they change.
    pub(super) trust: Option<Box<(Trust, Trust)>>,
    /// Placement policy after the change, if it changes.
    pub(super) placement: Option<Box<Policy>>,
}

/// A check: of a configuration, or with a reason against it that is known already.
type Job = (CheckTicket, TxnId, Result<Option<Box<Wanted>>, String>);

/// The way to that thread.
#[derive(Debug)]
pub(super) struct Checker(SyncSender<Job>);

impl Checker {
    /// Starts the thread, which reports results as events.
    pub(super) fn start(
        force: Arc<dyn InForce>,
        keeper: Arc<Keeper>,
        events: SyncSender<Event>,
    ) -> anyhow::Result<Self> {
        let (sender, jobs) = sync_channel(WAITING_MAX);
        spawn_behind("checker", move || run(&jobs, (&*force, &keeper), &events))?;
        Ok(Self(sender))
    }

    /// Checks a configuration; `None` has nothing to say about this host. Returns false if too many
    /// wait already.
    pub(super) fn check(
        &self,
        ticket: CheckTicket,
        id: TxnId,
        wanted: Result<Option<Wanted>, String>,
    ) -> bool {
        self.0.try_send((ticket, id, wanted.map(|wanted| wanted.map(Box::new)))).is_ok()
    }
}

fn run(jobs: &Receiver<Job>, (force, keeper): (&dyn InForce, &Keeper), events: &SyncSender<Event>) {
    let check = |Wanted { config, trust, placement }: Wanted| {
        if let Some((from, to)) = trust.as_deref() {
            keeper.check(from, to)?;
        }
        if let Some(policy) = placement.as_deref() {
            force.check_placement(policy)?;
        }
        force.check(config)
    };
    while let Ok((ticket, id, wanted)) = jobs.recv() {
        let result = match wanted {
            Ok(Some(wanted)) => check(*wanted),
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        if events.send(Event::Checked(ticket, id, result)).is_err() {
            return;
        }
    }
}
