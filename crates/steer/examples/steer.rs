//! `sluice steer` alone, without the rest of Sluice.

use clap::Parser;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    arguments: sluice_steer::Arguments,
}

fn main() -> anyhow::Result<()> {
    sluice_steer::steer(&Cli::parse().arguments)
}
