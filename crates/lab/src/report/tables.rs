//! The tables: cells, repairs of TCP, high-water marks, pauses, checks, settings.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::results::Row;
use sluice_chart::{escape, number};

use super::Content;
use crate::stats;
use crate::view::{self, Fct, drops_text, gain_text, rows, text};

/// Returns all tables that have a row.
pub(super) fn all(content: &Content<'_>) -> String {
    [
        checks(content),
        cells(content),
        crate::today::html(content.results),
        repairs(content),
        high_water(content),
        pauses(content),
        kernel(content),
        if content.is_simulation { super::simulation::tables(content) } else { String::new() },
        settings(content),
    ]
    .concat()
}

/// Returns a table. A column whose heading begins with `<` is left-aligned.
pub(crate) fn table(headings: &[&str], lines: &[(bool, Vec<String>)]) -> String {
    let left: Vec<bool> = headings.iter().map(|heading| heading.starts_with('<')).collect();
    let class = |column: usize| if left.get(column) == Some(&true) { " class=\"l\"" } else { "" };
    let mut out = "<div class=\"scroll\"><table><thead><tr>".to_owned();
    for (column, heading) in headings.iter().enumerate() {
        let heading = escape(heading.trim_start_matches('<'));
        out += &format!("<th{}>{heading}</th>", class(column));
    }
    out += "</tr></thead>\n<tbody>\n";
    for (first, line) in lines {
        out += if *first { "<tr class=\"first\">" } else { "<tr>" };
        for (column, cell) in line.iter().enumerate() {
            out += &format!("<td{}>{cell}</td>", class(column));
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

pub(crate) fn section(title: &str, lead: &str, table: &str) -> String {
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"soft\">{lead}</p>") };
    format!("<section><h2>{title}</h2>{lead}{table}</section>\n")
}

fn ms(ns: f64) -> String {
    format!("{:.2}", ns / 1e6)
}

pub(super) fn policy(content: &Content<'_>, cell: &Fct) -> String {
    let label = cell.series.label(content.several_variants);
    format!("<span class=\"key {}\"></span>{}", escape(&cell.series.policy), escape(&label))
}

/// Returns the cells by size, with a flag that is true for the first of its size.
pub(super) fn by_size<'a>(content: &'a Content<'_>) -> Vec<(bool, &'a Fct)> {
    let mut cells: Vec<&Fct> = content.cells.iter().collect();
    let group = |cell: &Fct| (cell.size, cell.series.switch_kb, cell.series.tcp.clone());
    cells.sort_by_key(|cell| group(cell));
    let first = |index: usize| index > 0 && group(cells[index - 1]) != group(cells[index]);
    (0..cells.len()).map(|index| (first(index), cells[index])).collect()
}

fn cells(content: &Content<'_>) -> String {
    if content.cells.is_empty() {
        return String::new();
    }
    // A simulation has fast links and no noise, so microseconds are shown.
    let time = |ns: f64| if content.is_simulation { format!("{:.3}", ns / 1e6) } else { ms(ns) };
    let line = |(first, cell): (bool, &Fct)| {
        let gains: Vec<String> = content
            .gains
            .iter()
            .filter(|gain| gain.size == cell.size && cell.series.gains(&gain.series))
            .map(|gain| match gain.series.variant == cell.series.variant {
                true => gain_text(gain),
                false => format!("{} over LL of {}", gain_text(gain), gain.series.variant),
            })
            .collect();
        let late = stats::share_above(&cell.values, stats::TIMED_OUT_NS) * 100.0;
        let audit = match cell.audit_closed {
            Some(true) => "closes",
            Some(false) => "<b>open</b>",
            None => "none",
        };
        let columns = vec![
            cell.size.to_string(),
            policy(content, cell),
            cell.values.len().to_string(),
            time(cell.mean),
            time(cell.p50),
            time(cell.p95),
            time(stats::percentile(&cell.values, 0.99)),
            format!("{late:.0} %"),
            gains.join("<br>"),
            escape(&drops_text(&cell.drops)).replace(", ", "<br>"),
            audit.to_owned(),
        ];
        (first, columns)
    };
    let lines: Vec<_> = by_size(content).into_iter().map(line).collect();
    let headings = [
        "packets",
        "<policy",
        "queries",
        "mean ms",
        "p50",
        "p95",
        "p99",
        "> 150 ms",
        "gain over LL (95 %)",
        "<drops: place, reason, frames",
        "<audit",
    ];
    section("Cells", "", &table(&headings, &lines))
}

