//! A new configuration for the running data process.
//!
//! ```text
//!   the text ── check ── merge: what takes effect now ── plan, with numbers
//!      ── free places ── changes, worker by worker ── addresses, next hops, guard, names
//! ```
//!
//! Everything is checked before anything is changed, and a change that a switch refuses is taken
//! back with all before it. Ports neither come nor go nor move between workers meanwhile. The
//! process reports the configuration that it runs ([`Running`]), which differs from the new one in
//! what takes effect at a restart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::reload::Reloaded;
use sluice_base::{Nanos, TunnelId, VnetId};

use super::places::{self, PlaceChange, Undoable};
use super::server::Server;
use super::worker::{FreePlaces, NewAddresses, PlaceStep, WorkerRequest};
use crate::config::{self, KernelDevices, Merged, Numbers, Plan};
use crate::ipc::protocol::{Reconfigured, Running, Wanted};
use crate::sys::clock;
use crate::sys::log::{self, say};

/// Longest time for two turns of every worker.
const TURNS_WITHIN: Duration = Duration::from_secs(2);
const TURNS_EVERY: Nanos = Nanos::from_micros(200);

impl Server {
    /// Returns the configuration that this process runs.
    pub(super) fn running(&self) -> Running {
        let plan = self.changes.plan();
        Running {
            text: plan.text.clone(),
            dir: plan.dir.clone(),
            numbers: plan.numbers.text(),
            fingerprint: plan.fingerprint.to_string(),
            wanted: self.changes.wanted().to_string(),
        }
    }

    /// Applies a new configuration, or only checks it.
    ///
    /// # Errors
    /// The reason; nothing was changed.
    pub(super) fn reconfigure(&self, wanted: &Wanted) -> Result<Reconfigured, String> {
        let (_settled, _steady) = (self.askers.settled(), self.askers.steady());
        let change = self.changes.begin();
        let now = change.plan();
        let wants = read(wanted)?;
        let added = change.added();
        let merged = config::merge(&now.config, &wants.config, &added)?;
        let free = self.free_places()?;
        let (next, merged) = plan_merged(&now, &wants, merged, &free)?;
        let mut reloaded = Reloaded {
            data: Some(std::process::id()),
            changed: merged.changed,
            at_restart: merged.at_restart,
            ended_frames: 0,
        };
        if !wanted.only_check {
            reloaded.ended_frames = self.apply(&now, &next)?;
            log::set_level(next.config.host.log);
            change.set_plan(next, wants.fingerprint);
            say!("reconfigured: {}", summary(&reloaded));
        }
        drop(change);
        Ok(Reconfigured { reloaded, running: self.running() })
    }

    /// Returns the places that are free in all switches, once every frame that was handed off
    /// before has been received: a frame under way between two workers may name a place.
    fn free_places(&self) -> Result<FreePlaces, String> {
        self.wait_two_turns()?;
        let ask = |reply| WorkerRequest::Places(PlaceStep::Free(reply));
        let all = self.askers.answers_now(ask)?;
        let both = |a: FreePlaces, b: FreePlaces| FreePlaces {
            vnets: a.vnets.iter().zip(&b.vnets).map(|(a, b)| *a && *b).collect(),
            tunnels: a.tunnels.iter().zip(&b.tunnels).map(|(a, b)| *a && *b).collect(),
        };
        all.into_iter().reduce(both).ok_or_else(|| "there is no worker".to_owned())
    }

