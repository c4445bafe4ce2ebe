//! Series by metric and labels, and their way into the text.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit as TextUnit;

use super::catalog::{Fold, Kind, Metric, Unit};

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// Frames, bytes, members, …
    Count(u64),
    /// Seconds.
    Seconds(f64),
}

impl Value {
    /// Returns a time that is given in nanoseconds.
    #[expect(clippy::cast_precision_loss, reason = "a text of seconds has no more digits")]
    pub(super) fn of_ns(ns: u64) -> Self {
        Self::Seconds(ns as f64 / 1e9)
    }

    #[expect(clippy::cast_precision_loss, reason = "only values of one kind are merged")]
    fn seconds(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Seconds(seconds) => seconds,
        }
    }

    fn merged(self, other: Self, fold: Fold) -> Self {
        if let (Self::Count(a), Self::Count(b)) = (self, other) {
            return Self::Count(match fold {
                Fold::Sum => a.saturating_add(b),
                Fold::Min => a.min(b),
                Fold::Max => a.max(b),
            });
        }
        let (a, b) = (self.seconds(), other.seconds());
        Self::Seconds(match fold {
            Fold::Sum => a + b,
            Fold::Min => a.min(b),
            Fold::Max => a.max(b),
        })
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Count(is_so.into())
    }
}

/// All series of one answer.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Metric, BTreeMap<Vec<String>, Value>>);

impl Series {
    /// Adds a value to the series with these values of the metric's labels.
    pub(super) fn add(&mut self, metric: Metric, labels: &[&str], value: impl Into<Value>) {
        debug_assert_eq!(labels.len(), metric.labels().len(), "{metric:?}");
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let value = value.into();
        self.0
            .entry(metric)
            .or_default()
            .entry(labels)
            .and_modify(|known| *known = known.merged(value, metric.fold()))
            .or_insert(value);
    }

    /// Returns the number of series.
    pub(super) fn count(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Returns the value of a series.
    #[cfg(test)]
    pub(super) fn get(&self, metric: Metric, labels: &[&str]) -> Option<Value> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.get(&metric)?.get(&labels).copied()
    }
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, rows) in &self.0 {
            let unit = match metric.unit() {
                Unit::None => None,
                Unit::Bytes => Some(TextUnit::Bytes),
                Unit::Seconds => Some(TextUnit::Seconds),
            };
            let kind = match metric.kind() {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let mut family =
                encoder.encode_descriptor(metric.name(), metric.help(), unit.as_ref(), kind)?;
            for (values, value) in rows {
                let names = metric.labels().iter().copied();
                let labels: Vec<(&str, &str)> =
                    names.zip(values.iter().map(String::as_str)).collect();
                match (metric.kind(), *value) {
                    (Kind::Info, _) => family.encode_info(&labels)?,
                    (Kind::Counter, Value::Count(count)) => {
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                    (Kind::Counter, Value::Seconds(seconds)) => {
                        ConstCounter::new(seconds).encode(family.encode_family(&labels)?)?;
                    }
                    (Kind::Gauge, Value::Count(count)) => {
                        ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
                    }
                    (Kind::Gauge, Value::Seconds(seconds)) => {
                        ConstGauge::new(seconds).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}
