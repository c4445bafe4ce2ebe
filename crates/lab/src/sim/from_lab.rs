//! A scenario of the lab in the simulator: its hosts around one switch or behind a router, its
//! containers as virtual machines, the buffers and rates of its variant; its checks, then its
//! queries.
//!
//! Differences from the lab: time-outs of the cell are ignored (simulated seconds cost nothing).
//! Every host has as many machines as host 0 (machines without a container send nothing). A host
//! sends and receives with the fixed latencies of the simulator instead of a kernel's. Of a part
//! that only the lab has there is a warning where the rest can be simulated without it; otherwise
//! the scenario is refused ([`limits`]).

mod checks;
mod fabric;
mod limits;

use std::sync::Arc;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use sluice_base::{Nanos, Priority, PriorityMask};
use sluice_sim::tcp;
use sluice_sim::workload::Aggregate;

use self::fabric::Machines;
use super::experiment::{Case, Experiment, Load, Overrides, listed, mss, warnings};
use super::scenario::{default_delay_ns, default_receive_ns, default_send_ns};
use crate::plan::Plan;
use crate::run::Group;
use crate::scenario::{Pa, Profile, Scenario};
use crate::settings::Settings;

/// Time limit of a cell; a cell that takes longer is an error: an hour, simulated.
const END: Nanos = Nanos::from_millis(3_600_000);
/// The default seed.
const SEED: u64 = 1;

/// Returns the cells of a scenario of the lab.
///
/// # Errors
///
/// The simulator does not support a part of the scenario.
pub(super) fn experiment(
    mut scenario: Scenario,
    overrides: &Overrides,
) -> anyhow::Result<Experiment> {
    change(&mut scenario, overrides)?;
    limits::check(&scenario)?;
    let seed = overrides.seed.unwrap_or(SEED);
    let plan = Plan::new(&scenario);
    let machines = Machines::new(&scenario, &plan)?;
    let first = tcp_of(&scenario, &scenario.tcp.congestion)?;
    let mut built =
        Built { scenario: &scenario, machines, seed, cases: Vec::new(), shown: Vec::new() };
    built.add_checks(&first)?;
    if let Some(pa) = &scenario.pa {
        built.add_queries(pa)?;
    }
    Ok(Experiment {
        name: scenario.lab.name.clone(),
        about: scenario.lab.about.clone(),
        subject: crate::results::subject(&scenario),
        seed,
        profile: scenario.tcp.profile.name(),
        congestion: name_of(first.algorithm),
        rto_min: first.rto_min,
        background: false,
        settings: built.shown,
        cases: built.cases,
        warnings: warnings(&first).into_iter().chain(left_out(&scenario)).collect(),
        trace: None,
    })
}

/// Applies the options of the command line to the scenario.
fn change(scenario: &mut Scenario, overrides: &Overrides) -> anyhow::Result<()> {
    if let Some(pa) = &mut scenario.pa {
        pa.change(overrides.queries, overrides.sizes.as_deref(), overrides.policies.as_deref());
    } else {
        ensure!(
            overrides.queries.is_none() && overrides.sizes.is_none(),
            "this scenario has no queries: leave --queries and --sizes out"
        );
        ensure!(
            overrides.policies.is_none(),
            "this scenario has checks only, which run under lab.policy: leave --policies out"
        );
    }
    // The changed scenario is checked as if it had been written so.
    *scenario = Scenario::parse(&toml::to_string(scenario)?)?;
    Ok(())
}

/// Returns a line for each part that is left out, or is another than the lab's.
fn left_out(scenario: &Scenario) -> Vec<String> {
    let lab = &scenario.lab;
    let mut lines = Vec::new();
    if scenario.today.is_some() {
        lines.push(
            "today: the comparison with a Linux of today is not simulated: the simulator has no \
             hosts with a bridge and a VXLAN device"
                .to_owned(),
        );
    }
    if !lab.static_neighbours {
        lines.push(
            "lab.static_neighbours: ARP is not simulated: neighbours are known beforehand"
                .to_owned(),
        );
    }
    if lab.subnets > 1 {
        lines.push(
            "lab.subnets: the simulated router has the rate of a link and pauses; the lab's has \
             neither"
                .to_owned(),
        );
    }
    lines
}

fn tcp_of(scenario: &Scenario, congestion: &str) -> anyhow::Result<Arc<tcp::Config>> {
    let algorithm = limits::algorithm(congestion).context("a congestion control with a model")?;
    let mut config = match scenario.tcp.profile {
        Profile::Linux2013 => tcp::Config::linux_2013(algorithm),
        Profile::LinuxNow => tcp::Config::linux_now(algorithm),
        Profile::LinuxNow5ms => tcp::Config {
            rto_min: Nanos::from_millis(scenario.tcp.profile.rto_min_ms().into()),
            ..tcp::Config::linux_now(algorithm)
        },
    };
    config.mss = mss(&config, scenario.lab.mtu);
    Ok(Arc::new(config))
}

const fn name_of(algorithm: tcp::Algorithm) -> &'static str {
    match algorithm {
        tcp::Algorithm::Cubic => "cubic",
        tcp::Algorithm::NewReno => "reno",
        tcp::Algorithm::Vegas => "vegas",
    }
}

