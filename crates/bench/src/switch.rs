//! `make bench PART=switch`: the core alone.

use std::time::Instant;

use sluice_api::results::Row;

use crate::forward::{self, FRAME_BYTES, Forward, Setup};
use crate::handoff::Pair;
use crate::instructions;
use crate::report;
use crate::tunnel::{self, Tunnel};

/// Frames of one round: half a second or more.
const ROUND_FRAMES: u64 = 10_000_000;

/// Runs the part.
pub(crate) fn run(rounds: usize, pairs: usize) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let sizes = [(2, 2), (2, 4096), (16, 4096), (64, 4096), (254, 4096)];
    for (ports, macs) in sizes {
        rows.extend(throughput(ports, macs, rounds)?);
    }
    for batch in [1, 32] {
        rows.extend(tunnel_throughput(batch, rounds)?);
    }
    rows.extend(handoff(rounds)?);
    rows.push(ratio_of_pairs(pairs)?);
    if instructions::available() {
        for (ports, macs) in [(2, 2), (254, 4096)] {
            for lossy in [true, false] {
                let setup = Setup { ports, macs, lossy };
                let value = instructions::per_frame(&setup)?;
                rows.push(context(
                    Row::new("switch.instructions", "sluice", "instructions/frame", vec![value]),
                    &setup,
                ));
            }
        }
        for batch in [1, 32] {
            for lossy in [true, false] {
                let value = instructions::per_tunnel_frame(batch, lossy)?;
                rows.push(tunnel_context(
                    Row::new("switch.instructions", "sluice", "instructions/frame", vec![value]),
                    batch,
                    lossy,
                ));
            }
        }
    } else {
        println!("SKIPPED switch.instructions: valgrind is not installed (`make setup`)");
    }
    report::finish("switch", rows)
}

fn context(row: Row, setup: &Setup) -> Row {
    row.with("ports", setup.ports)
        .with("macs", setup.macs)
        .with("frame_bytes", FRAME_BYTES + 4)
        .with("policy", if setup.lossy { "LL" } else { "ZZ" })
}

/// Adds the context of two switches with tunnels between them; both work for every frame.
fn tunnel_context(row: Row, batch: usize, lossy: bool) -> Row {
    context(row, &Setup { ports: tunnel::PORTS, macs: tunnel::MACS, lossy })
        .with("tunnels", tunnel::TUNNELS)
        .with("batch", batch)
}

/// Returns the frames per second through two switches, lossy and lossless interleaved.
fn tunnel_throughput(batch: usize, rounds: usize) -> anyhow::Result<Vec<Row>> {
    const ROUND: u64 = ROUND_FRAMES / 5;
    let policies = [true, false];
    let mut benches = policies.map(|lossy| Tunnel::new(batch, lossy));
    let mut values = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (bench, values) in benches.iter_mut().zip(&mut values) {
            values.push(rate_of(ROUND, |frames| bench.forward(frames)));
        }
    }
    for bench in &benches {
        anyhow::ensure!(bench.is_clean(), "a frame was lost: the figures would be void");
    }
    let rows = policies.into_iter().zip(values).map(|(lossy, values)| {
        tunnel_context(Row::new("switch.forward", "sluice", "frames/s", values), batch, lossy)
    });
    Ok(rows.collect())
}

/// Returns the frames per second between two ports of one switch, and of two switches that hand
/// frames off; and the cost of a handoff, as a ratio of times within a round.
fn handoff(rounds: usize) -> anyhow::Result<Vec<Row>> {
    let mut benches = [false, true].map(Pair::new);
    let mut values = [Vec::new(), Vec::new()];
    for bench in &mut benches {
        bench.forward(ROUND_FRAMES / 10);
    }
    for _ in 0..rounds {
        for (bench, values) in benches.iter_mut().zip(&mut values) {
            values.push(rate_of(ROUND_FRAMES / 2, |frames| bench.forward(frames)));
        }
    }
    for bench in &benches {
        anyhow::ensure!(bench.is_clean(), "a frame was lost: the figures would be void");
    }
    let [stays, handed] = &values;
    let cost = stays.iter().zip(handed).map(|(stays, handed)| stays / handed).collect();
    let cost = Row::new("switch.crossing_cost", "sluice", "ratio", cost);
    let rows = values.into_iter().zip([false, true]).map(|(values, handed)| {
        Row::new("switch.crossing", "sluice", "frames/s", values).with("crosses", handed)
    });
    let setup = Setup { ports: 2, macs: 2, lossy: false };
    Ok(rows.chain([cost]).map(|row| context(row, &setup)).collect())
}

/// Returns the frames per second, lossy and lossless interleaved.
fn throughput(ports: usize, macs: usize, rounds: usize) -> anyhow::Result<Vec<Row>> {
    let setups = [true, false].map(|lossy| Setup { ports, macs, lossy });
    let mut benches = setups.map(|setup| Forward::new(&setup));
    let mut values = [Vec::new(), Vec::new()];
    for bench in &mut benches {
        bench.forward(ROUND_FRAMES / 10);
    }
    for _ in 0..rounds {
        for (bench, values) in benches.iter_mut().zip(&mut values) {
            values.push(rate(bench, ROUND_FRAMES));
        }
    }
    for bench in &benches {
        anyhow::ensure!(bench.is_clean(), "a frame was lost: the figures would be void");
    }
    let rows = setups.iter().zip(values).map(|(setup, values)| {
        let row = Row::new("switch.forward", "sluice", "frames/s", values);
        println!("{ports} ports, {macs} MACs: {}", forward::line_rate(row.median));
        context(row, setup)
    });
    Ok(rows.collect())
}

fn rate(bench: &mut Forward, frames: u64) -> f64 {
    rate_of(frames, |frames| bench.forward(frames))
}

fn rate_of(frames: u64, forward: impl FnOnce(u64) -> u64) -> f64 {
    let start = Instant::now();
    let done = forward(frames);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let rate = done as f64 / start.elapsed().as_secs_f64();
    rate
}

/// Returns the time of lossless over that of lossy, in interleaved pairs of short runs without
/// congestion.
fn ratio_of_pairs(pairs: usize) -> anyhow::Result<Row> {
    let setups = [true, false].map(|lossy| Setup { ports: 16, macs: 4096, lossy });
    let mut benches = setups.map(|setup| Forward::new(&setup));
    let mut values = Vec::new();
    for pair in 0..pairs {
        // The order alternates, so that a drift of the machine's speed favours neither.
        let mut rates = [0.0; 2];
        for step in 0..2 {
            let which = (pair + step) % 2;
            rates[which] = rate(&mut benches[which], ROUND_FRAMES / 4);
        }
        values.push(rates[0] / rates[1]);
    }
    let (low, high) = report::interval_of_median(&values);
    println!("time of ZZ over time of LL, {pairs} pairs: 95 % interval {low:.4} to {high:.4}");
    for bench in &benches {
        anyhow::ensure!(bench.is_clean(), "a frame was lost: the figures would be void");
    }
    let row = Row::new("switch.lossless_cost", "sluice", "ratio", values);
    Ok(context(row, &setups[1]).with("ci95_low", low).with("ci95_high", high))
}