fn repairs(content: &Content<'_>) -> String {
    let tcp: Vec<&Row> = rows(content.results, "lab.tcp").collect();
    let names: BTreeSet<String> = tcp.iter().map(|row| text(row, "counter")).collect();
    if names.is_empty() {
        return String::new();
    }
    let line = |(first, cell): (bool, &Fct)| {
        let value = |name: &String| {
            let own =
                tcp.iter().find(|row| view::is_of(row, cell) && text(row, "counter") == *name);
            own.map_or_else(|| "0".to_owned(), |row| number(row.median))
        };
        let head = [cell.size.to_string(), policy(content, cell)];
        (first, head.into_iter().chain(names.iter().map(value)).collect())
    };
    let lines: Vec<_> = by_size(content).into_iter().map(line).collect();
    let headings: Vec<&str> =
        ["packets", "<policy"].into_iter().chain(names.iter().map(String::as_str)).collect();
    section(
        "What TCP had to repair",
        "The kernel's counters, summed over all containers. Retransmissions without a drop are \
         probes and time-outs that were not needed; TCPDSACKRecv counts those that the receiver \
         says it had already.",
        &table(&headings, &lines),
    )
}

fn high_water(content: &Content<'_>) -> String {
    let marks: Vec<&Row> = rows(content.results, "lab.high_water").collect();
    let mut lines = Vec::new();
    let mut before = String::new();
    let mut order: Vec<&&Row> = marks.iter().collect();
    order.sort_by_key(|row| text(row, "place"));
    for row in order {
        let place = text(row, "place");
        let kb = |key: &str| {
            view::number(row, key).map_or_else(|| "–".to_owned(), |bytes| number(bytes / 1e3))
        };
        let limit = view::number(row, "limit_frames").map_or_else(|| "–".to_owned(), number);
        let name = text(row, "policy");
        lines.push((
            !before.is_empty() && place != before,
            vec![
                escape(&place),
                format!("<span class=\"key {0}\"></span>{0}", escape(&name)),
                escape(&text(row, "variant")),
                escape(&text(row, "port")),
                number(row.median),
                limit,
                kb("bytes"),
                kb("limit_bytes"),
            ],
        ));
        before = place;
    }
    if lines.is_empty() {
        return String::new();
    }
    let headings = [
        "<place",
        "<policy",
        "<variant",
        "<fullest port",
        "frames",
        "may hold",
        "KB",
        "may hold KB",
    ];
    section(
        "High-water marks",
        "The most that was ever held at a place of each kind, over all sizes. Memory is not equal \
         between policies: lossless ones hold frames at inputs that lossy ones do not use. An \
         output that holds back has no limit of its own: what waits for it counts at the inputs, \
         too, and is limited there. The kernel ring is the receive ring of a link; \
         under PFC it is the headroom.",
        &table(&headings, &lines),
    )
}

fn pauses(content: &Content<'_>) -> String {
    /// XOFF sent, and nanoseconds paused.
    type Sums = BTreeMap<(String, String), (f64, f64)>;
    let mut sums = Sums::new();
    for row in rows(content.results, "lab.pause") {
        let key = (text(row, "policy"), text(row, "port"));
        let sum = sums.entry(key).or_default();
        sum.0 += row.median;
        sum.1 += view::number(row, "paused_ns").unwrap_or(0.0);
    }
    if sums.is_empty() {
        return String::new();
    }
    let line = |((name, port), (sent, paused)): (&(String, String), &(f64, f64))| {
        let columns = vec![
            format!("<span class=\"key {0}\"></span>{0}", escape(name)),
            escape(port),
            number(*sent),
            ms(*paused),
        ];
        (false, columns)
    };
    let lines: Vec<_> = sums.iter().map(line).collect();
    section(
        "Pauses",
        "Over all sizes. XOFF sent includes refreshes; the time is how long the port's own output \
         was paused by its neighbour.",
        &table(&["<policy", "<port", "XOFF sent", "paused ms"], &lines),
    )
}

