//! Many endpoints at once: to hosts that know none of them, and again to hosts that know all.
//!
//! ```text
//!   bulk     the others are stopped ── the source learns 100,000 ── they resume:
//!            connected again ────────────────────────────────────────── the last one has them all
//!   resync   the source's control is killed and begins anew, with no memory of its claims
//!            connected again ─────────────────────────── the other one has taken all of them again
//! ```
//!
//! FRR is measured as far as possible: the addresses are put into the bridge as fast as `bridge`
//! accepts them, and then the BGP session is reset. FRR withdraws all addresses and learns them
//! again.

use std::time::{Duration, Instant};

use sluice_api::results::Row;

use super::frr::Frr;
use super::host::{Host, Hosts, Setup, Talk};
use super::learn::{self, COUNT, SETTINGS};
use super::net::wait_for;
use super::{Plan, without_peer};

/// Measures all rows.
pub(super) fn rows(plan: &Plan, frr: Option<&mut Frr>) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for peers in [1, 7] {
        rows.extend(ours(plan, peers)?);
    }
    if let Some(frr) = frr {
        rows.extend(without_peer(theirs(plan, frr)).into_iter().flatten());
    }
    Ok(rows)
}

fn row(measure: &str, subject: &str, unit: &str, values: Vec<f64>, peers: usize) -> Row {
    Row::new(measure, subject, unit, values).with("entries", COUNT).with("peers", peers)
}

/// A row of times of the one receiver's resync.
fn resync_row(subject: &str, since: &str, values: Vec<f64>) -> Row {
    let row = Row::new("resync", subject, "s", values).with("entries", COUNT).with("hosts", 2);
    row.with("percentile", 50).with("since", since)
}

fn ours(plan: &Plan, peers: usize) -> anyhow::Result<Vec<Row>> {
    let word = format!("bulk{peers}");
    let [mut rates, mut woken, mut resyncs, mut restarts, mut withdrawn] =
        [const { Vec::new() }; 5];
    for _ in 0..plan.rounds {
        let mut hosts = Hosts::start(&word, &Setup::plain(peers + 1, SETTINGS))?;
        // The others have lower numbers, so that they connect to the source.
        let mut source = hosts.all.pop().expect("more than one host was asked for");
        let others = &hosts.all;
        let bulk = bulk(&source, others)?;
        rates.push(f64::from(COUNT) / bulk.connected.as_secs_f64());
        woken.push(f64::from(COUNT) / bulk.woken.as_secs_f64());
        if let [other] = &others[..] {
            let resync = resync(&mut source, other)?;
            resyncs.push(resync.connected.as_secs_f64());
            restarts.push(resync.killed.as_secs_f64());
            withdrawn.push(f64::from(resync.withdrawn));
        }
    }
    let bulk =
        |since, values| row("bulk_vports", "sluice", "1/s", values, peers).with("since", since);
    let mut rows = vec![bulk("connected", rates), bulk("woken", woken)];
    if peers == 1 {
        let resync = |since, values| resync_row("sluice", since, values);
        rows.push(resync("connected", resyncs));
        rows.push(resync("killed", restarts));
        rows.push(row("resync.withdrawn", "sluice", "vports", withdrawn, 1));
    }
    Ok(rows)
}

/// Time until all other hosts knew all endpoints, from two starting points.
struct Bulk {
    /// Since the source reported the first connected host.
    connected: Duration,
    /// Since the other hosts resumed. They have to detect their lost connections first, and
    /// connect.
    woken: Duration,
}

fn bulk(source: &Host, others: &[Host]) -> anyhow::Result<Bulk> {
    for host in others {
        host.freeze()?;
    }
    let mut own = source.talk()?;
    learn::teach(source.sender()?, 0..COUNT, || Ok(own.member(source.id)?.vports))?;
    let mut watch = source.watch()?;
    let woken = Instant::now();
    for host in others {
        host.thaw()?;
    }
    let begin = watch.wait(|row| row.event == "session-up")?;
    let talks: anyhow::Result<Vec<Talk>> = others.iter().map(Host::talk).collect();
    let mut talks = talks?;
    wait_for("the others know of all endpoints", || {
        for talk in &mut talks {
            if talk.member(source.id)?.vports != u64::from(COUNT) {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    let end = Instant::now();
    Ok(Bulk { connected: end - begin, woken: end - woken })
}

/// Duration and effect of a resync.
struct Resync {
    /// Since the two were connected again.
    connected: Duration,
    /// Since the source was killed.
    killed: Duration,
    /// Endpoints that the other host did not know for a moment.
    withdrawn: u32,
}

fn resync(source: &mut Host, other: &Host) -> anyhow::Result<Resync> {
    let (mut talk, mut watch) = (other.talk()?, other.watch()?);
    let before = talk.member(source.id)?.records_received;
    let killed = Instant::now();
    source.restart_control()?;
    let begin = watch.wait(|row| row.event == "session-up")?;
    let mut least = u64::from(COUNT);
    wait_for("all endpoints are told again", || {
        let row = talk.member(source.id)?;
        least = least.min(row.vports);
        Ok(row.records_received >= before + u64::from(COUNT) && row.stale_ns.is_none())
    })?;
    let end = Instant::now();
    let reported = watch.pending()?.iter().filter(|row| row.event == "vport-withdrawn").count();
    let missing = u32::try_from(u64::from(COUNT) - least)?;
    source.wait_until_it_answers()?;
    Ok(Resync {
        connected: end - begin,
        killed: end - killed,
        withdrawn: missing.max(u32::try_from(reported)?),
    })
}

fn theirs(plan: &Plan, frr: &mut Frr) -> anyhow::Result<Vec<Row>> {
    let [mut rates, mut resyncs, mut withdrawn] = [const { Vec::new() }; 3];
    for _ in 0..plan.peer_rounds {
        rates.push(f64::from(COUNT) / frr.bulk(COUNT)?.as_secs_f64());
        let (time, gone) = frr.reset(COUNT)?;
        resyncs.push(time.as_secs_f64());
        withdrawn.push(f64::from(gone));
        frr.remove(COUNT)?;
    }
    Ok(vec![
        row("bulk_vports", "frr", "1/s", rates, 1),
        resync_row("frr", "reset", resyncs),
        row("resync.withdrawn", "frr", "vports", withdrawn, 1),
    ])
}
