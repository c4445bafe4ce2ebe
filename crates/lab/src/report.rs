//! The report: one self-contained HTML file, drawn from the results alone.

mod charts;
pub(crate) mod comparison;
pub(crate) mod cpu;
mod notes;
pub(crate) mod points;
mod simulation;
pub(crate) mod swept;
pub(crate) mod tables;

use sluice_api::results::Results;
use sluice_chart::escape;

use crate::view::{self, Fct, Gain};

/// The best figures that the paper on zOVN (SIGCOMM 2013) names, per testbed.
pub(crate) const PUBLISHED: [(f64, &str); 2] = [
    (15.95, "15.95: published best, zOVN, 10G servers"),
    (19.1, "19.1: published best, zOVN, 1G laptops"),
];

/// Data shared by the parts of the report.
struct Content<'a> {
    results: &'a Results,
    cells: Vec<Fct>,
    gains: Vec<Gain>,
    several_variants: bool,
    /// True if the run sweeps over the buffer of the physical switch.
    sweep: bool,
    /// True if the results are those of a simulation.
    is_simulation: bool,
}

/// Draws the report as a page.
pub(crate) fn html(results: &Results) -> String {
    let cells = view::cells(results);
    let content = Content {
        gains: view::gains(results),
        several_variants: view::several_variants(&cells),
        sweep: cells.iter().any(|cell| cell.series.switch_kb.is_some()),
        is_simulation: view::is_simulation(results),
        cells,
        results,
    };
    let name = escape(&results.name);
    let what = if content.is_simulation { "simulation" } else { "lab" };
    let title = format!("Sluice {what}: {name}");
    let mut body = format!("<h1>{title}</h1>\n");
    let settings = if content.is_simulation { "sim.settings" } else { "lab.settings" };
    let about = view::rows(results, settings).next().map(|row| view::text(row, "about"));
    if let Some(about) = about.filter(|text| !text.is_empty()) {
        body += &format!("<p>{}</p>\n", escape(&about));
    }
    if content.is_simulation {
        body += &simulation::banner(&content);
    }
    body += &format!(
        "<p class=\"soft\">{} · commit <code>{}</code></p>\n",
        escape(&results.machine),
        escape(results.commit.get(..12).unwrap_or(&results.commit))
    );
    body += &tiles(&content);
    body += &charts::all(&content);
    body += &tables::all(&content);
    body += &notes::html(&content);
    page(&title, &body)
}

/// Returns a self-contained page.
fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n",
        include_str!("report/style.css")
    )
}

/// Returns a section with a chart, its legend and its caption.
fn figure(title: &str, caption: &str, svg: &str, legend: &str) -> String {
    format!(
        "<section><h2>{title}</h2><figure><div class=\"legend\">{legend}</div>{svg}\
         <figcaption>{caption}</figcaption></figure></section>\n"
    )
}

/// Draws the headline figures.
fn tiles(content: &Content<'_>) -> String {
    if content.cells.is_empty() {
        return String::new();
    }
    let mut tiles = Vec::new();
    let of_zz = |gain: &&Gain| gain.series.policy == "ZZ";
    let best = content.gains.iter().filter(of_zz).max_by(|a, b| a.value.total_cmp(&b.value));
    if let Some(gain) = best {
        tiles.push(tile(
            "good",
            &format!("{:.1}×", gain.value),
            &format!(
                "largest gain of ZZ over LL in mean completion time (95 %: {:.1} to {:.1}), \
                 {} packets",
                gain.low, gain.high, gain.size
            ),
        ));
    }
    let zz: Vec<&Fct> = content.cells.iter().filter(|cell| cell.series.policy == "ZZ").collect();
    if !zz.is_empty() {
        let drops: u64 = zz.iter().map(|cell| cell.drops_congestion).sum();
        let lost: u64 = zz.iter().map(|cell| view::kernel_lost(content.results, cell)).sum();
        let class = if drops == 0 && lost == 0 { "good" } else { "bad" };
        let text = match content.is_simulation {
            true => "congestion drops under ZZ".to_owned(),
            false => format!("congestion drops under ZZ; {lost} in counters of the kernel"),
        };
        tiles.push(tile(class, &drops.to_string(), &text));
        let queries: usize = zz.iter().map(|cell| cell.values.len()).sum();
        let late = zz.iter().flat_map(|cell| &cell.values);
        let late = late.filter(|&&value| value > crate::stats::TIMED_OUT_NS).count();
        let text = format!("of {queries} queries under ZZ took longer than 150 ms");
        tiles.push(tile(if late == 0 { "good" } else { "bad" }, &late.to_string(), &text));
    }
    let audited = content.cells.iter().filter_map(|cell| cell.audit_closed);
    let (closed, all) = audited.fold((0, 0), |(c, a), yes| (c + u32::from(yes), a + 1));
    if all > 0 {
        let class = if closed == all { "good" } else { "bad" };
        let text = "cells after which every frame of every switch was accounted for";
        tiles.push(tile(class, &format!("{closed} of {all}"), text));
    }
    format!("<div class=\"tiles\">{}</div>\n", tiles.concat())
}

fn tile(class: &str, figure: &str, text: &str) -> String {
    format!(
        "<div class=\"tile {class}\"><b>{}</b><span class=\"soft\">{}</span></div>",
        escape(figure),
        escape(text)
    )
}

#[cfg(test)]
mod tests;
