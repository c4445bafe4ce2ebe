//! Command line of `sluice steer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sluice_base::FlowMatch;
use sluice_cpus::cpu_list;
use sluice_placement::Mode;

use crate::device::XdpMode;
use crate::run;

/// Arguments of `sluice steer`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The device on which VXLAN packets come in
    pub device: String,
    /// The rule: rss, rss++, predetermined, on-the-fly or adaptive
    #[arg(long, default_value = "adaptive")]
    pub mode: Mode,
    /// Cores that may do the work, as 0-3,8; default: all
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub cores: Option<Cores>,
    /// Cores that run virtual machines; default: those to which vCPU threads are pinned
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub vcpus: Option<Cores>,
    /// VXLAN networks of high priority: each flow of theirs has a core to itself while one is free
    #[arg(long, value_name = "VNI", value_delimiter = ',')]
    pub high: Vec<u32>,
    /// Flows of high priority, as vni=5000,ip=10.0.0.0/24,proto=tcp,port=443, or a part of that;
    /// may be given up to 32 times
    #[arg(long, value_name = "MATCH")]
    pub high_flow: Vec<FlowMatch>,
    /// Follow the placement policy of this host, which then holds in place of --mode, --high and
    /// --high-flow: the directory of its daemon, or the file placement.json there
    #[arg(long, value_name = "PATH")]
    pub follow: Option<PathBuf>,
    /// Number of buckets into which flows hash: 16 to 4096
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub buckets: u32,
    /// UDP port of VXLAN
    #[arg(long, default_value_t = 4789)]
    pub port: u16,
    /// Milliseconds between decisions
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub period_ms: u32,
    /// Milliseconds after which a bucket that never pauses moves all the same; 0: never
    #[arg(long, default_value_t = 1000)]
    pub patience_ms: u32,
    /// For trials: interval in milliseconds at which one bucket goes to its next core; placement
    /// then moves none
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub drill_ms: Option<u32>,
    /// Way to run the XDP program, or RPS
    #[arg(long, value_enum, default_value = "auto")]
    pub xdp: XdpMode,
    /// End after this many seconds; default: at Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u32>,
    /// A line of JSON each second instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A parsed list of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<u16>);

fn cores(text: &str) -> Result<Cores, String> {
    cpu_list::parse(text).map(Cores).map_err(|error| error.to_string())
}

/// Steers until a signal or the end of the time.
///
/// # Errors
/// The operation that failed, with the remedy.
pub fn steer(arguments: &Arguments) -> anyhow::Result<()> {
    let end = arguments.seconds.map(|seconds| Duration::from_secs(seconds.into()));
    run::run(arguments, end)
}
