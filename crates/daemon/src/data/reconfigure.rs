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

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::config::HostConfig;
use sluice_api::port::NewPort;
use sluice_api::reload::Reloaded;
use sluice_base::{Nanos, PortId, TunnelId, VnetId};
use sluice_switch::FreePlaces;

use super::places::{self, PlaceChange, Undoable};
use super::server::Server;
use super::worker::{NewAddresses, PlaceStep, WorkerRequest};
use crate::config::{self, KernelDevices, Merged, Numbers, Plan};
use crate::ipc::protocol::{Places, Reconfigured, Running, Wanted};
use crate::sys::clock;
use crate::sys::log::{self, say};

/// Longest time for two turns of every worker.
const TURNS_WITHIN: Duration = Duration::from_secs(2);
const TURNS_EVERY: Nanos = Nanos::from_micros(200);
/// Questions about turns before the first pause.
const TURNS_AT_ONCE: u32 = 4;
/// Longest wait for places that were left, and the time between two looks.
const LEFT_WITHIN: Duration = Duration::from_secs(1);
const LEFT_EVERY: Nanos = Nanos::from_millis(5);
/// Changes of one turn of a worker.
const ALIKE_MAX: usize = 32;
/// Networks that a worker removes in one turn: it walks its queues once for all of them.
const REMOVED_MAX: usize = 1_024;

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
        // Who asks what would be learns how many places there are, too.
        let is_looked_at = wanted.only_check || needs_places(&now.config, &merged.config);
        let free = match is_looked_at {
            true => Some(self.wait_for_places(&now, &merged.config, wanted.only_check)?),
            false => None,
        };
        let places = free.as_ref().map(count);
        let (next, merged) = plan_merged(&now, &wants, merged, &free.unwrap_or_default())?;
        let mut reloaded = Reloaded {
            data: Some(std::process::id()),
            changed: merged.changed,
            at_restart: merged.at_restart,
            ended_frames: 0,
        };
        if !wanted.only_check {
            reloaded.ended_frames = self.apply(&now, &next, &change.numbered_added())?;
            log::set_level(next.config.host.log);
            change.set_plan(next, wants.fingerprint);
            say!("reconfigured: {}", summary(&reloaded));
        }
        drop(change);
        Ok(Reconfigured { reloaded, running: self.running(), places })
    }

    /// Returns the free places. A place that was left a moment ago is waited for if it is needed:
    /// the members have agreed on the configuration already.
    fn wait_for_places(
        &self,
        now: &Plan,
        next: &HostConfig,
        only_check: bool,
    ) -> Result<FreePlaces, String> {
        let until = Instant::now() + LEFT_WITHIN;
        loop {
            let free = self.free_places()?;
            let is_enough = now.numbers.follow(&now.config, next, are_free(&free)).is_ok();
            let is_full =
                next.vnets.len() > free.vnets.len() || next.peers.len() > free.tunnels.len();
            if is_enough || is_full || only_check || Instant::now() > until {
                return Ok(free);
            }
            clock::sleep(LEFT_EVERY);
        }
    }

    /// Returns the places that are free in all switches, once every frame that was handed off
    /// before has been received: a frame under way between two workers may name a place.
    fn free_places(&self) -> Result<FreePlaces, String> {
        if self.askers.0.len() > 1 {
            self.wait_two_turns()?;
        }
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
        for round in 0.. {
            let turns = self.askers.answers_now(ask)?;
            if turns.iter().zip(&first).all(|(now, first)| *now >= first + 2) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err("a worker makes no turns; try again".to_owned());
            }
            // Each question is a turn of a worker that sleeps.
            if round >= TURNS_AT_ONCE {
                clock::sleep(TURNS_EVERY);
            }
        }
        Ok(())
    }

    /// Makes the switches and all that belongs to them those of another plan. Returns the number of
    /// frames that ended.
    fn apply(&self, now: &Plan, next: &Plan, added: &[(PortId, NewPort)]) -> Result<u64, String> {
        let changes = places::changes(now, next, added);
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
        let (mut ended, mut done) = (0, 0);
        for some in alike(changes) {
            done += some.len();
            match self.change(some.iter().map(|one| one.change.clone()).collect()) {
                Ok(frames) => ended += frames,
                Err(error) => {
                    // Of the last ones some were not carried out; taking those back does nothing.
                    let undone = changes[..done].iter().rev();
                    undone.for_each(|one| _ = self.change(vec![one.undo.clone()]));
                    return Err(format!("nothing is changed, for {error}"));
                }
            }
        }
        Ok(ended)
    }

    /// Carries changes out in all switches. Returns the number of frames that ended.
    fn change(&self, changes: Vec<PlaceChange>) -> Result<u64, String> {
        let changes = Arc::new(changes);
        let ask = |reply| WorkerRequest::Places(PlaceStep::Change(Arc::clone(&changes), reply));
        let done = self.askers.answers_now(ask)?.into_iter().collect::<Result<Vec<u64>, _>>();
        match done {
            Ok(frames) => Ok(frames.into_iter().sum()),
            Err((at, error)) => Err(format!("the switch refuses {:?}: {error:?}", changes.get(at))),
        }
    }
}

/// Returns changes in groups that a worker carries out in one turn: neighbours of one kind, which
/// do not build on each other, and not so many that frames would wait.
fn alike(changes: &[Undoable]) -> impl Iterator<Item = &[Undoable]> {
    let kind = |one: &Undoable| std::mem::discriminant(&one.change);
    changes.chunk_by(move |a, b| kind(a) == kind(b)).flat_map(|group| {
        let is_removal = matches!(group[0].change, PlaceChange::RemoveVnet(_));
        group.chunks(if is_removal { REMOVED_MAX } else { ALIKE_MAX })
    })
}

/// Returns true if a configuration has networks or peers that another one does not have.
fn needs_places(now: &HostConfig, next: &HostConfig) -> bool {
    let vnets: BTreeSet<_> = now.vnets.iter().map(config::vnet_key).collect();
    let is_new = |vnet| !vnets.contains(&config::vnet_key(vnet));
    next.vnets.iter().any(is_new)
        || next
            .peers
            .iter()
            .any(|peer| !now.peers.iter().any(|old| config::is_same_peer(old, peer)))
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
    let numbers: Numbers = now
        .numbers
        .follow(&now.config, &merged.config, are_free(free))
        .map_err(config::no_place)?;
    let plan = if merged.at_restart.is_empty() {
        wants.clone()
    } else {
        config::plan_of(&merged.config, now.dir.as_deref(), &KernelDevices)
            .map_err(|report| format!("the part that can take effect now is wrong: {report}"))?
    };
    let plan = config::renumber(plan, numbers, &KernelDevices)?;
    Ok((plan, merged))
}

/// Returns the number of all places, free or not.
fn count(free: &FreePlaces) -> Places {
    Places { vnets: free.vnets.len(), tunnels: free.tunnels.len() }
}

/// Returns which networks' and which tunnels' places are free.
fn are_free(free: &FreePlaces) -> (impl Fn(VnetId) -> bool, impl Fn(TunnelId) -> bool) {
    (|vnet| free.has_vnet(vnet), |tunnel| free.has_tunnel(tunnel))
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
