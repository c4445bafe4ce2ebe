//! Parts of the report that only a simulation has: its banner and its own tables.

use sluice_api::results::Row;
use sluice_chart::{escape, number};

use super::Content;
use super::tables::{by_size, policy, section, table};
use crate::stats;
use crate::view::{self, rows, text};

/// Returns the banner of a simulation, with the seed and the TCP.
pub(super) fn banner(content: &Content<'_>) -> String {
    let settings = rows(content.results, "sim.settings").next();
    let seed = settings.map(|row| text(row, "seed")).unwrap_or_default();
    let tcp = settings
        .map(|row| format!("{} with {}", text(row, "tcp_profile"), text(row, "tcp_congestion")))
        .unwrap_or_default();
    format!(
        "<p class=\"banner\"><b>This is a simulation.</b> Seed {}, TCP {}; every parameter stands \
         in the table of settings below. The same seed gives the same figures to the bit.</p>\n",
        escape(&seed),
        escape(&tcp)
    )
}

/// Returns all tables that have a row.
pub(super) fn tables(content: &Content<'_>) -> String {
    [goodput(content), counters(content), fills(content)].concat()
}

fn key(row: &Row) -> String {
    let policy = escape(&text(row, "policy"));
    format!("<span class=\"key {policy}\"></span>{policy}")
}

fn mbits(value: f64) -> String {
    format!("{:.0}", value / 1e6)
}

fn goodput(content: &Content<'_>) -> String {
    let line = |row: &Row| {
        let at = |part| mbits(stats::percentile(&row.values, part));
        let sum: f64 = row.values.iter().sum();
        let cell = rows(content.results, "sim.cell").find(|cell| {
            text(cell, "policy") == text(row, "policy")
                && text(cell, "variant") == text(row, "variant")
        });
        let drops = cell.map(|cell| text(cell, "drops_congestion")).unwrap_or_default();
        let flows = row.values.len().to_string();
        (false, vec![key(row), flows, mbits(sum), at(0.0), at(0.5), at(1.0), drops])
    };
    let lines: Vec<_> = rows(content.results, "sim.goodput").map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    section(
        "Goodput of endless flows",
        "Bytes that arrived in order, without headers, from the first frame to the end of the \
         simulated time, in Mbit/s.",
        &table(
            &["<policy", "flows", "sum", "slowest", "median", "fastest", "frames dropped"],
            &lines,
        ),
    )
}

/// Returns the table of time-outs, retransmissions and pauses of each cell.
fn counters(content: &Content<'_>) -> String {
    if content.cells.is_empty() {
        return String::new();
    }
    let line = |(first, cell): (bool, &view::Fct)| {
        let own = |measure, key: &str, name: &str| {
            let row = rows(content.results, measure)
                .find(|row| view::is_of(row, cell) && text(row, key) == name);
            row.map_or_else(|| "0".to_owned(), |row| number(row.median))
        };
        let each = view::timeouts(content.results, &cell.series, cell.size).unwrap_or(0.0);
        let columns = vec![
            cell.size.to_string(),
            policy(content, cell),
            number(each),
            own("sim.tcp", "counter", "segments"),
            own("sim.tcp", "counter", "retransmissions"),
            own("sim.tcp", "counter", "fast_recoveries"),
            own("sim.pause", "place", "physical switches"),
            own("sim.pause", "place", "hosts"),
        ];
        (first, columns)
    };
    let lines: Vec<_> = by_size(content).into_iter().map(line).collect();
    section(
        "What TCP had to repair, and pauses",
        "Summed over all machines. Time-outs are per query; XOFF includes refreshes.",
        &table(
            &[
                "packets",
                "<policy",
                "time-outs per query",
                "segments",
                "sent again",
                "fast recoveries",
                "XOFF of switches",
                "XOFF of hosts",
            ],
            &lines,
        ),
    )
}

/// Returns the high-water marks of each kind of place, over all sizes.
fn fills(content: &Content<'_>) -> String {
    let mut most: Vec<(String, String, String, f64)> = Vec::new();
    for row in rows(content.results, "sim.high_water") {
        let name = (text(row, "place"), text(row, "policy"));
        match most.iter_mut().find(|known| (&known.0, &known.1) == (&name.0, &name.1)) {
            Some(known) => known.3 = known.3.max(row.median),
            None => most.push((name.0, name.1, text(row, "of"), row.median)),
        }
    }
    most.sort_by(|a, b| a.0.cmp(&b.0));
    let mut before = String::new();
    let mut lines = Vec::new();
    for (place, policy, unit, value) in most {
        let first = !before.is_empty() && before != place;
        let columns = vec![
            escape(&place),
            format!("<span class=\"key {0}\"></span>{0}", escape(&policy)),
            number(value),
            escape(&unit),
        ];
        lines.push((first, columns));
        before = place;
    }
    section(
        "High-water marks",
        "The most that one place of each kind held, over all sizes.",
        &table(&["<place", "<policy", "most", "<of"], &lines),
    )
}
