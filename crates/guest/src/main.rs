//! `sluice guest` as a program of its own, to be linked statically and copied into machines.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Set what losslessness needs in a virtual machine, and tell its host the room of UDP sockets
#[derive(Debug, Parser)]
#[command(version, name = "sluice-guest")]
struct Program {
    #[command(flatten)]
    arguments: sluice_guest::Arguments,
}

fn main() -> ExitCode {
    let program = Program::parse();
    sluice_guest::run(&program.arguments).unwrap_or_else(|error| {
        eprintln!("sluice-guest: {error:#}");
        ExitCode::FAILURE
    })
}
