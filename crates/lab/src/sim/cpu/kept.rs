//! Drawings and tables for a page, made of a kept result file of `predict` and of nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use sluice_api::results::Results;
use sluice_chart::{Bar, Bars, Group, Key, Part, Spread, Spreads, number};

use super::cells;
use super::figure::{Basis, Figure, Published, Unit};
use super::published::SIZES;
use super::summary::{self, Summary};
use super::text;
use crate::sim::markdown;

/// Errors above this are printed in bold, in hundredths.
const LARGE: f64 = 25.0;

const KEYS: [Key<'static>; 2] = [
    Key { class: "paper", name: "paper, from its Table 6", light: "#c2548b", dark: "#ee8fbd" },
    Key { class: "model", name: "model", light: "#3b6ea8", dark: "#7fb0e8" },
];

/// Figures of a result file.
pub(crate) struct Kept {
    figures: Vec<Figure>,
}

impl Kept {
    /// Reads a result file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or was not written by `predict`.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
        Self::parse(&text).with_context(|| format!("{name}"))
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let results: Results = serde_json::from_str(text).context("no result file")?;
        Ok(Self { figures: cells::figures(&results)? })
    }

    /// Draws the throughput of two machines under each rule.
    pub(crate) fn two_vms(&self) -> String {
        let is_sum = |f: &&Figure| f.basis == Basis::Repeated && f.of == "all";
        let bar = |class: &str, who: &str, value: f64| Bar {
            name: String::new(),
            parts: vec![Part::new(class, value, format!("{who}: {} Mbit/s", number(value)))],
        };
        let group = |f: &Figure| {
            let paper = f.published.value().map(|value| bar("paper", "paper", value));
            let mode = if f.mode == "vs-extend" { "vse" } else { f.mode.as_str() };
            Group {
                name: format!("{mode} {}", f.bytes),
                bars: paper.into_iter().chain([bar("model", "model", f.predicted)]).collect(),
            }
        };
        let chart = Bars {
            x_label: "rule, payload of a datagram in bytes".to_owned(),
            y_label: "Mbit/s of two VMs".to_owned(),
            groups: self.figures.iter().filter(is_sum).map(group).collect(),
        };
        chart.file("Throughput of two VMs: the paper on VS-extend and the model", &KEYS)
    }

    /// Draws all relative errors of each table.
    pub(crate) fn errors(&self) -> String {
        let all = summary::summaries(&self.figures);
        let spreads = all.iter().filter_map(spread).collect();
        let title = "Errors of all cells";
        Spreads { title, spreads, print: |value| format!("{value:.1}") }.svg().unwrap_or_default()
    }

    /// Returns tables in Markdown: the errors, then each table of the paper.
    pub(crate) fn tables(&self) -> Vec<String> {
        let grid = text::summary_grid(&self.figures);
        let head: Vec<String> = grid.head.iter().map(|&text| text.to_owned()).collect();
        let tables = text::TABLES.iter().map(|(table, name)| self.table(*table, name));
        [markdown::table(&head, &grid.lines)].into_iter().chain(tables).collect()
    }

    /// Returns a table of the paper with a column for each size.
    fn table(&self, table: u8, name: &str) -> String {
        let of_table: Vec<&Figure> = self.figures.iter().filter(|f| f.table == table).collect();
        let mut seen = BTreeSet::new();
        let mut lines = Vec::new();
        for first in &of_table {
            if !seen.insert(line_key(first)) {
                continue;
            }
            let at = |bytes: &u64| {
                let same = |f: &&&Figure| line_key(f) == line_key(first) && f.bytes == *bytes;
                of_table.iter().find(same).map_or_else(String::new, |figure| pair(figure))
            };
            lines.push([line_name(first)].into_iter().chain(SIZES.iter().map(at)).collect());
        }
        let sizes = ["64 B", "1,400 B", "8,192 B"].map(str::to_owned);
        let head: Vec<String> = [name.to_owned()].into_iter().chain(sizes).collect();
        markdown::table(&head, &lines)
    }
}

fn spread(summary: &Summary) -> Option<Spread<'_>> {
    (!summary.errors.is_empty()).then(|| Spread {
        label: summary.name.to_owned(),
        subject: "relative error",
        unit: "%",
        values: &summary.errors,
        median: summary.median(),
    })
}

/// Returns the common properties of the figures of one line. A line may be predicted at one size
/// and given at another.
fn line_key(figure: &Figure) -> (String, String, &'static str, bool) {
    let is_plain = figure.basis == Basis::Plain;
    (figure.mode.clone(), figure.of.clone(), figure.unit.symbol(), is_plain)
}

fn line_name(figure: &Figure) -> String {
    let plain = if figure.basis == Basis::Plain { " without the exclusion" } else { "" };
    let subject = format!("{} {}", figure.of, figure.unit.symbol());
    let mode = match figure.table {
        4 => figure.mode.clone(),
        _ => format!("`{}`", figure.mode),
    };
    format!("{mode}{plain}, {}", subject.trim())
}

/// Formats published and predicted value; a star: derived from others, bold: far off.
fn pair(figure: &Figure) -> String {
    let unit = figure.unit;
    let published = match figure.published {
        Published::Printed(value) | Published::Incomparable(value) => unit.format(value),
        Published::Derived(value) => unit.format(value) + "*",
        Published::Dash => "dash".to_owned(),
        Published::Unknown => "?".to_owned(),
    };
    let mut predicted = unit.format(figure.predicted);
    if unit == Unit::Count {
        predicted += "/s";
    }
    if figure.error().is_some_and(|error| error > LARGE) {
        predicted = format!("**{predicted}**");
    }
    let given = if figure.basis == Basis::Given { " (given)" } else { "" };
    format!("{published} / {predicted}{given}")
}

#[cfg(test)]
mod tests;
