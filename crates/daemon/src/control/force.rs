//! Control as the configuration of a fabric sees it: checks a whole configuration of this host, and
//! puts it in force.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sluice_api::config::{Host, HostConfig, Port, PortKind};
use sluice_api::placement::{Policy, Stamped};
use sluice_api::port::NewPort;
use sluice_api::reload::Reloaded;

use super::evpn_peers::EvpnPeers;
use super::policy::Held;
use super::ports::AddedPorts;
use super::{Event, Reloads};
use crate::config::{self, Devices as _, KernelDevices, Plan, Report};
use crate::configuration::InForce;
use crate::ipc::protocol::Places;

/// The way to control.
#[derive(Debug)]
pub(super) struct Force {
    reloads: Reloads,
    events: SyncSender<Event>,
    ports: Arc<AddedPorts>,
    held: Arc<Held>,
    evpn_peers: Arc<EvpnPeers>,
}

impl Force {
    pub(super) fn new(
        reloads: Reloads,
        events: SyncSender<Event>,
        (ports, held): (Arc<AddedPorts>, Arc<Held>),
        evpn_peers: Arc<EvpnPeers>,
    ) -> Self {
        Self { reloads, events, ports, held, evpn_peers }
    }
}

impl Force {
    /// Returns the reason against `l2` ports that come, as the VLANs of a trunk do: a port that was
    /// added has the name, or their device is not there.
    fn check_wires(&self, next: &HostConfig) -> Result<(), String> {
        let (now, added) = (self.ports.plan(), self.ports.open_ports());
        let comes = |port: &&Port| {
            port.kind == PortKind::L2 && !now.config.ports.iter().any(|old| old.name == port.name)
        };
        for port in next.ports.iter().filter(comes) {
            if added.iter().any(|other| other.name.as_deref() == Some(&port.name)) {
                return Err(format!(
                    "port `{}` would come, and one of that name was added; `sluice port del` it \
                     first",
                    port.name
                ));
            }
            if KernelDevices.facts(&port.device).is_none() {
                return Err(format!(
                    "port `{}` has the device `{}`, which is not there; make it, or name another",
                    port.name, port.device
                ));
            }
        }
        Ok(())
    }
}

impl InForce for Force {
    /// Gives the data process's reasons without asking it, as far as control knows them all: a
    /// question would take several times as long as the rest of a change.
    fn check(&self, config: HostConfig) -> Result<(), String> {
        let config = {
            let tunnels = self.ports.places().map(|places| places.tunnels);
            self.evpn_peers.added_to(&config, tunnels).unwrap_or(config)
        };
        self.ports.check(&config)?;
        self.check_wires(&config)?;
        config::check_policies(&self.ports.plan().config, &config, &self.ports.open_ports())?;
        let Some(places) = self.ports.places() else {
            return self.reloads.check(config).map(drop);
        };
        judge(&self.ports.plan(), &config, &self.ports.open_ports(), places)
    }

    fn apply(&self, config: HostConfig) -> Result<Reloaded, String> {
        self.reloads.apply(config)
    }

    fn check_placement(&self, policy: &Policy) -> Result<(), String> {
        judge_placement(&self.ports.plan().config.host, policy)
    }

    fn follow(&self, placement: Option<&Stamped>) -> Result<(), String> {
        self.held.put_in_force(placement)
    }

    fn placement_version(&self) -> u64 {
        self.held.version()
    }

    fn begin_anew(&self) {
        _ = self.events.send(Event::Upgrade(None));
    }

    fn left(&self, why: &str) {
        _ = self.events.send(Event::Left(why.to_owned()));
    }
}

/// Returns the reason against a placement policy on a host: none of its workers would be left.
/// Workers that are not pinned are on no CPU that could be excluded.
fn judge_placement(host: &Host, policy: &Policy) -> Result<(), String> {
    let cpus: BTreeSet<u32> = host.worker_cpus.iter().copied().chain(host.worker_cpu).collect();
    let excluded = policy.on(&host.name).excluded_cpus;
    let is_excluded = |cpu: &u32| u16::try_from(*cpu).is_ok_and(|cpu| excluded.contains(&cpu));
    if cpus.is_empty() || !cpus.iter().all(is_excluded) {
        return Ok(());
    }
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    Err(format!(
        "the placement policy excludes every CPU of its workers ({}); leave it one of them, by \
         `excluded_cpus` under `[hosts.{}]` of the policy",
        list.join(", "),
        host.name
    ))
}

/// Returns the reason against a configuration of this host that its data process would give.
fn judge(now: &Plan, next: &HostConfig, added: &[NewPort], places: Places) -> Result<(), String> {
    let wrong = |report: Report| format!("the configuration is wrong\n{report}");
    let dir = now.dir.as_deref();
    let next = config::checked(next, dir, &KernelDevices).map_err(wrong)?;
    if config::run_dir(&next.host) != now.run_dir {
        return Err(config::OTHER_RUN_DIR.to_owned());
    }
    let merged = config::merge(&now.config, &next, added)?;
    for (key, needs, has) in [
        ("spare_vnets", merged.config.vnets.len(), places.vnets),
        ("spare_tunnels", merged.config.peers.len(), places.tunnels),
    ] {
        if needs > has {
            return Err(config::no_place(key));
        }
    }
    if !merged.at_restart.is_empty() {
        let part = |report| format!("the part that can take effect now is wrong: {report}");
        config::checked(&merged.config, dir, &KernelDevices).map_err(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
