//! The same load as somebody has it today who tunes nothing: the kernel's TCP as it is, over hosts
//! with a bridge and a VXLAN device, and over Sluice with `ZZ`.
//!
//! It is a part of a run ([`Today`] of a scenario) and comes after its cells. Containers, cables,
//! the physical switch and their rates are those of the scenario; only the hosts differ
//! (`crate::plan::vxlan`). Its rows are `today.fct`, which is read like `pa.fct`, and `today.gain`.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use sluice_api::config::Policy;
use sluice_api::results::{Results, Row};

use crate::plan::Plan;
use crate::report::tables;
use crate::results::{self, broken_promises};
use crate::run::{Options, groups, measure};
use crate::scenario::{Fabric, Pa, Profile, Scenario};
use crate::stats;
use crate::view::{self, Fct, drops_text, gain_text};

/// Measure of the completion times.
const FCT: &str = "today.fct";
/// Measure of the gains of Sluice over Linux.
const GAIN: &str = "today.gain";

/// The cells of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Today {
    /// Sizes of an answer, in full segments.
    pub sizes: Vec<u32>,
    /// Queries of a cell.
    pub queries: u32,
    /// Time of a cell.
    pub seconds_per_cell: f64,
}

/// Returns the scenarios of the comparison: Linux, and Sluice.
pub(crate) fn scenarios(scenario: &Scenario, pa: &Pa, today: &Today) -> [Scenario; 2] {
    let of = |fabric, policy| {
        let mut own = scenario.clone();
        own.today = None;
        own.checks.clear();
        own.lab.fabric = fabric;
        own.tcp.profile = Profile::LinuxNow;
        own.pa = Some(Pa {
            sizes: today.sizes.clone(),
            policies: vec![policy],
            variants: Vec::new(),
            congestions: Vec::new(),
            switch_kb: Vec::new(),
            queries: today.queries,
            queries_min: pa.queries_min.min(today.queries),
            seconds_per_cell: today.seconds_per_cell,
            ..pa.clone()
        });
        own
    };
    [of(Fabric::LinuxVxlan, Policy::LL), of(Fabric::Sluice, Policy::ZZ)]
}

/// Measures both. Returns their rows, and promises that Sluice did not keep.
pub(crate) fn run(
    scenario: &Scenario,
    options: &Options,
) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let (Some(pa), Some(today)) = (&scenario.pa, &scenario.today) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let (mut cells, mut broken) = (Vec::new(), Vec::new());
    for own in scenarios(scenario, pa, today) {
        let findings = measure(&own, &groups(&own), options)?;
        let results = results::results(&own, &Plan::new(&own), &findings);
        broken.extend(broken_promises(&findings).into_iter().map(|line| format!("today: {line}")));
        cells.push(view::rows(&results, "pa.fct").cloned().collect::<Vec<_>>());
    }
    Ok((rows(&cells[0], &cells[1]), broken))
}

/// Returns the rows of both, and the gains.
fn rows(linux: &[Row], own: &[Row]) -> Vec<Row> {
    let is_same = |a: &Row, b: &Row| view::text(a, "size_packets") == view::text(b, "size_packets");
    let gain = |row: &Row| {
        let base = linux.iter().find(|base| is_same(base, row))?;
        results::gain(row, base)
    };
    let gains = own.iter().filter_map(gain).map(|row| named(row, GAIN));
    linux.iter().chain(own).cloned().map(|row| named(row, FCT)).chain(gains).collect()
}

fn named(row: Row, measure: &str) -> Row {
    Row { measure: measure.to_owned(), ..row }
}

/// Headings of the table, as for the page.
const HEADINGS: [&str; 8] =
    ["packets", "<hosts", "mean ms", "p50", "p95", "queries", "> 150 ms", "gain (95 %)"];

