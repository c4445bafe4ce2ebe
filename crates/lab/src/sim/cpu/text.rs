//! Tables for the terminal.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use super::compare::{Comparison, policy_name};
use super::figure::{Basis, Figure, Published, Unit};
use super::fit::{self, Fit};
use super::summary::{self, Summary};
use super::vary::Varied;

/// Lines of words, shown both on a page and on a terminal.
pub(crate) struct Grid {
    pub(crate) head: Vec<&'static str>,
    pub(crate) lines: Vec<Vec<String>>,
}

impl Grid {
    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header(self.head.clone());
        for line in &self.lines {
            table.add_row(line.clone());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }
}

fn figure(value: f64) -> String {
    format!("{value:.1}")
}

fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.1} %"))
}

pub(crate) fn fit_grid(found: &Fit) -> Grid {
    let line = |cell: &fit::Cell| {
        vec![
            cell.case.name().to_owned(),
            cell.bytes.to_string(),
            figure(cell.published),
            figure(cell.simulated),
            percent(Some(cell.error())),
        ]
    };
    Grid {
        head: vec!["Table 4, Mbit/s", "bytes", "published", "fitted", "error"],
        lines: found.cells.iter().map(line).collect(),
    }
}

/// Formats parameters as in the file, then Table 4.
pub(crate) fn fit(found: &Fit) -> String {
    let mut out = "[fitted]\n".to_owned();
    for name in fit::NAMES {
        out += &format!("{name} = {}\n", (fit::field(name).get)(&found.params));
    }
    let errors: Vec<f64> = found.cells.iter().map(fit::Cell::error).collect();
    let largest = errors.iter().copied().fold(0.0, f64::max);
    let median = sluice_api::results::median(&errors);
    out += &fit_grid(found).text();
    out + &format!(
        "error: median {median:.1} %, largest {largest:.1} %; {} sets of parameters tried\n",
        found.tried
    )
}

/// Returns the reason for a figure without an error, or what its error is worth.
fn note(figure: &Figure) -> &'static str {
    match (figure.published.why_not(), figure.basis, figure.published) {
        (Some(why), _, _) => why,
        (None, Basis::Fitted, _) => "fitted",
        (None, Basis::Given, _) => "given",
        (None, Basis::Plain, _) => "without the exclusion",
        (None, Basis::Repeated, _) => "from other cells",
        (None, Basis::Predicted, Published::Derived(_)) => "derived",
        (None, Basis::Predicted, _) => "",
    }
}

/// Formats an error; of a published zero in points, if the unit has them.
fn error(figure: &Figure) -> String {
    match (figure.error(), figure.off(), figure.unit) {
        (None, Some(off), Unit::Loss | Unit::Share) => format!("{:.1} points", off.abs()),
        (error, _, _) => percent(error),
    }
}

pub(crate) fn predict_grid(figures: &[Figure], table: u8) -> Grid {
    let line = |f: &Figure| {
        let plain = if f.basis == Basis::Plain { ", plain" } else { "" };
        vec![
            format!("{}{plain}", f.mode),
            f.bytes.to_string(),
            format!("{} {}", f.of, f.unit.symbol()).trim().to_owned(),
            f.published.value().map_or("–".to_owned(), |value| f.unit.format(value)),
            f.unit.format(f.predicted),
            error(f),
            note(f).to_owned(),
        ]
    };
    Grid {
        head: vec!["", "bytes", "of", "published", "predicted", "error", "note"],
        lines: figures.iter().filter(|f| f.table == table).map(line).collect(),
    }
}

pub(crate) const TABLES: [(u8, &str); 4] = [
    (4, "Table 4: throughput of all flows, fitted"),
    (5, "Table 5: softirqs of each core, two VMs; shares, and counts (the model's in a second)"),
    (6, "Table 6: loss, two VMs; and what follows for their throughput"),
    (7, "Table 7: throughput, three VMs, VM1 of high priority"),
];

pub(crate) const SUMMARY_HEAD: [&str; 8] =
    ["error", "cells", "compared", "median", "p90", "largest", "of", "points: median, largest"];

pub(crate) fn summary_grid(figures: &[Figure]) -> Grid {
    let line = |summary: &Summary| {
        let points = summary.in_points();
        vec![
            summary.name.to_owned(),
            summary.figures.to_string(),
            summary.errors.len().to_string(),
            percent(Some(summary.median())),
            percent(Some(summary.p90())),
            percent(Some(summary.worst())),
            summary.worst_at.clone(),
            points.map_or("–".to_owned(), |(median, worst)| format!("{median:.1}, {worst:.1}")),
        ]
    };
    Grid {
        head: SUMMARY_HEAD.to_vec(),
        lines: summary::summaries(figures).iter().map(line).collect(),
    }
}

pub(crate) fn predict(figures: &[Figure]) -> String {
    let mut out = String::new();
    for (table, name) in TABLES {
        out += &format!("{name}\n{}", predict_grid(figures, table).text());
    }
    out + &summary_grid(figures).text()
}

fn list(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn runs_grid(found: &Comparison) -> Grid {
    let line = |run: &super::compare::Run| {
        let (q, answer) = (&run.question, &run.answer);
        let guard = if q.is_guarded { ", guard" } else { "" };
        vec![
            format!("{}{guard}", q.rule.name()),
            policy_name(q.policy).to_owned(),
            q.vms.to_string(),
            q.bytes.to_string(),
            figure(answer.total()),
            list(&answer.throughput),
            list(&answer.loss),
            list(&answer.softirq),
        ]
    };
    Grid {
        head: vec![
            "rule",
            "no room",
            "VMs",
            "bytes",
            "Mbit/s",
            "of each VM",
            "loss %",
            "softirq %",
        ],
        lines: found.runs.iter().map(line).collect(),
    }
}

pub(crate) fn targets_grid(found: &Comparison) -> Grid {
    let line = |target: &super::compare::Target| {
        let value = |at: usize| {
            let mark = if target.is_met[at] { "met" } else { "MISSED" };
            format!("{:.2} {mark}", target.found[at])
        };
        vec![target.what.clone(), target.needed.clone(), value(0), value(1)]
    };
    Grid {
        head: vec!["adaptive", "needed", "plain", "guard"],
        lines: found.targets().iter().map(line).collect(),
    }
}

pub(crate) fn compare(found: &Comparison) -> String {
    runs_grid(found).text() + &targets_grid(found).text()
}

pub(crate) fn vary_grid(all: &[Varied]) -> Grid {
    let line = |v: &Varied| {
        let pair = |[a, b]: [f64; 2]| format!("{a:.2} {b:.2}");
        let value = v.value.map(|value| format!(" = {value}")).unwrap_or_default();
        vec![
            format!("{}{value}", v.name),
            pair(v.over_rss),
            pair(v.over_rss_hold),
            pair(v.loss),
            pair(v.priority),
            pair(v.over_rss_plus_plus),
            pair(v.predicted_error),
        ]
    };
    Grid {
        head: vec![
            "1400 B, 8192 B each",
            "hold / rss drop",
            "hold / rss hold",
            "loss % (drop)",
            "VM1 % of alone",
            "least / rss++ (drop, hold)",
            "error % (median, p90)",
        ],
        lines: all.iter().map(line).collect(),
    }
}

pub(crate) fn vary(all: &[Varied]) -> String {
    vary_grid(all).text()
}
