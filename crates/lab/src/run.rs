//! A run: builds the lab, runs every cell, takes the lab down, writes the results.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use sluice_api::config::ChipKind;
use sluice_api::config::Policy;
use sluice_api::results::{Results, Row};
use sluice_dropwatch::Drops;

use crate::checks::check_one;
use crate::congestion;
use crate::cores::Cores;
use crate::counters;
use crate::daemons::Daemons;
use crate::interrupt;
use crate::lab::{Lab, own_program};
use crate::losses::{self, Losses};
use crate::members;
use crate::netns;
use crate::pa::{self, Job, Report};
use crate::plan::Plan;
use crate::processor;
use crate::progress::Progress;
use crate::results::{self, Cell, Checked, Findings, Marks};
use crate::scenario::{Fabric, Pa, Scenario};
use crate::settings::{Settings, Variant};
use crate::table;
use crate::today;
use crate::workload::Workload;

/// Longest time without a report. The aggregator reports after every query, and a query takes at
/// most 30 s.
const SILENCE: Duration = Duration::from_secs(90);

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folder for `result.json` and `report.html`; `None`: they are not written.
    pub out: Option<PathBuf>,
    /// Only print what would run.
    pub dry_run: bool,
    /// Print the results as JSON instead of a table.
    pub json: bool,
    /// Show no progress.
    pub quiet: bool,
    /// Values that replace the scenario's.
    pub overrides: Overrides,
    /// The program that is daemon, worker and aggregator; `None`: the running one.
    pub program: Option<PathBuf>,
}

/// Values of a scenario's workload that can be replaced for one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Queries per cell.
    pub queries: Option<u32>,
    /// Sizes of an answer in segments.
    pub sizes: Option<Vec<u32>>,
    /// The policies.
    pub policies: Option<Vec<Policy>>,
    /// The time of a cell.
    pub seconds_per_cell: Option<f64>,
    /// The chip of the hosts.
    pub chip: Option<ChipKind>,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The results; none of a dry run.
    pub results: Option<Results>,
    /// Promises that were not kept, in words.
    pub broken: Vec<String>,
}

/// One start of the daemons, and the policy and settings that they run.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
}

/// Runs a scenario, given by its name or its file.
///
/// # Errors
///
/// The scenario cannot be read or built, or a part of it ended.
pub fn run(name: &str, options: &Options) -> anyhow::Result<Outcome> {
    let mut scenario = Scenario::load(name)?;
    change(&mut scenario, &options.overrides)?;
    let plan = Plan::new(&scenario);
    let groups = groups(&scenario);
    if options.dry_run {
        print!("{}", describe(&scenario, &plan, &groups)?);
        return Ok(Outcome { results: None, broken: Vec::new() });
    }
    congestion::check(&scenario)?;
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    interrupt::catch()?;
    raise_file_limit();
    let findings = measure(&scenario, &groups, options)?;
    let mut results = results::results(&scenario, &plan, &findings);
    let mut broken = results::broken_promises(&findings);
    for part in [processor::run, today::run] {
        let (rows, more) = part(&scenario, options)?;
        results.rows.extend(rows);
        broken.extend(more);
    }
    if let Some(folder) = &options.out {
        write(&results, folder)?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        println!("{}", table::render(&results));
    }
    Ok(Outcome { results: Some(results), broken })
}

/// Draws the report of a folder anew from its `result.json`.
///
/// # Errors
///
/// There is no such file, or it cannot be read, or the report cannot be written.
pub fn report(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("result.json");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let results: Results =
        serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
    draw(&results, folder)
}

pub(crate) fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("result.json");
    std::fs::write(&path, serde_json::to_string_pretty(results)? + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    draw(results, folder)
}

fn draw(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join("report.html");
    std::fs::write(&path, crate::report::html(results))
        .with_context(|| format!("writing {}", path.display()))
}

