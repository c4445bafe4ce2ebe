//! Hosts that EVPN has named: peers of this host beside those of its configuration.
//!
//! ```text
//!   fabric::evpn ── VTEPs, at each turn ──> EvpnPeers ── Event::Peers ──> control: reconfigure
//!                                             │ evpn.json
//!   every configuration ── add_to ────────────┴──> the same with these peers
//! ```
//!
//! The file is in the run directory: a control process that starts beside a data process goes on
//! with its peers, and frames to them pass, until neighbors have told which there are.
//!
//! What a neighbor does costs others little: [`Steady`] bounds how often and how many, and a VTEP
//! takes no tunnel that the configuration needs.

mod steady;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sluice_api::config::{HostConfig, Peer};
use sluice_base::{Nanos, Vni};

use self::steady::Steady;
use super::{Control, Event};
use crate::config::{self, KernelDevices, Plan};
use crate::control::child::Link;
use crate::fabric::{ForeignHosts, Vteps};
use crate::sys::log::say;
use crate::sys::run_dir;

/// Name of the file in the run directory.
const FILE: &str = "evpn.json";
/// Part of the places that is left to configured peers, one at least. The place of a peer that goes
/// is not free in the same change: who comes finds one here, and the others make room after it.
const RESERVE: usize = 8;
/// Time after which control is asked once more.
const ASK_EVERY: Nanos = Nanos::from_millis(1_000);

/// The peers that EVPN has named.
#[derive(Debug)]
pub(super) struct EvpnPeers {
    file: PathBuf,
    state: Mutex<State>,
    events: SyncSender<Event>,
}

#[derive(Debug, Default)]
struct State {
    steady: Steady,
    /// VTEPs that are peers of the running configuration by EVPN.
    running: BTreeSet<Ipv4Addr>,
    /// True if control was asked to put them in force, and has not begun.
    is_asked: bool,
    /// Time at which control may be asked.
    ask_at: Nanos,
    /// True if they are in force.
    is_done: bool,
    /// Reason why they are not, as it was logged.
    failure: Option<String>,
    /// Number of VTEPs for which there is no place, as it was logged.
    left_out: usize,
}

impl EvpnPeers {
    /// Returns the peers that an earlier process has left in the run directory.
    pub(super) fn load(run_dir: &Path, events: SyncSender<Event>) -> Self {
        let file = run_dir.join(FILE);
        let rows = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                say!(warn: "{}: {error}; neighbors will name them again", file.display());
            }
            Vec::new()
        });
        let running = rows.iter().filter(|row| row.is_peer).map(|row| row.vtep).collect();
        // The others are looked at once data says for how many it has places.
        let is_done = rows.iter().all(|row| row.is_peer);
        let vnis = |row: Row| row.vnis.into_iter().filter_map(Vni::new).collect();
        let vteps = rows.into_iter().map(|row| (row.vtep, vnis(row))).collect();
        let steady = Steady::new(vteps);
        let state = State { steady, running, is_done, ..State::default() };
        Self { file, state: Mutex::new(state), events }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a plan with these peers; the plan itself if it has them already. `tunnels` is the
    /// number of peers for which the data process has places, if that is known.
    ///
    /// # Errors
    /// If it is wrong with them.
    pub(super) fn add_to(
        &self,
        plan: Plan,
        tunnels: Option<usize>,
    ) -> Result<Plan, config::Report> {
        match self.added_to(&plan.config, tunnels) {
            None => Ok(plan),
            Some(config) => config::plan_of(&config, plan.dir.as_deref(), &KernelDevices),
        }
    }

    /// Returns a configuration with these peers and no others of EVPN; `None` if it is so.
    pub(super) fn added_to(
        &self,
        config: &HostConfig,
        tunnels: Option<usize>,
    ) -> Option<HostConfig> {
        let mut state = self.state();
        let (peers, left_out) = peers_of(config, state.steady.vteps(), &state.running, tunnels);
        if std::mem::replace(&mut state.left_out, left_out) != left_out && left_out > 0 {
            say!(
                warn: "EVPN: {left_out} VTEPs are no peers, for which there is no place; raise \
                       `spare_tunnels` of `[host]`, which takes effect at a restart"
            );
        }
        (peers != config.peers).then(|| HostConfig { peers, ..config.clone() })
    }

    /// Notes the configuration that runs: its peers by EVPN keep their places before others.
    pub(super) fn set_running(&self, config: &HostConfig) {
        let peers = config.peers.iter().filter(|peer| peer.by_evpn);
        let running = peers.map(|peer| peer.vtep).collect();
        let mut state = self.state();
        if std::mem::replace(&mut state.running, running) != state.running {
            self.write(&state);
        }
    }

    fn write(&self, state: &State) {
        let rows: Vec<Row> = state
            .steady
            .vteps()
            .iter()
            .map(|(vtep, vnis)| Row {
                vtep: *vtep,
                vnis: vnis.iter().map(|vni| vni.get()).collect(),
                is_peer: state.running.contains(vtep),
            })
            .collect();
        let text = serde_json::to_string(&rows).map_err(io::Error::from);
        if let Err(error) = text.and_then(|text| run_dir::replace(&self.file, &text)) {
            let file = self.file.display();
            say!(warn: "{file}: {error}; a start of control will wait for EVPN");
        }
    }
}