/// Returns the lines of the table.
fn lines(results: &Results) -> Vec<Vec<String>> {
    let gains = view::gains_of(results, GAIN);
    let mut cells = view::cells_of(results, FCT);
    cells.sort_by_key(|cell| cell.size);
    let line = |cell: &Fct| {
        let is_own = cell.series.policy == "ZZ";
        let gain = gains.iter().find(|gain| is_own && gain.size == cell.size).map(gain_text);
        let late = stats::share_above(&cell.values, stats::TIMED_OUT_NS) * 100.0;
        let ms = |ns: f64| format!("{:.2}", ns / 1e6);
        vec![
            cell.size.to_string(),
            if is_own { "Sluice, ZZ" } else { "Linux bridge and VXLAN" }.to_owned(),
            ms(cell.mean),
            ms(cell.p50),
            ms(cell.p95),
            cell.values.len().to_string(),
            format!("{late:.0} %"),
            gain.unwrap_or_default(),
            drops_text(&cell.drops),
        ]
    };
    cells.iter().map(line).collect()
}

/// Renders the comparison for the terminal; nothing if there is none.
pub(crate) fn text(results: &Results) -> String {
    let lines = lines(results);
    if lines.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let headings = HEADINGS.iter().chain(&["drops"]);
    table.set_header(headings.map(|heading| heading.trim_start_matches('<')));
    table.add_rows(lines);
    for column in [0, 2, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("TCP of today, nothing tuned:\n{table}\n")
}

/// Renders the comparison for the page; nothing if there is none.
pub(crate) fn html(results: &Results) -> String {
    let lines = lines(results);
    if lines.is_empty() {
        return String::new();
    }
    let headings: Vec<&str> =
        HEADINGS.into_iter().chain(["<drops: place, reason, frames"]).collect();
    let lines: Vec<_> = lines.into_iter().map(|line| (line[1].starts_with('L'), line)).collect();
    tables::section(
        "TCP of today, nothing tuned",
        "The same load over the same cables and physical switch, with the kernel's TCP as it is: \
         hosts with a Linux bridge and a VXLAN device, and hosts with Sluice.",
        &tables::table(&headings, &lines),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fct(policy: &str, size: u32, ms: f64) -> Row {
        let values = vec![ms * 1e6; 3];
        Row::new("pa.fct", "sluice", "ns", values.clone())
            .with("policy", policy)
            .with("variant", "vm-bound")
            .with("size_packets", size)
            .with("mean", stats::mean(&values))
    }

    #[test]
    fn gain_compares_cells_of_same_size() {
        let linux = [fct("LL", 8, 90.0), fct("LL", 32, 40.0)];
        let own = [fct("ZZ", 8, 9.0), fct("ZZ", 32, 20.0)];
        let rows = rows(&linux, &own);
        let gains: Vec<f64> =
            rows.iter().filter(|row| row.measure == GAIN).map(|row| row.median).collect();
        assert_eq!(gains, [10.0, 2.0]);
        assert_eq!(rows.iter().filter(|row| row.measure == FCT).count(), 4);
        assert!(rows.iter().all(|row| row.measure != "pa.fct"), "cells of the run stay apart");
    }

    #[test]
    fn comparison_differs_in_hosts_and_policy_only() {
        let scenario = Scenario::load("demo").unwrap();
        let (pa, today) = (scenario.pa.clone().unwrap(), scenario.today.clone().unwrap());
        let [linux, own] = scenarios(&scenario, &pa, &today);
        for part in [&linux, &own] {
            // It is a scenario that could have been written so.
            let text = toml::to_string(part).unwrap();
            assert_eq!(&Scenario::parse(&text).unwrap(), part);
            assert_eq!(part.settings, scenario.settings);
        }
        let mut same = linux.clone();
        same.lab.fabric = own.lab.fabric;
        same.pa.as_mut().unwrap().policies.clone_from(&own.pa.as_ref().unwrap().policies);
        assert_eq!(same, own);
        assert_eq!((linux.lab.fabric, own.tcp.profile), (Fabric::LinuxVxlan, Profile::LinuxNow));
    }
}
