//! Reads rows of results back, for the table and the report: both show only the content of
//! `result.json`.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::results::{Results, Row};

/// A row `pa.fct`.
#[derive(Clone, Debug)]
pub(crate) struct Fct {
    pub(crate) series: Series,
    pub(crate) size: u64,
    pub(crate) values: Vec<f64>,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) drops: BTreeMap<String, u64>,
    pub(crate) drops_congestion: u64,
    pub(crate) audit_closed: Option<bool>,
}

/// A row `pa.gain`.
#[derive(Clone, Debug)]
pub(crate) struct Gain {
    /// The series of the compared cell, with the variant of the `LL` cell.
    pub(crate) series: Series,
    pub(crate) size: u64,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Cells that are drawn as one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series {
    pub(crate) policy: String,
    /// The variant without the buffer of a sweep, and without the congestion control.
    pub(crate) variant: String,
    /// The buffer of a sweep in KB.
    pub(crate) switch_kb: Option<u64>,
    /// The congestion control, if a run has several.
    pub(crate) tcp: Option<String>,
}

impl Series {
    pub(crate) fn of(row: &Row) -> Self {
        let text = text(row, "variant");
        let (text, tcp) = match text.split_once(" tcp=") {
            Some((text, tcp)) => (text.to_owned(), Some(tcp.to_owned())),
            None => (text, None),
        };
        let (variant, swept) = match text.split_once(" switch_kb=") {
            Some((variant, kb)) => (variant.to_owned(), kb.parse().ok()),
            None => (text, None),
        };
        Self { policy: self::text(row, "policy"), variant, switch_kb: swept, tcp }
    }

    /// Returns the label for people; with the variant only if there are several.
    pub(crate) fn label(&self, several_variants: bool) -> String {
        let mut label = self.policy.clone();
        if several_variants {
            label += &format!(" {}", self.variant);
        }
        if let Some(kb) = self.switch_kb {
            label += &format!(" {kb} KB");
        }
        if let Some(tcp) = &self.tcp {
            label += &format!(" {tcp}");
        }
        label
    }

    /// Returns true if a gain of that series belongs to this series, whatever the variant of its
    /// `LL`.
    pub(crate) fn gains(&self, gain: &Self) -> bool {
        (&gain.policy, gain.switch_kb, &gain.tcp) == (&self.policy, self.switch_kb, &self.tcp)
    }
}

/// Returns the rows of a measure.
pub(crate) fn rows<'a>(results: &'a Results, measure: &'a str) -> impl Iterator<Item = &'a Row> {
    results.rows.iter().filter(move |row| row.measure == measure)
}

/// Returns a word of a row's context; empty if there is none.
pub(crate) fn text(row: &Row, key: &str) -> String {
    match row.context.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

/// Returns a number of a row's context.
pub(crate) fn number(row: &Row, key: &str) -> Option<f64> {
    row.context.get(key).and_then(Value::as_f64)
}

fn whole(row: &Row, key: &str) -> u64 {
    row.context.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns all cells.
pub(crate) fn cells(results: &Results) -> Vec<Fct> {
    cells_of(results, "pa.fct")
}

/// Returns the cells of another measure.
pub(crate) fn cells_of(results: &Results, measure: &str) -> Vec<Fct> {
    let drops = |row: &Row| match row.context.get("drops") {
        Some(Value::Object(map)) => {
            map.iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap_or(0))).collect()
        }
        _ => BTreeMap::new(),
    };
    rows(results, measure)
        .map(|row| Fct {
            series: Series::of(row),
            size: whole(row, "size_packets"),
            values: row.values.clone(),
            mean: number(row, "mean").unwrap_or(0.0),
            p50: number(row, "p50").unwrap_or(0.0),
            p95: number(row, "p95").unwrap_or(0.0),
            drops: drops(row),
            drops_congestion: whole(row, "drops_congestion"),
            audit_closed: row.context.get("audit_closed").and_then(Value::as_bool),
        })
        .collect()
}

/// Returns all gains.
pub(crate) fn gains(results: &Results) -> Vec<Gain> {
    gains_of(results, "pa.gain")
}

/// Returns the gain of a cell.
pub(crate) fn gain_of<'a>(gains: &'a [Gain], cell: &Fct) -> Option<&'a Gain> {
    gains.iter().find(|gain| gain.size == cell.size && gain.series == cell.series)
}

