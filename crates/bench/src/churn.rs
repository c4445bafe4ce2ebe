//! `make bench PART=churn`: the kernel as chip of a host that speaks with more addresses than the
//! chip has places for.
//!
//! ```text
//!   sender ─ t0 ══ p0 ┤ h1 ├ up0 ═══ up0 ┤ h2 ├ p0 ══ t0: as many endpoints as the largest set
//! ```
//!
//! The endpoints are learned from their own frames first. Then the sender draws the destination of
//! each frame from a working set at a fixed rate: uniformly, by Zipf's law, or uniformly from a set
//! of which a tenth is replaced each second. Frames of addresses
//! that h1's chip holds pass in the kernel; the others are misses, which h1's switch forwards, and
//! whose addresses it writes into the chip, if one that was not used just now makes room.

mod draw;
mod drawing;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sluice_api::results::Row;

use self::draw::Draw;
use crate::fabric::host::{Host, Hosts, Sender, Setup, mac_of};
use crate::fabric::learn::{data_frame, teach};
use crate::fabric::net::{obstacle, sweep};
use crate::report;

/// Limits of the fabric above all that is measured here.
const SETTINGS: &str = "learn_max = 300000\nclaims_per_host = 1200000\npunts_per_port = 1000000";
/// Working sets, in quarters of the chip's places for flows.
const QUARTERS: [u32; 5] = [1, 3, 5, 8, 16];
/// Time until what the chip holds has settled: twice as long as an address is in use.
const SETTLE: Duration = Duration::from_secs(4);
/// Time between two bursts of the sender.
const BURST: Duration = Duration::from_millis(1);

/// Law by which destinations are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    /// All are as likely.
    Uniform,
    /// The one of rank r is r times less likely than the first.
    Zipf,
    /// All of a set are as likely, and a tenth of it is replaced each second.
    Moving,
}

impl Drawn {
    const ALL: [Self; 3] = [Self::Uniform, Self::Zipf, Self::Moving];
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Moving => "moving",
        })
    }
}

/// One point of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Places of the chip for flows.
    flows: u32,
    /// Size of the working set.
    working_set: u32,
    drawn: Drawn,
}

/// Figures of a point, for each round.
#[derive(Debug)]
struct Seen {
    place: Place,
    /// Frames that the switch forwarded, of all that were sent.
    missed: Vec<f64>,
    /// Frames that neither of them counted, of all that were sent.
    lost: Vec<f64>,
    /// Per second: frames that missed, addresses evicted, written, and left out for want of room.
    rates: [Vec<f64>; 4],
    /// Cores of control and data.
    cores: [Vec<f64>; 2],
}

const RATES: [&str; 4] = ["misses", "evictions", "writes", "full"];

/// Measures and reports.
///
/// # Errors
/// If something is missing, or a host fails.
pub(crate) fn run(rounds: usize, flows: &[u32], rate: u32, window: Duration) -> anyhow::Result<()> {
    if let Some(why) = obstacle() {
        bail!("nothing can be measured: {why}");
    }
    ensure!(rate >= 1000, "below 1,000 frames a second nothing stays in use");
    sweep();
    let mut all = Vec::new();
    for flows in flows {
        let chip = format!("kind = \"kernel\"\nflows = {flows}");
        let hosts = Hosts::start("churn", &Setup { hosts: 2, settings: SETTINGS, chip })?;
        let [h1, h2] = &hosts.all[..] else { bail!("two hosts were asked for") };
        let largest = flows * QUARTERS[QUARTERS.len() - 1] / 4;
        let mut near = h1.talk()?;
        teach(h2.sender()?, 0..largest, || Ok(near.member(h2.id)?.vports))?;
        let mut sender = h1.sender()?;
        // The sender, so that its first frame is no miss of its own.
        sender.send(&data_frame(mac_of(largest), mac_of(0)), true)?;
        for round in 1..=rounds {
            for quarters in QUARTERS {
                let working_set = flows * quarters / 4;
                for drawn in Drawn::ALL {
                    if drawn == Drawn::Moving && working_set == largest {
                        // There is nothing to replace it by.
                        continue;
                    }
                    let place = Place { flows: *flows, working_set, drawn };
                    point(h1, &mut sender, (rate, window), place, largest, &mut all)?;
                }
            }
            eprintln!("{flows} flows: round {round} of {rounds}");
        }
    }
    drawing::write(&all, rate)?;
    report::finish("churn", rows(&all, rate))
}

