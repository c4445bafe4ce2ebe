//! A drawing and a table for a page, made of the kept results of a sweep and of nothing else.

use std::path::Path;

use anyhow::{Context, ensure};
use sluice_chart::{Bar, Bars, Group, Key, Part, number};

use super::differ::{Differences, differ_in_policy};
use super::file::Line;
use super::{gains, results_of};
use crate::sim::markdown;
use crate::view::{self, Fct, Gain};

/// Policies in the order of their bars and columns, each with its colours.
const KEYS: [Key<'static>; 4] = [
    Key { class: "LL", name: "LL", light: "#8a8a8a", dark: "#9a9a9a" },
    Key { class: "LZ", name: "LZ", light: "#c2548b", dark: "#ee8fbd" },
    Key { class: "ZL", name: "ZL", light: "#b8860b", dark: "#e3b341" },
    Key { class: "ZZ", name: "ZZ", light: "#3b6ea8", dark: "#7fb0e8" },
];

/// Cells of a sweep, those that differ only in policies together.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Names of the parameters that differ.
    keys: Vec<String>,
    groups: Vec<Cells>,
}

/// Cells that differ only in policies.
#[derive(Debug)]
struct Cells {
    /// Values of the parameters that differ.
    values: Vec<String>,
    found: Vec<(Fct, Option<Gain>)>,
}

impl Cells {
    fn of(&self, policy: &str) -> Option<&(Fct, Option<Gain>)> {
        self.found.iter().find(|(fct, _)| fct.series.policy == policy)
    }
}

impl Kept {
    /// Reads the lines of a finished sweep.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is none of a sweep, or has a cell that broke a promise.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
        Self::parse(&text).with_context(|| format!("{name}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let parsed = text.lines().map(serde_json::from_str).collect::<Result<Vec<Line>, _>>();
        let mut lines = parsed.context("no sweep.jsonl of sluice sim sweep")?;
        ensure!(!lines.is_empty(), "no cell is in it");
        for line in &lines {
            ensure!(line.broken.is_empty(), "cell {} broke a promise: run it again", line.cell);
        }
        gains::add_gains(&mut lines);
        let differences = Differences::of(&lines).without_policies();
        let mut groups: Vec<(&Line, Cells)> = Vec::new();
        for line in &lines {
            let found = found(line);
            match groups.iter_mut().find(|(first, _)| differ_in_policy(first, line)) {
                Some((_, cells)) => cells.found.extend(found),
                None => groups.push((line, Cells { values: differences.values(line), found })),
            }
        }
        Ok(Self {
            keys: differences.keys().map(str::to_owned).collect(),
            groups: groups.into_iter().map(|(_, cells)| cells).collect(),
        })
    }

    /// Draws the mean of each cell.
    pub(crate) fn svg(&self, title: &str) -> String {
        let bar = |key: &Key<'_>, cells: &Cells| {
            let ms = cells.of(key.class)?.0.mean / 1e6;
            let title = format!("{} {}: {} ms", cells.values.join(" "), key.name, number(ms));
            let parts = vec![Part::new(key.class, ms, title)];
            Some(Bar { name: String::new(), parts })
        };
        let group = |(at, cells): (usize, &Cells)| Group {
            name: (at + 1).to_string(),
            bars: KEYS.iter().filter_map(|key| bar(key, cells)).collect(),
        };
        let chart = Bars {
            x_label: "line of the table".to_owned(),
            y_label: "mean completion time, ms".to_owned(),
            groups: self.groups.iter().enumerate().map(group).collect(),
        };
        let has = |key: &&Key<'_>| self.groups.iter().any(|cells| cells.of(key.class).is_some());
        let keys: Vec<Key<'_>> = KEYS.iter().filter(has).copied().collect();
        chart.file(title, &keys)
    }

    /// Returns the table in Markdown: the means in ms, and the gains over `LL` with their
    /// intervals of 95 %.
    pub(crate) fn table(&self) -> String {
        let has_mean = |key: &Key<'_>| self.groups.iter().any(|c| c.of(key.class).is_some());
        let has_gain = |key: &Key<'_>| {
            self.groups.iter().any(|c| c.of(key.class).is_some_and(|f| f.1.is_some()))
        };
        let mut head = vec!["#".to_owned()];
        head.extend(self.keys.iter().map(|key| format!("`{key}`")));
        head.extend(KEYS.iter().filter(|k| has_mean(k)).map(|k| format!("`{}`", k.name)));
        head.extend(KEYS.iter().filter(|k| has_gain(k)).map(|k| format!("gain `{}`", k.name)));
        head.push("queries".to_owned());
        let mut lines = Vec::new();
        for (at, cells) in (1..).zip(&self.groups) {
            let mut words = vec![at.to_string()];
            words.extend(cells.values.iter().cloned());
            let of = |key: &Key<'_>, say: fn(&(Fct, Option<Gain>)) -> String| {
                cells.of(key.class).map(say).unwrap_or_default()
            };
            let mean = |found: &(Fct, Option<Gain>)| format!("{:.2}", found.0.mean / 1e6);
            let gain = |found: &(Fct, Option<Gain>)| {
                found.1.as_ref().map(view::gain_text).unwrap_or_default()
            };
            words.extend(KEYS.iter().filter(|k| has_mean(k)).map(|key| of(key, mean)));
            words.extend(KEYS.iter().filter(|k| has_gain(k)).map(|key| of(key, gain)));
            let queries = cells.found.iter().map(|(fct, _)| fct.values.len()).min();
            words.push(queries.unwrap_or(0).to_string());
            lines.push(words);
        }
        markdown::table(&head, &lines)
    }
}

/// Returns the completion times of a cell, each with its gain.
fn found(line: &Line) -> Vec<(Fct, Option<Gain>)> {
    let results = results_of(&line.rows);
    let gains = view::gains(&results);
    let all = view::cells(&results).into_iter();
    all.map(|fct| {
        let own = view::gain_of(&gains, &fct).cloned();
        (fct, own)
    })
    .collect()
}

#[cfg(test)]
mod tests;
