//! Compares a lab run with its simulation, to validate the simulator against real machines.
//!
//! Two figures are compared, each where it means something. Without loss (`ZZ`) a query takes as
//! long as the slowest link needs, so the medians must agree. With loss (`LL`) queries spend nearly
//! all time waiting for retransmission time-outs, so the numbers of time-outs per query must agree.
//!
//! A simulated host takes no processor's time, and the lab's hosts share one machine. The median is
//! therefore compared twice: as it is, and with the time that the processor needs by itself
//! ([`share`]).

pub(crate) mod share;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use serde_json::json;
use sluice_api::results::{Results, Row};

use self::share::Bounds;
use super::run::read;
use crate::report::comparison;
use crate::view::{self, Fct};

/// Figures of one size, each from the lab and from the simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) size: u64,
    /// Median completion time under `ZZ` in nanoseconds: lab, simulator.
    pub(crate) p50: Option<(f64, f64)>,
    /// Median of the same queries where only the lab's processor takes time, in nanoseconds.
    pub(crate) processor: Option<f64>,
    /// Mean completion time under `LL` in nanoseconds.
    pub(crate) mean: Option<(f64, f64)>,
    /// Time-outs per query under `LL`.
    pub(crate) timeouts: Option<(f64, f64)>,
}

impl Pair {
    /// Returns the bounds of the median with the share of the lab's processor.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        Some(Bounds::of(self.p50?.1, self.processor?))
    }

    /// Returns the simulator's median by the lab's.
    pub(crate) fn without_processor(&self) -> Option<f64> {
        let (lab, sim) = self.p50.filter(|(lab, _)| *lab > 0.0)?;
        Some(sim / lab)
    }

    /// Returns the nearest value between the bounds by the lab's median.
    pub(crate) fn with_processor(&self) -> Option<f64> {
        let (lab, _) = self.p50.filter(|(lab, _)| *lab > 0.0)?;
        Some(self.bounds()?.nearest(lab) / lab)
    }
}

/// Form and place of a comparison's output.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// Folder for `compare.html` and `compare.json`; `None`: they are not written.
    pub out: Option<PathBuf>,
    /// Return the rows as JSON instead of a table.
    pub json: bool,
}

/// Compares two files of results.
///
/// # Errors
///
/// A file cannot be read, or the two have no cell in common, or the folder cannot be written.
pub fn compare(lab: &Path, sim: &Path, options: &CompareOptions) -> anyhow::Result<String> {
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
        "the two files have no cell of queries in common: simulate the scenario that the lab ran"
    );
    let rows = serde_json::to_string_pretty(&results(&lab_results, &pairs))? + "\n";
    let mut text = if options.json {
        rows.clone()
    } else {
        table(&pairs) + &share::words(&lab_results, &pairs) + "\n"
    };
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let page = comparison::html(&lab_results, &sim_results, &pairs);
        for (name, content) in [("compare.html", page), ("compare.json", rows)] {
            let path = folder.join(name);
            std::fs::write(&path, content)
                .with_context(|| format!("writing {}", path.display()))?;
            if !options.json {
                text += &format!("{}\n", path.display());
            }
        }
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
            processor: share::processor(lab, size),
            mean: ll.map(|(a, b)| (a.mean, b.mean)),
            timeouts: ll.and_then(|(a, b)| {
                let each = |results, cell: &Fct| view::timeouts(results, &cell.series, cell.size);
                Some((each(lab, a)?, each(sim, b)?))
            }),
        })
    };
    sizes.into_iter().filter_map(pair).collect()
}

/// Returns the comparison in the results format: one row per size and figure.
fn results(lab: &Results, pairs: &[Pair]) -> Results {
    let mut rows = Vec::new();
    for pair in pairs {
        let row = |measure: &str, value: f64| {
            Row::new(measure, "sluice", "ratio", vec![value]).with("size_packets", pair.size)
        };
        let bounds = pair.bounds();
        rows.extend(pair.without_processor().zip(pair.p50).map(|(ratio, (lab, sim))| {
            row("parity.median", ratio)
                .with("policy", "ZZ")
                .with("lab_ns", lab)
                .with("sim_ns", sim)
                .with("processor_ns", pair.processor)
                .with("least_ns", bounds.map(|bounds| bounds.least))
                .with("most_ns", bounds.map(|bounds| bounds.most))
                .with("with_processor", pair.with_processor())
        }));
        for (measure, both) in [("parity.mean", pair.mean), ("parity.timeouts", pair.timeouts)] {
            let both = both.filter(|(lab, _)| *lab > 0.0);
            rows.extend(both.map(|(lab, sim)| {
                row(measure, sim / lab).with("policy", "LL").with("lab", lab).with("sim", sim)
            }));
        }
    }
    rows.extend(share::busy(lab).map(|busy| {
        Row::new("parity.cores", "sluice", "ratio", vec![busy.all])
            .with("own", busy.own)
            .with("stolen", busy.stolen)
            .with("cores", json!(busy.cores))
    }));
    Results {
        name: lab.name.clone(),
        commit: crate::machine::commit(),
        machine: lab.machine.clone(),
        rows,
    }
}

fn table(pairs: &[Pair]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(vec![
        "packets",
        "ZZ p50 ms: lab",
        "sim",
        "sim / lab",
        "processor",
        "with it / lab",
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
        let figures = both(pair.p50, 1e6).into_iter().chain(with_processor(pair));
        let figures = figures.chain(both(pair.mean, 1e6));
        let row = std::iter::once(pair.size.to_string()).chain(figures);
        table.add_row(row.chain(timeouts.into_iter().take(2)));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Returns the processor's median in ms, and the bounds with it by the lab's median.
pub(crate) fn with_processor(pair: &Pair) -> [String; 2] {
    let share = || {
        let (lab, _) = pair.p50.filter(|(lab, _)| *lab > 0.0)?;
        let Bounds { least, most } = pair.bounds()?;
        let processor = format!("{:.2}", pair.processor? / 1e6);
        Some([processor, format!("{:.2} to {:.2}", least / lab, most / lab)])
    };
    share().unwrap_or_else(|| ["-", "-"].map(str::to_owned))
}

#[cfg(test)]
mod tests;
