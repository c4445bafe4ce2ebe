//! A scenario of the lab in the simulator: its hosts around one switch, its containers as virtual
//! machines, the buffers and rates of its variant.
//!
//! Differences from the lab: time-outs of the cell are ignored (simulated seconds cost nothing).
//! Every host has as many machines as host 0 (machines without a container send nothing). Workers
//! are asked in the same order in every query. A host sends and receives with the fixed latencies
//! of the simulator instead of a kernel's.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};
use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::OverlayConfig;
use sluice_sim::tcp;
use sluice_sim::workload::Aggregate;

use super::experiment::{
    Case, Experiment, Load, Overrides, Parts, frames, listed, mss, pause_response, star, warnings,
};
use super::scenario::{default_delay_ns, default_receive_ns, default_send_ns};
use crate::plan::Plan;
use crate::scenario::{Fabric, Pa, Profile, Scenario};
use crate::settings::Settings;

/// Time limit of a cell; a cell that takes longer is an error: an hour, simulated.
const END: Nanos = Nanos::from_millis(3_600_000);
const ETHERNET: u16 = 14;
/// Overhead of a frame on a wire, in bytes (802.3 clause 3).
const WIRE_OVERHEAD: u16 = 24;
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
    let pa = change(&mut scenario, overrides)?;
    let seed = overrides.seed.unwrap_or(SEED);
    let tcp = tcp_of(&scenario)?;
    let plan = Plan::new(&scenario);
    let vms = (0..plan.hosts.len()).map(|host| plan.containers_of(host).count()).max();
    let vms = u32::try_from(vms.unwrap_or(0))?;
    let workers = workers(&plan, vms)?;
    let mut cases = Vec::new();
    let mut settings: Vec<(String, Map<String, Value>)> = Vec::new();
    for group in crate::run::groups(&scenario) {
        let variant = crate::results::variant(&scenario, &group.settings);
        if !settings.iter().any(|(known, _)| *known == variant) {
            settings.push((variant.clone(), shown(&scenario, &group.settings, vms, &tcp)?));
        }
        let world = parts(&scenario, &group.settings, vms).world(group.policy, seed)?;
        for &size in &pa.sizes {
            let load = Load::Aggregate(Aggregate {
                tcp: Arc::clone(&tcp),
                aggregator: 0,
                workers: workers.clone(),
                request_bytes: crate::pa::REQUEST_BYTES as u64,
                response_bytes: u64::from(size) * crate::pa::segment_bytes(scenario.lab.mtu),
                queries: pa.queries,
                warm_up: pa.warm_up,
                gap: Nanos::from_micros(pa.gap_us.into()),
                priority: Priority::ZERO,
                seed,
            });
            cases.push(Case {
                policy: group.policy,
                variant: variant.clone(),
                size,
                world: world.clone(),
                load,
                background: None,
                sources: Vec::new(),
                end: END,
            });
        }
    }
    Ok(Experiment {
        name: scenario.lab.name.clone(),
        about: scenario.lab.about.clone(),
        seed,
        profile: scenario.tcp.profile.name(),
        congestion: if scenario.tcp.congestion == "cubic" { "cubic" } else { "reno" },
        rto_min: tcp.rto_min,
        background: false,
        settings,
        cases,
        warnings: warnings(&tcp),
        trace: None,
    })
}

/// Applies the options of the command line to the scenario.
fn change(scenario: &mut Scenario, overrides: &Overrides) -> anyhow::Result<Pa> {
    let pa = scenario.pa.as_mut().context(
        "this scenario has no [pa], and the simulator has nothing else to run: add a table [pa]",
    )?;
    pa.change(overrides.queries, overrides.sizes.as_deref(), overrides.policies.as_deref());
    // The changed scenario is checked as if it had been written so.
    *scenario = Scenario::parse(&toml::to_string(scenario)?)?;
    let lab = &scenario.lab;
    ensure!(
        lab.fabric == Fabric::Sluice,
        "lab.fabric: the simulator has no bridge of a kernel: use \"sluice\""
    );
    ensure!(
        scenario.pa.as_ref().is_none_or(|pa| pa.congestions.is_empty()),
        "pa.congestions: the simulator runs a scenario of the lab with one congestion control: \
         take it out and set tcp.congestion"
    );
    ensure!(
        lab.subnets == 1,
        "lab.subnets: the simulator joins hosts of the lab by one switch: use 1"
    );
    scenario.pa.clone().context("a table [pa]")
}

fn tcp_of(scenario: &Scenario) -> anyhow::Result<Arc<tcp::Config>> {
    let own = &scenario.tcp;
    ensure!(
        own.profile == Profile::Linux2013,
        "tcp.profile: the simulator has linux-2013, not {} (its TCP has neither tail loss probes \
         nor RACK): use linux-2013",
        own.profile.name()
    );
    let algorithm = match own.congestion.as_str() {
        "cubic" => tcp::Algorithm::Cubic,
        "reno" => tcp::Algorithm::NewReno,
        other => bail!("tcp.congestion: the simulator has cubic and reno, not {other}"),
    };
    let mut config = tcp::Config::linux_2013(algorithm);
    config.mss = mss(&config, scenario.lab.mtu);
    Ok(Arc::new(config))
}

/// Returns the workers' machines in the order in which they are asked.
fn workers(plan: &Plan, vms: u32) -> anyhow::Result<Vec<u32>> {
    let station = |name: &str, host: usize| {
        let at = plan.containers_of(host).position(|container| container.name == name);
        let (host, at) = (u32::try_from(host)?, u32::try_from(at.context("a container")?)?);
        Ok(host * vms + at)
    };
    plan.workers().iter().map(|worker| station(&worker.name, worker.host)).collect()
}

fn parts(scenario: &Scenario, settings: &Settings, vms: u32) -> Parts {
    let rate = BitRate::from_mbps(settings.link_mbps);
    let buffer = settings.switch_kb * 1000;
    Parts {
        topology: star(scenario.lab.hosts.into(), rate, Nanos(default_delay_ns())),
        net: NetConfig {
            lossless: PriorityMask::NONE,
            buffer: ByteCount(buffer),
            buffering: Buffering::Output,
            xoff: ByteCount(buffer / 10 * 6),
            xon: ByteCount(buffer / 10 * 4),
            mark: None,
            latency: Nanos::ZERO,
            pause_response: pause_response(rate),
            overhead: WIRE_OVERHEAD,
            frame_max: scenario.lab.mtu + 50 + ETHERNET,
        },
        overlay: Some(OverlayConfig {
            vms_per_host: vms,
            lossless: false,
            mtu: scenario.lab.mtu,
            vm_in: frames(settings.vport_in_frames),
            vm_out: frames(settings.vport_out(vms)),
            vm_rate: settings.service_mbps.map(BitRate::from_mbps),
            card_in: frames(settings.underlay_in_frames),
            card_out: frames(settings.underlay_out_frames),
            pool: frames(settings.pool_frames),
            card_pause: None,
        }),
        send_latency: Nanos(default_send_ns()),
        receive_latency: Nanos(default_receive_ns()),
        adds_headroom: true,
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
    all.extend(listed(&[
        ("topology_kind", json!("star")),
        ("topology_hosts", json!(scenario.lab.hosts)),
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
