//! Findings of a run, as rows of the one results format.
//!
//! `pa.fct` and `pa.gain` have exactly the context that the format names. All other content of the
//! report has rows of its own: `lab.settings`, `lab.cell`, `lab.cores`, `lab.tcp`, `lab.kernel`,
//! `lab.kfree_skb`, `lab.pause`, `lab.high_water`, `lab.ping`, `lab.tables` and `tcp_stream`.

mod cell;

use serde_json::{Map, Value, json};
use sluice_api::config::Policy;
use sluice_api::results::{Results, Row};

use crate::counters::Counters;
use crate::losses::{HighWater, Losses};
use crate::plan::Plan;
use crate::scenario::{Fabric, Scenario};
use crate::settings::{Settings, Variant};
pub(crate) use cell::{CellName, Queries, gain};

/// The seed of the bootstrap.
const SEED: u64 = 1;

/// One size under one policy.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) congestion: String,
    pub(crate) size: u32,
    pub(crate) fct_ns: Vec<u64>,
    pub(crate) broken: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) drained: bool,
    pub(crate) losses: Losses,
    pub(crate) tcp: Counters,
    /// Use of the machine's cores meanwhile.
    pub(crate) cores: Option<Row>,
}

/// The high-water marks under one policy.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) marks: Vec<HighWater>,
}

/// A check and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// The row of the check.
    pub(crate) row: Row,
    /// Reason of a failure, if it failed.
    pub(crate) failed: Option<String>,
}

/// Everything that a run found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) cells: Vec<Cell>,
    pub(crate) marks: Vec<Marks>,
    pub(crate) checks: Vec<Checked>,
}

/// Returns the name of a variant; with the buffer of the physical switch if a run sweeps over it.
pub(crate) fn variant(scenario: &Scenario, settings: &Settings) -> String {
    let name = settings.variant.name();
    match &scenario.pa {
        Some(pa) if !pa.switch_kb.is_empty() => format!("{name} switch_kb={}", settings.switch_kb),
        _ => name.to_owned(),
    }
}

/// Returns the variant of a cell, with its congestion control if a run has several.
fn variant_of(scenario: &Scenario, cell: &Cell) -> String {
    let variant = variant(scenario, &cell.settings);
    match &scenario.pa {
        Some(pa) if !pa.congestions.is_empty() => format!("{variant} tcp={}", cell.congestion),
        _ => variant,
    }
}

/// Returns all rows of a run.
pub(crate) fn results(scenario: &Scenario, plan: &Plan, findings: &Findings) -> Results {
    let mut rows = Vec::new();
    let mut known: Vec<&Settings> = Vec::new();
    for cell in &findings.cells {
        if !known.contains(&&cell.settings) {
            known.push(&cell.settings);
            rows.push(settings_row(scenario, plan, &cell.settings));
        }
    }
    if findings.cells.is_empty() {
        let settings = Settings::new(scenario.lab.variant, &scenario.settings, None);
        rows.push(settings_row(scenario, plan, &settings));
    }
    // A cell without one complete query has no value; `lab.cell` says what broke it.
    for cell in &findings.cells {
        let name = cell_name(scenario, cell);
        rows.extend(Queries { name: &name, fct_ns: &cell.fct_ns, losses: &cell.losses }.fct());
    }
    for cell in &findings.cells {
        rows.extend(gain_row(scenario, cell, &findings.cells));
    }
    for cell in &findings.cells {
        rows.extend(detail_rows(scenario, cell));
    }
    for group in &findings.marks {
        rows.extend(group.marks.iter().map(|mark| mark_row(scenario, group, mark)));
    }
    let done = findings.checks.iter().filter(|check| !check.row.values.is_empty());
    rows.extend(done.map(|check| check.row.clone()));
    Results {
        name: scenario.lab.name.clone(),
        commit: crate::machine::commit(),
        machine: crate::machine::description(),
        rows,
    }
}

pub(crate) const fn subject(scenario: &Scenario) -> &'static str {
    match scenario.lab.fabric {
        Fabric::Sluice => "sluice",
        Fabric::LinuxBridge => "linux-bridge",
        Fabric::LinuxVxlan => "linux-vxlan",
        Fabric::Ovs => "ovs",
    }
}

fn row(scenario: &Scenario, measure: &str, unit: &str, values: Vec<f64>) -> Row {
    Row::new(measure, subject(scenario), unit, values)
}

fn settings_row(scenario: &Scenario, plan: &Plan, settings: &Settings) -> Row {
    let mut context = Map::new();
    if let Ok(Value::Object(all)) = serde_json::to_value(settings) {
        context.extend(all);
    }
    if let Ok(Value::Object(all)) = serde_json::to_value(&scenario.tcp) {
        context.extend(all.into_iter().map(|(key, value)| (format!("tcp_{key}"), value)));
    }
    if let Some(Ok(Value::Object(all))) = scenario.pa.as_ref().map(serde_json::to_value) {
        context.extend(all.into_iter().map(|(key, value)| (format!("pa_{key}"), value)));
    }
    let most = (0..plan.hosts.len()).map(|host| plan.containers_of(host).count()).max();
    let most = most.and_then(|most| u32::try_from(most).ok()).unwrap_or(0);
    context.extend([
        ("variant".to_owned(), json!(variant(scenario, settings))),
        ("vport_out_frames".to_owned(), json!(settings.vport_out(most))),
        ("about".to_owned(), json!(scenario.lab.about)),
        ("hosts".to_owned(), json!(plan.hosts.len())),
        ("containers".to_owned(), json!(plan.containers.len())),
        ("switches".to_owned(), json!(plan.switches.len())),
        ("mtu".to_owned(), json!(plan.mtu)),
        ("static_neighbours".to_owned(), json!(scenario.lab.static_neighbours)),
        ("rto_min_ms".to_owned(), json!(scenario.tcp.profile.rto_min_ms())),
        ("segment_bytes".to_owned(), json!(crate::pa::segment_bytes(plan.mtu))),
        ("link_overhead_bytes".to_owned(), json!(24)),
    ]);
    let mut row = row(scenario, "lab.settings", "count", vec![1.0]);
    row.context = context.into_iter().collect();
    row
}

