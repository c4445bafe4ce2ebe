//! The subcommands of `sluice sim cpu`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use sluice_api::results::Results;

use super::params::File;
use super::{compare, fit, predict, rows, text, vary};
use crate::report;

/// The subcommands of `sluice sim cpu`.
#[derive(Clone, Debug, Subcommand)]
pub enum CpuCommand {
    /// Search the parameters that give the paper's Table 4, and print them
    Fit(CpuArguments),
    /// Put Tables 5, 6 and 7 of the paper beside what the model predicts
    Predict(CpuArguments),
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
    let (CpuCommand::Fit(arguments)
    | CpuCommand::Predict(arguments)
    | CpuCommand::Compare(arguments)
    | CpuCommand::Vary(arguments)) = command;
    let file = File::load(arguments.params.as_deref())?;
    let seeds = arguments.seeds.unwrap_or(32);
    ensure!((1..=10_000).contains(&seeds), "--seeds {seeds}: give a number from 1 to 10,000");
    let found = find(command, &file, seeds)?;
    if let Some(folder) = &arguments.out {
        write(folder, &found)?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&found.results)?);
    } else {
        print!("{}", found.text);
        if let Some(folder) = &arguments.out {
            println!("{}", folder.join("report.html").display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn find(command: &CpuCommand, file: &File, seeds: u64) -> anyhow::Result<Found> {
    let (testbed, params) = (&file.testbed, file.params());
    Ok(match command {
        CpuCommand::Fit(_) => {
            let fit = fit::fit(testbed, &params)?;
            Found {
                text: text::fit(&fit),
                results: rows::results("vs-extend fit", rows::fit(&fit)),
                page: report::cpu::fit(&fit),
            }
        }
        CpuCommand::Predict(_) => {
            let figures = predict::figures(testbed, &params, seeds)?;
            Found {
                text: text::predict(&figures),
                results: rows::results("vs-extend predict", rows::predict(&figures, seeds)),
                page: report::cpu::predict(&figures),
            }
        }
        CpuCommand::Compare(_) => {
            let found = compare::compare(testbed, &params, seeds)?;
            Found {
                text: text::compare(&found),
                results: rows::results("vs-extend compare", rows::compare(&found)),
                page: report::cpu::compare(&found),
            }
        }
        CpuCommand::Vary(_) => {
            let all = vary::vary(testbed, &params, seeds, |name| eprintln!("{name} ..."))?;
            Found {
                text: text::vary(&all),
                results: rows::results("vs-extend vary", rows::vary(&all, seeds)),
                page: report::cpu::vary(&all),
            }
        }
    })
}

fn write(folder: &Path, found: &Found) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("making {}: --out takes a folder", folder.display()))?;
    let json = serde_json::to_string_pretty(&found.results)? + "\n";
    for (name, content) in [("result.json", &json), ("report.html", &found.page)] {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
