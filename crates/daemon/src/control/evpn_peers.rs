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

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_api::config::{HostConfig, Peer};
use sluice_base::Vni;

use super::{Control, Event};
use crate::config::{self, KernelDevices, Plan};
use crate::control::child::Link;
use crate::fabric::{ForeignHosts, Vteps};
use crate::sys::log::say;
use crate::sys::run_dir;

/// Name of the file in the run directory.
const FILE: &str = "evpn.json";

/// The peers that EVPN has named.
#[derive(Debug)]
pub(super) struct EvpnPeers {
    file: PathBuf,
    state: Mutex<State>,
    events: SyncSender<Event>,
}

#[derive(Debug, Default)]
struct State {
    vteps: Vteps,
    /// True if control was asked to put them in force, and has not begun.
    is_asked: bool,
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
        let vteps = read(&file).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                say!(warn: "{}: {error}; neighbors will name them again", file.display());
            }
            Vteps::new()
        });
        let state = State { vteps, is_done: true, ..State::default() };
        Self { file, state: Mutex::new(state), events }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a plan with these peers; the plan itself if it has them already.
    ///
    /// # Errors
    /// If it is wrong with them.
    pub(super) fn add_to(&self, plan: Plan) -> Result<Plan, config::Report> {
        match self.added_to(&plan.config) {
            None => Ok(plan),
            Some(config) => config::plan_of(&config, plan.dir.as_deref(), &KernelDevices),
        }
    }

    /// Returns a configuration with these peers and no others of EVPN; `None` if it is so.
    pub(super) fn added_to(&self, config: &HostConfig) -> Option<HostConfig> {
        let mut state = self.state();
        let (peers, left_out) = peers_of(config, &state.vteps);
        if std::mem::replace(&mut state.left_out, left_out) != left_out && left_out > 0 {
            say!(
                warn: "EVPN: {left_out} VTEPs are no peers, for which there is no place; raise \
                       `spare_tunnels` of `[host]`, which takes effect at a restart"
            );
        }
        (peers != config.peers).then(|| HostConfig { peers, ..config.clone() })
    }
}

impl ForeignHosts for EvpnPeers {
    fn set(&self, vteps: &Vteps, all: bool) {
        let mut state = self.state();
        let mut next = vteps.clone();
        for (vtep, vnis) in state.vteps.iter().filter(|_| !all) {
            next.entry(*vtep).or_default().extend(vnis);
        }
        if state.vteps != next {
            let written = write(&self.file, &next);
            (state.vteps, state.is_done) = (next, false);
            if let Err(error) = written {
                let file = self.file.display();
                say!(warn: "{file}: {error}; a start of control will wait for EVPN");
            }
        }
        if !state.is_done && !state.is_asked {
            // Control may be busy: the next call asks again.
            state.is_asked = self.events.try_send(Event::Peers).is_ok();
        }
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
        let done = match (peers.add_to(base), link) {
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
/// which there is no place. A VTEP of the configuration stays what it is there. What a neighbor
/// says must not make the configuration wrong: nobody could change anything then.
fn peers_of(config: &HostConfig, vteps: &Vteps) -> (Vec<Peer>, usize) {
    let mut peers: Vec<Peer> = config.peers.iter().filter(|peer| !peer.by_evpn).cloned().collect();
    if config.evpn.is_none() {
        return (peers, 0);
    }
    let own = config.underlay.as_ref().map(|underlay| underlay.address);
    let known: BTreeSet<Ipv4Addr> = peers.iter().map(|peer| peer.vtep).chain(own).collect();
    let names: BTreeSet<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    let is_one = |vtep: &Ipv4Addr| {
        vtep.octets()[0] != 0 && !vtep.is_loopback() && !vtep.is_multicast() && !vtep.is_broadcast()
    };
    let (mut places, mut left_out) = (config.spare_tunnels(), 0);
    let others = vteps.iter().filter(|(vtep, _)| is_one(vtep) && !known.contains(vtep));
    for (vtep, vnis) in others {
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
        peers.push(Peer { name, vtep: *vtep, vnets, next_hop, id, address, by_evpn: true });
    }
    (peers, left_out)
}

/// Reads the file: for each VTEP the numbers of its networks.
fn read(file: &Path) -> io::Result<Vteps> {
    let text = fs::read_to_string(file)?;
    let rows: Vec<(Ipv4Addr, Vec<u32>)> = serde_json::from_str(&text)?;
    let vnis = |vnis: Vec<u32>| vnis.into_iter().filter_map(Vni::new).collect();
    Ok(rows.into_iter().map(|(vtep, numbers)| (vtep, vnis(numbers))).collect())
}

fn write(file: &Path, vteps: &Vteps) -> io::Result<()> {
    let numbers = |vnis: &BTreeSet<Vni>| vnis.iter().map(|vni| vni.get()).collect();
    let rows: Vec<(Ipv4Addr, Vec<u32>)> =
        vteps.iter().map(|(vtep, vnis)| (*vtep, numbers(vnis))).collect();
    run_dir::replace(file, &serde_json::to_string(&rows)?)
}

#[cfg(test)]
mod tests;
