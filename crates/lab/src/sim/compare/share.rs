//! Share of the lab's processor in a median under `ZZ`.
//!
//! Measured in the lab's run: the same queries with links and vNICs that are faster than the
//! processor (`lab.processor`), and the busy part of the cores in each cell (`lab.cores`). Computed
//! here: bounds of a query that needs both. A frame passes the processor and the slowest link, one
//! after the other, while other frames are at the other one. So a query takes as long as the longer
//! of the two if they overlap wholly, and their sum if they do not overlap at all. How much they do
//! is not measured; the bounds are a correction, not a second measurement.

use sluice_api::results::Results;

use super::Pair;
use crate::processor::MEASURE;
use crate::view::{self, number, rows, text};

/// Deviation of a median that counts as agreement.
pub(crate) const TOLERANCE: f64 = 0.25;

/// Bounds of a median, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Bounds {
    /// Returns the bounds of a query that needs the network and the processor for so long.
    pub(crate) const fn of(network: f64, processor: f64) -> Self {
        Self { least: network.max(processor), most: network + processor }
    }

    /// Returns the nearest value within the bounds.
    pub(crate) const fn nearest(self, value: f64) -> f64 {
        value.clamp(self.least, self.most)
    }
}

/// Returns the median of a query that waits for the lab's processor only, in nanoseconds.
pub(super) fn processor(lab: &Results, size: u64) -> Option<f64> {
    let cells = view::cells_of(lab, MEASURE);
    cells.iter().find(|cell| cell.size == size).map(|cell| cell.p50).filter(|&ns| ns > 0.0)
}

/// Parts of the cores' time in the cells under `ZZ`, as means over the cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Busy {
    /// All that the cores did.
    pub(crate) all: f64,
    /// Work of the lab's processes.
    pub(crate) own: f64,
    /// Time that the hypervisor gave to others.
    pub(crate) stolen: f64,
    /// Number of cores.
    pub(crate) cores: f64,
}

/// Returns the use of the lab's cores under `ZZ`; none if the run did not read it.
pub(crate) fn busy(lab: &Results) -> Option<Busy> {
    let own: Vec<_> = rows(lab, "lab.cores").filter(|row| text(row, "policy") == "ZZ").collect();
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| crate::stats::mean(&values));
    let named = |key| mean(own.iter().filter_map(|row| number(row, key)).collect());
    Some(Busy {
        all: mean(own.iter().map(|row| row.median).collect())?,
        own: named("own")?,
        stolen: named("stolen")?,
        cores: named("cores")?,
    })
}

/// Returns true if a median agrees with the lab's.
pub(crate) fn agrees(ratio: f64) -> bool {
    (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio)
}

/// Returns the number of sizes that agree without the processor's share, that agree with it, and
/// that have both.
pub(crate) fn agreeing(pairs: &[Pair]) -> (usize, usize, usize) {
    let count = |of: &dyn Fn(&Pair) -> Option<f64>| {
        pairs.iter().filter_map(of).filter(|&ratio| agrees(ratio)).count()
    };
    let all = pairs.iter().filter(|pair| pair.with_processor().is_some()).count();
    (count(&Pair::without_processor), count(&Pair::with_processor), all)
}

/// Says in words what the lab's processor adds, and how many sizes agree.
pub(crate) fn words(lab: &Results, pairs: &[Pair]) -> String {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let mut words = match busy(lab) {
        Some(busy) => format!(
            "Measured: the lab's {:.0} cores were busy for {} of the time under ZZ, {} with its \
             own processes; a hypervisor took {}.",
            busy.cores,
            percent(busy.all),
            percent(busy.own),
            percent(busy.stolen)
        ),
        None => {
            "Not measured: the use of the lab's cores (an older run, or none under ZZ).".to_owned()
        }
    };
    let medians = pairs.iter().filter(|pair| pair.p50.is_some()).count();
    let (without, with, both) = agreeing(pairs);
    words += &format!(
        "\nWithout the processor: {without} of {medians} medians are within {} of the lab's.",
        percent(TOLERANCE)
    );
    if both == 0 {
        words += "\nWith it: the lab's run has no rows `lab.processor`; run it again.";
        return words;
    }
    words += &format!(
        "\nMeasured: `processor`, the same queries with links and vNICs faster than the \
         processor.\nCorrected: with it, a query takes the longer of both at least, their sum at \
         most; {with} of {both} medians are within {} of that.",
        percent(TOLERANCE)
    );
    words
}
