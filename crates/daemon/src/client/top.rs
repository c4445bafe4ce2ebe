//! `sluice top`: current activity of a host. It asks again and again, and shows the differences.
//!
//! The output is a function of two pictures (`between`), so that it can be tested without a host.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;
use sluice_api::show::{Answer, Body, PlacementRow, PortRow, Question, WorkerTimes};

use crate::client;
use crate::client::show::{HostSelector, table};
use crate::ipc::protocol;

mod moves;

pub use moves::MovedNow;

/// Style of the output.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// A line of JSON each time.
    pub json: bool,
    /// Span of a picture.
    pub every: Duration,
    /// Number of pictures; `None`: until interrupted.
    pub count: Option<u32>,
}

/// Activity of a host in a span of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Top {
    /// The host.
    pub host: String,
    /// The data workers, by number.
    pub workers: Vec<WorkerNow>,
    /// The ports.
    pub ports: Vec<PortNow>,
    /// Ports and buckets that moved to another worker.
    pub moved: Vec<MovedNow>,
}

/// A data worker, in percent of the span.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerNow {
    /// Number of the worker.
    pub worker: usize,
    /// Time spent on moving frames.
    pub busy_percent: f64,
    /// Time spent on polling in vain.
    pub looking_percent: f64,
    /// Time asleep.
    pub asleep_percent: f64,
    /// Turns a second.
    pub turns_per_s: u64,
    /// CPU to which the worker is pinned.
    pub cpu: Option<u32>,
    /// Number of its ports.
    pub ports: usize,
    /// Number of buckets of flows, of underlays that several workers share.
    pub buckets: usize,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortNow {
    /// Name of the port.
    pub port: String,
    /// Worker of the port; absent if each worker has a part of it, or if unknown.
    pub worker: Option<u16>,
    /// Frames received, per second.
    pub rx_frames_per_s: u64,
    /// Frames sent, per second.
    pub tx_frames_per_s: u64,
    /// Mbit/s received.
    pub rx_mbps: u64,
    /// Mbit/s sent.
    pub tx_mbps: u64,
    /// Frames held at its input now.
    pub held_frames: u32,
    /// Frames that wait for it now.
    pub queued_frames: u32,
    /// Frames received here and dropped, for any reason, per second.
    pub drops_per_s: u64,
}

/// Counters of a host up to a moment.
#[derive(Clone, Debug, Default)]
struct Picture {
    host: String,
    /// Times at which the workers' times, and the ports' counters, were read.
    at_ns: (u64, u64),
    workers: Vec<WorkerTimes>,
    ports: Vec<PortRow>,
    placement: Vec<PlacementRow>,
    dropped: BTreeMap<String, u64>,
}

