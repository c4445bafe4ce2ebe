//! Sweeps: one scenario for every combination of listed values, on several threads. The file of
//! results grows by one line per cell, so that a sweep that was killed continues where it stopped.
//!
//! ```text
//!  base + grid ──> cells ──┬─ thread: its own worlds ─┐
//!                          ├─ thread                  ├──> sweep.jsonl, a line as each is done
//!                          └─ thread                  ┘      └──> sorted when all are
//! ```
//!
//! A cell of a sweep is one scenario with all of its sizes and policies. Its line has a digest of
//! the whole scenario: a changed base or a changed value makes another cell. Rows do not depend on
//! the thread, so the file is the same for any number of threads.

mod differ;
mod file;
mod gains;
mod grid;
mod kept;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::{Context, ensure};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluice_api::results::{Results, Row};

use self::differ::{Differences, differ_in_policy};
use self::file::{Line, Lines};
use self::grid::{Cell, Grid, words};
use self::kept::Kept;
use super::experiment::{Experiment, Overrides};
use super::rows;
use super::scenario::Any;
use super::simulate::{report, simulate};
use crate::report::swept::{self, SweptCell};
use crate::view;

/// Outcome of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The file with a line per cell.
    pub path: PathBuf,
    /// The page with the figures of all cells.
    pub page: PathBuf,
    /// The figures as a table.
    pub table: String,
    /// Number of cells that were run; the others were in the file already.
    pub run: usize,
    /// Promises that were not kept, in words.
    pub broken: Vec<String>,
}

/// Runs the cells of a sweep that are not yet in `folder`.
///
/// # Errors
///
/// The file or a scenario that it makes is wrong, or the results cannot be written.
pub fn sweep(path: &Path, folder: &Path, threads: usize, quiet: bool) -> anyhow::Result<Swept> {
    ensure!(threads > 0, "--threads: 1 at least");
    let grid = Grid::load(path)?;
    let cells = grid.cells()?;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut lines = Lines::open(&folder.join("sweep.jsonl"), &cells)?;
    let missing: Vec<&Cell> = cells.iter().filter(|cell| !lines.has(cell)).collect();
    for warning in warnings(&missing)? {
        eprintln!("warning: {warning}");
    }
    let bar = bar(cells.len(), cells.len() - missing.len(), quiet);
    run_all(&missing, threads, path, &mut |line| {
        bar.inc(1);
        lines.append(line)
    })?;
    bar.finish_and_clear();
    let run = missing.len();
    let mut lines = lines.finish()?;
    gains::add_gains(&mut lines);
    let broken = lines.iter().flat_map(|line| line.broken.clone()).collect();
    let page = folder.join("report.html");
    std::fs::write(&page, page_of(path, &grid, &lines))
        .with_context(|| format!("writing {}", page.display()))?;
    Ok(Swept { path: folder.join("sweep.jsonl"), page, table: table(&lines), run, broken })
}

/// Draws the kept results of a sweep, in a folder if one is given. Returns their table in Markdown.
///
/// # Errors
///
/// The file is none of a finished sweep, or the drawing cannot be written.
pub fn draw(path: &Path, folder: Option<&Path>) -> anyhow::Result<String> {
    let kept = Kept::load(path)?;
    if let Some(folder) = folder {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = folder.join(format!("{name}.svg"));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&file, kept.svg(&name)))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(kept.table())
}

fn page_of(path: &Path, grid: &Grid, lines: &[Line]) -> String {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let differences = Differences::of(lines);
    let cells: Vec<SweptCell> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| SweptCell {
            words: differences.words(line),
            short: differences.short(line),
            group: lines.iter().position(|first| differ_in_policy(first, line)).unwrap_or(at),
            results: results_of(&line.rows),
        })
        .collect();
    let says = grid.says.as_ref().map(|says| (says.source.as_str(), says.statements.as_slice()));
    swept::html(&name.unwrap_or_default(), &differences.common(lines), says, &cells)
}

/// Wraps rows as results without name, commit and machine.
fn results_of(rows: &[Row]) -> Results {
    let text = String::new;
    Results { name: text(), commit: text(), machine: text(), rows: rows.to_vec() }
}

