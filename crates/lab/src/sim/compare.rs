//! Compares a lab run with its simulation, to validate the simulator against real machines.
//!
//! Two figures are compared, each where it means something. Without loss (`ZZ`) a query takes as
//! long as the slowest link needs, so the medians must agree. With loss (`LL`) queries spend nearly
//! all time waiting for retransmission time-outs, so the numbers of time-outs per query must agree.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, ensure};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use sluice_api::results::Results;

use super::run::read;
use crate::report::comparison;
use crate::view::{self, Fct};

/// Figures of one size, each from the lab and from the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) size: u64,
    /// Median completion time under `ZZ` in nanoseconds: lab, simulator.
    pub(crate) p50: Option<(f64, f64)>,
    /// Mean completion time under `LL` in nanoseconds.
    pub(crate) mean: Option<(f64, f64)>,
    /// Time-outs per query under `LL`.
    pub(crate) timeouts: Option<(f64, f64)>,
}

/// Compares two files of results; with a folder, writes `compare.html` there.
///
/// # Errors
///
/// A file cannot be read, or the two have no cell in common.
pub fn compare(lab: &Path, sim: &Path, out: Option<&Path>) -> anyhow::Result<String> {
    let (lab_results, sim_results) = (read(lab)?, read(sim)?);
    let has = |results: &Results, measure| view::rows(results, measure).next().is_some();
    ensure!(
        has(&lab_results, "lab.settings"),
        "{}: no results of the lab; the lab's file comes first",
        lab.display()
    );
    ensure!(
        has(&sim_results, "sim.settings"),
        "{}: no results of the simulator; its file comes second",
        sim.display()
    );
    let pairs = pairs(&lab_results, &sim_results);
    ensure!(
        !pairs.is_empty(),
        "the two files have no cell in common: simulate the scenario that the lab ran"
    );
    let mut text = table(&pairs);
    if let Some(folder) = out {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join("compare.html");
        std::fs::write(&path, comparison::html(&lab_results, &sim_results, &pairs))
            .with_context(|| format!("writing {}", path.display()))?;
        text += &format!("{}\n", path.display());
    }
    Ok(text)
}

pub(crate) fn pairs(lab: &Results, sim: &Results) -> Vec<Pair> {
    let (lab_cells, sim_cells) = (view::cells(lab), view::cells(sim));
    // A sweep or several variants have several cells of one size: the first cell of both files
    // counts.
    let same = |policy: &str, size: u64| {
        let of = |cell: &&Fct| cell.series.policy == policy && cell.size == size;
        let ours = lab_cells.iter().find(of)?;
        let theirs = sim_cells.iter().find(|c| c.series == ours.series && c.size == size)?;
        Some((ours, theirs))
    };
    let sizes: BTreeSet<u64> = lab_cells.iter().map(|cell| cell.size).collect();
    let pair = |size: u64| {
        let (zz, ll) = (same("ZZ", size), same("LL", size));
        (zz.is_some() || ll.is_some()).then(|| Pair {
            size,
            p50: zz.map(|(a, b)| (a.p50, b.p50)),
            mean: ll.map(|(a, b)| (a.mean, b.mean)),
            timeouts: ll.and_then(|(a, b)| {
                let each = |results, cell: &Fct| view::timeouts(results, &cell.series, cell.size);
                Some((each(lab, a)?, each(sim, b)?))
            }),
        })
    };
    sizes.into_iter().filter_map(pair).collect()
}

fn table(pairs: &[Pair]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(vec![
        "packets",
        "ZZ p50 ms: lab",
        "sim",
        "sim / lab",
        "LL mean ms: lab",
        "sim",
        "sim / lab",
        "LL time-outs per query: lab",
        "sim",
    ]);
    let both = |values: Option<(f64, f64)>, unit: f64| match values {
        Some((lab, sim)) => {
            let ratio = if lab > 0.0 { format!("{:.2}", sim / lab) } else { "-".to_owned() };
            [format!("{:.2}", lab / unit), format!("{:.2}", sim / unit), ratio]
        }
        None => ["-", "-", "-"].map(str::to_owned),
    };
    for pair in pairs {
        let timeouts = both(pair.timeouts, 1.0);
        let figures = both(pair.p50, 1e6).into_iter().chain(both(pair.mean, 1e6));
        let row = std::iter::once(pair.size.to_string()).chain(figures);
        table.add_row(row.chain(timeouts.into_iter().take(2)));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests;