/// Measures a point once.
fn point(
    host: &Host,
    sender: &mut Sender,
    (rate, window): (u32, Duration),
    place: Place,
    source: u32,
    all: &mut Vec<Seen>,
) -> anyhow::Result<()> {
    let mut draw = match place.drawn {
        Drawn::Uniform => Draw::uniform(place.working_set),
        Drawn::Zipf => Draw::zipf(place.working_set),
        Drawn::Moving => Draw::moving(place.working_set, source),
    };
    let mut talk = host.talk()?;
    send(sender, &mut draw, rate, SETTLE, source)?;
    let mut state = || -> anyhow::Result<_> {
        // What it shows is up to 200 ms old.
        std::thread::sleep(Duration::from_millis(300));
        Ok((talk.chip()?, talk.punted()?, host.busy()?))
    };
    let before = state()?;
    let (sent, time) = send(sender, &mut draw, rate, window, source)?;
    let after = state()?;
    let passed = after.0.forwarded.context("the kernel is the chip")?
        - before.0.forwarded.context("the kernel is the chip")?;
    let missed = after.1 - before.1;
    let at = all.iter().position(|seen| seen.place == place).unwrap_or_else(|| {
        let (rates, cores) = (Default::default(), Default::default());
        all.push(Seen { place, missed: Vec::new(), lost: Vec::new(), rates, cores });
        all.len() - 1
    });
    let seen = &mut all[at];
    seen.missed.push(count(missed) / count(sent));
    seen.lost.push(count(sent.saturating_sub(missed + passed)) / count(sent));
    let counts = [
        missed,
        after.0.evicted - before.0.evicted,
        after.0.written - before.0.written,
        after.0.full - before.0.full,
    ];
    for (values, number) in seen.rates.iter_mut().zip(counts) {
        values.push(count(number) / time.as_secs_f64());
    }
    for (values, (now, then)) in seen.cores.iter_mut().zip(after.2.iter().zip(before.2)) {
        values.push((now - then) / time.as_secs_f64());
    }
    Ok(())
}

/// Sends at a rate for some time. Returns the frames that were sent, and the time it took.
fn send(
    sender: &mut Sender,
    draw: &mut Draw,
    rate: u32,
    time: Duration,
    source: u32,
) -> anyhow::Result<(u64, Duration)> {
    let (begin, mut sent) = (Instant::now(), 0);
    let mut last = begin;
    while begin.elapsed() < time {
        draw.pass(last.elapsed());
        last = Instant::now();
        // What is due by now, however late this is.
        let due = (begin.elapsed() + BURST).as_millis() * u128::from(rate) / 1000;
        let due = u64::try_from(due)?;
        while sent < due {
            sent += 1;
            let frame = data_frame(mac_of(source), mac_of(draw.next()));
            sender.send(&frame, sent == due)?;
        }
        std::thread::sleep(BURST);
    }
    Ok((sent, begin.elapsed()))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

fn rows(all: &[Seen], rate: u32) -> Vec<Row> {
    let mut rows = Vec::new();
    for seen in all {
        let Place { flows, working_set, drawn } = seen.place;
        let row = |measure: &str, unit, values: &[f64]| {
            let row = Row::new(measure, "sluice", unit, values.to_vec());
            let row = row.with("chip", "kernel").with("flows", flows);
            let row = row.with("working_set", working_set);
            row.with("drawn", drawn.to_string()).with("offered", rate)
        };
        rows.push(row("churn.missed", "ratio", &seen.missed));
        rows.push(row("churn.lost", "ratio", &seen.lost));
        for (name, values) in RATES.into_iter().zip(&seen.rates) {
            rows.push(row("churn.rate", "1/s", values).with("of", name));
        }
        for (name, values) in ["control", "data"].into_iter().zip(&seen.cores) {
            rows.push(row("churn.load", "cores", values).with("process", name));
        }
    }
    rows
}
