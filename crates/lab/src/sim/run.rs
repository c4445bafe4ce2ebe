//! A simulation from the command line: runs every cell, writes the results, reports broken
//! promises.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sluice_api::results::Results;

use super::experiment::{Case, Experiment, Overrides};
use super::rows;
use super::scenario::{Any, text_of};
use super::simulate::{report, simulate_traced};
use super::trace::TraceFile;
use crate::progress::Progress;
use crate::table;

/// Options of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folder for `result.json`, `report.html` and `trace.jsonl`; `None`: they are not written.
    pub out: Option<PathBuf>,
    /// Print the results as JSON instead of a table.
    pub json: bool,
    /// Show no progress.
    pub quiet: bool,
    /// Values that replace the scenario's.
    pub overrides: Overrides,
}

/// Outcome of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The results.
    pub results: Results,
    /// Promises that were not kept, in words, with the commands that repeat them.
    pub broken: Vec<String>,
}

/// Simulates a scenario, given by its name or its file.
///
/// # Errors
///
/// The scenario cannot be read, or the simulator does not support a part of it, or the results
/// cannot be written.
pub fn run(name: &str, options: &Options) -> anyhow::Result<Outcome> {
    let experiment = load(name, &options.overrides)?;
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for warning in &experiment.warnings {
        eprintln!("warning: {warning}");
    }
    let mut trace = trace_file(&experiment, options.out.as_deref())?;
    let progress = Progress::new(options.quiet || options.json);
    let mut measured = Vec::new();
    let mut broken = Vec::new();
    for case in &experiment.cases {
        let title = match case.probe() {
            Some(probe) => format!("{} {} to {}", case.policy.name(), probe.from, probe.to),
            None => format!("{} {} {:>3} packets", case.policy.name(), case.variant, case.size),
        };
        let bar = progress.cell(&title, case.queries());
        let cell = simulate_traced(case, &mut |queries| bar.at(queries), trace.as_mut())?;
        bar.done(&cell.fct_ns, cell.losses.congestion);
        if !cell.broken.is_empty() {
            let command = command(name, &experiment, case);
            broken.push(report(case, &cell, experiment.seed, &command));
        }
        measured.push(cell);
    }
    let results = rows::results(&experiment, &measured);
    if let Some(folder) = &options.out {
        crate::run::write(&results, folder)?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        println!("{}: {}; seed {}", experiment.name, experiment.about, experiment.seed);
        println!("{}", table::render(&results));
    }
    Ok(Outcome { results, broken })
}

/// Creates the file of the samples that a scenario asks for.
fn trace_file(experiment: &Experiment, out: Option<&Path>) -> anyhow::Result<Option<TraceFile>> {
    match (&experiment.trace, out) {
        (Some(plan), Some(folder)) => TraceFile::create(plan, folder).map(Some),
        (Some(_), None) => {
            eprintln!("warning: trace: it is written beside the results: give --out DIR");
            Ok(None)
        }
        (None, _) => Ok(None),
    }
}

fn load(name: &str, overrides: &Overrides) -> anyhow::Result<Experiment> {
    let make = || Experiment::new(Any::parse(&text_of(name)?)?, overrides);
    make().with_context(|| format!("scenario {name}"))
}

/// Returns the command that repeats one cell of a run.
fn command(name: &str, experiment: &Experiment, case: &Case) -> String {
    let mut command = format!(
        "sluice sim run {name} --seed {} --policies {}",
        experiment.seed,
        case.policy.name()
    );
    if let Some(probe) = case.probe() {
        // A check runs with all others, under the scenario's own policy.
        let kind = if probe.is_echo { "ping" } else { "transfer" };
        return format!(
            "sluice sim run {name} --seed {} # {kind} {} to {}",
            experiment.seed, probe.from, probe.to
        );
    }
    if case.queries() > 0 {
        command += &format!(" --sizes {} --queries {}", case.size, case.queries());
    }
    command
}

/// Lists the scenarios that can be simulated: name and description. The simulator's own come first.
///
/// # Errors
///
/// One of the simulator's own scenarios is wrong.
pub fn list() -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut list = Vec::new();
    for (name, text) in super::scenario::SHIPPED {
        let experiment = Experiment::new(Any::parse(text)?, &Overrides::default())
            .with_context(|| format!("scenario {name}"))?;
        list.push((name, experiment.about));
    }
    for (name, text) in crate::scenario::SHIPPED {
        // Scenarios that the simulator has no model for (a control plane) are left out.
        if let Ok(experiment) = Experiment::new(Any::parse(text)?, &Overrides::default()) {
            list.push((name, format!("lab: {}", experiment.about)));
        }
    }
    Ok(list)
}

/// Reads results from a file.
///
/// # Errors
///
/// The file cannot be read, or holds something else.
pub(super) fn read(path: &Path) -> anyhow::Result<Results> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}: no file of results", path.display()))
}

#[cfg(test)]
mod tests;
