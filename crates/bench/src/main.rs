//! Benchmarks. Each part writes `target/bench/PART.json` and prints a table with the minimum, the
//! median and the maximum of its rounds.

mod forward;
mod instructions;
mod machine;
mod report;
mod switch;

use clap::{Parser, Subcommand};

/// Measures Sluice, and its peers where they are installed.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// The switch core alone: frames/s and instructions per frame.
    Switch {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 10)]
        rounds: usize,
        /// Interleaved pairs of the comparison of lossless with lossy.
        #[arg(long, default_value_t = 30)]
        pairs: usize,
    },
    /// One run without output, for a profiler or an instruction counter.
    Once {
        /// Ports.
        #[arg(long, default_value_t = 254)]
        ports: usize,
        /// MAC addresses over all ports.
        #[arg(long, default_value_t = 4096)]
        macs: usize,
        /// Whether full outputs hold frames.
        #[arg(long)]
        lossy: bool,
        /// Frames to forward.
        #[arg(long, default_value_t = 1_000_000)]
        frames: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().part {
        Part::Switch { rounds, pairs } => switch::run(rounds, pairs),
        Part::Once { ports, macs, lossy, frames } => {
            let mut bench = forward::Forward::new(&forward::Setup { ports, macs, lossy });
            bench.forward(frames);
            Ok(())
        }
    }
}
