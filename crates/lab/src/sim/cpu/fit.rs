//! Searches the parameters that give Table 4.
//!
//! The search moves one parameter after the other, by steps that become smaller, as long as the sum
//! of the squares of all cells' relative errors decreases. The search is deterministic.

use sluice_sim::cpu::{Field, Params};

use super::params::Testbed;
use super::published::{Case, SIZES, TABLE_4};
use super::testbed;

/// Parameters that are searched.
pub(crate) const NAMES: [&str; 4] = ["segment_ns", "datagram_ns", "guest_ns", "thread_run_ns"];
/// Start of the search: round numbers.
const START: [u64; 4] = [10_000, 1_000, 3_000, 1_000];
/// Steps in thousandths of a value.
const STEPS: [u64; 7] = [500, 200, 80, 30, 12, 5, 2];
/// Rounds over all parameters with one step.
const ROUNDS: u32 = 20;

/// A cell of Table 4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) case: Case,
    pub(crate) bytes: u64,
    pub(crate) published: f64,
    pub(crate) simulated: f64,
}

impl Cell {
    /// Returns the relative error, in hundredths.
    pub(crate) fn error(&self) -> f64 {
        100.0 * (self.simulated - self.published).abs() / self.published
    }
}

/// Result of the search.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) params: Params,
    pub(crate) cells: Vec<Cell>,
    /// Number of parameter sets that were tried.
    pub(crate) tried: u32,
}

/// Computes Table 4 with these parameters.
pub(crate) fn cells(testbed: &Testbed, params: &Params) -> anyhow::Result<Vec<Cell>> {
    let all = TABLE_4.iter().flat_map(|(case, row)| {
        SIZES.iter().zip(row).filter_map(|(bytes, value)| Some((*case, *bytes, value.value()?)))
    });
    all.map(|(case, bytes, published)| {
        let simulated = testbed::table_4(testbed, params, case, bytes)?;
        Ok(Cell { case, bytes, published, simulated })
    })
    .collect()
}

fn badness(cells: &[Cell]) -> f64 {
    cells.iter().map(|cell| cell.error() * cell.error()).sum()
}

pub(crate) fn field(name: &str) -> &'static Field {
    let mut all = Params::FIELDS.iter();
    all.find(|field| field.name == name).expect("names are those of the model")
}

/// Runs the search.
pub(crate) fn fit(testbed: &Testbed, base: &Params) -> anyhow::Result<Fit> {
    let mut best = *base;
    for (name, value) in NAMES.iter().zip(START) {
        (field(name).set)(&mut best, value);
    }
    let mut found = Fit { params: best, cells: cells(testbed, &best)?, tried: 1 };
    for step in STEPS {
        for _ in 0..ROUNDS {
            let before = badness(&found.cells);
            for name in NAMES {
                improve(testbed, &mut found, field(name), step)?;
            }
            if badness(&found.cells) >= before {
                break;
            }
        }
    }
    Ok(found)
}

/// Tries one step up and one down.
fn improve(testbed: &Testbed, found: &mut Fit, field: &Field, step: u64) -> anyhow::Result<()> {
    let value = (field.get)(&found.params);
    let width = (value * step / 1000).max(1);
    for other in [value + width, value.saturating_sub(width).max(1)] {
        let mut params = found.params;
        (field.set)(&mut params, other);
        let cells = cells(testbed, &params)?;
        found.tried += 1;
        if badness(&cells) < badness(&found.cells) {
            (found.params, found.cells) = (params, cells);
        }
    }
    Ok(())
}
