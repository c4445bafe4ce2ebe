//! The subcommands of `sluice sim`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::cpu::cli::CpuCommand;
use super::{CompareOptions, Options, Overrides};
use crate::cli::CellArguments;

/// The subcommands of `sluice sim`.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// List the scenarios that can be simulated
    List,
    /// Simulate a scenario, of the simulator or of the lab, and report
    Run(RunArguments),
    /// Simulate a scenario for every combination of listed values
    Sweep(SweepArguments),
    /// Draw the results of a sweep, and print their table for a page
    Draw(DrawArguments),
    /// Put the results of a lab run beside those of its simulation
    Compare(CompareArguments),
    /// Cores that do the tunnel work: the paper on VS-extend, predicted and compared
    #[command(subcommand)]
    Cpu(CpuCommand),
}

/// The arguments of `sluice sim run`.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// A scenario's name or file
    #[arg(value_name = "NAME|FILE")]
    pub scenario: String,
    /// Write result.json, report.html and, with a table of traces, trace.jsonl to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The seed of all random numbers
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Cells of the run.
    #[command(flatten)]
    pub cells: CellArguments,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `sluice sim sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepArguments {
    /// A file with a base scenario and lists of values
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write sweep.jsonl to this folder; cells that are in it already are not run again
    #[arg(long, value_name = "DIR", default_value = "out/sweep")]
    pub out: PathBuf,
    /// Number of cells that run at the same time; default: the number of cores
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// The arguments of `sluice sim draw`.
#[derive(Args, Clone, Debug)]
pub struct DrawArguments {
    /// sweep.jsonl of `sluice sim sweep`, or a copy of another name
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write a drawing, with the file's name and .svg, to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The arguments of `sluice sim compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArguments {
    /// result.json of `sluice lab run`
    #[arg(value_name = "LAB_RESULT")]
    pub lab: PathBuf,
    /// result.json of `sluice sim run` of the same scenario
    #[arg(value_name = "SIM_RESULT")]
    pub sim: PathBuf,
    /// Write compare.html and compare.json to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the comparison as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs a subcommand. A run that broke a promise is reported and is a failure. A simulation may
/// start the process again with the same arguments ([`sluice_sim::pages::use_large`]), so the
/// caller's command line must be that of this command.
///
/// # Errors
///
/// The command failed.
pub fn run(command: SimCommand) -> anyhow::Result<ExitCode> {
    if let SimCommand::Run(_) | SimCommand::Sweep(_) = command {
        sluice_sim::pages::use_large();
    }
    match command {
        SimCommand::List => {
            for (name, about) in super::list()? {
                println!("{name:<14} {about}");
            }
            Ok(ExitCode::SUCCESS)
        }
        SimCommand::Run(arguments) => run_scenario(arguments),
        SimCommand::Sweep(arguments) => {
            let threads = arguments
                .threads
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            let swept = super::sweep(&arguments.file, &arguments.out, threads, arguments.quiet)?;
            println!("{}", swept.table);
            println!("{}\n{}", swept.path.display(), swept.page.display());
            Ok(kept(&swept.broken))
        }
        SimCommand::Draw(arguments) => {
            print!("{}", super::draw(&arguments.file, arguments.out.as_deref())?);
            Ok(ExitCode::SUCCESS)
        }
        SimCommand::Compare(arguments) => {
            let options = CompareOptions { out: arguments.out, json: arguments.json };
            let text = super::compare(&arguments.lab, &arguments.sim, &options)?;
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        SimCommand::Cpu(command) => super::cpu::cli::run(&command),
    }
}

fn run_scenario(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let options = Options {
        out: arguments.out,
        json: arguments.json,
        quiet: arguments.quiet,
        overrides: Overrides {
            seed: arguments.seed,
            queries: arguments.cells.queries,
            sizes: arguments.cells.sizes,
            policies: arguments.cells.policies,
        },
    };
    let outcome = super::run(&arguments.scenario, &options)?;
    if let Some(folder) = options.out.filter(|_| !options.json) {
        println!("{}", folder.join("report.html").display());
    }
    Ok(kept(&outcome.broken))
}

fn kept(broken: &[String]) -> ExitCode {
    for promise in broken {
        eprintln!("not kept: {promise}");
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
