//! The `sluice` binary: argument parsing only.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sluice_api::show::Question;
use sluice_daemon::show_client::{Style, Whom};
use sluice_lab::cli::LabCommand;
use sluice_lab::sim::cli::SimCommand;

/// A lossless overlay network for containers
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a host: a virtual switch with its ports
    Daemon(DaemonArguments),
    /// Ask a running host
    Show(ShowArguments),
    /// Build networks of namespaces on this machine, and measure in them
    #[command(subcommand)]
    Lab(LabCommand),
    /// Simulate data centres, and measure in them
    #[command(subcommand)]
    Sim(SimCommand),
}

#[derive(Args, Debug)]
struct DaemonArguments {
    /// The configuration of the host
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and do nothing
    #[arg(long)]
    check: bool,
    /// Which of the two processes to be
    #[arg(long, value_enum, hide = true, default_value = "control")]
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Control,
    Data,
}

#[derive(Args, Debug)]
struct ShowArguments {
    /// What to show
    #[arg(value_enum)]
    what: What,
    /// The socket of the host
    #[arg(long, value_name = "PATH", conflicts_with_all = ["run_dir", "host"])]
    socket: Option<PathBuf>,
    /// The directory of the host
    #[arg(long, value_name = "DIR", conflicts_with = "host")]
    run_dir: Option<PathBuf>,
    /// The name of the host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Ask again every second
    #[arg(long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// The ports, with the kernel's counters
    Ports,
    /// The queues that hold frames
    Queues,
    /// Drops by port, priority and reason
    Drops,
    /// The balance of all frames
    Audit,
    /// Pauses sent and received
    Pauses,
    /// The tunnels to other hosts
    Tunnels,
    /// The MAC table
    Mac,
}

impl From<What> for Question {
    fn from(what: What) -> Self {
        match what {
            What::Ports => Self::Ports,
            What::Queues => Self::Queues,
            What::Drops => Self::Drops,
            What::Audit => Self::Audit,
            What::Pauses => Self::Pauses,
            What::Tunnels => Self::Tunnels,
            What::Mac => Self::Mac,
        }
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Daemon(arguments) => daemon(&arguments),
        Command::Show(arguments) => show(arguments),
        Command::Lab(command) => sluice_lab::cli::run(command),
        Command::Sim(command) => sluice_lab::sim::cli::run(command),
    };
    done.unwrap_or_else(|error| {
        eprintln!("sluice: {error:#}");
        ExitCode::FAILURE
    })
}

fn daemon(arguments: &DaemonArguments) -> anyhow::Result<ExitCode> {
    match (arguments.check, arguments.role) {
        (true, _) => sluice_daemon::check(&arguments.config),
        (false, Role::Control) => sluice_daemon::control::run(&arguments.config),
        (false, Role::Data) => sluice_daemon::data::run(&arguments.config),
    }
}

fn show(arguments: ShowArguments) -> anyhow::Result<ExitCode> {
    let whom = match (arguments.socket, arguments.run_dir, arguments.host) {
        (Some(path), _, _) => Whom::Socket(path),
        (None, Some(dir), _) => Whom::RunDir(dir),
        (None, None, Some(name)) => Whom::Host(name),
        (None, None, None) => Whom::TheOnlyOne,
    };
    let style = Style { json: arguments.json, watch: arguments.watch };
    sluice_daemon::show_client::show(&whom, arguments.what.into(), style)?;
    Ok(ExitCode::SUCCESS)
}
