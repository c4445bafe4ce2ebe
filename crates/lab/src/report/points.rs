//! Runs of `flood` side by side: losses of each configuration by stage, as a table and as a page.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use sluice_api::results::Results;
use sluice_chart::{Bar, Bars, Group, Part, bar_key, escape};

use super::tables::{section, table};
use super::{figure, page};
use crate::flood::POINTS;
use crate::view::{rows, text};

/// The stages between two points, with the class in which each is drawn.
const STAGES: [(&str, &str); 5] = [
    ("sender's stack (1 to 2)", "tor"),
    ("sender's card (2 to 3)", "bridge"),
    ("virtual switch (3 to 4)", "vswitch"),
    ("receiver's card (4 to 5)", "nic"),
    ("receiver's stack (5 to 6)", "kernel"),
];

/// A configuration.
struct Line {
    name: String,
    about: String,
    /// Frames at the six points, summed over all runs.
    counts: [f64; 6],
    /// Share of the first point's frames that reaches the last point, in the worst run and the
    /// best.
    share: (f64, f64),
}

impl Line {
    fn of(results: &Results) -> anyhow::Result<Self> {
        let mut values: Vec<Vec<f64>> = Vec::new();
        for (at, place) in POINTS.iter().enumerate() {
            let row = rows(results, "flood.point").find(|row| text(row, "place") == *place);
            let row = row.with_context(|| format!("{} has no point {}", results.name, at + 1))?;
            values.push(row.values.clone());
        }
        let (sent, received) = (&values[0], &values[5]);
        ensure!(!sent.is_empty(), "{} has no run", results.name);
        let shares = sent.iter().zip(received).map(|(sent, got)| got / sent.max(1.0));
        let (low, high) = shares.fold((1.0_f64, 0.0_f64), |(l, h), s| (l.min(s), h.max(s)));
        let about = rows(results, "flood.point").next().map(|row| text(row, "about"));
        Ok(Self {
            name: results.name.clone(),
            about: about.unwrap_or_default(),
            counts: std::array::from_fn(|at| values[at].iter().sum()),
            share: (low, high),
        })
    }

    /// Returns the share of the sent frames that is lost in each stage. ARP frames can make a count
    /// larger than the one before; that is no loss.
    fn lost(&self) -> [f64; 5] {
        let sent = self.counts[0].max(1.0);
        std::array::from_fn(|at| (self.counts[at] - self.counts[at + 1]).max(0.0) / sent)
    }

    fn columns(&self) -> Vec<String> {
        let percent = |share: f64| match share {
            0.0 => "0".to_owned(),
            small if small < 0.001 => format!("{:.3} %", small * 100.0),
            share => format!("{:.1} %", share * 100.0),
        };
        let head = [self.name.clone(), self.about.clone(), format!("{:.0}", self.counts[0])];
        let (low, high) = self.share;
        let tail = format!("{:.1} to {:.1} %", low * 100.0, high * 100.0);
        head.into_iter().chain(self.lost().map(percent)).chain([tail]).collect()
    }
}

const HEADINGS: [&str; 9] =
    ["<", "<configuration", "sent", "1 to 2", "2 to 3", "3 to 4", "4 to 5", "5 to 6", "received"];

/// Reads the runs of these folders; returns a table in Markdown and a page.
///
/// # Errors
///
/// A folder has no result, or no result of a flood.
pub(crate) fn draw(folders: &[PathBuf]) -> anyhow::Result<(String, String)> {
    let mut lines = Vec::new();
    let mut machine = String::new();
    for folder in folders {
        let path = folder.join("result.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let results: Results =
            serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?;
        machine.clone_from(&results.machine);
        lines.push(Line::of(&results)?);
    }
    Ok((markdown(&lines), html(&lines, &machine)))
}

fn markdown(lines: &[Line]) -> String {
    let headings = HEADINGS.map(|heading| heading.trim_start_matches('<').to_owned());
    let row = |columns: &[String]| format!("| {} |\n", columns.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(HEADINGS.len()));
    let body: String = lines.iter().map(|line| row(&line.columns())).collect();
    row(&headings) + &rule + &body
}

fn html(lines: &[Line], machine: &str) -> String {
    let group = |line: &Line| {
        let parts = STAGES.iter().zip(line.lost()).filter(|(_, share)| *share > 0.0);
        let parts = parts.map(|((stage, class), share)| {
            let title = format!("{}: {:.2} % lost in the {stage}", line.name, share * 100.0);
            Part::new(class, share * 100.0, title)
        });
        Group {
            name: String::new(),
            bars: vec![Bar { name: line.name.clone(), parts: parts.collect() }],
        }
    };
    let bars = Bars {
        x_label: "configuration".to_owned(),
        y_label: "lost, % of what the sources sent".to_owned(),
        groups: lines.iter().map(group).collect(),
    };
    let legend: String = STAGES.iter().map(|(name, class)| bar_key(class, name)).collect();
    let losses = figure(
        "Loss between the points",
        "Two sources of UDP at full speed, one sink, all of them virtual machines of one host. \
         Bars are stacked; what is missing to 100 % was received by the program.",
        &bars.svg(),
        &legend,
    );
    let rows: Vec<_> = lines
        .iter()
        .map(|line| (false, line.columns().iter().map(|text| escape(text)).collect()))
        .collect();
    let title = "Sluice lab: loss at six points";
    let body = format!(
        "<h1>{title}</h1>\n<p class=\"soft\">{}</p>\n{losses}{}",
        escape(machine),
        section("Shares of what the sources sent", "", &table(&HEADINGS, &rows))
    );
    page(title, &body)
}

#[cfg(test)]
mod tests;