/// Prints pictures until interrupted, or `count` times.
///
/// # Errors
/// If no host answers, with the remedy.
pub fn top(whom: &HostSelector, style: Style) -> anyhow::Result<()> {
    let socket = client::show::socket(whom)?;
    let mut before = Picture::take(&socket)?;
    let mut shown = 0;
    while style.count.is_none_or(|count| shown < count) {
        std::thread::sleep(style.every);
        let after = Picture::take(&socket)?;
        let now = between(&before, &after);
        let text = match (style.json, style.count) {
            (true, _) => client::show::enveloped(&socket, &serde_json::to_string(&now)?),
            (false, None) => client::show::between_pictures(shown == 0).to_owned() + &render(&now),
            (false, Some(_)) => render(&now),
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        (before, shown) = (after, shown + 1);
    }
    Ok(())
}

impl Picture {
    fn take(socket: &Path) -> anyhow::Result<Self> {
        let mut picture = Self::default();
        for question in [Question::Placement, Question::Drops, Question::Worker, Question::Ports] {
            let line = client::show::ask(socket, question)?;
            let Answer { host, at_ns, body, .. } = protocol::expect::<Answer>(&line)?;
            picture.host = host;
            match body {
                Body::Placement(rows) => picture.placement = rows,
                Body::Drops(rows) => {
                    for row in rows {
                        *picture.dropped.entry(row.port).or_default() += row.frames;
                    }
                }
                Body::Worker(times) => (picture.workers, picture.at_ns.0) = (times, at_ns),
                Body::Ports(rows) => (picture.ports, picture.at_ns.1) = (rows, at_ns),
                _ => bail!("the host answered another question"),
            }
        }
        Ok(picture)
    }
}

/// Returns the activity between two pictures. A host that was restarted begins at zero.
fn between(before: &Picture, after: &Picture) -> Top {
    let span = |before: u64, after: u64| after.checked_sub(before).unwrap_or(after).max(1);
    let turns = span(before.at_ns.0, after.at_ns.0);
    let per_s = |before: u64, after: u64, span: u64| {
        let all = u128::from(after.checked_sub(before).unwrap_or(after));
        u64::try_from(all * 1_000_000_000 / u128::from(span)).unwrap_or(u64::MAX)
    };
    let workers = after.workers.iter().enumerate().map(|(worker, now)| {
        let was = before.workers.get(worker).copied().unwrap_or_default();
        let parts = [
            (was.busy_ns, now.busy_ns),
            (was.looking_ns, now.looking_ns),
            (was.asleep_ns, now.asleep_ns),
        ];
        let parts = parts.map(|(was, now)| now.checked_sub(was).unwrap_or(now));
        let all = parts.iter().sum::<u64>().max(1);
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let percent = |part: u64| (part as f64 / all as f64 * 1_000.0).round() / 10.0;
        WorkerNow {
            worker,
            busy_percent: percent(parts[0]),
            looking_percent: percent(parts[1]),
            asleep_percent: percent(parts[2]),
            turns_per_s: per_s(was.turns, now.turns, turns),
            cpu: now.cpu,
            ..moves::of_worker(worker, &after.placement)
        }
    });
    let span = span(before.at_ns.1, after.at_ns.1);
    let ports = after.ports.iter().map(|now| {
        let was = before.ports.iter().find(|was| was.port == now.port).cloned().unwrap_or_default();
        let placed = after.placement.iter().find(|row| row.port == now.port);
        let of = |dropped: &BTreeMap<String, u64>| dropped.get(&now.port).copied().unwrap_or(0);
        PortNow {
            port: now.port.clone(),
            worker: placed.and_then(|row| row.worker),
            rx_frames_per_s: per_s(was.rx_frames, now.rx_frames, span),
            tx_frames_per_s: per_s(was.tx_frames, now.tx_frames, span),
            rx_mbps: per_s(was.rx_bytes, now.rx_bytes, span) * 8 / 1_000_000,
            tx_mbps: per_s(was.tx_bytes, now.tx_bytes, span) * 8 / 1_000_000,
            held_frames: now.held_frames,
            queued_frames: now.queued_frames,
            drops_per_s: per_s(of(&before.dropped), of(&after.dropped), span),
        }
    });
    Top {
        host: after.host.clone(),
        workers: workers.collect(),
        ports: ports.collect(),
        moved: moves::between(&before.placement, &after.placement),
    }
}

/// Formats a picture for a terminal.
fn render(top: &Top) -> String {
    let percent = |part: f64| format!("{part:.1}");
    let workers = top.workers.iter().map(|now| {
        vec![
            now.worker.to_string(),
            percent(now.busy_percent),
            percent(now.looking_percent),
            percent(now.asleep_percent),
            now.turns_per_s.to_string(),
            now.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            now.ports.to_string(),
            now.buckets.to_string(),
        ]
    });
    let ports = top.ports.iter().map(|now| {
        vec![
            now.port.clone(),
            now.worker.map_or_else(|| "all".to_owned(), |worker| worker.to_string()),
            now.rx_frames_per_s.to_string(),
            now.tx_frames_per_s.to_string(),
            now.rx_mbps.to_string(),
            now.tx_mbps.to_string(),
            now.held_frames.to_string(),
            now.queued_frames.to_string(),
            now.drops_per_s.to_string(),
        ]
    });
    let moved = top.moved.iter().map(|now| {
        let what = match now.buckets {
            0 => now.port.clone(),
            count => format!("{count} of {}", now.port),
        };
        vec![what, now.from.to_string(), now.to.to_string(), now.why.clone()]
    });
    let moved: Vec<_> = moved.collect();
    let of_workers =
        ["worker", "busy %", "looking %", "asleep %", "turns/s", "CPU", "ports", "buckets"];
    let of_ports =
        ["port", "worker", "rx/s", "tx/s", "rx Mbit/s", "tx Mbit/s", "held", "queued", "drops/s"];
    format!("{}\n", top.host)
        + &table(&of_workers, 1, workers.collect(), "no workers")
        + &table(&of_ports, 1, ports.collect(), "no ports")
        + &if moved.is_empty() {
            String::new()
        } else {
            table(&["moved", "from", "to", "why"], 1, moved, "")
        }
}

#[cfg(test)]
mod tests;
