//! Beginning of a member whose file does not fit the fabric's configuration.
//!
//! ```text
//!   file and configuration fit ────────▶ plan of both
//!   else: a data process runs ─────────▶ its plan, so that it forwards with its last tables
//!   else: what of the file fits ───────▶ plan without ports in networks that are not there,
//!                                        or without ports, or with the host's names alone
//! ```
//!
//! A host that was away may have a file for a network that it has not heard of, and hears of it
//! only while control runs. So control runs: it says what does not fit, and the thread of the
//! configuration applies the file once it does.

use std::collections::BTreeMap;

use sluice_api::config::{LocalConfig, Policy, UnderlayKind};
use sluice_api::fabric_config::{FabricConfig, Settings};

use super::kept::DescriptorStore;
use super::{child, reload};
use crate::config::member::local_default;
use crate::config::{self, KernelDevices, Plan};
use crate::configuration::{Opened, setup};
use crate::sys::log::say;

/// Returns the plan that a member begins with.
///
/// # Errors
/// If not even the host's names and its underlay fit this machine.
pub(super) fn plan_of(opened: &mut Opened) -> anyhow::Result<Plan> {
    let why = match config::plan_of(&opened.config()?, None, &KernelDevices) {
        Ok(plan) => return Ok(plan),
        Err(why) => why,
    };
    let revision = opened.revision();
    say!(
        error: "the file of this host does not fit revision {revision} of the fabric's \
                configuration, and is applied as soon as it does: {why}"
    );
    let (plan, without) = match running(opened) {
        Some(plan) => (plan, "its data process goes on with what it has"),
        None => reduced(opened).ok_or_else(|| anyhow::anyhow!("{why}"))?,
    };
    say!(warn: "until then {without}");
    opened.begins_without(why.to_string());
    Ok(plan)
}

/// Returns the plan of the data process that runs, if that is one of the same member.
fn running(opened: &Opened) -> Option<Plan> {
    let plan = reload::running(&opened.run_dir())?;
    let is_member = plan.config.fabric.as_ref().is_some_and(|fabric| opened.is_in(fabric));
    is_member.then_some(plan)
}

/// Returns a plan with less of the file, and what it lacks.
fn reduced(opened: &Opened) -> Option<(Plan, &'static str)> {
    let (local, shared) = (opened.local(), opened.shared());
    let lonely = members_alone(shared, opened.underlay_kind());
    let candidates = [
        (without_networks(local, shared), shared, "its ports in networks that are not there wait"),
        (without_ports(local), shared, "the ports of the file wait"),
        (names_alone(local), shared, "all that the file says beside names and directories waits"),
        (names_alone(local), &lonely, "it is in no network, and hears what the members say"),
    ];
    candidates.into_iter().find_map(|(local, shared, without)| {
        let config = opened.config_with(&local, shared).ok()?;
        let plan = config::plan_of(&config, None, &KernelDevices).ok()?;
        Some((plan, without))
    })
}

/// Returns a file without ports in networks that the fabric does not have.
fn without_networks(local: &LocalConfig, shared: &FabricConfig) -> LocalConfig {
    let mut local = local.clone();
    local.ports.retain(|port| shared.vnets.contains_key(&port.vnet));
    let has = |name: &String| local.ports.iter().any(|port| port.name == *name);
    local.vports.retain(|vport| vport.port.as_ref().is_some_and(has));
    local
}

fn without_ports(local: &LocalConfig) -> LocalConfig {
    let mut local = local.clone();
    local.ports.clear();
    local.vports.clear();
    local.foreign.clear();
    local
}

fn names_alone(local: &LocalConfig) -> LocalConfig {
    let mut bare = local_default(&local.host.name);
    bare.host.log = local.host.log;
    bare.host.seccomp = local.host.seccomp;
    bare.host.run_dir.clone_from(&local.host.run_dir);
    bare.host.state_dir.clone_from(&local.host.state_dir);
    bare.host.user.clone_from(&local.host.user);
    bare.host.group.clone_from(&local.host.group);
    bare
}

/// Returns a fabric of its members: no network has an MTU too large for the underlay, and the
/// policy is one that the underlay can keep.
fn members_alone(shared: &FabricConfig, underlay: UnderlayKind) -> FabricConfig {
    let policy = Some(Policy::default().on(underlay));
    let settings = Settings { policy, ..Settings::default() };
    FabricConfig { vnets: BTreeMap::new(), settings, ..shared.clone() }
}

/// Ends the membership of a host that was taken out before it was stopped: its data process is
/// drained, and what it knew is moved away.
///
/// # Errors
/// If that cannot be done.
pub(super) fn end_membership(opened: Opened) -> anyhow::Result<()> {
    let (run_dir, state_dir) = (opened.run_dir(), opened.state_dir().to_owned());
    // Closes the file that is to be moved.
    drop(opened);
    say!(warn: "this host is in no fabric any more: the fabric has removed it");
    let plan = reload::running(&run_dir);
    if let child::Found::Running(link) = child::find(&run_dir)? {
        child::drain(link);
    }
    if let Some(plan) = plan {
        DescriptorStore::new(&run_dir).delete_devices(&plan);
    }
    setup::forget(&state_dir)
}
