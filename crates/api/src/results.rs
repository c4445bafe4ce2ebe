//! The one format of measured results (`result.json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the run.
    pub name: String,
    /// Commit it was built from, `unknown` outside a repository.
    pub commit: String,
    /// Machine in one line: processor, cores, memory, kernel.
    pub machine: String,
    /// The figures.
    pub rows: Vec<Row>,
}

/// One figure with all of its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the measurement, e.g. `pa.fct`.
    pub measure: String,
    /// `sluice`, or the peer's name.
    pub subject: String,
    /// Unit of the values.
    pub unit: String,
    /// A value for every round, or every query.
    pub values: Vec<f64>,
    /// Median of the values.
    pub median: f64,
    /// Settings of the measurement.
    pub context: BTreeMap<String, serde_json::Value>,
}

impl Row {
    /// Makes a row; the median is computed from the values.
    #[must_use]
    pub fn new(measure: &str, subject: &str, unit: &str, values: Vec<f64>) -> Self {
        let median = median(&values);
        Self {
            measure: measure.to_owned(),
            subject: subject.to_owned(),
            unit: unit.to_owned(),
            values,
            median,
            context: BTreeMap::new(),
        }
    }

    /// Adds a setting to the row.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.context.insert(key.to_owned(), value.into());
        self
    }
}

/// Returns the median; of an even number of values the mean of the middle two; of none, zero.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_were_written() {
        let values: Vec<f64> = (1..2_000_u32)
            .map(|step| f64::from(step).sqrt() * 10_f64.powi(step.cast_signed() % 80 - 40))
            .collect();
        let row = Row::new("pa.fct", "sluice", "us", values);
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }
}