/// The cells so far, and the settings of their variants.
struct Built<'a> {
    scenario: &'a Scenario,
    machines: Machines<'a>,
    seed: u64,
    cases: Vec<Case>,
    shown: Vec<(String, Map<String, Value>)>,
}

impl Built<'_> {
    /// Adds a cell for each check, in the scenario's order and under its policy.
    fn add_checks(&mut self, tcp: &Arc<tcp::Config>) -> anyhow::Result<()> {
        let scenario = self.scenario;
        let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
        for check in &scenario.checks {
            let Some(load) = checks::load(check, &self.machines, tcp, self.seed)? else { continue };
            let policy = scenario.lab.policy;
            let variant = crate::results::variant(scenario, &settings);
            self.show(&variant, &settings, tcp)?;
            let world = fabric::parts(scenario, &settings, self.machines.each);
            let world = world.world(policy, self.seed)?;
            self.cases.push(Case {
                policy,
                variant,
                size: 0,
                world,
                load,
                background: None,
                sources: Vec::new(),
                used: PriorityMask(1),
                end: END,
            });
        }
        Ok(())
    }

    /// Adds the cells of Partition-Aggregate in the lab's order.
    fn add_queries(&mut self, pa: &Pa) -> anyhow::Result<()> {
        let workers = self.machines.workers()?;
        let aggregator = self.machines.station(&self.machines.first().name)?;
        for group in crate::run::groups(self.scenario) {
            for congestion in pa.congestions(&self.scenario.tcp) {
                let tcp = tcp_of(self.scenario, &congestion)?;
                let load = |size: u32| Aggregate {
                    tcp: Arc::clone(&tcp),
                    aggregator,
                    workers: workers.clone(),
                    request_bytes: crate::pa::REQUEST_BYTES as u64,
                    response_bytes: u64::from(size)
                        * crate::pa::segment_bytes(self.scenario.lab.mtu),
                    queries: pa.queries,
                    warm_up: pa.warm_up,
                    gap: Nanos::from_micros(pa.gap_us.into()),
                    priority: Priority::from_low_bits(pa.priority),
                    seed: self.seed,
                };
                let loads = pa.sizes.iter().map(|&size| (size, load(size))).collect::<Vec<_>>();
                self.add_group(&group, &tcp, loads)?;
            }
        }
        Ok(())
    }

    /// Adds the cells of one policy, variant and TCP.
    fn add_group(
        &mut self,
        group: &Group,
        tcp: &Arc<tcp::Config>,
        loads: Vec<(u32, Aggregate)>,
    ) -> anyhow::Result<()> {
        let scenario = self.scenario;
        let plain = crate::results::variant(scenario, &group.settings);
        let several = scenario.pa.as_ref().is_some_and(|pa| !pa.congestions.is_empty());
        let variant =
            if several { format!("{plain} tcp={}", name_of(tcp.algorithm)) } else { plain };
        self.show(&variant, &group.settings, tcp)?;
        let world = fabric::parts(scenario, &group.settings, self.machines.each);
        let world = world.world(group.policy, self.seed)?;
        for (size, plan) in loads {
            let mut used = PriorityMask::NONE;
            used.insert(plan.priority);
            self.cases.push(Case {
                policy: group.policy,
                variant: variant.clone(),
                size,
                world: world.clone(),
                load: Load::Aggregate(plan),
                background: None,
                sources: Vec::new(),
                used,
                end: END,
            });
        }
        Ok(())
    }

    /// Notes the settings of a variant, once.
    fn show(
        &mut self,
        variant: &str,
        settings: &Settings,
        tcp: &tcp::Config,
    ) -> anyhow::Result<()> {
        if !self.shown.iter().any(|(known, _)| known == variant) {
            let all = shown(self.scenario, settings, self.machines.each, tcp)?;
            self.shown.push((variant.to_owned(), all));
        }
        Ok(())
    }
}

fn shown(
    scenario: &Scenario,
    settings: &Settings,
    vms: u32,
    tcp: &tcp::Config,
) -> anyhow::Result<Map<String, Value>> {
    let mut all = Map::new();
    for (prefix, value) in [
        ("settings", serde_json::to_value(settings)?),
        ("tcp", serde_json::to_value(&scenario.tcp)?),
        ("pa", serde_json::to_value(&scenario.pa)?),
    ] {
        if let Value::Object(table) = value {
            all.extend(table.into_iter().map(|(key, value)| (format!("{prefix}_{key}"), value)));
        }
    }
    for unused in
        ["pa_queries_min", "pa_seconds_per_cell", "settings_catch_up_us", "settings_stall_ms"]
    {
        all.remove(unused);
    }
    let kind = if scenario.lab.subnets > 1 { "routed" } else { "star" };
    all.extend(listed(&[
        ("topology_kind", json!(kind)),
        ("topology_hosts", json!(scenario.lab.hosts)),
        ("topology_subnets", json!(scenario.lab.subnets)),
        ("topology_delay_ns", json!(default_delay_ns())),
        ("overlay_vms_per_host", json!(vms)),
        ("overlay_mtu", json!(scenario.lab.mtu)),
        ("settings_vport_out_frames", json!(settings.vport_out(vms))),
        ("sim_send_latency_ns", json!(default_send_ns())),
        ("sim_receive_latency_ns", json!(default_receive_ns())),
        ("tcp_mss", json!(tcp.mss)),
    ]));
    Ok(all)
}

#[cfg(test)]
mod tests;