fn change(scenario: &mut Scenario, overrides: &Overrides) -> anyhow::Result<()> {
    if let Some(chip) = overrides.chip {
        scenario.lab.chip = chip;
        // The changed scenario is checked as if it had been written so.
        *scenario = Scenario::parse(&toml::to_string(scenario)?)?;
    }
    let Some(pa) = &mut scenario.pa else {
        let any = overrides.queries.is_some() || overrides.sizes.is_some();
        ensure!(!any, "this scenario has no queries");
        return Ok(());
    };
    pa.change(overrides.queries, overrides.sizes.as_deref(), overrides.policies.as_deref());
    if let Some(seconds) = overrides.seconds_per_cell {
        pa.seconds_per_cell = seconds;
    }
    // Other cells than the scenario's are compared with nothing.
    scenario.today = scenario.today.take().filter(|_| *overrides == Overrides::default());
    *scenario = Scenario::parse(&toml::to_string(scenario)?)?;
    Ok(())
}

pub(crate) fn groups(scenario: &Scenario) -> Vec<Group> {
    let Some(pa) = &scenario.pa else { return Vec::new() };
    let mut groups = Vec::new();
    let own = [scenario.lab.variant];
    let variants = if pa.variants.is_empty() { &own[..] } else { &pa.variants };
    let plain = [None];
    let swept: Vec<Option<u64>> = pa.switch_kb.iter().copied().map(Some).collect();
    let buffers = if swept.is_empty() { &plain[..] } else { &swept };
    for &variant in variants {
        for &switch_kb in buffers {
            for &policy in &pa.policies {
                if variant == Variant::VmBoundTotal && policy != Policy::LL {
                    continue;
                }
                let settings = Settings::new(variant, &scenario.settings, switch_kb);
                groups.push(Group { policy, settings });
            }
        }
    }
    groups
}

/// Describes a run without running it, with the configuration of one host of each kind.
fn describe(scenario: &Scenario, plan: &Plan, groups: &[Group]) -> anyhow::Result<String> {
    let mut text = format!(
        "{}: {}\n{} hosts, {} containers, {} switches; TCP {} {}\n",
        plan.lab,
        scenario.lab.about,
        plan.hosts.len(),
        plan.containers.len(),
        plan.switches.len(),
        scenario.tcp.profile.name(),
        scenario.pa.as_ref().map_or_else(
            || scenario.tcp.congestion.clone(),
            |pa| pa.congestions(&scenario.tcp).join(", "),
        ),
    );
    for vm in plan.containers.iter().filter(|machine| machine.is_vm) {
        text += &format!("  virtual machine {} {}\n", vm.name, vm.ip);
    }
    for namespace in plan.namespaces() {
        text += &format!("  namespace {namespace}\n");
    }
    for check in &scenario.checks {
        text += &format!("  {}\n", check.describe());
    }
    if let Some(pa) = &scenario.pa {
        for group in groups {
            text += &format!(
                "  cells {} {} switch {} KB: sizes {:?}, {} queries or {} s each\n",
                group.policy.name(),
                group.settings.variant.name(),
                group.settings.switch_kb,
                pa.sizes,
                pa.queries,
                pa.seconds_per_cell
            );
        }
    }
    let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
    let mut shown: Vec<char> = Vec::new();
    for (name, _, config) in plan.daemons(scenario.lab.policy, &settings) {
        let kind = name.chars().next().unwrap_or('h');
        if !shown.contains(&kind) {
            shown.push(kind);
            text += &format!("\n# {name}/host.toml\n{}", members::file(plan, config)?);
        }
    }
    Ok(text)
}

/// Raises the limit of open files: each process of the workload has two pipes to this program.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

pub(crate) fn measure(
    scenario: &Scenario,
    groups: &[Group],
    options: &Options,
) -> anyhow::Result<Findings> {
    let program = options.program.clone().map_or_else(own_program, Ok)?;
    let progress = Progress::new(options.quiet || options.json);
    progress.say(&format!("building {} containers", Plan::new(scenario).containers.len()));
    let mut lab = Lab::build(scenario)?;
    let mut run = Run { progress, findings: Findings::default(), program, kernel: None };
    let outcome = run.everything(&mut lab, groups);
    if let Err(error) = &outcome {
        let logs = lab.plan.run_dir();
        run.progress.say(&format!("{error:#}; logs are in {}", logs.display()));
    }
    let down = lab.finish();
    outcome?;
    down.context("taking the lab down")?;
    Ok(run.findings)
}

struct Run {
    progress: Progress,
    findings: Findings,
    program: PathBuf,
    /// Losses that the kernel reports, if it can be asked.
    kernel: Option<Drops>,
}