fn kernel(content: &Content<'_>) -> String {
    let line = |row: &Row| {
        let columns = vec![
            format!(
                "<span class=\"key {}\"></span>{}",
                escape(&text(row, "policy")),
                escape(&view::Series::of(row).label(false))
            ),
            text(row, "size_packets"),
            escape(&text(row, "counter")),
            number(row.median),
        ];
        (false, columns)
    };
    let lines: Vec<_> = rows(content.results, "lab.kernel").map(line).collect();
    if lines.is_empty() {
        let lead = "Every counter that can hide a loss outside of the switches was read before and \
                    after each cell. None moved.";
        return if content.cells.is_empty() || content.is_simulation {
            String::new()
        } else {
            section("Counters of the kernel", lead, "")
        };
    }
    section(
        "Counters of the kernel",
        "Counters that can hide a loss outside of the switches and that moved.",
        &table(&["<policy", "packets", "<counter", "frames"], &lines),
    )
}

fn checks(content: &Content<'_>) -> String {
    let both = |lab, sim| rows(content.results, lab).chain(rows(content.results, sim));
    let pings = both("lab.ping", "sim.ping").map(|row| {
        let (low, high) =
            (stats::percentile(&row.values, 0.0), stats::percentile(&row.values, 1.0));
        let found = format!(
            "{} of {} answered; {} / {} / {} µs (min, median, max)",
            row.values.len(),
            text(row, "sent"),
            number(low / 1e3),
            number(row.median / 1e3),
            number(high / 1e3)
        );
        (row, "ping", found)
    });
    let transfers = both("tcp_stream", "sim.stream")
        .map(|row| (row, "transfer", format!("{} Mbit/s", number(row.median / 1e6))));
    let lines: Vec<_> = pings
        .chain(transfers)
        .map(|(row, kind, found)| {
            let name = |key: &str| escape(&text(row, key));
            (false, vec![kind.to_owned(), name("from"), name("to"), name("policy"), found])
        })
        .collect();
    let mut page = String::new();
    if !lines.is_empty() {
        let header = ["<check", "<from", "<to", "<policy", "<result"];
        page += &section("Checks", "", &table(&header, &lines));
    }
    let steps: Vec<_> = rows(content.results, "lab.tables")
        .map(|row| {
            let kept = row.median == 0.0;
            let found = if kept { "as it should be" } else { "differs" };
            (!kept, vec![escape(&text(row, "says")), found.to_owned()])
        })
        .collect();
    if !steps.is_empty() {
        page += &section(
            "Tables after each step",
            "Vports, MAC table, tunnels, encap and decap flows of every host.",
            &table(&["<step", "<tables"], &steps),
        );
    }
    page
}

fn settings(content: &Content<'_>) -> String {
    let measure = if content.is_simulation { "sim.settings" } else { "lab.settings" };
    let all: Vec<&Row> = rows(content.results, measure).collect();
    let Some(first) = all.first() else { return String::new() };
    let keys = first.context.keys().filter(|key| *key != "about" && *key != "variant");
    let line = |key: &String| {
        let values = all.iter().map(|row| match text(row, key).as_str() {
            "" => "not set".to_owned(),
            value => escape(value),
        });
        (false, std::iter::once(escape(&key.replace('_', " "))).chain(values).collect())
    };
    let lines: Vec<_> = keys.map(line).collect();
    let variants: Vec<String> =
        all.iter().map(|row| format!("<{}", text(row, "variant"))).collect();
    let headings: Vec<&str> =
        std::iter::once("<setting").chain(variants.iter().map(String::as_str)).collect();
    section("Settings", "", &table(&headings, &lines))
}
