//! The three charts: completion time, gain, drops by place.

use std::collections::BTreeMap;

use sluice_chart::{
    Bar, Bars, Group, Level, Line, Lines, Marker, Part, Point, bar_key, line_key, number,
};

use super::{Content, PUBLISHED, figure};
use crate::view::{self, Series};

/// The classes of places, in the order in which bars are stacked, with their names.
const PLACES: [(&str, &str); 5] = [
    ("vswitch", "virtual switch"),
    ("nic", "host's receive queue"),
    ("tor", "physical switch"),
    ("bridge", "kernel's bridge"),
    ("kernel", "kernel counters"),
];

/// Returns all charts, each in a section of its own.
pub(super) fn all(content: &Content<'_>) -> String {
    if content.cells.is_empty() {
        return String::new();
    }
    let x = if content.sweep {
        "buffer of the physical switch per port, KB"
    } else {
        "size of an answer, full segments"
    };
    let mut page = figure(
        "Completion time of a query",
        "Mean over all queries of a cell, both axes logarithmic. A query ends with the last byte \
         of the last answer.",
        &time(content, x),
        &legend(content, false, content.cells.iter().map(|cell| (&cell.series, cell.size))),
    );
    let gain = gain(content, x);
    if !gain.is_empty() {
        page += &figure(
            "Gain over LL",
            if content.is_simulation {
                "Mean under LL divided by the mean under the policy, with the 95 % bootstrap \
                 interval over the queries of this one seed."
            } else {
                "Mean under LL divided by the mean under the policy, with the 95 % bootstrap \
                 interval. The published figures (zOVN, SIGCOMM 2013) are from other machines and \
                 are drawn for orientation."
            },
            &gain,
            &legend(content, true, content.gains.iter().map(|gain| (&gain.series, gain.size))),
        );
    }
    let places: Vec<String> = PLACES
        .iter()
        .filter(|(class, _)| parts_present(content, class))
        .map(|(class, name)| bar_key(class, name))
        .collect();
    page += &figure(
        "Where frames were dropped",
        "Frames per query, warm-up included in the frames. A virtual switch's drops are those at \
         its queues to containers and to the link; the host's receive queue is what a NIC would \
         drop.",
        &drops(content, x),
        &places.concat(),
    );
    page
}

/// Key of a line: policy, variant, congestion control if there are several, and the size if the
/// horizontal axis shows another quantity.
type Key = (String, String, Option<String>, Option<u64>);

fn key(content: &Content<'_>, series: &Series, size: u64) -> Key {
    let Series { policy, variant, tcp, .. } = series.clone();
    (policy, variant, tcp, content.sweep.then_some(size))
}

fn place(content: &Content<'_>, series: &Series, size: u64) -> f64 {
    let whole = if content.sweep { series.switch_kb.unwrap_or(0) } else { size };
    u32::try_from(whole).map_or(f64::MAX, f64::from)
}

/// Returns the marker of a policy, or of a congestion control if there are several.
fn marker(policy: &str, tcp: Option<&str>) -> Marker {
    match tcp.unwrap_or(policy) {
        "LL" | "reno" => Marker::Square,
        "LZ" | "vegas" => Marker::Triangle,
        "ZL" => Marker::Diamond,
        _ => Marker::Disc,
    }
}

/// Returns true if the variant is drawn dashed: every variant but that of the first cell.
fn dashed(content: &Content<'_>, variant: &str) -> bool {
    content.cells.first().is_some_and(|cell| cell.series.variant != variant)
}

fn lines(content: &Content<'_>, points: Vec<(Key, Point)>) -> Vec<Line> {
    let mut lines: BTreeMap<Key, Vec<Point>> = BTreeMap::new();
    for (key, point) in points {
        lines.entry(key).or_default().push(point);
    }
    let draw = |((policy, variant, tcp, _), mut points): (Key, Vec<Point>)| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let marker = marker(&policy, tcp.as_deref());
        Line { dashed: dashed(content, &variant), marker, class: policy, points }
    };
    lines.into_iter().map(draw).collect()
}

fn time(content: &Content<'_>, x_label: &str) -> String {
    let points = content.cells.iter().filter(|cell| cell.mean > 0.0).map(|cell| {
        let title = format!(
            "{}, {} packets: mean {} ms, p50 {}, p95 {}, {} queries",
            cell.series.label(content.several_variants),
            cell.size,
            number(cell.mean / 1e6),
            number(cell.p50 / 1e6),
            number(cell.p95 / 1e6),
            cell.values.len()
        );
        let x = place(content, &cell.series, cell.size);
        let point = Point { x, y: cell.mean / 1e6, interval: None, title };
        (key(content, &cell.series, cell.size), point)
    });
    Lines {
        x_label: x_label.to_owned(),
        y_label: "mean completion time, ms".to_owned(),
        lines: lines(content, points.collect()),
        levels: Vec::new(),
    }
    .svg()
}

