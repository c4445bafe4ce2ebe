//! Cost of placement: a decision each period, and a packet's look-up.
//!
//! The host has 64 cores, a quarter of which run machines. The load of every bucket is either drawn
//! anew each period, so that there is always an entry to move, or constant, as it mostly is.

use std::hint::black_box;

use sluice_api::results::Row;
use sluice_base::{Nanos, Priority, Prng};
use sluice_placement::{
    Config, Core, CoreLoad, Dispatch, EntryId, EntryLoad, Mode, Order, Placement, Share, Table,
};

use crate::machine;
use crate::report;

const CORES: u16 = 64;
const PERIODS: u32 = 200;
/// Period in seconds.
const PERIOD: f64 = 0.1;
const PACKETS: u32 = 4_000_000;

/// Result of one round of a setting.
struct Round {
    /// Share of a core, in a period of 100 ms.
    share: f64,
    /// Longest decision.
    longest_us: f64,
    moves: f64,
}

pub(crate) fn run(rounds: usize) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (load, changes) in [("stays", false), ("drawn anew each period", true)] {
        for entries in [100, 1_000, 10_000] {
            let all: Vec<Round> =
                (0..rounds as u64).map(|seed| decide(entries, changes, seed)).collect();
            let mut add = |measure, unit, of: fn(&Round) -> f64| {
                let values = all.iter().map(of).collect();
                rows.push(row(measure, unit, entries, values).with("load", load));
            };
            add("decision_share", "core", |round| round.share);
            add("decision_longest", "us", |round| round.longest_us);
            add("moves", "1/period", |round| round.moves);
        }
    }
    for entries in [100, 1_000, 10_000] {
        let values = (0..rounds as u64).map(|seed| look_up(entries, seed)).collect();
        rows.push(row("dispatch_and_done", "ns", entries, values));
    }
    report::finish("placement", rows)
}

fn row(measure: &str, unit: &str, entries: u32, values: Vec<f64>) -> Row {
    Row::new(measure, "sluice", unit, values).with("entries", entries)
}

fn host(entries: u32) -> Placement {
    let core = |number| Core {
        number,
        physical: Some(number / 2),
        node: Some(number / (CORES / 2)),
        runs_vcpu: number % 4 == 0,
        excluded: false,
    };
    let cores: Vec<Core> = (0..CORES).map(core).collect();
    let mut config = Config::new(Mode::Adaptive, entries);
    config.high_from = Priority::new(6);
    Placement::new(config, &cores).expect("it fits")
}

fn decide(entries: u32, changes: bool, seed: u64) -> Round {
    let mut placement = host(entries);
    let mut random = Prng::new(seed);
    // The average of all loads together is three quarters of the cores without machines.
    let most = u64::from(CORES) * 1_000_000 * 9 / 16 * 2 / u64::from(entries);
    let mut draw = |loads: &mut Vec<EntryLoad>| {
        let mut half = || Share(u32::try_from(random.below(most / 2).min(400_000)).unwrap_or(0));
        loads.iter_mut().for_each(|load| *load = EntryLoad { decap: half(), deliver: half() });
    };
    let mut loads = vec![EntryLoad::default(); entries as usize];
    draw(&mut loads);
    let foreign: Vec<CoreLoad> = (0..CORES)
        .map(|core| CoreLoad {
            user: Share::percent(if core % 4 == 0 { 60 } else { 5 }),
            softirq: Share::ZERO,
            wait: Share::ZERO,
        })
        .collect();
    for entry in 0..entries {
        let high = entry % 500 == 0;
        placement
            .place(EntryId(entry), Priority::new(if high { 6 } else { 0 }).unwrap_or_default());
    }
    let mut moves = Vec::with_capacity(64);
    let (mut sum, mut longest, mut moved) = (0.0, 0.0_f64, 0);
    for _ in 0..PERIODS {
        if changes {
            draw(&mut loads);
        }
        moves.clear();
        let before = machine::processor_time();
        placement.period(black_box(&foreign), black_box(&loads), &mut moves);
        let took = machine::processor_time() - before;
        (sum, longest, moved) = (sum + took, longest.max(took), moved + moves.len());
    }
    Round {
        share: sum / f64::from(PERIODS) / PERIOD,
        longest_us: longest * 1e6,
        moves: moved as f64 / f64::from(PERIODS),
    }
}

/// Returns the nanoseconds of a packet's look-up and completion, with random entries.
fn look_up(entries: u32, seed: u64) -> f64 {
    let mut placement = host(entries);
    let mut table = Table::new(entries, Order::Counted { patience: Nanos::from_micros(100) });
    for entry in 0..entries {
        let place = placement.place(EntryId(entry), Priority::ZERO);
        table.set(Nanos::ZERO, &place);
    }
    let mut random = Prng::new(seed);
    let picked: Vec<EntryId> = (0..4096)
        .map(|_| EntryId(u32::try_from(random.below(entries.into())).expect("below")))
        .collect();
    let before = machine::processor_time();
    for number in 0..PACKETS {
        let entry = picked[number as usize % picked.len()];
        match table.dispatch(Nanos(number.into()), entry) {
            Dispatch::To(core, _) => {
                black_box(core);
                table.done(entry, 1);
            }
            other => unreachable!("{other:?}"),
        }
    }
    (machine::processor_time() - before) / f64::from(PACKETS) * 1e9
}
