//! The report of `sluice status`: is this host well, is its fabric, and what to do if not. It is
//! made of the same sample as `/metrics`, so that both cannot differ.
//!
//! A row of each part is always there. More rows name what is not as it should be, at most
//! [`NAMES_MAX`] names in each: one screen holds the report.

mod fabric;
mod receivers;

use std::collections::BTreeMap;

use sluice_api::config::Role;
use sluice_api::doctor::{Report, Row};
use sluice_api::show::{Body, PortRow, TunnelRow, losses_text, seconds};
use sluice_api::trace::Grade;
use sluice_base::DropClass;

use crate::metrics::{self, DataAnswers, Sample, Stage};

/// Most names in a row.
const NAMES_MAX: usize = 5;

/// Judges a sample.
pub(super) fn report(sample: &Sample) -> Report {
    let program = format!("{}, Sluice {}", sample.host, env!("CARGO_PKG_VERSION"));
    let mut rows = vec![Row::pass("host", "program", program)];
    match &sample.data {
        Ok(data) => rows.extend(of_data(sample, data)),
        Err(why) => rows.push(of_silence(sample.stage, why)),
    }
    rows.extend(fabric::rows(sample));
    Report::new(rows)
}

/// Says what it means that nothing is known of data.
fn of_silence(stage: Stage, why: &str) -> Row {
    let again = "Ask again in a moment; if it stays so, see the log of the host.";
    let (grade, remedy) = match stage {
        Stage::Waits => (Grade::Stop, "Until then it forwards nothing."),
        Stage::Starts { forwards: true } => {
            let seen = "yes; but control is being started, and knows no more yet";
            return Row::pass("host", "forwarding", seen).but(Grade::Unknown, again);
        }
        Stage::Starts { forwards: false } => (Grade::Stop, again),
        Stage::Works => {
            (Grade::Stop, "See the log of the host; `sluice doctor` looks at this machine.")
        }
    };
    Row::pass("host", "forwarding", why).but(grade, remedy)
}

fn of_data(sample: &Sample, data: &DataAnswers) -> Vec<Row> {
    let ports = match &data.ports.body {
        Body::Ports(rows) => rows.as_slice(),
        _ => &[],
    };
    let workers = match &data.worker.body {
        Body::Worker(rows) => rows.len(),
        _ => 0,
    };
    let seen = format!(
        "{}, {}, policy {}, for {}",
        counted(ports.len() as u64, "port"),
        counted(workers as u64, "worker"),
        data.ports.policy.name(),
        lasted(data.ports.at_ns)
    );
    let mut rows = vec![Row::pass("host", "forwarding", seen)];
    rows.extend(of_ports(sample, data, ports));
    rows.extend(receivers::rows(data));
    rows.push(of_losses(sample, data, ports));
    rows.push(of_audit(data));
    rows.extend(of_tunnels(data));
    rows
}

/// Says which ports cannot hold back what comes.
fn of_ports(sample: &Sample, data: &DataAnswers, ports: &[PortRow]) -> Option<Row> {
    let policy = data.ports.policy;
    let is_lossless = match sample.role {
        Role::Host => policy.virtual_lossless(),
        Role::Switch => policy.physical_lossless(),
    };
    if !is_lossless || ports.is_empty() {
        return None;
    }
    // What was lost has a row of its own.
    let lacks =
        |row: &&PortRow| !row.lossless.starts_with("yes") && losses_text(&row.losses).is_none();
    let lacking: Vec<String> = ports
        .iter()
        .filter(lacks)
        .map(|row| format!("{} ({})", row.port, row.lossless.trim_start_matches("no, ")))
        .collect();
    if lacking.is_empty() {
        return Some(Row::pass("ports", "lossless", "all of them"));
    }
    let remedy = "`sluice doctor` says what this machine lacks; an underlay needs the rate of its \
                  link (`rate_mbps`), or less `stall_ms`.";
    let row = Row::pass("ports", "lossless", format!("not {}", few(&lacking, "; ")));
    Some(row.but(Grade::Warn, remedy))
}

/// Counts what was lost of lossless priorities, in the switch and beside it. A stuck receiver's
/// frames end by contract: its own row warns while it is so.
fn of_losses(sample: &Sample, data: &DataAnswers, ports: &[PortRow]) -> Row {
    let mut lost: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut stuck = 0;
    if let Body::Drops(rows) = &data.drops.body {
        for row in rows {
            match metrics::loss(sample, data.drops.policy, row) {
                Some(DropClass::Stuck) => stuck += row.frames,
                Some(_) => *lost.entry((&row.port, &row.reason)).or_default() += row.frames,
                None => {}
            }
        }
    }
    let inside = lost.iter().map(|((port, reason), frames)| {
        format!("{port}: {} ended as {reason}", counted(*frames, "frame"))
    });
    let outside = ports
        .iter()
        .filter_map(|row| losses_text(&row.losses).map(|losses| format!("{}: {losses}", row.port)));
    let all: Vec<String> = inside.chain(outside).collect();
    if !all.is_empty() {
        let remedy = "`sluice show ports` says what a port needs, `sluice show drops` has every \
                      reason. A loss without a remedy there breaks a promise: please report it.";
        return Row::pass("ports", "lost frames", few(&all, "; ")).but(Grade::Warn, remedy);
    }
    let seen = match stuck {
        0 => "none since forwarding began".to_owned(),
        frames => format!("none, but {} of receivers that were stuck", counted(frames, "frame")),
    };
    Row::pass("ports", "lost frames", seen)
}

fn of_audit(data: &DataAnswers) -> Row {
    let closed = matches!(&data.audit.body, Body::Audit(audit) if audit.closed);
    let row = Row::pass("ports", "audit", "closes: every frame is accounted for");
    if closed {
        return row;
    }
    let seen = "does not close: a frame is unaccounted for".to_owned();
    Row { seen, ..row }.but(Grade::Warn, "Please report it with `sluice show audit --json`.")
}

/// Names the tunnels whose frames wait for a next hop.
fn of_tunnels(data: &DataAnswers) -> Option<Row> {
    let Body::Tunnels(rows) = &data.tunnels.body else { return None };
    let waits = |row: &&TunnelRow| row.next_hop == "unresolved" && row.queued_frames > 0;
    let names: Vec<String> = rows
        .iter()
        .filter(waits)
        .map(|row| {
            let frames = counted(u64::from(row.queued_frames), "frame");
            format!("{} ({}), {frames}", row.peer, row.vtep)
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    let remedy = "Look at the cable and the route to that address: `ip route get ADDRESS`.";
    let seen = format!("no next hop: {}", few(&names, "; "));
    Some(Row::pass("ports", "tunnels", seen).but(Grade::Warn, remedy))
}

/// Formats the first names, and how many there are beside them.
fn few(names: &[String], between: &str) -> String {
    let first = &names[..names.len().min(NAMES_MAX)];
    let left = names.len() - first.len();
    let mut text = first.join(between);
    if left > 0 {
        text += &format!(" and {left} more");
    }
    text
}

/// Formats a time, in the unit that suits it: `4.2 s`, `17 min`, `3 h`, `12 days`.
fn lasted(ns: u64) -> String {
    let minutes = ns / 60_000_000_000;
    match minutes {
        0..2 => seconds(ns),
        2..120 => format!("{minutes} min"),
        120..2_880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1_440),
    }
}

/// Formats a number of things: `1 port`, `2 ports`.
fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests;
