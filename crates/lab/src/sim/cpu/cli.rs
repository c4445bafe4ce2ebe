//! The subcommands of `sluice sim cpu`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use sluice_api::results::Results;

use super::kept::Kept;
use super::params::File;
use super::{compare, fit, predict, rows, text, vary};
use crate::report;

/// The subcommands of `sluice sim cpu`.
#[derive(Clone, Debug, Subcommand)]
pub enum CpuCommand {
    /// Search the parameters that give the paper's Table 4, and print them
    Fit(CpuArguments),
    /// Put every cell of Tables 4 to 7 of the paper beside what the model says
    Predict(CpuArguments),
    /// Draw a result.json of `predict`, and print its tables for a page
    Draw(DrawArguments),
    /// Compare rss, rss++, the paper's rule and adaptive
    Compare(CpuArguments),
    /// Compare with each parameter half as large, and half as large again
    Vary(CpuArguments),
}

/// The arguments of each subcommand.
#[derive(Args, Clone, Debug)]
pub struct CpuArguments {
    /// Parameters of another file than experiments/vs-extend/params.toml
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// Number of hashes drawn for a rule that hashes; default: 32
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// Write result.json and report.html to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `draw`.
#[derive(Args, Clone, Debug)]
pub struct DrawArguments {
    /// A result.json of `predict`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write two-vms.svg and errors.svg to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Output of a command: text to print, rows, the body of a page.
struct Found {
    text: String,
    results: Results,
    page: String,
}

/// Runs a subcommand.
///
/// # Errors
///
/// A file of parameters cannot be read or cannot work, or a folder cannot be written.
pub fn run(command: &CpuCommand) -> anyhow::Result<ExitCode> {
    let (arguments, find): (_, fn(&File, u64) -> anyhow::Result<Found>) = match command {
        CpuCommand::Fit(arguments) => (arguments, fit),
        CpuCommand::Predict(arguments) => (arguments, predict),
        CpuCommand::Compare(arguments) => (arguments, compare),
        CpuCommand::Vary(arguments) => (arguments, vary),
        CpuCommand::Draw(arguments) => return draw(arguments),
    };
    let file = File::load(arguments.params.as_deref())?;
    let seeds = arguments.seeds.unwrap_or(32);
    ensure!((1..=10_000).contains(&seeds), "--seeds {seeds}: give a number from 1 to 10,000");
    let found = find(&file, seeds)?;
    if let Some(folder) = &arguments.out {
        let json = json(&found.results)?;
        write(folder, &[("result.json", &json), ("report.html", &found.page)])?;
    }
    if arguments.json {
        print!("{}", json(&found.results)?);
    } else {
        print!("{}", found.text);
        if let Some(folder) = &arguments.out {
            println!("{}", folder.join("report.html").display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn fit(file: &File, _: u64) -> anyhow::Result<Found> {
    let fit = fit::fit(&file.testbed, &file.params())?;
    Ok(Found {
        text: text::fit(&fit),
        results: rows::results("vs-extend fit", rows::fit(&fit)),
        page: report::cpu::fit(&fit),
    })
}

fn predict(file: &File, seeds: u64) -> anyhow::Result<Found> {
    let figures = predict::figures(&file.testbed, &file.params(), seeds)?;
    Ok(Found {
        text: text::predict(&figures),
        results: rows::results("vs-extend predict", rows::predict(&figures, seeds)),
        page: report::cpu::predict(&figures),
    })
}

fn compare(file: &File, seeds: u64) -> anyhow::Result<Found> {
    let found = compare::compare(&file.testbed, &file.params(), seeds)?;
    Ok(Found {
        text: text::compare(&found),
        results: rows::results("vs-extend compare", rows::compare(&found)),
        page: report::cpu::compare(&found),
    })
}

fn vary(file: &File, seeds: u64) -> anyhow::Result<Found> {
    let progress = |name: &str| eprintln!("{name} ...");
    let all = vary::vary(&file.testbed, &file.params(), seeds, progress)?;
    Ok(Found {
        text: text::vary(&all),
        results: rows::results("vs-extend vary", rows::vary(&all, seeds)),
        page: report::cpu::vary(&all),
    })
}

/// Draws a kept file of results.
fn draw(arguments: &DrawArguments) -> anyhow::Result<ExitCode> {
    let kept = Kept::load(&arguments.file)?;
    if let Some(folder) = &arguments.out {
        write(folder, &[("two-vms.svg", &kept.two_vms()), ("errors.svg", &kept.errors())])?;
    }
    for table in kept.tables() {
        println!("{table}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of a result file.
pub(super) fn json(results: &Results) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(results)? + "\n")
}

fn write(folder: &Path, files: &[(&str, &str)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("making {}: --out takes a folder", folder.display()))?;
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
