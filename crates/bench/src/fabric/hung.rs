//! A host whose control process hangs (`kill -STOP`): time until the others detect it, and false
//! alarms about hosts that are only busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_api::results::Row;
use sluice_base::Mac;

use super::frr::Frr;
use super::host::{Hosts, Sender, Setup, Watch, mac_of};
use super::learn::{SETTINGS, data_frame};
use super::net::wait_for;
use super::{Plan, without_peer};

/// Events that report a host as possibly gone.
const ALARMS: [&str; 4] = ["host-suspected", "host-down", "session-hung", "claims-stale"];
/// Number of machines that send all the time.
const SPEAKERS: u32 = 64;
/// Number of new machines a second.
const NEW_PER_SECOND: u32 = 1_000;

/// Measures all rows.
pub(super) fn rows(plan: &Plan, mut frr: Option<&mut Frr>) -> anyhow::Result<Vec<Row>> {
    let hosts = Hosts::start("hung", &Setup::plain(3, SETTINGS))?;
    let [mut ours, mut theirs] = [const { Vec::new() }; 2];
    let mut watch = hosts.all[0].watch()?;
    for round in 0..plan.rounds * 4 {
        // A different phase of its heartbeat each time.
        std::thread::sleep(Duration::from_millis(500 + u64::try_from(round)? * 13));
        watch.pending()?;
        let begin = Instant::now();
        hosts.all[1].freeze()?;
        let reported = watch.wait(|row| row.event == "session-hung" || row.event == "claims-stale");
        hosts.all[1].thaw()?;
        ours.push((reported? - begin).as_secs_f64());
        hosts.wait_until_connected()?;
        watch.wait(|row| row.event == "claims-live")?;
    }
    if let Some(frr) = &mut frr {
        for _ in 0..plan.peer_rounds {
            theirs.extend(without_peer(frr.hangs()).map(|time| time.as_secs_f64()));
        }
    }
    let row = |subject, hosts: usize, values| {
        let row = Row::new("hung_detected", subject, "s", values).with("percentile", 50);
        row.with("hosts", hosts).with("entries", 0)
    };
    let mut rows = vec![row("sluice", hosts.all.len(), ours)];
    if !theirs.is_empty() {
        rows.push(row("frr", 2, theirs));
    }
    if !plan.load.is_zero() {
        rows.push(false_alarms(plan, &hosts)?);
    }
    Ok(rows)
}

/// Counts false alarms under full load: every host's machines send to those of the next host as
/// fast as they can, so that workers want all processors, and new machines appear all the time.
fn false_alarms(plan: &Plan, hosts: &Hosts) -> anyhow::Result<Row> {
    let watches: anyhow::Result<Vec<Watch>> = hosts.all.iter().map(|host| host.watch()).collect();
    let (mut watches, stop) = (watches?, AtomicBool::new(false));
    let alarms = std::thread::scope(|scope| {
        let mut speakers = Vec::new();
        for (index, host) in hosts.all.iter().enumerate() {
            let (sender, stop) = (host.sender()?, &stop);
            let next = (index + 1) % hosts.all.len();
            speakers.push(scope.spawn(move || speak(sender, index, next, stop)));
        }
        let listened = listen(plan.load, &mut watches);
        stop.store(true, Ordering::Relaxed);
        let mut sent = 0;
        for speaker in speakers {
            sent += speaker.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        }
        anyhow::ensure!(sent > 0, "nothing was sent");
        Ok((listened?, sent))
    });
    let (alarms, sent) = alarms?;
    for host in &hosts.all {
        let all = |row: &sluice_api::fabric::MemberRow| row.connected && row.stale_ns.is_none();
        wait_for("all are connected after the load", || Ok(host.members()?.iter().all(all)))?;
    }
    let row = Row::new("hung_detected.false_alarms", "sluice", "count", vec![alarms]);
    Ok(row.with("load_s", plan.load.as_secs()).with("hosts", hosts.all.len()).with("sent", sent))
}

/// Counts alarms for a while.
fn listen(time: Duration, watches: &mut [Watch]) -> anyhow::Result<f64> {
    let (until, mut alarms) = (Instant::now() + time, 0_u32);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        for watch in &mut *watches {
            for row in watch.pending().context("while listening for alarms")? {
                if ALARMS.contains(&row.event.as_str()) {
                    eprintln!("a false alarm: {} {}", row.event, row.what);
                    alarms += 1;
                }
            }
        }
    }
    Ok(f64::from(alarms))
}

/// Returns an address of host `index`; each host has its own range.
fn machine(index: usize, number: u32) -> Mac {
    mac_of(u32::try_from(index + 1).expect("few hosts") << 24 | number)
}

/// Sends as fast as possible until `stop` is set; returns the number of frames.
fn speak(mut sender: Sender, index: usize, next: usize, stop: &AtomicBool) -> anyhow::Result<u64> {
    let (begin, mut sent, mut new) = (Instant::now(), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        for number in 0..SPEAKERS {
            let frame = data_frame(machine(index, number), machine(next, number));
            sender.send(&frame, false)?;
        }
        sent += u64::from(SPEAKERS);
        let due = begin.elapsed().as_millis() * u128::from(NEW_PER_SECOND) / 1000;
        if u128::from(new) < due {
            let frame = data_frame(machine(index, SPEAKERS + new % 60_000), machine(next, 0));
            sender.send(&frame, true)?;
            new += 1;
        }
    }
    Ok(sent)
}