/// Converts nanoseconds to numbers of JSON; they are far below 2^53.
pub(crate) fn nanoseconds(values: &[u64]) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "times of a run are below 2^53 ns, 104 days")]
    values.iter().map(|&value| value as f64).collect()
}

fn cell_name<'a>(scenario: &'a Scenario, cell: &'a Cell) -> CellName<'a> {
    CellName {
        subject: subject(scenario),
        variant: variant_of(scenario, cell),
        policy: cell.policy,
        tcp: &cell.congestion,
        profile: scenario.tcp.profile.name(),
        rto_min_ms: json!(scenario.tcp.profile.rto_min_ms()),
        background: false,
        size: cell.size,
    }
}

/// Returns the gains over an `LL` cell: of the other policies of the same variant and the same TCP.
/// The `LL` cell of `vm-bound-total`, which runs no other policy, is compared with the cells of
/// `vm-bound`.
fn gain_row(scenario: &Scenario, base: &Cell, cells: &[Cell]) -> Vec<Row> {
    if base.policy != Policy::LL {
        return Vec::new();
    }
    let total = base.settings.variant == Variant::VmBoundTotal;
    let comparable = |cell: &&Cell| {
        let same = if total {
            cell.settings.variant == Variant::VmBound
                && cell.settings.switch_kb == base.settings.switch_kb
        } else {
            cell.settings == base.settings
        };
        let same = same && cell.congestion == base.congestion;
        cell.policy != Policy::LL && cell.size == base.size && same
    };
    let name = cell_name(scenario, base);
    let base = Queries { name: &name, fct_ns: &base.fct_ns, losses: &base.losses };
    let gain = |cell: &Cell| {
        let name = cell_name(scenario, cell);
        Queries { name: &name, fct_ns: &cell.fct_ns, losses: &cell.losses }.gain_over(&base)
    };
    cells.iter().filter(comparable).filter_map(gain).collect()
}

fn detail_rows(scenario: &Scenario, cell: &Cell) -> Vec<Row> {
    let name = |row: Row| {
        row.with("variant", variant_of(scenario, cell))
            .with("policy", cell.policy.name())
            .with("size_packets", cell.size)
    };
    let count = |value: u64| nanoseconds(&[value]);
    let mut rows = vec![
        name(row(scenario, "lab.cell", "s", vec![cell.seconds]))
            .with("drained", cell.drained)
            .with("resident", cell.losses.resident)
            .with("broken", cell.broken.clone()),
    ];
    rows.extend(cell.cores.clone().map(name));
    rows.extend(cell.tcp.iter().map(|(counter, &value)| {
        name(row(scenario, "lab.tcp", "count", count(value))).with("counter", counter.as_str())
    }));
    rows.extend(cell.losses.kernel.iter().map(|(counter, &value)| {
        name(row(scenario, "lab.kernel", "frames", count(value))).with("counter", counter.as_str())
    }));
    rows.extend(cell.losses.kfree_skb.iter().map(|(counter, &value)| {
        name(row(scenario, "lab.kfree_skb", "frames", count(value)))
            .with("counter", counter.as_str())
    }));
    rows.extend(cell.losses.pauses.iter().map(|(port, paused)| {
        name(row(scenario, "lab.pause", "frames", count(paused.xoff_sent)))
            .with("port", port.as_str())
            .with("paused_ns", paused.paused_ns)
    }));
    rows
}

fn mark_row(scenario: &Scenario, group: &Marks, mark: &HighWater) -> Row {
    let unbound = u64::from(crate::losses::UNLIMITED);
    let limit_frames = Some(mark.limit_frames).filter(|&frames| frames != unbound);
    row(scenario, "lab.high_water", "frames", nanoseconds(&[mark.frames]))
        .with("variant", variant(scenario, &group.settings))
        .with("policy", group.policy.name())
        .with("place", mark.place.as_str())
        .with("port", mark.port.as_str())
        .with("bytes", mark.bytes)
        .with("limit_frames", limit_frames)
        .with("limit_bytes", mark.limit_bytes)
}

/// Returns the promises that the run did not keep.
pub(crate) fn broken_promises(findings: &Findings) -> Vec<String> {
    let mut broken = Vec::new();
    for cell in &findings.cells {
        let name = format!("{} {} {} packets", cell.policy.name(), cell.congestion, cell.size);
        if let Some(why) = &cell.broken {
            broken.push(format!("{name}: {why}"));
        }
        if cell.losses.audit_closed == Some(false) {
            broken.push(format!("{name}: the audit does not close"));
        }
        let lossless = cell.policy == Policy::ZZ;
        if lossless && cell.losses.congestion > 0 {
            broken.push(format!("{name}: {} congestion drops", cell.losses.congestion));
        }
        for (counter, value) in cell.losses.kernel.iter().filter(|_| lossless) {
            broken.push(format!("{name}: kernel counter {counter} = {value}"));
        }
    }
    broken.extend(findings.checks.iter().filter_map(|check| check.failed.clone()));
    broken
}

#[cfg(test)]
pub(crate) mod tests;