impl ForeignHosts for EvpnPeers {
    fn set(&self, now: Nanos, vteps: &Vteps, all: bool) {
        let mut state = self.state();
        if state.steady.follow(now, vteps, all) {
            (state.is_done, state.ask_at) = (false, now);
            self.write(&state);
        }
        if !state.is_done && !state.is_asked && state.ask_at <= now {
            // Control may be busy: a later call asks again.
            state.is_asked = self.events.try_send(Event::Peers).is_ok();
            state.ask_at = now.after(ASK_EVERY);
        }
    }

    fn forget(&self) {
        let mut state = self.state();
        // Without `[evpn]` there are none in the configuration.
        state.steady.forget();
        self.write(&state);
    }
}

impl Control<'_> {
    /// Puts the peers that EVPN has named in force.
    pub(super) fn follow_evpn(&mut self, link: Option<&mut Link>) {
        let peers = std::sync::Arc::clone(&self.evpn_peers);
        {
            // What comes from now on is asked for anew.
            let mut state = peers.state();
            (state.is_asked, state.is_done) = (false, true);
        }
        let base = self.wanted.as_ref().unwrap_or(&self.plan).clone();
        let fingerprint = base.fingerprint.to_string();
        let done = match (peers.add_to(base, self.tunnels()), link) {
            (Ok(plan), _) if plan.fingerprint.to_string() == fingerprint => Ok(Vec::new()),
            (Ok(plan), Some(link)) => self.reconfigure(&plan, false, link).map(|done| done.changed),
            (Ok(_), None) => Err("no data process runs just now".to_owned()),
            (Err(report), _) => Err(report.to_string()),
        };
        let mut state = peers.state();
        match done {
            Ok(changed) => {
                for change in changed {
                    say!("EVPN: {change}");
                }
                state.failure = None;
            }
            Err(why) => {
                if state.failure.as_ref() != Some(&why) {
                    say!(error: "EVPN: its VTEPs are no peers yet, and are tried again: {why}");
                }
                (state.failure, state.is_done) = (Some(why), false);
            }
        }
    }
}

/// Returns the peers of a configuration, with those that EVPN names, and the number of VTEPs for
/// which there is no place: those that run come first, and all of them after what is configured. A
/// VTEP of the configuration stays what it is there. What a neighbor says must not make the
/// configuration wrong: nobody could change anything then.
fn peers_of(
    config: &HostConfig,
    vteps: &Vteps,
    running: &BTreeSet<Ipv4Addr>,
    tunnels: Option<usize>,
) -> (Vec<Peer>, usize) {
    let mut peers: Vec<Peer> = config.peers.iter().filter(|peer| !peer.by_evpn).cloned().collect();
    if config.evpn.is_none() {
        return (peers, 0);
    }
    let own = config.underlay.as_ref().map(|underlay| underlay.address);
    let known: BTreeSet<Ipv4Addr> = peers.iter().map(|peer| peer.vtep).chain(own).collect();
    let names: BTreeSet<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    let is_other = |vtep: &Ipv4Addr| {
        config::is_host_address(*vtep) && !vtep.is_loopback() && !known.contains(vtep)
    };
    let spare = usize::from(config.spare_tunnels());
    let reserve = (spare / RESERVE).max(1);
    let mut places = match tunnels {
        Some(tunnels) => tunnels.saturating_sub(peers.len() + reserve),
        // Control begins: data that runs has places for these.
        None if !running.is_empty() => running.len(),
        None => spare.saturating_sub(reserve),
    };
    let (mut chosen, mut left_out) = (BTreeMap::new(), 0);
    let (first, then): (Vec<_>, Vec<_>) = vteps
        .iter()
        .filter(|(vtep, _)| is_other(vtep))
        .partition(|(vtep, _)| running.contains(vtep));
    for (vtep, vnis) in first.into_iter().chain(then) {
        let has = |vni: Option<u32>| vni.and_then(Vni::new).is_some_and(|vni| vnis.contains(&vni));
        let vnets = config.vnets.iter().filter(|vnet| has(vnet.vni));
        let vnets: Vec<String> = vnets.map(|vnet| vnet.name.clone()).collect();
        let name = format!("evpn-{vtep}");
        if vnets.is_empty() || names.contains(&name) {
            continue;
        }
        let Some(rest) = places.checked_sub(1) else {
            left_out += 1;
            continue;
        };
        places = rest;
        let (next_hop, id, address) = (None, None, None);
        let peer = Peer { name, vtep: *vtep, vnets, next_hop, id, address, by_evpn: true };
        chosen.insert(*vtep, peer);
    }
    // In the same order whichever came first: another order is another configuration.
    peers.extend(chosen.into_values());
    (peers, left_out)
}

/// A VTEP in the file.
#[derive(Serialize, Deserialize)]
struct Row {
    vtep: Ipv4Addr,
    /// Numbers of its networks.
    vnis: Vec<u32>,
    /// True if it is a peer, or was when the file was written.
    is_peer: bool,
}

fn read(file: &Path) -> io::Result<Vec<Row>> {
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

#[cfg(test)]
mod tests;
