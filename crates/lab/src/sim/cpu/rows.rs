//! What was found, as rows of the one results format. Rates are in bit/s, shares are ratios.

use serde_json::json;
use sluice_api::results::{Results, Row};

use super::compare::{Comparison, policy_name};
use super::fit::{self, Fit};
use super::predict::Figure;
use super::vary::Varied;

const MBIT: f64 = 1e6;

pub(crate) fn results(name: &str, rows: Vec<Row>) -> Results {
    Results {
        name: name.to_owned(),
        commit: crate::machine::commit(),
        machine: crate::machine::description(),
        rows,
    }
}

fn row(measure: &str, unit: &str, values: Vec<f64>) -> Row {
    Row::new(&format!("vs-extend.{measure}"), "sluice", unit, values)
}

pub(crate) fn fit(found: &Fit) -> Vec<Row> {
    let parameter = |name: &&str| {
        let value = (fit::field(name).get)(&found.params);
        let value = u32::try_from(value).map_or(f64::MAX, f64::from);
        row("parameter", "ns", vec![value]).with("name", *name)
    };
    let cell = |cell: &fit::Cell| {
        row("throughput", "bit/s", vec![cell.simulated * MBIT])
            .with("table", 4)
            .with("case", cell.case.name())
            .with("frame_bytes", cell.bytes)
            .with("published", cell.published * MBIT)
    };
    fit::NAMES.iter().map(parameter).chain(found.cells.iter().map(cell)).collect()
}

pub(crate) fn predict(figures: &[Figure], seeds: u64) -> Vec<Row> {
    let one = |figure: &Figure| {
        let (measure, unit, scale) = match figure.table {
            5 if figure.unit.is_empty() => ("jain", "ratio", 1.0),
            5 => ("softirq", "ratio", 0.01),
            6 => ("loss", "ratio", 0.01),
            _ => ("throughput", "bit/s", MBIT),
        };
        row(measure, unit, vec![figure.predicted * scale])
            .with("table", figure.table)
            .with("frame_bytes", figure.bytes)
            .with("mode", figure.rule.name())
            .with("vms", figure.vms)
            .with("of", figure.of.as_str())
            .with("published", figure.published * scale)
            .with("counted", figure.is_counted)
            .with("seeds", seeds)
    };
    figures.iter().map(one).collect()
}

pub(crate) fn compare(found: &Comparison) -> Vec<Row> {
    let mut all = Vec::new();
    for run in &found.runs {
        let (q, answer) = (&run.question, &run.answer);
        let with = |row: Row| {
            row.with("frame_bytes", q.bytes)
                .with("mode", q.rule.name())
                .with("vms", q.vms)
                .with("policy", policy_name(q.policy))
                .with("guard", q.is_guarded)
                .with("seeds", q.seeds)
        };
        let totals = answer.totals.iter().map(|mbps| mbps * MBIT).collect();
        all.push(with(row("throughput", "bit/s", totals)).with("vm", "all"));
        for (vm, mbps) in answer.throughput.iter().enumerate() {
            all.push(with(row("throughput", "bit/s", vec![mbps * MBIT])).with("vm", vm + 1));
        }
        for (vm, percent) in answer.loss.iter().enumerate() {
            all.push(with(row("loss", "ratio", vec![percent / 100.0])).with("vm", vm + 1));
        }
        for (core, percent) in answer.softirq.iter().enumerate() {
            all.push(with(row("softirq", "ratio", vec![percent / 100.0])).with("core", core));
        }
    }
    let target = |target: &super::compare::Target| {
        row("target", "count", target.found.to_vec())
            .with("what", target.what.as_str())
            .with("needed", target.needed.as_str())
            .with("met", json!(target.is_met))
    };
    all.extend(found.targets().iter().map(target));
    all
}

pub(crate) fn vary(all: &[Varied], seeds: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for varied in all {
        let mut add = |measure: &str, unit: &str, pair: [f64; 2]| {
            let made = row(measure, unit, pair.to_vec())
                .with("parameter", varied.name)
                .with("value", json!(varied.value))
                .with("seeds", seeds);
            rows.push(made);
        };
        add("over-rss", "ratio", varied.over_rss);
        add("over-rss-hold", "ratio", varied.over_rss_hold);
        add("loss", "ratio", varied.loss.map(|percent| percent / 100.0));
        add("priority", "ratio", varied.priority.map(|percent| percent / 100.0));
        add("over-rss++", "ratio", varied.over_rss_plus_plus);
    }
    rows
}
