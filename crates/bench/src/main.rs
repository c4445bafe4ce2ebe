//! Benchmarks. Each part writes `target/bench/PART.json` and prints a table with the minimum, the
//! median and the maximum of its rounds.

mod forward;
mod instructions;
mod machine;
mod report;
mod sim;
mod switch;
mod tunnel;

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
    /// The simulator: hops/s, and ns-3 beside it.
    Sim {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Few waves: shows that everything runs, gives no figures to compare.
        #[arg(long)]
        short: bool,
    },
    /// One run of the simulator, for a profiler.
    SimOnce {
        /// Endless flows for 20 ms instead of waves of answers.
        #[arg(long)]
        perm: bool,
        /// Whether the network pauses instead of dropping.
        #[arg(long)]
        pfc: bool,
        /// Two virtual switches and VXLAN on each path.
        #[arg(long)]
        overlay: bool,
        /// 4,096 hosts that pause, without virtual switches, instead of 256.
        #[arg(long)]
        large: bool,
        /// Waves of answers.
        #[arg(long, default_value_t = 100)]
        waves: u32,
    },
    /// One run of the switch without output, for a profiler or an instruction counter.
    Once {
        /// Ports.
        #[arg(long, default_value_t = 254)]
        ports: usize,
        /// MAC addresses over all ports.
        #[arg(long, default_value_t = 4096)]
        macs: usize,
        /// Whether full outputs drop frames.
        #[arg(long)]
        lossy: bool,
        /// Frames to forward.
        #[arg(long, default_value_t = 1_000_000)]
        frames: u64,
    },
    /// One run of two switches and a tunnel without output, as `once`.
    OnceTunnel {
        /// Frames that go at a time.
        #[arg(long, default_value_t = 1)]
        batch: usize,
        /// Whether full outputs drop frames.
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
        Part::Sim { rounds, short: false } => sim::run(&sim::Plan::full(rounds)),
        Part::Sim { rounds, short: true } => sim::run(&sim::Plan::short(rounds)),
        Part::SimOnce { perm, pfc, overlay, large, waves } => {
            let work = if perm { sim::Work::Perm { millis: 20 } } else { sim::Work::Pa { waves } };
            let small = sim::Case::of_256(work, pfc, overlay);
            sim::once(&if large { sim::Case::of_4096(waves) } else { small })
        }
        Part::Once { ports, macs, lossy, frames } => {
            let mut bench = forward::Forward::new(&forward::Setup { ports, macs, lossy });
            bench.forward(frames);
            Ok(())
        }
        Part::OnceTunnel { batch, lossy, frames } => {
            let mut bench = tunnel::Tunnel::new(batch, lossy);
            bench.forward(frames);
            anyhow::ensure!(bench.is_clean(), "a frame was lost");
            Ok(())
        }
    }
}
