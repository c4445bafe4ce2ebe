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
//! A neighbor costs others little: [`Steady`] bounds how often VTEPs change and how many there are,
//! and a VTEP takes no tunnel that the configuration needs.

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
    /// Peers of the running configuration.
    running: Vec<Peer>,
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
        let running = rows.iter().filter(|row| row.is_peer).map(|row| peer(row.vtep, Vec::new()));
        let running = running.collect();
        let vnis = |row: Row| row.vnis.into_iter().filter_map(Vni::new).collect();
        let vteps = rows.into_iter().map(|row| (row.vtep, vnis(row))).collect();
        let steady = Steady::new(vteps);
        let state = State { steady, running, is_done: true, ..State::default() };
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
        let Chosen { peers, left_out, waiting } =
            choose(config, state.steady.vteps(), &state.running, tunnels);
        // Places may come free, or be known later: they are looked for again.
        state.is_done &= left_out + waiting == 0;
        if std::mem::replace(&mut state.left_out, left_out) != left_out && left_out > 0 {
            say!(
                warn: "EVPN: {left_out} VTEPs are no peers, for which there is no place; raise \
                       `spare_tunnels` of `[host]`, which takes effect at a restart"
            );
        }
        (peers != config.peers).then(|| HostConfig { peers, ..config.clone() })
    }

    /// Returns a plan that is to be in force before another one is, if that brings peers of the
    /// configuration and VTEPs are none in it any more: these go first, so that there is room.
    pub(super) fn make_room(&self, now: &Plan, next: &Plan) -> Option<Plan> {
        let stays = |old: &Peer| next.config.peers.iter().any(|new| config::is_same_peer(old, new));
        let (old, new) = (&now.config.peers, &next.config.peers);
        let goes = |peer: &Peer| peer.by_evpn && !stays(peer);
        let comes =
            |peer: &&Peer| !peer.by_evpn && !old.iter().any(|old| config::is_same_peer(old, peer));
        if !old.iter().any(goes) || new.iter().filter(comes).count() == 0 {
            return None;
        }
        let peers = old.iter().filter(|peer| !goes(peer)).cloned().collect();
        let config = HostConfig { peers, ..now.config.clone() };
        config::plan_of(&config, now.dir.as_deref(), &KernelDevices).ok()
    }

    /// Notes the configuration that runs: its peers by EVPN keep their places before others.
    pub(super) fn set_running(&self, config: &HostConfig) {
        let mut state = self.state();
        if state.running != config.peers {
            state.running.clone_from(&config.peers);
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
                is_peer: state.running.iter().any(|peer| peer.by_evpn && peer.vtep == *vtep),
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
            // What comes from now on is asked for anew, and what found no place.
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

/// Peers of a configuration, with those that EVPN names.
struct Chosen {
    peers: Vec<Peer>,
    /// VTEPs for which there is no place.
    left_out: usize,
    /// VTEPs whose places are not free yet, or not known.
    waiting: usize,
}

/// Chooses the peers of a configuration: first those that are configured, then VTEPs that run, then
/// others. A VTEP of the configuration stays what it is there. What a neighbor says must not make
/// the configuration wrong: nobody could change anything then.
fn choose(config: &HostConfig, vteps: &Vteps, running: &[Peer], tunnels: Option<usize>) -> Chosen {
    let mut peers: Vec<Peer> = config.peers.iter().filter(|peer| !peer.by_evpn).cloned().collect();
    let (mut left_out, mut waiting) = (0, 0);
    if config.evpn.is_none() {
        return Chosen { peers, left_out, waiting };
    }
    let own = config.underlay.as_ref().map(|underlay| underlay.address);
    let known: BTreeSet<Ipv4Addr> = peers.iter().map(|peer| peer.vtep).chain(own).collect();
    let names: BTreeSet<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    let is_other = |vtep: &Ipv4Addr| {
        config::is_host_address(*vtep) && !vtep.is_loopback() && !known.contains(vtep)
    };
    let by_evpn = running.iter().filter(|peer| peer.by_evpn);
    let by_evpn: BTreeSet<Ipv4Addr> = by_evpn.map(|peer| peer.vtep).collect();
    let mut places = Places::of(config, &peers, running, tunnels);
    let mut chosen = BTreeMap::new();
    let others = vteps.iter().filter(|(vtep, _)| is_other(vtep));
    let (first, then): (Vec<_>, Vec<_>) = others.partition(|(vtep, _)| by_evpn.contains(vtep));
    for (vtep, vnis) in first.into_iter().chain(then) {
        let has = |vni: Option<u32>| vni.and_then(Vni::new).is_some_and(|vni| vnis.contains(&vni));
        let vnets = config.vnets.iter().filter(|vnet| has(vnet.vni));
        let vnets: Vec<String> = vnets.map(|vnet| vnet.name.clone()).collect();
        let peer = peer(*vtep, vnets);
        if peer.vnets.is_empty() || names.contains(&peer.name) {
            continue;
        }
        match places.take(by_evpn.contains(vtep)) {
            Place::Free => _ = chosen.insert(*vtep, peer),
            Place::Later => waiting += 1,
            Place::None => left_out += 1,
        }
    }
    // In the same order whichever came first: another order is another configuration.
    peers.extend(chosen.into_values());
    Chosen { peers, left_out, waiting }
}

/// Returns the peer that EVPN makes of a VTEP.
fn peer(vtep: Ipv4Addr, vnets: Vec<String>) -> Peer {
    let (next_hop, id, address) = (None, None, None);
    Peer { name: format!("evpn-{vtep}"), vtep, vnets, next_hop, id, address, by_evpn: true }
}

/// Places for VTEPs.
struct Places {
    /// All that are left to them; `None`: not known, and those that run have theirs.
    all: Option<usize>,
    /// Places that are free now: that of a peer that goes is not, in the same change.
    free: usize,
}

enum Place {
    Free,
    Later,
    None,
}

impl Places {
    fn of(
        config: &HostConfig,
        configured: &[Peer],
        running: &[Peer],
        tunnels: Option<usize>,
    ) -> Self {
        let reserve = (usize::from(config.spare_tunnels()) / RESERVE).max(1);
        let is_new = |peer: &&Peer| !running.iter().any(|old| config::is_same_peer(old, peer));
        let come = configured.iter().filter(is_new).count();
        let all = tunnels.map(|tunnels| tunnels.saturating_sub(configured.len() + reserve));
        Self { all, free: tunnels.unwrap_or(0).saturating_sub(running.len() + come) }
    }

    fn take(&mut self, has_one: bool) -> Place {
        let Some(all) = &mut self.all else {
            return if has_one { Place::Free } else { Place::Later };
        };
        let Some(rest) = all.checked_sub(1) else { return Place::None };
        if !has_one {
            let Some(free) = self.free.checked_sub(1) else { return Place::Later };
            self.free = free;
        }
        *all = rest;
        Place::Free
    }
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
