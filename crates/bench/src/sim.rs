//! `make bench PART=sim`: speed of the simulator, and of ns-3 on the same workload.
//!
//! The figure is hops per second of processor time on one core. A round runs every case once and
//! the peer's next waves; the order alternates, so that a drift of the machine's speed favours
//! neither. A run that does not do the requested work gives no figure (`check.rs`).

mod case;
mod check;
mod ns3;

use std::fs;

use anyhow::Context;
use sluice_api::results::Row;

use case::Outcome;
pub(crate) use case::{Case, Work};
use ns3::{Mode, Peer, Program, Reading};

use crate::machine::processor_time;
use crate::report;

/// Largest memory that 4,096 hosts may take.
const MEMORY_MAX_BYTES: f64 = 8e9;

/// Extent of the runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds.
    pub(crate) rounds: usize,
    waves: u32,
    overlay_waves: u32,
    perm_millis: u64,
    /// Waves for 1e5 answers.
    many_waves: u32,
    waves_4096: u32,
    peer_waves: u32,
}

impl Plan {
    /// Returns the extent for figures.
    pub(crate) const fn full(rounds: usize) -> Self {
        Self {
            rounds,
            waves: 100,
            overlay_waves: 100,
            perm_millis: 20,
            many_waves: 391,
            waves_4096: 4,
            peer_waves: 3,
        }
    }

    /// Returns the extent that just shows that everything still runs.
    pub(crate) const fn short(rounds: usize) -> Self {
        Self {
            waves: 8,
            overlay_waves: 4,
            perm_millis: 4,
            many_waves: 16,
            waves_4096: 1,
            peer_waves: 1,
            ..Self::full(rounds)
        }
    }
}

/// Runs the part.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let program = Program::compile()?;
    let rows = rows(plan, program.as_ref())?;
    report::finish("sim", rows)
}

/// Does one run for a profiler, which has a clock of its own.
pub(crate) fn once(case: &Case) -> anyhow::Result<()> {
    let outcome = case.run(|| 0.0)?;
    println!("{} hops, at most {:.1} MB", outcome.summary.hops, peak_bytes()? / 1e6);
    Ok(())
}

/// One of our cases and the figures of its rounds.
struct Own {
    case: Case,
    what: &'static str,
    rates: Vec<f64>,
    last: Option<Outcome>,
}

/// A mode of the peer and the figures of its rounds.
struct Other {
    peer: Peer,
    rates: Vec<f64>,
    last: Option<Reading>,
}

/// Indexes of the cases in the list.
const PA: usize = 0;
const PA_PFC: usize = 1;
const OVERLAY: usize = 4;
const MANY: usize = 5;
const LARGE: usize = 6;

fn cases(plan: &Plan) -> Vec<Own> {
    let pa = |waves| Work::Pa { waves };
    let perm = Work::Perm { millis: plan.perm_millis };
    let cases = [
        (Case::of_256(pa(plan.waves), false, false), "plain"),
        (Case::of_256(pa(plan.waves), true, false), "plain"),
        (Case::of_256(perm, false, false), "plain"),
        (Case::of_256(perm, true, false), "plain"),
        (Case::of_256(pa(plan.overlay_waves), true, true), "two virtual switches a path"),
        (Case::of_256(pa(plan.many_waves), true, false), "many finished flows"),
        (Case::of_4096(plan.waves_4096), "many hosts"),
    ];
    let own = |(case, what)| Own { case, what, rates: Vec::new(), last: None };
    cases.into_iter().map(own).collect()
}