    fn wait_two_turns(&self) -> Result<(), String> {
        let ask = |reply| WorkerRequest::Places(PlaceStep::Turns(reply));
        let first = self.askers.answers_now(ask)?;
        let until = Instant::now() + TURNS_WITHIN;
        loop {
            let turns = self.askers.answers_now(ask)?;
            if turns.iter().zip(&first).all(|(now, first)| *now >= first + 2) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err("a worker makes no turns; try again".to_owned());
            }
            clock::sleep(TURNS_EVERY);
        }
    }

    /// Makes the switches and all that belongs to them those of another plan. Returns the number of
    /// frames that ended.
    fn apply(&self, now: &Plan, next: &Plan) -> Result<u64, String> {
        let changes = places::changes(now, next);
        let adds_tunnels =
            changes.iter().any(|one| matches!(one.change, PlaceChange::AddTunnel(..)));
        if adds_tunnels {
            // No frame may leave for a peer before it is guarded.
            self.names.guard().follow(next)?;
        }
        let ended = self.change_all(&changes).inspect_err(|_| {
            if let Err(error) = self.names.guard().follow(now) {
                say!(warn: "{error}");
            }
        })?;
        let moved = places::moved_addresses(now, next);
        let addresses = Arc::new(NewAddresses { known: next.addresses.clone(), moved });
        let ask =
            |reply| WorkerRequest::Places(PlaceStep::Addresses(Arc::clone(&addresses), reply));
        // The workers answered just before; one that hangs now is replaced with its process.
        if let Err(error) = self.askers.answers_now(ask) {
            say!(error: "addresses are not up to date: {error}");
        }
        self.next_hops.follow_plan(next);
        if let Err(error) = self.names.guard().follow(next) {
            say!(warn: "{error}");
        }
        self.names.follow_plan(next);
        Ok(ended)
    }

    /// Carries changes out, all or none.
    fn change_all(&self, changes: &[Undoable]) -> Result<u64, String> {
        let mut ended = 0;
        for (at, one) in changes.iter().enumerate() {
            match self.change(&one.change) {
                Ok(frames) => ended += frames,
                Err(error) => {
                    let undone = changes[..=at].iter().rev();
                    undone.for_each(|one| _ = self.change(&one.undo));
                    return Err(format!("nothing is changed, for {error}"));
                }
            }
        }
        Ok(ended)
    }

    /// Carries a change out in all switches. Returns the number of frames that ended.
    fn change(&self, change: &PlaceChange) -> Result<u64, String> {
        let change = Arc::new(change.clone());
        let ask = |reply| WorkerRequest::Places(PlaceStep::Change(Arc::clone(&change), reply));
        let done = self.askers.answers_now(ask)?.into_iter().collect::<Result<Vec<u32>, _>>();
        match done {
            Ok(frames) => Ok(frames.into_iter().map(u64::from).sum()),
            Err(error) => Err(format!("the switch refuses {change:?}: {error:?}")),
        }
    }
}

/// Reads and checks a configuration.
fn read(wanted: &Wanted) -> Result<Plan, String> {
    let plan = config::plan_beside(wanted.dir.as_deref(), "the new configuration", &wanted.text);
    plan.map_err(|report| report.to_string())
}

/// Plans what takes effect now, with the numbers of what stays.
fn plan_merged(
    now: &Plan,
    wants: &Plan,
    merged: Merged,
    free: &FreePlaces,
) -> Result<(Plan, Merged), String> {
    let is_free = (
        |vnet: VnetId| free.vnets.get(vnet.index()).copied().unwrap_or(false),
        |tunnel: TunnelId| free.tunnels.get(tunnel.index()).copied().unwrap_or(false),
    );
    let numbers: Numbers =
        now.numbers.follow(&now.config, &merged.config, is_free).map_err(|key| {
            format!(
                "every place for more is taken, or was left a moment ago; raise `{key}` of \
                 `[host]`, which takes effect at a restart, or try again"
            )
        })?;
    let plan = if merged.at_restart.is_empty() {
        wants.clone()
    } else {
        config::plan_of(&merged.config, now.dir.as_deref(), &KernelDevices)
            .map_err(|report| format!("the part that can take effect now is wrong: {report}"))?
    };
    let plan = config::renumber(plan, numbers, &KernelDevices)?;
    Ok((plan, merged))
}

fn summary(done: &Reloaded) -> String {
    let ended = match done.ended_frames {
        0 => String::new(),
        frames => format!("; {frames} frames ended under `removed`"),
    };
    let later = match done.at_restart.len() {
        0 => String::new(),
        count => format!("; {count} take effect at a restart"),
    };
    format!("{} changes{later}{ended}", done.changed.len())
}