/// Returns the gains of another measure.
pub(crate) fn gains_of(results: &Results, measure: &str) -> Vec<Gain> {
    rows(results, measure)
        .map(|row| Gain {
            series: Series::of(row),
            size: whole(row, "size_packets"),
            value: row.median,
            low: number(row, "ci95_low").unwrap_or(0.0),
            high: number(row, "ci95_high").unwrap_or(0.0),
        })
        .collect()
}

/// Returns true if the results are those of a simulation.
pub(crate) fn is_simulation(results: &Results) -> bool {
    rows(results, "sim.settings").next().is_some()
}

/// Returns the rows of a measure about one cell.
fn of_cell<'a>(
    results: &'a Results,
    measure: &'a str,
    series: &Series,
    size: u64,
) -> impl Iterator<Item = &'a Row> {
    let series = series.clone();
    rows(results, measure)
        .filter(move |row| Series::of(row) == series && whole(row, "size_packets") == size)
}

/// Returns the retransmission time-outs per query of a cell; none if nobody counted them. The
/// warm-up queries are included in both numbers.
pub(crate) fn timeouts(results: &Results, series: &Series, size: u64) -> Option<f64> {
    let named = |row: &&Row| ["timeouts", "TCPTimeouts"].contains(&text(row, "counter").as_str());
    let (measure, cell) =
        if is_simulation(results) { ("sim.tcp", "sim.cell") } else { ("lab.tcp", "lab.cell") };
    let own = of_cell(results, measure, series, size).find(named).map(|row| row.median);
    // The lab leaves out counters that did not change.
    let is_counted = of_cell(results, cell, series, size).next()?;
    let asked = number(is_counted, "asked").or_else(|| {
        let warm_up = rows(results, "lab.settings").find_map(|row| number(row, "pa_warm_up"));
        let own = of_cell(results, "pa.fct", series, size).next()?;
        Some(number(own, "queries")? + warm_up.unwrap_or(0.0))
    })?;
    (asked > 0.0).then(|| own.unwrap_or(0.0) / asked)
}

/// Returns the XOFF sent by a cell's simulated switches and hosts.
pub(crate) fn pauses(results: &Results, series: &Series, size: u64) -> f64 {
    of_cell(results, "sim.pause", series, size).map(|row| row.median).sum()
}

/// Returns true if the cells are of more than one variant.
pub(crate) fn several_variants(cells: &[Fct]) -> bool {
    cells.iter().any(|cell| cell.series.variant != cells[0].series.variant)
}

/// Formats a gain with its interval.
pub(crate) fn gain_text(gain: &Gain) -> String {
    format!("{:.1} ({:.1} to {:.1})", gain.value, gain.low, gain.high)
}

/// Formats drops by place.
pub(crate) fn drops_text(drops: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> =
        drops.iter().map(|(place, frames)| format!("{place} {frames}")).collect();
    if parts.is_empty() { "0".to_owned() } else { parts.join(", ") }
}

/// Returns the frames that the kernel's own counters report as lost in the cell.
pub(crate) fn kernel_lost(results: &Results, cell: &Fct) -> u64 {
    let own = rows(results, "lab.kernel").filter(|row| is_of(row, cell));
    own.filter_map(|row| format!("{:.0}", row.median).parse::<u64>().ok()).sum()
}

/// Returns true if a row is about a cell.
pub(crate) fn is_of(row: &Row, cell: &Fct) -> bool {
    Series::of(row) == cell.series && whole(row, "size_packets") == cell.size
}
