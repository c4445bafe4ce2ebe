//! Parameters in which the cells of a sweep differ, for people; the common parameters are shown
//! once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file::Line;
use super::grid::{short, words};

/// The key of a grid for the policies of a cell.
pub(super) const POLICIES: &str = "sim.policies";

type Parameters = BTreeMap<String, Value>;

/// Keys of the parameters that differ between cells.
pub(super) struct Differences {
    keys: Vec<String>,
}

impl Differences {
    /// Finds the differing parameters of these cells. With one cell alone, all of them differ.
    pub(super) fn of(lines: &[Line]) -> Self {
        let Some((first, rest)) = lines.split_first() else { return Self { keys: Vec::new() } };
        let differs = |key: &&String| {
            rest.is_empty()
                || rest.iter().any(|line| line.parameters[*key] != first.parameters[*key])
        };
        Self { keys: first.parameters.keys().filter(differs).cloned().collect() }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
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
        let all = first.parameters.clone().into_iter();
        short(&all.filter(|(key, _)| !self.keys.contains(key)).collect())
    }

    fn pick(&self, line: &Line, also: impl Fn(&str) -> bool) -> Parameters {
        let all = line.parameters.clone().into_iter();
        all.filter(|(key, _)| self.keys.contains(key) && also(key)).collect()
    }
}

/// Returns true if two cells have the same parameters except for their policies.
pub(super) fn differ_in_policy(a: &Line, b: &Line) -> bool {
    let others = |line: &Line| -> Parameters {
        let all = line.parameters.clone().into_iter();
        all.filter(|(key, _)| key != POLICIES).collect()
    };
    others(a) == others(b)
}
