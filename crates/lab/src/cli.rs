//! The subcommands of `sluice lab`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use sluice_api::config::{ChipKind, Policy};

use crate::Options;
use crate::Overrides;

/// The subcommands of `sluice lab`.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// Build a scenario's hosts, containers and switches and leave them running
    Up {
        /// A scenario's name or file
        #[arg(value_name = "NAME|FILE")]
        scenario: String,
        /// A flow-control policy that replaces the scenario's
        #[arg(long, value_parser = policy_parser(), ignore_case = true)]
        policy: Option<Policy>,
    },
    /// Take a lab down; without a name, all of them
    Down {
        /// The lab's name
        name: Option<String>,
    },
    /// Show the labs of this machine
    Status,
    /// List the scenarios that ship
    List,
    /// Build a scenario, measure, take it down, report
    Run(RunArguments),
    /// Draw report.html again from the result.json of a folder
    Report {
        /// The folder
        folder: PathBuf,
    },
    /// Compare runs of a flood: print a table and write points.html to a folder
    Points {
        /// The folders of the runs
        #[arg(required = true)]
        folders: Vec<PathBuf>,
        /// The folder for points.html
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Run a worker in a container
    #[command(name = "__worker", hide = true)]
    Worker {
        /// The address to listen on
        #[arg(long)]
        address: Ipv4Addr,
        /// The port
        #[arg(long)]
        port: u16,
        /// The congestion control
        #[arg(long)]
        congestion: String,
    },
    /// Run the aggregator in a container
    #[command(name = "__aggregator", hide = true)]
    Aggregator,
}

/// The cells of a run, in place of the scenario's.
#[derive(Args, Clone, Debug)]
pub struct CellArguments {
    /// Queries per cell (one size under one policy)
    #[arg(long, value_name = "N")]
    pub queries: Option<u32>,
    /// Sizes of an answer in full segments, such as 2,4,8
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub sizes: Option<Vec<u32>>,
    /// Flow-control policies, such as LL,ZZ
    #[arg(
        long,
        value_parser = policy_parser(),
        ignore_case = true,
        value_delimiter = ',',
        value_name = "P,…"
    )]
    pub policies: Option<Vec<Policy>>,
}

/// The arguments of `sluice lab run`.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// A scenario's name or file
    #[arg(value_name = "NAME|FILE")]
    pub scenario: String,
    /// Write result.json and report.html to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Cells of the run.
    #[command(flatten)]
    pub cells: CellArguments,
    /// The time of a cell
    #[arg(long, value_name = "S")]
    pub seconds_per_cell: Option<f64>,
    /// The chip of the hosts: software or kernel
    #[arg(long, value_name = "KIND", value_parser = chip_parser())]
    pub chip: Option<ChipKind>,
    /// Print the planned run and the configuration, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses a policy on the command line.
fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    let value = |policy: Policy| {
        let first = if policy.virtual_lossless() { "Lossless" } else { "Lossy" };
        let second = if policy.physical_lossless() { "PFC" } else { "lossy" };
        let help = format!("{first}, {second}");
        PossibleValue::new(policy.name()).help(help)
    };
    PossibleValuesParser::new(Policy::ALL.map(value)).map(|name| {
        let is = |policy: &Policy| policy.name().eq_ignore_ascii_case(&name);
        Policy::ALL.into_iter().find(is).expect("one of the possible values")
    })
}

fn chip_parser() -> impl TypedValueParser<Value = ChipKind> {
    let kinds = [ChipKind::Software, ChipKind::Kernel];
    PossibleValuesParser::new(kinds.map(ChipKind::name)).map(move |name| {
        let is = |kind: &ChipKind| kind.name() == name;
        kinds.into_iter().find(is).expect("one of the possible values")
    })
}

/// Runs a subcommand. A run that breaks a promise (a drop under `ZZ`, an audit that does not close,
/// a failed check) is reported and is a failure.
///
/// # Errors
///
/// The command failed.
pub fn run(command: LabCommand) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Up { scenario, policy } => {
            print!("{}", crate::up(&scenario, policy)?);
        }
        LabCommand::Down { name } => down(name)?,
        LabCommand::Status => print!("{}", crate::status()?),
        LabCommand::List => {
            for (name, about) in crate::list()? {
                println!("{name:<14} {about}");
            }
        }
        LabCommand::Run(arguments) => return run_scenario(arguments),
        LabCommand::Report { folder } => {
            crate::report(&folder)?;
            println!("{}", folder.join("report.html").display());
        }
        LabCommand::Points { folders, out } => {
            let (table, page) = crate::report::points::draw(&folders)?;
            std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
            let path = out.join("points.html");
            std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
            println!("{table}{}", path.display());
        }
        LabCommand::Worker { address, port, congestion } => {
            crate::worker_main(address, port, &congestion)?;
        }
        LabCommand::Aggregator => crate::aggregator_main()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn down(name: Option<String>) -> anyhow::Result<()> {
    let names = match name {
        Some(name) => vec![name],
        None => crate::State::all()?.into_iter().map(|state| state.lab).collect(),
    };
    for name in names {
        match crate::down(&name)? {
            true => println!("lab {name} is down"),
            false => println!("there is no lab {name}"),
        }
    }
    Ok(())
}

fn run_scenario(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let options = Options {
        out: arguments.out,
        dry_run: arguments.dry_run,
        json: arguments.json,
        quiet: arguments.quiet,
        overrides: Overrides {
            queries: arguments.cells.queries,
            sizes: arguments.cells.sizes,
            policies: arguments.cells.policies,
            seconds_per_cell: arguments.seconds_per_cell,
            chip: arguments.chip,
        },
        program: None,
    };
    let outcome = crate::run(&arguments.scenario, &options)?;
    if let Some(folder) = options.out.filter(|_| !options.dry_run && !options.json) {
        println!("{}", folder.join("report.html").display());
    }
    for promise in &outcome.broken {
        eprintln!("not kept: {promise}");
    }
    Ok(if outcome.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
