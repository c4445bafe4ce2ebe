//! Parameters in which the cells of a sweep differ, for people; the common parameters are shown
//! once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::file::Line;
use super::grid::{short, word, words};

/// The key of a grid for the policies of a cell.
pub(super) const POLICIES: &str = "sim.policies";

type Parameters = BTreeMap<String, Value>;

/// Keys of the parameters that differ between cells. Tables are taken apart, so that two tables
/// differ by the key that differs in them.
pub(super) struct Differences {
    keys: BTreeSet<String>,
}

impl Differences {
    /// Finds the differing parameters of these cells. With one cell alone, all of them differ.
    pub(super) fn of(lines: &[Line]) -> Self {
        let all: Vec<Parameters> = lines.iter().map(parameters).collect();
        let Some((first, rest)) = all.split_first() else { return Self { keys: BTreeSet::new() } };
        let keys = all.iter().flat_map(|cell| cell.keys().cloned());
        let differs = |key: &String| {
            rest.is_empty() || rest.iter().any(|cell| cell.get(key) != first.get(key))
        };
        Self { keys: keys.filter(differs).collect() }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    /// Returns the value of each differing parameter of this cell; empty where it has none.
    pub(super) fn values(&self, line: &Line) -> Vec<String> {
        let own = parameters(line);
        self.keys.iter().map(|key| own.get(key).map(word).unwrap_or_default()).collect()
    }

    /// Returns the differing parameters of this cell, in words.
    pub(super) fn words(&self, line: &Line) -> String {
        words(&self.pick(line, |_| true))
    }

    /// Returns the same without policies, as short as possible.
    pub(super) fn short(&self, line: &Line) -> String {
        short(&self.pick(line, |key| key != POLICIES))
    }

    /// Returns the parameters that all cells share, in words.
    pub(super) fn common(&self, lines: &[Line]) -> String {
        let Some(first) = lines.first() else { return String::new() };
        let all = parameters(first).into_iter();
        short(&all.filter(|(key, _)| !self.keys.contains(key)).collect())
    }

    /// Returns the same without what differs between policies.
    pub(super) fn without_policies(self) -> Self {
        Self { keys: self.keys.into_iter().filter(|key| key != POLICIES).collect() }
    }

    fn pick(&self, line: &Line, also: impl Fn(&str) -> bool) -> Parameters {
        let all = parameters(line).into_iter();
        all.filter(|(key, _)| self.keys.contains(key) && also(key)).collect()
    }
}

/// Returns the parameters of a cell, `table.key` each.
fn parameters(line: &Line) -> Parameters {
    let mut flat = Parameters::new();
    for (key, value) in &line.parameters {
        match value {
            Value::Object(table) => {
                let inner = table.iter().map(|(name, value)| (format!("{key}.{name}"), value));
                flat.extend(inner.map(|(name, value)| (name, value.clone())));
            }
            value => {
                flat.insert(key.clone(), value.clone());
            }
        }
    }
    flat
}

/// Returns true if two cells have the same parameters except for their policies.
pub(super) fn differ_in_policy(a: &Line, b: &Line) -> bool {
    let others = |line: &Line| -> Parameters {
        let all = line.parameters.clone().into_iter();
        all.filter(|(key, _)| key != POLICIES).collect()
    };
    others(a) == others(b)
}
