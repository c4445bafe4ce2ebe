//! `sluice lab` alone, for trying and testing it. It contains no daemon, so that only scenarios
//! without one run (`linux-bridge`).
//!
//! ```text
//! cargo run -p sluice-lab --example lab -- lab run linux-bridge --sizes 4,8
//! ```

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sluice_lab::cli::LabCommand;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Labs
    #[command(subcommand)]
    Lab(LabCommand),
}

fn main() -> anyhow::Result<ExitCode> {
    let Command::Lab(command) = Arguments::parse().command;
    sluice_lab::cli::run(command)
}
