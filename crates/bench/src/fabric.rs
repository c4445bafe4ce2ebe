//! `make bench PART=fabric`: the control plane, alone and live, beside FRR's BGP-EVPN and etcd.
//!
//! | file | measures |
//! |---|---|
//! | `table` | the vport table alone |
//! | `inside` | punts that one core handles, entries that it installs in the FDB |
//! | `latency` | time until other hosts know an endpoint that is new or has moved |
//! | `bulk` | a hundred thousand endpoints at once, new ones and known ones |
//! | `learn` | endpoints learned from frames in a second |
//! | `commit` | time of a change of the configuration, and of a host that joins |
//! | `hung` | time to detect a host that hangs; false alarms under load |
//!
//! Rows about hosts run `sluice daemon` in network namespaces (`host`, `net`), and FRR in two of
//! its own (`frr`). They need root. A group that cannot run here is reported, and the rest goes on.

mod bulk;
mod commit;
mod etcd;
mod frr;
pub(crate) mod host;
mod hung;
mod inside;
mod latency;
pub(crate) mod learn;
pub(crate) mod net;
mod table;

use std::time::Duration;

use anyhow::ensure;
use sluice_api::results::Row;

use self::frr::Frr;
use crate::report;

/// The groups of rows of the control plane alone.
const GROUPS_ALONE: [&str; 2] = ["table", "inside"];
/// The groups of rows about hosts.
const GROUPS_LIVE: [&str; 5] = ["commit", "latency", "learn", "bulk", "hung"];

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds of each figure.
    pub(crate) rounds: usize,
    /// Rounds of the peer's slow figures.
    pub(crate) peer_rounds: usize,
    /// Samples of each latency.
    pub(crate) samples: u32,
    /// Duration of full load while false alarms are counted; zero: not measured.
    pub(crate) load: Duration,
    /// Only the groups of rows with these names; empty: all.
    pub(crate) only: Vec<String>,
}

impl Plan {
    fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == group)
    }
}

/// Runs the part.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    for name in &plan.only {
        let known = [&GROUPS_ALONE[..], &GROUPS_LIVE].concat();
        ensure!(known.contains(&name.as_str()), "no group `{name}`; there are {known:?}");
    }
    let mut rows = Vec::new();
    if plan.wants("table") {
        rows.extend(table::rows(plan.rounds)?);
    }
    if plan.wants("inside") {
        rows.extend(inside::rows(plan.rounds)?);
    }
    rows.extend(live(plan)?);
    // A partial run does not overwrite the results of a full one.
    report::finish(if plan.only.is_empty() { "fabric" } else { "fabric-part" }, rows)
}

/// Measures the rows about hosts.
fn live(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let obstacle = net::obstacle().or_else(|| Some(host::program().err()?.to_string()));
    if let Some(obstacle) = obstacle {
        eprintln!("SKIPPED all rows about hosts: {obstacle}");
        return Ok(Vec::new());
    }
    if !GROUPS_LIVE.into_iter().any(|group| plan.wants(group)) {
        return Ok(Vec::new());
    }
    net::sweep();
    let mut rows = Vec::new();
    if plan.wants("commit") {
        rows.extend(commit::rows(plan)?);
    }
    if !GROUPS_LIVE[1..].iter().any(|group| plan.wants(group)) {
        return Ok(rows);
    }
    let mut frr = match frr::obstacle() {
        None => {
            println!("the peer: {}", frr::version());
            without_peer(Frr::start())
        }
        Some(obstacle) => {
            eprintln!("SKIPPED the peer: {obstacle}");
            None
        }
    };
    if plan.wants("latency") {
        rows.extend(latency::rows(plan, frr.as_mut())?);
    }
    if plan.wants("learn") {
        rows.extend(learn::rows(plan)?);
    }
    if plan.wants("bulk") {
        rows.extend(bulk::rows(plan, frr.as_mut())?);
    }
    if plan.wants("hung") {
        rows.extend(hung::rows(plan, frr.as_mut())?);
    }
    Ok(rows)
}

/// Returns a figure of the peer; on an error prints it and returns `None`, so that the rest goes
/// on.
fn without_peer<T>(figure: anyhow::Result<T>) -> Option<T> {
    figure.inspect_err(|error| eprintln!("NO FIGURE of the peer: {error:#}")).ok()
}

/// Returns the percentile of the values (nearest rank).
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}
