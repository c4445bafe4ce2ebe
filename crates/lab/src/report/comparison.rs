//! The page that puts a lab run beside its simulation.

use sluice_api::results::Results;
use sluice_chart::{
    Bar, Bars, Group, Line, Lines, Marker, Part, Point, bar_key, escape, line_key, number,
};

use super::tables::{section, table};
use super::{figure, page};
use crate::sim::{Pair, share, with_processor};
use crate::view::{rows, text};

/// Draws the page.
pub(crate) fn html(lab: &Results, sim: &Results, pairs: &[Pair]) -> String {
    let title = format!("Sluice lab and simulation: {}", escape(&lab.name));
    let seed = rows(sim, "sim.settings").next().map(|row| text(row, "seed")).unwrap_or_default();
    let mut body = format!(
        "<h1>{title}</h1>\n<p>The same scenario with the kernel's own TCP in namespaces (lab) and \
         in the simulator (seed {}).</p>\n<p class=\"soft\">lab: {} · commit <code>{}</code><br>\
         simulator: commit <code>{}</code></p>\n",
        escape(&seed),
        escape(&lab.machine),
        escape(lab.commit.get(..12).unwrap_or(&lab.commit)),
        escape(sim.commit.get(..12).unwrap_or(&sim.commit)),
    );
    body += &figure(
        "Without loss",
        "Median completion time of a query under ZZ. Nothing is lost, so that the line rate and \
         the hosts' delays decide.",
        &lines(pairs),
        &legend(),
    );
    body += &figure(
        "With loss",
        "Mean completion time of a query under LL: nearly all of it is time-outs of 200 ms.",
        &bars(pairs, "mean completion time under LL, ms", |pair| {
            pair.mean.map(|(lab, sim)| (lab / 1e6, sim / 1e6))
        }),
        &bar_legend(),
    );
    body += &figure(
        "Time-outs",
        "Retransmission time-outs per query under LL, summed over all connections.",
        &bars(pairs, "time-outs per query under LL", |pair| pair.timeouts),
        &bar_legend(),
    );
    body += &figures(pairs);
    body += &section(
        "The lab's processor",
        "A simulated host takes no processor's time; the lab's hosts share one machine.",
        &format!("<p>{}</p>\n", escape(&share::words(lab, pairs)).replace('\n', "<br>")),
    );
    page(&title, &body)
}

const X_LABEL: &str = "size of an answer, full segments";

fn whole(value: u64) -> f64 {
    u32::try_from(value).map_or(f64::MAX, f64::from)
}

const fn marker(dashed: bool) -> Marker {
    if dashed { Marker::Square } else { Marker::Disc }
}

fn lines(pairs: &[Pair]) -> String {
    let line = |dashed: bool, name: &str| {
        let point = |pair: &Pair| {
            let (lab, sim) = pair.p50?;
            let y = if dashed { lab } else { sim } / 1e6;
            let title = format!("{name}, {} packets: {} ms", pair.size, number(y));
            (y > 0.0).then(|| Point { x: whole(pair.size), y, interval: None, title })
        };
        let points = pairs.iter().filter_map(point).collect();
        Line { class: "ZZ".to_owned(), dashed, marker: marker(dashed), points }
    };
    Lines {
        x_label: X_LABEL.to_owned(),
        y_label: "median completion time under ZZ, ms".to_owned(),
        lines: vec![line(true, "lab"), line(false, "simulation")],
        levels: Vec::new(),
    }
    .svg()
}

/// The classes of the bars of the lab and of the simulation.
const BARS: [(&str, &str); 2] = [("nic", "lab"), ("tor", "simulation")];

fn bars(pairs: &[Pair], y_label: &str, of: impl Fn(&Pair) -> Option<(f64, f64)>) -> String {
    let group = |pair: &Pair| {
        let (lab, sim) = of(pair)?;
        let bar = |((class, name), value): ((&str, &str), f64)| Bar {
            name: if name == "lab" { "lab" } else { "sim" }.to_owned(),
            parts: vec![Part::new(class, value, format!("{name}: {}", number(value)))],
        };
        let bars = BARS.into_iter().zip([lab, sim]).map(bar).collect();
        Some(Group { name: pair.size.to_string(), bars })
    };
    Bars {
        x_label: X_LABEL.to_owned(),
        y_label: y_label.to_owned(),
        groups: pairs.iter().filter_map(group).collect(),
    }
    .svg()
}

fn legend() -> String {
    let entry = |(dashed, name): (bool, &str)| line_key("ZZ", dashed, marker(dashed), name);
    [(true, "lab"), (false, "simulation")].into_iter().map(entry).collect()
}

fn bar_legend() -> String {
    BARS.into_iter().map(|(class, name)| bar_key(class, name)).collect()
}

fn figures(pairs: &[Pair]) -> String {
    let three = |values: Option<(f64, f64)>, unit: f64| match values {
        Some((lab, sim)) => {
            let ratio = if lab > 0.0 { number(sim / lab) } else { "–".to_owned() };
            [number(lab / unit), number(sim / unit), ratio]
        }
        None => ["–", "–", "–"].map(str::to_owned),
    };
    let line = |pair: &Pair| {
        let loss = [three(pair.mean, 1e6), three(pair.timeouts, 1.0)].into_iter().flatten();
        let figures = three(pair.p50, 1e6).into_iter().chain(with_processor(pair)).chain(loss);
        (false, std::iter::once(pair.size.to_string()).chain(figures).collect())
    };
    let lines: Vec<_> = pairs.iter().map(line).collect();
    let headings = [
        "packets",
        "ZZ p50 ms: lab",
        "sim",
        "ratio",
        "processor",
        "with it by lab",
        "LL mean ms: lab",
        "sim",
        "ratio",
        "LL time-outs per query: lab",
        "sim",
        "ratio",
    ];
    section("Figures", "A ratio is the simulation by the lab.", &table(&headings, &lines))
}
