//! Benchmarks. Each part writes `target/bench/PART.json` and a drawing beside it, and prints a
//! table with the minimum, the median and the maximum of its rounds.

mod chip;
mod churn;
mod containers;
mod dataplane;
mod evpn;
mod fabric;
mod forward;
mod guests;
mod handoff;
mod instructions;
mod machine;
mod placement;
mod report;
mod sim;
mod steer;
mod switch;
mod tunnel;

use clap::{Parser, Subcommand};

/// Measures Sluice, and its peers if they are installed.
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
    /// Frames between guests through a switch, with OVS-DPDK and DPDK's testpmd beside it.
    Dataplane {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Milliseconds before each window.
        #[arg(long, default_value_t = 300)]
        settle_ms: u64,
        /// Milliseconds of each window.
        #[arg(long, default_value_t = 1000)]
        window_ms: u64,
        /// Only these groups of rows: vm_to_vm, overload, asleep, victim, latency, vxlan,
        /// idle_cpu.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Only these subjects: ovs-dpdk, testpmd, sluice.
        #[arg(long, value_delimiter = ',')]
        subjects: Vec<String>,
    },
    /// The control plane, alone and between hosts, with FRR beside it.
    Fabric {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Samples of each latency.
        #[arg(long, default_value_t = 100)]
        samples: u32,
        /// Rounds of the peer's slow figures, 20 s each.
        #[arg(long, default_value_t = 2)]
        peer_rounds: usize,
        /// Seconds of full load in which no host may be taken to hang.
        #[arg(long, default_value_t = 64)]
        load: u64,
        /// Only these groups of rows: table, inside, commit, latency, learn, bulk, hung.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
    /// Placement: cost of a decision and of a look-up.
    Placement {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// The EVPN speaker: MACs announced, imported and withdrawn per second.
    Evpn {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// MACs of a neighbor.
        #[arg(long, default_value_t = 100_000)]
        macs: u32,
    },
    /// Containers on one host and on two, with a Linux bridge beside it: pings, and a TCP flow.
    Containers(containers::Plan),
    /// The kernel as chip: addresses written and removed per second, and its upkeep.
    Chip {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Addresses of ports.
        #[arg(long, default_value_t = 232 << 10)]
        macs: usize,
        /// Addresses of tunnels.
        #[arg(long, default_value_t = 56 << 10)]
        flows: usize,
    },
    /// The kernel as chip of a host that speaks with more addresses than it has places for.
    Churn {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Places for addresses of other hosts.
        #[arg(long, value_delimiter = ',', default_values_t = [24 << 10, 56 << 10])]
        flows: Vec<u32>,
        /// Frames sent per second.
        #[arg(long, default_value_t = 100_000)]
        rate: u32,
        /// Milliseconds of each window.
        #[arg(long, default_value_t = 3000)]
        window_ms: u64,
    },
    /// `sluice steer` on the kernel's tunnel path, with a busy guest on one of two cores.
    Steer(steer::Plan),
    /// The guest of `steer`, started by it.
    #[command(hide = true)]
    SteerGuest(steer::Guest),
    /// The sender of `steer`, started by it.
    #[command(hide = true)]
    SteerSender(steer::Sender),
    /// The simulator: hops/s, and ns-3 beside it.
    Sim {
        /// Rounds of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Few waves: shows that everything runs, gives no figures to compare.
        #[arg(long)]
        short: bool,
    },
    /// One run of the simulator, for a profiler. With `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` in
    /// its environment it has large pages, as `sim` sees to by itself.
    SimOnce {
        /// Endless flows for 20 ms instead of waves of answers.
        #[arg(long)]
        perm: bool,
        /// Pause the network instead of dropping.
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
        /// Drop frames at full outputs.
        #[arg(long)]
        lossy: bool,
        /// Frames to forward.
        #[arg(long, default_value_t = 1_000_000)]
        frames: u64,
    },
    /// One run of two switches and a tunnel without output, as `once`.
    OnceTunnel {
        /// Frames sent at a time.
        #[arg(long, default_value_t = 1)]
        batch: usize,
        /// Drop frames at full outputs.
        #[arg(long)]
        lossy: bool,
        /// Frames to forward.
        #[arg(long, default_value_t = 1_000_000)]
        frames: u64,
    },
    /// One run from guest to guest in one thread; prints the time of a frame in the switch and its
    /// ports
    OnceGuests {
        /// Bytes of a frame, without frame check sequence.
        #[arg(long, default_value_t = 64)]
        bytes: usize,
        /// Drop frames at full outputs.
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
        Part::Dataplane { rounds, settle_ms, window_ms, only, subjects } => {
            dataplane::run(&dataplane::Plan { rounds, settle_ms, window_ms, only, subjects })
        }
        Part::Fabric { rounds, samples, peer_rounds, load, only } => {
            let load = std::time::Duration::from_secs(load);
            fabric::run(&fabric::Plan { rounds, samples, peer_rounds, load, only })
        }
        Part::Placement { rounds } => placement::run(rounds),
        Part::Evpn { rounds, macs } => evpn::run(rounds, macs),
        Part::Chip { rounds, macs, flows } => chip::run(rounds, macs, flows),
        Part::Churn { rounds, flows, rate, window_ms } => {
            churn::run(rounds, &flows, rate, std::time::Duration::from_millis(window_ms))
        }
        Part::Containers(plan) => containers::run(&plan),
        Part::Steer(plan) => steer::run(&plan),
        Part::SteerGuest(guest) => steer::run_guest(&guest),
        Part::SteerSender(sender) => steer::run_sender(&sender),
        Part::Sim { rounds, short } => {
            sluice_sim::pages::use_large();
            sim::run(&if short { sim::Plan::short(rounds) } else { sim::Plan::full(rounds) })
        }
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
        Part::OnceGuests { bytes, lossy, frames } => {
            let mut bench = guests::Guests::new(bytes, lossy)?;
            let taken = bench.forward(frames)?;
            anyhow::ensure!(bench.is_clean(), "a frame was lost");
            println!("{} ticks a frame, {} frames", taken.ticks / taken.frames, taken.frames);
            Ok(())
        }
    }
}
