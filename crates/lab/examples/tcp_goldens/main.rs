//! Goldens of TCP: the segments that this machine's kernel sends when chosen segments are lost.
//!
//! ```text
//! make goldens                    every scenario, into crates/sim/tests/goldens (needs root)
//! make goldens ONLY=reno-middle   one of them
//! ```
//!
//! Each scenario of `scenarios.rs` is run in two network namespaces of its own, which are joined by
//! nothing but a relay in this process:
//!
//! ```text
//!   namespace A            this process             namespace B
//!   sender ── TAP ──▶ delay, log, drop some ──▶ TAP ── receiver
//! ```
//!
//! Every frame is delayed by the same time, so that the delay and not this machine decides in which
//! round trip a segment falls. The relay drops only the segments that the scenario names. A
//! scenario is run [`RUNS`] times; it is written only if all runs sent the same segments in the
//! same order, both ways, at times that differ by at most [`SPREAD_MS_MAX`]. If not, it is tried
//! again [`ATTEMPTS`] times at most.
//!
//! Limits: no time is better than a millisecond. On a machine that is busy for longer than the
//! spread a scenario fails; it never gives a wrong golden.

mod golden;
mod relay;
mod rig;
mod scenarios;
mod segment;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail, ensure};
use clap::Parser;

use relay::Entry;
use scenarios::Scenario;

/// Number of runs of each scenario.
const RUNS: usize = 3;
/// Number of attempts when runs differ.
const ATTEMPTS: usize = 4;
/// Largest difference of the time between two segments, from run to run.
const SPREAD_MS_MAX: u64 = 6;

/// Writes the segments that this machine's TCP sends when chosen segments are lost.
#[derive(Parser)]
struct Arguments {
    /// The folder of the goldens
    #[arg(long, default_value = "crates/sim/tests/goldens")]
    folder: PathBuf,
    /// Only these scenarios
    only: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(rustix::process::geteuid().is_root(), "goldens need root: they make namespaces");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    std::fs::create_dir_all(&arguments.folder).context("making the folder of the goldens")?;
    println!("{}", rig::announcement());
    let all = scenarios::all();
    for name in &arguments.only {
        ensure!(all.iter().any(|scenario| scenario.name == *name), "there is no scenario {name}");
    }
    let mut unstable = Vec::new();
    for scenario in &all {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|name| name == scenario.name) {
            continue;
        }
        match agreed(scenario, &stop)? {
            Some(entries) => write(&arguments.folder, scenario, &entries)?,
            None => unstable.push(scenario.name),
        }
    }
    ensure!(unstable.is_empty(), "not written, their runs differ: {}", unstable.join(", "));
    Ok(())
}

/// Returns the trace of a scenario, if its runs agree.
fn agreed(scenario: &Scenario, stop: &AtomicBool) -> anyhow::Result<Option<Vec<Entry>>> {
    for _ in 0..ATTEMPTS {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let run = rig::run(scenario, stop);
            runs.push(run.with_context(|| format!("running {}", scenario.name))?);
        }
        let first = &runs[0];
        match runs[1..].iter().find_map(|run| golden::difference(first, run, SPREAD_MS_MAX)) {
            None => return Ok(Some(golden::fastest(runs))),
            Some(difference) => println!("{}: runs differ: {difference}", scenario.name),
        }
    }
    Ok(None)
}

fn write(folder: &Path, scenario: &Scenario, entries: &[Entry]) -> anyhow::Result<()> {
    let path = folder.join(format!("{}.txt", scenario.name));
    let text = golden::render(scenario, entries, &rig::kernel()?, &rig::date()?);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("{}: {} segments", scenario.name, entries.len());
    Ok(())
}