fn gain(content: &Content<'_>, x_label: &str) -> String {
    let points = content.gains.iter().map(|gain| {
        let title = format!(
            "{} over LL, {} packets: {}",
            gain.series.label(content.several_variants),
            gain.size,
            view::gain_text(gain)
        );
        let x = place(content, &gain.series, gain.size);
        let point = Point { x, y: gain.value, interval: Some((gain.low, gain.high)), title };
        (key(content, &gain.series, gain.size), point)
    });
    let shown = if content.is_simulation { &[][..] } else { &PUBLISHED[..] };
    let published = shown.iter().enumerate().map(|(index, (y, name))| Level {
        y: *y,
        name: (*name).to_owned(),
        below: index == 0,
    });
    let even = Level { y: 1.0, name: "1: as LL".to_owned(), below: true };
    Lines {
        x_label: x_label.to_owned(),
        y_label: "gain in mean completion time".to_owned(),
        lines: lines(content, points.collect()),
        levels: published.chain([even]).collect(),
    }
    .svg()
}

/// Returns the dropped frames of a cell by class of place; the kernel's counters are rows of their
/// own.
fn by_place(content: &Content<'_>, cell: &view::Fct) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, frames) in &cell.drops {
        let class = name.split_whitespace().next().unwrap_or("kernel");
        *sums.entry(class.to_owned()).or_default() += frames;
    }
    sums.entry("kernel".to_owned()).or_default();
    let own = view::kernel_lost(content.results, cell);
    *sums.entry("kernel".to_owned()).or_default() += own;
    sums
}

fn parts_present(content: &Content<'_>, class: &str) -> bool {
    content.cells.iter().any(|cell| by_place(content, cell).get(class).is_some_and(|&n| n > 0))
}

fn drops(content: &Content<'_>, x_label: &str) -> String {
    let mut groups: BTreeMap<(u64, &Option<String>), Vec<Bar>> = BTreeMap::new();
    for cell in &content.cells {
        let place = if content.sweep { cell.series.switch_kb.unwrap_or(0) } else { cell.size };
        let queries = u32::try_from(cell.values.len().max(1)).map_or(1.0, f64::from);
        let sums = by_place(content, cell);
        let parts = PLACES.iter().filter_map(|(class, name)| {
            let frames = *sums.get(*class)?;
            let value = u32::try_from(frames).map_or(f64::MAX, f64::from) / queries;
            let title = format!("{name}: {frames} frames, {} per query", number(value));
            (frames > 0).then(|| Part::new(class, value, title))
        });
        let star = if dashed(content, &cell.series.variant) { "*" } else { "" };
        let name = format!("{}{star}", cell.series.policy);
        groups
            .entry((place, &cell.series.tcp))
            .or_default()
            .push(Bar { name, parts: parts.collect() });
    }
    let named = |((place, tcp), bars): ((u64, &Option<String>), Vec<Bar>)| {
        let name = tcp.as_ref().map_or_else(|| place.to_string(), |tcp| format!("{place} {tcp}"));
        Group { name, bars }
    };
    let groups = groups.into_iter().map(named).collect();
    Bars { x_label: x_label.to_owned(), y_label: "frames dropped per query".to_owned(), groups }
        .svg()
}

/// Returns the legend. With `gains`, the variant is that of the `LL` cell which is compared with.
fn legend<'a>(
    content: &Content<'_>,
    gains: bool,
    shown: impl Iterator<Item = (&'a Series, u64)>,
) -> String {
    let mut known: Vec<Key> = Vec::new();
    let mut legend = String::new();
    for (series, size) in shown {
        let key = key(content, series, size);
        if known.contains(&key) {
            continue;
        }
        known.push(key);
        let plain = Series { switch_kb: None, ..series.clone() };
        let class = &plain.policy;
        let label = match gains && content.several_variants {
            true => format!("{} over LL of {}", plain.label(false), plain.variant),
            false => plain.label(content.several_variants),
        };
        let is_dashed = dashed(content, &plain.variant);
        let name = if is_dashed { label + " *" } else { label };
        legend += &line_key(class, is_dashed, marker(class, plain.tcp.as_deref()), &name);
    }
    legend
}
