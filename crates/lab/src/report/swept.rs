//! The page of a sweep: the figures of each cell, beside the others.

use std::collections::BTreeMap;

use sluice_api::results::Results;
use sluice_chart::{Bar, Bars, Group, Part, escape, number};

use super::page;
use super::tables::{section, table};
use crate::view::{self, Fct, Gain};

/// Largest number of cells that are named in a chart; more are numbered.
const SHORT_MAX: usize = 12;

/// A cell of a sweep: the parameters that set it apart, and its results.
#[derive(Debug)]
pub(crate) struct SweptCell {
    pub(crate) words: String,
    /// As `words` without policies, as short as possible.
    pub(crate) short: String,
    /// The first cell that differs from this one only in policies: their bars stand together.
    pub(crate) group: usize,
    pub(crate) results: Results,
}

/// Draws the page.
///
/// `common` holds the parameters that all cells share; `says` a publication and its statements
/// about the same cells.
pub(crate) fn html(
    name: &str,
    common: &str,
    says: Option<(&str, &[String])>,
    cells: &[SweptCell],
) -> String {
    let title = format!("Sluice sweep: {}", escape(name));
    let mut body = format!(
        "<h1>{title}</h1>\n<p>A simulation: nothing of it was on a wire. Bars are means over the \
         queries of a cell; the table below has the figures.</p>\n"
    );
    if let Some(first) = cells.first() {
        let about = view::rows(&first.results, "sim.settings").next();
        let about = about.map(|row| view::text(row, "about")).unwrap_or_default();
        body += &format!("<p class=\"soft\">{}</p>\n", escape(&about));
    }
    if !common.is_empty() {
        body += &format!("<p class=\"soft\">All cells: {}</p>\n", escape(common));
    }
    body += &bars("Completion times", "mean completion time, ms", cells, |results| {
        view::cells(results).into_iter().map(|c| (c.series.policy, c.mean / 1e6)).collect()
    });
    body += &bars("Gain over LL", "mean of LL by mean", cells, |results| {
        view::gains(results).into_iter().map(|g| (g.series.policy, g.value)).collect()
    });
    if let Some((source, statements)) = says {
        body += &format!("<section><h2>What {} says</h2>\n<ul>\n", escape(source));
        for statement in statements {
            body += &format!("<li>{}</li>\n", escape(statement));
        }
        body += "</ul></section>\n";
    }
    body += &figures(cells);
    page(&title, &body)
}

fn bars(
    title: &str,
    y_label: &str,
    cells: &[SweptCell],
    of: impl Fn(&Results) -> Vec<(String, f64)>,
) -> String {
    let mut groups: BTreeMap<usize, Vec<Bar>> = BTreeMap::new();
    for cell in cells {
        let bar = |(policy, value): (String, f64)| {
            let title = format!("{}, {policy}: {}", cell.words, number(value));
            let parts = vec![Part::new(&policy, value, title)];
            Bar { name: policy, parts }
        };
        groups.entry(cell.group).or_default().extend(of(&cell.results).into_iter().map(bar));
    }
    groups.retain(|_, bars| !bars.is_empty());
    // With many groups there is room for the numbers of their first cells only.
    let short = groups.len() <= SHORT_MAX;
    let name = |at: usize| if short { cells[at].short.clone() } else { at.to_string() };
    let groups: Vec<Group> =
        groups.into_iter().map(|(at, bars)| Group { name: name(at), bars }).collect();
    if groups.is_empty() {
        return String::new();
    }
    let chart = Bars { x_label: "cell".to_owned(), y_label: y_label.to_owned(), groups };
    format!("<section><h2>{title}</h2><figure>{}</figure></section>\n", chart.svg())
}

fn figures(cells: &[SweptCell]) -> String {
    let mut lines = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let gains = view::gains(&cell.results);
        for fct in view::cells(&cell.results) {
            let gain = view::gain_of(&gains, &fct);
            lines.push((fct.series.policy == "ZZ", line(at, cell, &fct, gain)));
        }
    }
    let headings = [
        "cell",
        "what",
        "policy",
        "queries",
        "mean ms",
        "p50",
        "p95",
        "gain over LL (95 %)",
        "drops",
        "time-outs per query",
    ];
    section("Figures", "The same seed gives the same figures.", &table(&headings, &lines))
}

fn line(at: usize, cell: &SweptCell, fct: &Fct, gain: Option<&Gain>) -> Vec<String> {
    vec![
        at.to_string(),
        escape(&cell.words),
        fct.series.policy.clone(),
        fct.values.len().to_string(),
        number(fct.mean / 1e6),
        number(fct.p50 / 1e6),
        number(fct.p95 / 1e6),
        gain.map(view::gain_text).unwrap_or_default(),
        escape(&view::drops_text(&fct.drops)),
        view::timeouts(&cell.results, &fct.series, fct.size).map_or_else(String::new, number),
    ]
}