fn rows(plan: &Plan, program: Option<&Program>) -> anyhow::Result<Vec<Row>> {
    let mut own = cases(plan);
    let mut others = Vec::new();
    for mode in program.iter().flat_map(|_| [Mode::Tuned, Mode::Installed]) {
        let peer = Peer::start(program.context("it is there")?, mode)?;
        others.push(Other { peer, rates: Vec::new(), last: None });
    }
    // The largest case runs first, while this process holds nothing else. Its memory is the same
    // each time.
    own[LARGE].case.run(processor_time)?;
    let memory = peak_bytes()?;
    let mut falls = Vec::new();
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..own.len() + others.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            if let Some(other) = at.checked_sub(own.len()).map(|at| &mut others[at]) {
                let reading = other.peer.run(plan.peer_waves)?;
                other.rates.push(case::rate(reading.hops, reading.seconds));
                other.last = Some(reading);
                continue;
            }
            let outcome = own[at].case.run(processor_time)?;
            if at == MANY {
                falls.push(outcome.last_over_first());
            }
            own[at].rates.push(outcome.rate());
            own[at].last = Some(outcome);
        }
        println!("round {} of {}", round + 1, plan.rounds);
    }
    let mut rows: Vec<Row> = own.iter().map(rate_row).collect();
    rows.extend(others.iter().zip(program.iter().cycle()).map(|(o, p)| peer_row(o, &p.name)));
    rows.extend(ratio_rows(&own, &others, falls));
    rows.push(memory_row(&own[LARGE].case, memory));
    Ok(rows)
}

fn setting(row: Row, case: &Case) -> Row {
    row.with("workload", case.workload())
        .with("pfc", case.pfc)
        .with("overlay", case.overlay)
        .with("hosts", case.hosts())
}

fn rate_row(own: &Own) -> Row {
    let row = setting(Row::new("hops_rate", "sluice", "1/s", own.rates.clone()), &own.case);
    let row = row.with("what", own.what);
    let Some(outcome) = &own.last else { return row };
    let row = row.with("hops", outcome.summary.hops).with("events", outcome.summary.events);
    let mut fct = outcome.fct.clone();
    fct.sort_unstable();
    match fct.last() {
        None => row,
        Some(last) => row.with("fct_p50_ns", fct[fct.len() / 2].0).with("fct_max_ns", last.0),
    }
}

fn peer_row(other: &Other, name: &str) -> Row {
    let row = Row::new("hops_rate", name, "1/s", other.rates.clone());
    let row = setting(row, &Case::of_256(Work::Pa { waves: 1 }, false, false));
    let row = row.with("what", other.peer.mode.name());
    let Some(reading) = other.last else { return row };
    row.with("hops", reading.hops)
        .with("fct_p50_ns", reading.fct_p50_ns)
        .with("fct_max_ns", reading.fct_max_ns)
}

/// Returns ratios within a round, whose two sides ran one soon after the other.
fn ratio_rows(own: &[Own], others: &[Other], falls: Vec<f64>) -> Vec<Row> {
    let each = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<f64>>();
    let ratio = |at: usize, over: &str, least: f64, values: Vec<f64>| {
        let row = Row::new("hops_rate.ratio", "sluice", "ratio", values);
        judge(&row, own[at].what, row.median >= least, &format!("at least {least}"));
        setting(row, &own[at].case).with("over", over).with("bound", least)
    };
    let against = |at: usize, over: &str, least: f64| {
        let values = each(&own[at].rates, &own[PA_PFC].rates);
        ratio(at, over, least, values)
    };
    let mut rows = vec![
        against(OVERLAY, "the same without virtual switches", 0.5),
        ratio(MANY, "the first tenth of the same run", 0.9, falls),
        against(LARGE, "256 hosts", 0.0),
    ];
    for other in others {
        let least = if other.peer.mode == Mode::Tuned { 50.0 } else { 100.0 };
        let name = format!("ns-3 {}", other.peer.mode.name());
        for at in [PA, PA_PFC] {
            rows.push(ratio(at, &name, least, each(&own[at].rates, &other.rates)));
        }
    }
    rows
}

fn memory_row(case: &Case, peak: f64) -> Row {
    let row = Row::new("hops_rate.memory", "sluice", "bytes", vec![peak]);
    judge(&row, "many hosts", row.median <= MEMORY_MAX_BYTES, "at most 8e9 bytes");
    setting(row, case).with("bound", MEMORY_MAX_BYTES)
}

/// Prints a warning for a figure that misses its bound; the figure is kept.
fn judge(row: &Row, what: &str, good: bool, bound: &str) {
    if !good {
        println!("MISSED: {} ({what}) is {:.3}, {bound} is wanted", row.measure, row.median);
    }
}

/// Returns the peak memory of this process.
fn peak_bytes() -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("no /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(kib.parse::<f64>().context("VmHWM is no number")? * 1024.0)
}

#[cfg(test)]
mod tests;
