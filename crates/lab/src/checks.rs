//! Checks of plain connectivity, one after the other.

use std::time::Duration;

use anyhow::{Context, bail};
use sluice_api::results::Row;

use crate::daemons::Daemons;
use crate::flood::{self, Flood};
use crate::lab::Lab;
use crate::pa::{Job, Report};
use crate::results::{self, Checked};
use crate::scenario::Check;
use crate::walk::{self, Listener};
use crate::workload::Workload;

/// Runs one check. Some checks return more than one finding.
pub(crate) fn check_one(
    lab: &mut Lab,
    workload: &mut Workload,
    daemons: &Daemons,
    check: &Check,
) -> anyhow::Result<Vec<Checked>> {
    let one = match check {
        Check::Flood { from, to, seconds, runs } => {
            let flood = Flood { from, to, seconds: *seconds, runs: *runs };
            return flood::run(lab, workload, daemons, &flood);
        }
        Check::Ping { from, to, count, unheard_at } => {
            ping(lab, workload, (from, to), *count, unheard_at.as_deref())
        }
        Check::Transfer { from, to, megabytes } => transfer(lab, workload, (from, to), *megabytes),
        Check::Tables { says, hosts } => {
            let mut differences = Vec::new();
            for (host, wanted) in hosts {
                let socket = daemons.socket(host).context("a host")?;
                let found = walk::differences(&lab.plan, (host, socket), wanted)?;
                differences.extend(found.into_iter().map(|what| format!("{host} {what}")));
            }
            let count = u32::try_from(differences.len()).unwrap_or(u32::MAX);
            let row = Row::new("lab.tables", "sluice", "count", vec![f64::from(count)])
                .with("says", says.as_str());
            let failed = (count > 0).then(|| format!("{says}: {}", differences.join("; ")));
            Ok(Checked { row, failed })
        }
    };
    Ok(vec![one?])
}

fn ping(
    lab: &mut Lab,
    workload: &mut Workload,
    (from, to): (&str, &str),
    count: u32,
    unheard_at: Option<&str>,
) -> anyhow::Result<Checked> {
    let find = |name: &str| lab.plan.container(name).context("a container").cloned();
    let (source, target) = (find(from)?, find(to)?);
    let listener = unheard_at.map(|at| Listener::at(&find(at)?)).transpose()?;
    let report = workload.ask(lab, &source, &Job::Ping { to: target.ip, count })?;
    let Report::Ping { rtt_ns } = report else { bail!("the aggregator answers {report:?}") };
    let heard = listener.map_or(0, |listener| listener.requests_of(&source));
    let lost = count as usize - rtt_ns.len().min(count as usize);
    let row = Row::new("lab.ping", "sluice", "ns", results::nanoseconds(&rtt_ns))
        .with("from", from)
        .with("to", to)
        .with("policy", lab.scenario.lab.policy.name())
        .with("sent", count);
    let failed = match (lost, heard) {
        (0, 0) => None,
        (0, heard) => {
            let at = unheard_at.unwrap_or_default();
            Some(format!("{at} heard {heard} ARP requests of {from}"))
        }
        (lost, _) => Some(format!("ping {from} to {to}: {lost} lost")),
    };
    Ok(Checked { row, failed })
}

fn transfer(
    lab: &mut Lab,
    workload: &mut Workload,
    (from, to): (&str, &str),
    megabytes: u32,
) -> anyhow::Result<Checked> {
    let find = |name: &str| lab.plan.container(name).context("a container").cloned();
    let (source, target) = (find(from)?, find(to)?);
    let congestion = lab.scenario.tcp.congestion.clone();
    let bytes = u64::from(megabytes) * 1_000_000;
    // Bytes are fetched by the container that receives them.
    let report = workload.ask(lab, &target, &Job::Fetch { from: source.ip, bytes, congestion })?;
    let Report::Fetch { ns } = report else { bail!("the aggregator answers {report:?}") };
    let rate = f64::from(megabytes) * 8e6 / Duration::from_nanos(ns).as_secs_f64();
    let row = Row::new("tcp_stream", "sluice", "bit/s", vec![rate])
        .with("port_kind", "tap")
        .with("mtu", lab.plan.mtu)
        .with("offload", false)
        .with("from", from)
        .with("to", to)
        .with("policy", lab.scenario.lab.policy.name());
    Ok(Checked { row, failed: None })
}
