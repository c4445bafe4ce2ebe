//! Time until other hosts know an endpoint: a new one, and one that moved.
//!
//! Sluice: a gratuitous ARP goes into a TAP; the other host reports the endpoint. FRR: the address
//! is put into the bridge (`bridge fdb`), as the kernel would when it learns; the other kernel
//! reports it (`bridge monitor fdb`). Both report by a line in a stream, and the processes that
//! send and listen run already. Samples of both alternate.

use std::time::{Duration, Instant};

use sluice_api::results::Row;
use sluice_base::{Mac, Prng};

use super::frr::Frr;
use super::host::{Hosts, Sender, Setup, Watch, mac_of};
use super::{Plan, percentile, without_peer};

/// Returns the gratuitous ARP of a machine that has just started (RFC 5227 section 3).
fn announcement(mac: Mac, number: u32) -> Vec<u8> {
    let ip = (0x0a40_0000 + number).to_be_bytes();
    let mut frame = [&[0xff; 6], &mac.0[..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend([&mac.0[..], &ip, &[0; 6], &ip].concat());
    frame.resize(60, 0);
    frame
}

/// Waits a random time, so that no periodic timer decides the result, and long enough for batches
/// to be flushed and threads to sleep.
fn rest(prng: &mut Prng) {
    std::thread::sleep(Duration::from_micros(10_000 + prng.below(10_000)));
}

/// Sends a frame into a TAP and waits until a host reports the endpoint. Returns the time between.
fn sample(
    sender: &mut Sender,
    watch: &mut Watch,
    event: &str,
    number: u32,
) -> anyhow::Result<Duration> {
    let mac = mac_of(number);
    let (frame, text) = (announcement(mac, number), mac.to_string());
    let begin = Instant::now();
    sender.send(&frame, true)?;
    let reported = watch.wait(|row| row.event == event && row.what.contains(&text))?;
    Ok(reported - begin)
}

/// Measures both latencies of both subjects.
pub(super) fn rows(plan: &Plan, mut frr: Option<&mut Frr>) -> anyhow::Result<Vec<Row>> {
    let hosts = Hosts::start("latency", &Setup::plain(2, "learn_max = 65536"))?;
    let [a, b] = &hosts.all[..] else { anyhow::bail!("two hosts were asked for") };
    let (mut tap_a, mut tap_b) = (a.sender()?, b.sender()?);
    let (mut watch_a, mut watch_b) = (a.watch()?, b.watch()?);
    let mut prng = Prng::new(1);
    let [mut ours, mut ours_moved, mut theirs, mut theirs_moved] = [const { Vec::new() }; 4];
    for number in 0..plan.samples {
        rest(&mut prng);
        ours.push(sample(&mut tap_a, &mut watch_b, "vport-added", number)?.as_secs_f64());
        rest(&mut prng);
        ours_moved.push(sample(&mut tap_b, &mut watch_a, "vport-moved", number)?.as_secs_f64());
        if let Some(peer) = frr.take() {
            rest(&mut prng);
            let both = peer.appears(number).and_then(|appeared| {
                rest(&mut prng);
                Ok((appeared, peer.moves(number)?))
            });
            // A peer that fails once is not asked again.
            if let Some((appeared, moved)) = without_peer(both) {
                theirs.push(appeared.as_secs_f64());
                theirs_moved.push(moved.as_secs_f64());
                frr = Some(peer);
            }
        }
    }
    let mut rows = Vec::new();
    for (measure, subject, values) in [
        ("mac_visible", "sluice", ours),
        ("mac_visible", "frr", theirs),
        ("mac_moved", "sluice", ours_moved),
        ("mac_moved", "frr", theirs_moved),
    ] {
        if !values.is_empty() {
            let row = |percentile: u32, values| {
                let row = Row::new(measure, subject, "s", values).with("percentile", percentile);
                row.with("hosts", 2).with("entries", plan.samples)
            };
            // The median of all samples is their 50th percentile.
            let p99 = percentile(&values, 99);
            rows.extend([row(50, values), row(99, vec![p99])]);
        }
    }
    Ok(rows)
}
