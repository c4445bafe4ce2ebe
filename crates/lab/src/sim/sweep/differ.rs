//! What the cells of a sweep differ in: people read that, and what all have in common once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file::Line;
use super::grid::{short, words};

/// The key of a grid that says which policies a cell runs.
pub(super) const POLICIES: &str = "sim.policies";

type Parameters = BTreeMap<String, Value>;

/// The parameters that not all cells have alike.
pub(super) struct Differences {
    keys: Vec<String>,
}

impl Differences {
    /// Of these cells. One alone differs in all it has.
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

    /// What this cell differs in, in words.
    pub(super) fn words(&self, line: &Line) -> String {
        words(&self.pick(line, |_| true))
    }

    /// The same without policies, in as few words as possible.
    pub(super) fn short(&self, line: &Line) -> String {
        short(&self.pick(line, |key| key != POLICIES))
    }

    /// What all cells have in common, in words.
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

/// Whether two cells are the same but for the policies that they ran.
pub(super) fn differ_in_policy(a: &Line, b: &Line) -> bool {
    let others = |line: &Line| -> Parameters {
        let all = line.parameters.clone().into_iter();
        all.filter(|(key, _)| key != POLICIES).collect()
    };
    others(a) == others(b)
}