fn bar(cells: usize, done: usize, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
    if let Ok(style) = ProgressStyle::with_template("cells {bar:40} {pos}/{len} {elapsed} ({eta})")
    {
        bar.set_style(style);
    }
    bar.set_position(done as u64);
    bar
}

/// Runs cells on several threads. `done` gets each line as soon as its cell is done; after an error
/// of `done` no further cell begins.
fn run_all(
    cells: &[&Cell],
    threads: usize,
    path: &Path,
    done: &mut dyn FnMut(Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(threads);
        for _ in 0..threads.min(cells.len()) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let line = run_cell(cell, path);
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let outcome = receive.iter().try_for_each(|line| done(line?));
        // A thread that still waits to send a line gets an error.
        drop(receive);
        outcome
    })
}

/// Returns the warnings of all cells, each once.
fn warnings(cells: &[&Cell]) -> anyhow::Result<BTreeSet<String>> {
    let mut warnings = BTreeSet::new();
    for cell in cells {
        let make = || Experiment::new(Any::parse(&cell.text)?, &Overrides::default());
        let at = || format!("cell {} ({})", cell.number, words(&cell.parameters));
        let experiment = make().with_context(at)?;
        warnings.extend(experiment.warnings);
        let untraced = experiment.trace.map(|_| {
            "trace: a sweep writes none; run one cell's scenario with sluice sim run".to_owned()
        });
        warnings.extend(untraced);
    }
    Ok(warnings)
}

fn run_cell(cell: &Cell, path: &Path) -> anyhow::Result<Line> {
    let run = || {
        let experiment = Experiment::new(Any::parse(&cell.text)?, &Overrides::default())?;
        let mut measured = Vec::new();
        let mut broken = Vec::new();
        for case in &experiment.cases {
            let found = simulate(case, &mut |_| {})?;
            if !found.broken.is_empty() {
                let command = format!("sluice sim sweep {} # cell {}", path.display(), cell.number);
                let text = report(case, &found, experiment.seed, &command);
                broken.push(format!("cell {} ({}): {text}", cell.number, words(&cell.parameters)));
            }
            measured.push(found);
        }
        anyhow::Ok(Line {
            cell: cell.number,
            parameters: cell.parameters.clone(),
            digest: cell.digest.clone(),
            broken,
            rows: rows::rows(&experiment, &measured),
        })
    };
    run().with_context(|| format!("cell {} ({})", cell.number, words(&cell.parameters)))
}

/// Returns the table: one line per size and policy of each cell.
fn table(lines: &[Line]) -> String {
    let differences = Differences::of(lines);
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let fixed = ["packets", "policy", "mean ms", "p95", "gain over LL", "drops", "time-outs"];
    table.set_header(differences.keys().chain(fixed));
    for line in lines {
        let values = differences.values(line);
        for measured in measured_in(&line.rows) {
            table.add_row(values.iter().cloned().chain(measured));
        }
    }
    table.to_string()
}

fn measured_in(rows: &[Row]) -> Vec<[String; 7]> {
    let text = String::new;
    let results = results_of(rows);
    let gains = view::gains(&results);
    let mut all = Vec::new();
    for cell in view::cells(&results) {
        let gain = view::gain_of(&gains, &cell);
        all.push([
            cell.size.to_string(),
            cell.series.label(false),
            format!("{:.3}", cell.mean / 1e6),
            format!("{:.3}", cell.p95 / 1e6),
            gain.map(view::gain_text).unwrap_or_default(),
            view::drops_text(&cell.drops),
            view::timeouts(&results, &cell.series, cell.size)
                .map_or_else(String::new, |each| format!("{each:.2}")),
        ]);
    }
    for row in view::rows(&results, "sim.goodput") {
        let mean = crate::stats::mean(&row.values);
        all.push([
            view::text(row, "size_packets"),
            view::text(row, "policy"),
            format!("{:.0} Mbit/s", mean / 1e6),
            text(),
            text(),
            text(),
            text(),
        ]);
    }
    all
}

#[cfg(test)]
mod tests;
