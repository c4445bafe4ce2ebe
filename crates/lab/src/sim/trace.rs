//! `trace.jsonl`: the samples of a run, a line of JSON each.
//!
//! Every line names its cell (`variant`, `policy`, `size_packets`) and its time (`at_ns`). A line
//! with `flow` is one direction of a connection, a line with `link` one direction of a cable. What
//! is at rest has no line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use sluice_sim::topology::{Node, Topology};
use sluice_sim::trace::{FlowSample, LinkSample, Sample, Trace};
use sluice_sim::world::{End, Workload, World};

use super::experiment::Case;
use super::scenario::TracePlan;

/// The file of a run's samples.
#[derive(Debug)]
pub(super) struct TraceFile {
    plan: TracePlan,
    path: PathBuf,
    out: BufWriter<File>,
}

/// A line: the cell, and the sample.
#[derive(Debug, Serialize)]
struct Line<'a, S> {
    variant: &'a str,
    policy: &'static str,
    size_packets: u32,
    at_ns: u64,
    #[serde(flatten)]
    sample: S,
}

/// One direction of a connection.
#[derive(Debug, Serialize)]
struct FlowLine {
    /// The endpoint that sends, and the number of earlier connections that had its place.
    flow: String,
    /// The stations at both ends.
    from: u32,
    to: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bps: Option<u64>,
}

/// One direction of a cable.
#[derive(Debug, Default, Serialize)]
struct LinkLine<'a> {
    link: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_frames: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_frames: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_mean_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_max_ns: Option<u64>,
}

impl TraceFile {
    /// Creates `trace.jsonl` in a folder.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn create(plan: &TracePlan, folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("trace.jsonl");
        let file = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self { plan: plan.clone(), path, out: BufWriter::new(file) })
    }

    /// Runs workloads in the world of a cell, and writes its samples.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn run(
        &mut self,
        world: &mut World,
        workloads: &mut [&mut dyn Workload],
        case: &Case,
    ) -> anyhow::Result<End> {
        let names = link_names(&case.world.topology);
        let mut written = Ok(());
        let out = &mut self.out;
        let sink = |sample: &Sample| {
            if written.is_ok() {
                written = write(out, case, &names, sample);
            }
        };
        let every = self.plan.interval();
        let mut trace = Trace::new(self.plan.kinds(), every, sink);
        let end = world.run_observed(workloads, case.end, every, &mut trace);
        let written = written.and_then(|()| Ok(self.out.flush()?));
        written.with_context(|| format!("writing {}", self.path.display()))?;
        Ok(end)
    }
}

fn write(
    out: &mut impl Write,
    case: &Case,
    names: &[String],
    sample: &Sample,
) -> anyhow::Result<()> {
    match sample {
        Sample::Flow(sample) => write_line(out, case, sample.at.0, flow_line(sample)),
        Sample::Link(sample) => {
            write_line(out, case, sample.at.0, link_line(sample, &names[sample.link.index()]))
        }
    }
}

fn write_line<S: Serialize>(
    out: &mut impl Write,
    case: &Case,
    at_ns: u64,
    sample: S,
) -> anyhow::Result<()> {
    let (policy, variant) = (case.policy.name(), case.variant.as_str());
    let line = Line { variant, policy, size_packets: case.size, at_ns, sample };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn flow_line(sample: &FlowSample) -> FlowLine {
    FlowLine {
        flow: format!("{}.{}", sample.id.0, sample.generation),
        from: sample.from,
        to: sample.to,
        window_bytes: sample.window,
        rate_bps: sample.rate,
    }
}

fn link_line<'a>(sample: &LinkSample, link: &'a str) -> LinkLine<'a> {
    LinkLine {
        link,
        queue_frames: sample.queue.map(|queue| queue.frames),
        queue_bytes: sample.queue.map(|queue| queue.bytes),
        sent_frames: sample.wait.map(|wait| wait.frames),
        wait_mean_ns: sample.wait.map(|wait| wait.mean().0),
        wait_max_ns: sample.wait.map(|wait| wait.max.0),
    }
}

/// Returns the name of each link: its two ends.
fn link_names(topology: &Topology) -> Vec<String> {
    let name = |node| match node {
        Node::Host(host) => format!("host {host}"),
        Node::Switch(switch) => format!("switch {switch}"),
    };
    let names = topology.links().map(|(link, _)| topology.ends(link));
    names.map(|(from, to)| format!("{} to {}", name(from), name(to))).collect()
}

#[cfg(test)]
mod tests;