impl Run {
    fn everything(&mut self, lab: &mut Lab, groups: &[Group]) -> anyhow::Result<()> {
        let mut workload = Workload::start(lab, &self.program)?;
        if !lab.scenario.checks.is_empty() {
            self.checks(lab, &mut workload)?;
        }
        let Some(pa) = lab.scenario.pa.clone() else { return Ok(()) };
        match Drops::watch(lab.plan.namespaces()) {
            Ok(drops) => self.kernel = Some(drops),
            Err(error) => self.progress.say(&format!("{error}: no rows `lab.kfree_skb`")),
        }
        workload.start_aggregator(lab)?;
        for group in groups {
            self.group(lab, &mut workload, &pa, group)?;
        }
        Ok(())
    }

    fn checks(&mut self, lab: &mut Lab, workload: &mut Workload) -> anyhow::Result<()> {
        let settings = Settings::new(lab.scenario.lab.variant, &lab.scenario.settings, None);
        let daemons = lab.start(lab.scenario.lab.policy, &settings, &self.program)?;
        self.boot(lab, workload)?;
        for check in lab.scenario.checks.clone() {
            self.progress.say(&check.describe());
            let checked = check_one(lab, workload, &daemons, &check)?;
            self.findings.checks.extend(checked);
        }
        let drained = daemons.drain()?;
        for node in daemons.snapshot()? {
            if !node.audit.closed || !drained {
                let failed = Some(format!("{}: the audit does not close", node.node));
                let row = Row::new("lab.audit", "sluice", "count", vec![0.0]);
                self.findings.checks.push(Checked { row, failed });
            }
        }
        workload.switch_off(lab)?;
        daemons.stop(&mut lab.state)
    }

    fn boot(&self, lab: &mut Lab, workload: &mut Workload) -> anyhow::Result<()> {
        let count = lab.plan.containers.iter().filter(|machine| machine.is_vm).count();
        if count > 0 {
            self.progress.say(&format!("booting {count} virtual machines"));
        }
        workload.boot(lab)
    }

    /// Runs all sizes under one policy.
    fn group(
        &mut self,
        lab: &mut Lab,
        workload: &mut Workload,
        pa: &Pa,
        group: &Group,
    ) -> anyhow::Result<()> {
        let daemons = lab.start(group.policy, &group.settings, &self.program)?;
        self.boot(lab, workload)?;
        for congestion in pa.congestions(&lab.scenario.tcp) {
            workload.use_congestion(lab, &congestion)?;
            for &size in &pa.sizes {
                let cell = self.cell(lab, &daemons, workload, pa, (group, &congestion, size))?;
                self.findings.cells.push(cell);
            }
        }
        let marks = losses::high_water(&daemons.snapshot()?, &group.settings, group.policy);
        let Group { policy, settings } = group.clone();
        self.findings.marks.push(Marks { policy, settings, marks });
        workload.switch_off(lab)?;
        daemons.stop(&mut lab.state)
    }

    fn cell(
        &mut self,
        lab: &Lab,
        daemons: &Daemons,
        workload: &mut Workload,
        pa: &Pa,
        (group, congestion, size): (&Group, &str, u32),
    ) -> anyhow::Result<Cell> {
        let job = Job::Cell(pa::Cell {
            workers: lab.plan.workers().iter().map(|worker| worker.ip).collect(),
            answer_bytes: u64::from(size) * pa::segment_bytes(lab.plan.mtu),
            warm_up: pa.warm_up,
            queries: pa.queries,
            queries_min: pa.queries_min,
            seconds: pa.seconds_per_cell,
            gap_us: pa.gap_us,
            congestion: congestion.to_owned(),
            priority: pa.priority,
        });
        let name = format!(
            "{} {} {congestion} {size:>3} packets",
            group.policy.name(),
            group.settings.variant.name(),
        );
        let bar = self.progress.cell(&name, pa.queries);
        let before = daemons.snapshot()?;
        let bridge_before = bridge_drops(lab)?;
        let (tcp_before, lost_before) = workload.counters()?;
        if let Some(kernel) = &mut self.kernel {
            kernel.restart();
        }
        let cores = Cores::read(&lab.state.processes);
        let began = Instant::now();
        let report = workload.query(lab, &job, SILENCE, &mut |queries| bar.at(queries))?;
        let Report::Cell { fct_ns, broken } = report else {
            bail!("the aggregator answers {report:?}")
        };
        let seconds = began.elapsed().as_secs_f64();
        let cores = cores.and_then(|before| before.row_until(&Cores::read(&lab.state.processes)?));
        let drained = daemons.drain()?;
        let (tcp_after, lost_after) = workload.counters()?;
        let mut losses = self.losses(lab, daemons, &before, bridge_before)?;
        for (name, value) in counters::difference(&lost_before, &lost_after) {
            losses.kernel.insert(format!("containers {name}"), value);
        }
        if let Some(kernel) = &self.kernel {
            losses.kfree_skb = losses::kfree_skb(&lab.scenario.lab.name, kernel.since());
        }
        bar.done(&fct_ns, losses.congestion);
        Ok(Cell {
            policy: group.policy,
            settings: group.settings.clone(),
            congestion: congestion.to_owned(),
            size,
            fct_ns,
            broken,
            seconds,
            drained,
            losses,
            tcp: counters::difference(&tcp_before, &tcp_after),
            cores,
        })
    }

