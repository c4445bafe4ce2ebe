//! Losses of datagrams, by place: two virtual machines send to a third as fast as they can, and
//! frames are counted at six points, those of Figure 1 of the zOVN paper (SIGCOMM 2013).
//!
//! ```text
//!  program ─1─ stack ─ card ─2─ hypervisor ─3─ switch ─4─ hypervisor ─5─ card, stack ─6─ program
//! ```
//!
//! The counters are the machines' own (1, 2, 5, 6) and the switch's (3, 4), so that a loss is
//! between the two points whose counts differ.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use sluice_api::results::Row;

use crate::daemons::Daemons;
use crate::lab::Lab;
use crate::netns;
use crate::pa::{Job, Report};
use crate::plan::Container;
use crate::results::{self, Checked};
use crate::scenario::Fabric;
use crate::workload::Workload;

/// Names of the points at which frames are counted.
pub(crate) const POINTS: [&str; 6] =
    ["source program", "source card", "switch input", "switch output", "sink card", "sink program"];
/// Time limit of a job, beside the time of the flood itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// Senders, receiver, duration and number of runs of a flood.
pub(crate) struct Flood<'a> {
    pub(crate) from: &'a [String],
    pub(crate) to: &'a str,
    pub(crate) seconds: u32,
    pub(crate) runs: u32,
}

/// Sends, and returns the frames counted at each point in each run.
pub(crate) fn run(
    lab: &mut Lab,
    workload: &mut Workload,
    daemons: &Daemons,
    flood: &Flood<'_>,
) -> anyhow::Result<Vec<Checked>> {
    let mut counts: [Vec<u64>; 6] = Default::default();
    for _ in 0..flood.runs {
        let run = once(lab, workload, daemons, flood)?;
        for (all, one) in counts.iter_mut().zip(run) {
            all.push(one);
        }
    }
    let policy = lab.scenario.lab.policy;
    let promised = lab.plan.fabric == Fabric::Sluice && policy.virtual_lossless();
    let subject = results::subject(&lab.scenario);
    let mut found: Vec<Checked> = Vec::new();
    for (at, (name, values)) in POINTS.iter().zip(&counts).enumerate() {
        let row = Row::new("flood.point", subject, "frames", results::nanoseconds(values))
            .with("point", at + 1)
            .with("place", *name)
            .with("policy", policy.name())
            .with("vnic", lab.plan.vnic.name())
            .with("about", lab.scenario.lab.about.as_str());
        found.push(Checked { row, failed: None });
    }
    let failed = lost_between_cards(&counts).filter(|_| promised);
    if let Some(last) = found.last_mut() {
        last.failed = failed;
    }
    Ok(found)
}

/// Returns an error text if frames were lost between the cards; summed over the runs, so that
/// nothing that came once too often hides it.
fn lost_between_cards(counts: &[Vec<u64>; 6]) -> Option<String> {
    let runs = counts[1].iter().zip(&counts[4]);
    let lost: u64 = runs.map(|(sent, received)| sent.saturating_sub(*received)).sum();
    (lost > 0).then(|| format!("flood: {lost} frames were lost between the cards"))
}

fn once(
    lab: &mut Lab,
    workload: &mut Workload,
    daemons: &Daemons,
    flood: &Flood<'_>,
) -> anyhow::Result<[u64; 6]> {
    let find = |name: &str| lab.plan.container(name).context("a machine").cloned();
    let sources = flood.from.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let sink = find(flood.to)?;
    workload.ask(lab, &sink, &Job::Sink)?;
    let before = between(lab, workload, daemons, &sources, &sink)?;
    let job =
        Job::Flood { to: sink.ip, bytes: lab.plan.mtu - 28, milliseconds: flood.seconds * 1000 };
    for source in &sources {
        workload.begin(source, &job)?;
    }
    let mut sent = 0;
    for source in &sources {
        let patience = PATIENCE + Duration::from_secs(u64::from(flood.seconds));
        match workload.end(source, patience)? {
            Report::Flooded { sent: own } => sent += own,
            other => bail!("{} answers {other:?}", source.name),
        }
    }
    let Report::Sunk { received } = workload.ask(lab, &sink, &Job::Sunk)? else {
        bail!("{} does not say what it received", sink.name)
    };
    ensure!(daemons.drain()?, "frames are left in the switch long after the last was sent");
    let after = between(lab, workload, daemons, &sources, &sink)?;
    let [tx, input, output, rx] = std::array::from_fn(|at| after[at].saturating_sub(before[at]));
    Ok([sent, tx, input, output, rx, received])
}

/// The counters of points 2 to 5.
fn between(
    lab: &mut Lab,
    workload: &mut Workload,
    daemons: &Daemons,
    sources: &[Container],
    sink: &Container,
) -> anyhow::Result<[u64; 4]> {
    let mut card = |machine: &Container| match workload.ask(lab, machine, &Job::Card)? {
        Report::Card { received, sent } => Ok((received, sent)),
        other => bail!("{} answers {other:?}", machine.name),
    };
    let mut counts = [0; 4];
    for source in sources {
        counts[0] += card(source)?.1;
    }
    counts[3] = card(sink)?.0;
    let snapshots = daemons.snapshot()?;
    let ports = |machine: &Container| -> anyhow::Result<(u64, u64)> {
        let rows = snapshots.iter().flat_map(|node| &node.ports);
        match rows.into_iter().find(|row| row.port == machine.name) {
            Some(row) => Ok((row.rx_frames, row.tx_frames)),
            None => tap(machine),
        }
    };
    for source in sources {
        counts[1] += ports(source)?.0;
    }
    counts[2] = ports(sink)?.1;
    Ok(counts)
}

/// Returns the frames that the TAP of a machine has received from QEMU and sent to it.
fn tap(machine: &Container) -> anyhow::Result<(u64, u64)> {
    let text = netns::enter(&machine.netns, || {
        std::fs::read_to_string("/proc/thread-self/net/dev").context("the kernel's devices")
    })?;
    let device = crate::counters::device(&text, &machine.name);
    device.with_context(|| format!("no device {} in {}", machine.name, machine.netns))
}

#[cfg(test)]
mod tests;
