//! Findings as rows of the one results format. Rates are in bit/s, shares are ratios.

use serde_json::json;
use sluice_api::results::{Results, Row};

use super::cells;
use super::compare::{Comparison, policy_name};
use super::figure::Figure;
use super::fit::{self, Fit};
use super::summary::{self, Summary};
use super::vary::Varied;

pub(super) const MBIT: f64 = 1e6;

pub(crate) fn results(name: &str, rows: Vec<Row>) -> Results {
    Results {
        name: name.to_owned(),
        commit: crate::machine::commit(),
        machine: crate::machine::description(),
        rows,
    }
}

/// Returns a row of a measure that only this experiment has.
fn row(measure: &str, unit: &str, values: Vec<f64>) -> Row {
    Row::new(&format!("vs-extend.{measure}"), "sluice", unit, values)
}

/// Returns a row of `throughput`, `loss` or `softirq` of a machine or a core; context that does not
/// apply is null.
pub(super) fn cell(
    measure: &str,
    unit: &str,
    values: Vec<f64>,
    (bytes, mode, vms): (u64, &str, u16),
) -> Row {
    let row = Row::new(measure, "sluice", unit, values);
    let row = row.with("frame_bytes", bytes).with("mode", mode).with("vms", vms);
    ["vm", "core", "published"].into_iter().fold(row, |row, key| row.with(key, json!(null)))
}

pub(crate) fn fit(found: &Fit) -> Vec<Row> {
    let parameter = |name: &&str| {
        let value = (fit::field(name).get)(&found.params);
        let value = u32::try_from(value).map_or(f64::MAX, f64::from);
        row("parameter", "ns", vec![value]).with("name", *name)
    };
    let of_table = |one: &fit::Cell| {
        let vms = u16::try_from(one.case.cores().len()).unwrap_or(u16::MAX);
        let of = (one.bytes, one.case.name(), vms);
        cell("throughput", "bit/s", vec![one.simulated * MBIT], of)
            .with("table", 4)
            .with("published", one.published * MBIT)
    };
    fit::NAMES.iter().map(parameter).chain(found.cells.iter().map(of_table)).collect()
}

pub(crate) fn predict(figures: &[Figure], seeds: u64) -> Vec<Row> {
    let one = |figure: &Figure| cells::row(figure).with("seeds", seeds);
    let error = |summary: &Summary| {
        let ratios = summary.errors.iter().map(|error| error / 100.0).collect();
        let points = summary.in_points();
        row("error", "ratio", ratios)
            .with("group", summary.name)
            .with("cells", summary.figures)
            .with("p90", summary.p90() / 100.0)
            .with("worst", summary.worst() / 100.0)
            .with("worst_at", summary.worst_at.as_str())
            .with("points_median", json!(points.map(|(median, _)| median)))
            .with("points_worst", json!(points.map(|(_, worst)| worst)))
    };
    let errors = summary::summaries(figures);
    figures.iter().map(one).chain(errors.iter().map(error)).collect()
}

pub(crate) fn compare(found: &Comparison) -> Vec<Row> {
    let mut all = Vec::new();
    for run in &found.runs {
        let (q, answer) = (&run.question, &run.answer);
        let add = |measure: &str, unit: &str, values| {
            cell(measure, unit, values, (q.bytes, q.rule.name(), q.vms))
                .with("policy", policy_name(q.policy))
                .with("guard", q.is_guarded)
                .with("seeds", q.seeds)
        };
        let totals = answer.totals.iter().map(|mbps| mbps * MBIT).collect();
        all.push(add("throughput", "bit/s", totals).with("vm", "all"));
        for (vm, mbps) in answer.throughput.iter().enumerate() {
            all.push(add("throughput", "bit/s", vec![mbps * MBIT]).with("vm", vm + 1));
        }
        for (vm, percent) in answer.loss.iter().enumerate() {
            all.push(add("loss", "ratio", vec![percent / 100.0]).with("vm", vm + 1));
        }
        for (core, percent) in answer.softirq.iter().enumerate() {
            let share = vec![percent / 100.0];
            all.push(add("vs-extend.softirq_share", "ratio", share).with("core", core));
        }
        for (core, pieces) in answer.pieces.iter().enumerate() {
            all.push(add("softirq", "count", vec![*pieces]).with("core", core));
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
        add("predicted-error", "ratio", varied.predicted_error.map(|percent| percent / 100.0));
    }
    rows
}
