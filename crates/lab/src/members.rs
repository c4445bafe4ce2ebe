//! Hosts that become a fabric by command, as an operator makes one: the first host creates it, the
//! others join by a token, one command at the first makes each network for all, and each container
//! gets its port by a command at its host.
//!
//! Physical switches have no part in that: their files say everything.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use sluice_api::config::{ChipKind, HostConfig, KEYS_OF_FABRIC, LocalConfig, LocalUnderlay};

use crate::interrupt;
use crate::netns;
use crate::plan::{self, HostNode, Plan};
use crate::scenario::Scenario;

/// Time limit for a daemon to listen after its start.
const READY: Duration = Duration::from_secs(15);
/// Directory of a member's disk, in that of its host.
const STATE_DIR: &str = "state";

/// Returns the file of a daemon. A host that becomes a member by command is told nothing that the
/// fabric has.
pub(crate) fn file(plan: &Plan, config: HostConfig) -> anyhow::Result<String> {
    if !plan.by_command || config.fabric.is_none() {
        return Ok(toml::to_string(&config)?);
    }
    let underlay = config.underlay.map(|underlay| LocalUnderlay {
        kind: underlay.kind,
        link: underlay.link,
        ..LocalUnderlay::new(&underlay.device)
    });
    let mut host = config.host;
    let state_dir = plan.run_dir().join(&host.name).join(STATE_DIR);
    host.state_dir = Some(state_dir.to_string_lossy().into_owned());
    let (ports, vports, foreign) = (Vec::new(), Vec::new(), Vec::new());
    let local = LocalConfig {
        host,
        underlay,
        evpn: None,
        api: config.api,
        chip: config.chip,
        buffers: config.buffers,
        ports,
        vports,
        trunks: Vec::new(),
        foreign,
    };
    let mut table = toml::Table::try_from(local)?;
    if let Some(host) = table.get_mut("host").and_then(toml::Value::as_table_mut) {
        KEYS_OF_FABRIC.iter().for_each(|key| _ = host.remove(*key));
    }
    Ok(toml::to_string(&table)?)
}

/// Removes what a member of an earlier run has left on its disk.
pub(crate) fn forget(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder.join(STATE_DIR)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("emptying {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Makes the hosts, which are in no fabric yet, one fabric with the networks and the containers of
/// the plan.
pub(crate) fn become_fabric(
    plan: &Plan,
    scenario: &Scenario,
    program: &Path,
) -> anyhow::Result<()> {
    let [first, others @ ..] = &plan.hosts[..] else { return Ok(()) };
    for host in &plan.hosts {
        wait_until_it_listens(plan, host)?;
    }
    let sluice = |host: &HostNode, words: &[&str]| sluice(plan, host, program, words);
    sluice(first, &["fabric", "create", &plan.lab, "--underlay", "up0"])?;
    for host in others {
        let token = sluice(first, &["fabric", "token"])?;
        let address = first.vtep.to_string();
        sluice(host, &["fabric", "join", &address, "--token", token.trim()])?;
    }
    for vnet in plan.vnets() {
        let (vni, mtu) = (vnet.vni.context("a VNI")?.to_string(), plan.mtu.to_string());
        sluice(first, &["vnet", "create", &vnet.name, "--vni", &vni, "--mtu", &mtu])?;
    }
    for container in &plan.containers {
        let (host, netns) = (&plan.hosts[container.host], container.netns.as_str());
        let port = ["port", "add", "--name", &container.name, "--netns", netns];
        let kind: &[&str] = match plan.chip {
            ChipKind::Kernel | ChipKind::Switchdev => &["--kind", "kernel"],
            ChipKind::Software => &[],
        };
        sluice(host, &[&port[..], &["--vnet", &container.vnet], kind].concat())?;
        netns::enter(netns, || netns::ip(&plan::container_commands(plan, scenario, container)))?;
    }
    Ok(())
}

fn wait_until_it_listens(plan: &Plan, host: &HostNode) -> anyhow::Result<()> {
    let socket = plan.run_dir().join(&host.name).join("show.sock");
    let listens = interrupt::wait(READY, || Ok(UnixStream::connect(&socket).ok()))?;
    listens.with_context(|| format!("the daemon of {} does not listen", host.name)).map(drop)
}

/// Returns the output of a command at a host.
fn sluice(plan: &Plan, host: &HostNode, program: &Path, words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(words)
        .arg("--run-dir")
        .arg(plan.run_dir().join(&host.name))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`sluice {}` at {}: {}", words.join(" "), host.name, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