    fn losses(
        &self,
        lab: &Lab,
        daemons: &Daemons,
        before: &[crate::show::Snapshot],
        bridge_before: u64,
    ) -> anyhow::Result<Losses> {
        let mut losses = losses::between(before, &daemons.snapshot()?);
        if [Fabric::LinuxBridge, Fabric::LinuxVxlan].contains(&lab.plan.fabric) {
            losses.audit_closed = None;
            let losses_at_hosts = lab.plan.fabric == Fabric::LinuxVxlan;
            let dropped = bridge_drops(lab)?.saturating_sub(bridge_before);
            if dropped > 0 {
                let place = if losses_at_hosts { "hosts" } else { "s0" };
                losses.drops.insert(format!("bridge {place} queue_full"), dropped);
                losses.congestion += dropped;
            }
        }
        Ok(losses)
    }
}

fn bridge_drops(lab: &Lab) -> anyhow::Result<u64> {
    match lab.plan.fabric {
        Fabric::LinuxBridge => losses::bridge_drops(&lab.plan.switches[0].netns),
        Fabric::LinuxVxlan => {
            lab.plan.hosts.iter().map(|host| losses::bridge_drops(&host.netns)).sum()
        }
        Fabric::Sluice | Fabric::Ovs => Ok(0),
    }
}

/// Builds a scenario's lab, starts its daemons, and leaves both running.
///
/// # Errors
///
/// The lab cannot be built; then nothing of it is left.
pub fn up(name: &str, policy: Option<Policy>) -> anyhow::Result<String> {
    let scenario = Scenario::load(name)?;
    ensure!(
        scenario.lab.vms_per_host == 0,
        "virtual machines end with the program that booted them, so this lab cannot be left \
         standing: use `sluice lab run`"
    );
    interrupt::catch()?;
    let mut lab = Lab::build(&scenario)?;
    let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
    lab.start(policy.unwrap_or(scenario.lab.policy), &settings, &own_program()?)?;
    let mut text = format!("lab {} is up, policy {}\n", lab.plan.lab, lab.state.policy.name());
    for container in &lab.plan.containers {
        text += &format!("  {:<8} {:<15} {}\n", container.name, container.ip, container.netns);
    }
    text += &format!("enter one: ip netns exec {} sh\n", lab.plan.containers[0].netns);
    text += &format!("logs and sockets: {}\n", lab.plan.run_dir().display());
    text += &format!("take it down: sluice lab down {}\n", lab.plan.lab);
    lab.leave()?;
    Ok(text)
}

/// Lists the labs of this machine, with the parts that still exist.
///
/// # Errors
///
/// A state file cannot be read.
pub fn status() -> anyhow::Result<String> {
    let mut text = String::new();
    for state in crate::state::State::all()? {
        let spaces = state.netns.iter().filter(|name| netns::exists(name)).count();
        let running = state.processes.iter().filter(|process| process.alive()).count();
        let how = match &state.owner {
            None => "up".to_owned(),
            Some(owner) if owner.alive() => format!("in use by process {}", owner.pid),
            Some(_) => "left over: `sluice lab down` takes it away".to_owned(),
        };
        text += &format!(
            "{}: {how}, policy {}, {spaces} of {} namespaces, {running} of {} processes\n",
            state.lab,
            state.policy.name(),
            state.netns.len(),
            state.processes.len()
        );
    }
    if text.is_empty() {
        text += "no lab\n";
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
