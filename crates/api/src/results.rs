//! The one format of measured results (`result.json`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What ran.
    pub name: String,
    /// The commit it was built from, `unknown` outside a repository.
    pub commit: String,
    /// The machine in one line: processor, cores, memory, kernel.
    pub machine: String,
    /// The figures.
    pub rows: Vec<Row>,
}

/// One figure with every value it was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured, e.g. `pa.fct`.
    pub measure: String,
    /// `sluice`, or the peer's name.
    pub subject: String,
    /// The unit of the values.
    pub unit: String,
    /// Every round, or every query.
    pub values: Vec<f64>,
    /// The median of the values.
    pub median: f64,
    /// The settings under which it was measured.
    pub context: BTreeMap<String, serde_json::Value>,
}

impl Row {
    /// A row; the median is taken from the values.
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

    /// The row with one more setting.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.context.insert(key.to_owned(), value.into());
        self
    }
}

/// The median; of an even number of values the mean of the middle two; of none, zero.
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
