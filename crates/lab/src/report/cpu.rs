//! The pages of `sluice sim cpu`: the paper's tables beside the model's, and the comparison.

use sluice_chart::{Bar, Bars, Group, Part, bar_key, escape, number};
use sluice_sim::cpu::Policy;

use super::{figure, page};
use crate::sim::cpu::compare::{Comparison, policy_name};
use crate::sim::cpu::figure::{Basis, Figure, Unit};
use crate::sim::cpu::fit::Fit;
use crate::sim::cpu::published::{Rule, SIZES, TABLE_7};
use crate::sim::cpu::text::{self, Grid};
use crate::sim::cpu::vary::Varied;

const PAPER: &str = "nic";
const MODEL: &str = "tor";
const FIRST: &str = "ZZ";
const OTHERS: &str = "tor";

fn legend(entries: &[(&str, &str)]) -> String {
    entries.iter().map(|(class, name)| bar_key(class, name)).collect()
}

fn grid(title: &str, grid: &Grid) -> String {
    let cell = |tag: &str, at: usize, text: &str| {
        let class = if at == 0 { " class=\"l\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escape(text))
    };
    let line = |tag: &str, words: &[String]| {
        let cells = words.iter().enumerate().map(|(at, text)| cell(tag, at, text));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let head: Vec<String> = grid.head.iter().map(|&text| text.to_owned()).collect();
    let body: String = grid.lines.iter().map(|words| line("td", words)).collect();
    format!(
        "<section><h2>{title}</h2><div class=\"scroll\"><table><thead>{}</thead>\
         <tbody>{body}</tbody></table></div></section>\n",
        line("th", &head)
    )
}

fn whole(title: &str, about: &str, rest: &str) -> String {
    let about = format!("<h1>{title}</h1>\n<p class=\"banner\">{about}</p>\n");
    page(title, &(about + rest))
}

fn pair(published: f64, model: f64, unit: &str) -> Vec<Bar> {
    let bar = |class: &str, name: &str, value: f64| Bar {
        name: String::new(),
        parts: vec![Part::new(class, value, format!("{name}: {} {unit}", number(value)))],
    };
    vec![bar(PAPER, "paper", published), bar(MODEL, "model", model)]
}

/// Returns a rule's name, shortened to fit below a bar.
fn short(mode: &str) -> &str {
    if mode == Rule::VsExtend.name() { "vse" } else { mode }
}

const BOTH: [(&str, &str); 2] = [(PAPER, "paper"), (MODEL, "model")];

pub(crate) fn fit(found: &Fit) -> String {
    let group = |cell: &crate::sim::cpu::fit::Cell| Group {
        name: format!("{} B", cell.bytes),
        bars: pair(cell.published, cell.simulated, "Mbit/s"),
    };
    let charts: String = [
        "two flows, one core",
        "two flows, two cores",
        "flow on its VM's core",
        "flow on a free core",
    ]
    .iter()
    .map(|case| {
        let cells = found.cells.iter().filter(|cell| cell.case.name() == *case);
        let svg = Bars {
            x_label: "payload of a datagram".to_owned(),
            y_label: "Mbit/s".to_owned(),
            groups: cells.map(group).collect(),
        }
        .svg();
        figure(case, "Table 4 and what the fitted parameters give.", &svg, &legend(&BOTH))
    })
    .collect();
    let table = grid("Table 4", &text::fit_grid(found));
    whole("VS-extend: the fit", "Parameters are fitted to Table 4 alone.", &(charts + &table))
}

pub(crate) fn predict(figures: &[Figure]) -> String {
    let chart = |table: u8, of: &str, unit: Unit, y_label: &str| {
        let is = |f: &&Figure| {
            f.table == table && f.of == of && f.unit == unit && f.basis != Basis::Plain
        };
        let group = |f: &Figure| {
            let name = format!("{} {}", short(&f.mode), f.bytes);
            let bars = pair(f.published.value()?, f.predicted, f.unit.symbol());
            Some(Group { name, bars })
        };
        Bars {
            x_label: "rule, payload of a datagram in bytes".to_owned(),
            y_label: y_label.to_owned(),
            groups: figures.iter().filter(is).filter_map(group).collect(),
        }
        .svg()
    };
    let charts = [
        ("Throughput of three VMs", "Table 7: the sum of all three.", (7, "all", Unit::Mbps)),
        ("Throughput of VM1, of high priority", "Table 7.", (7, "VM1", Unit::Mbps)),
        ("Throughput of VM2 and VM3", "Table 7: all less VM1.", (7, "VM2 and VM3", Unit::Mbps)),
        ("Loss of VM1", "Table 6: datagrams lost of two VMs.", (6, "VM1", Unit::Loss)),
        ("Loss of VM2", "Table 6: datagrams lost of two VMs.", (6, "VM2", Unit::Loss)),
        (
            "Throughput of two VMs",
            "Of the paper: what is offered, less the losses of Table 6.",
            (6, "all", Unit::Mbps),
        ),
    ];
    let legend = legend(&BOTH);
    let mut body = grid("Errors", &text::summary_grid(figures));
    for (title, caption, (table, of, unit)) in charts {
        let label = if unit == Unit::Loss { "loss, %" } else { "Mbit/s" };
        body += &figure(title, caption, &chart(table, of, unit, label), &legend);
    }
    for (table, name) in text::TABLES {
        body += &grid(name, &text::predict_grid(figures, table));
    }
    let about = "Every cell of Tables 4 to 7, with parameters of Table 4.";
    whole("VS-extend: published and predicted", about, &body)
}

/// Returns a bar with VM1 below and the others above.
fn stack(name: &str, first: f64, total: f64) -> Bar {
    let part = |class: &str, value: f64, who: &str| {
        Part::new(class, value, format!("{name}, {who}: {} Mbit/s", number(value)))
    };
    Bar {
        name: name.to_owned(),
        parts: vec![part(FIRST, first, "VM1"), part(OTHERS, (total - first).max(0.0), "others")],
    }
}

fn throughput(found: &Comparison, vms: u16, policy: Policy, bytes: u64) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (size, rule, total, cells) in TABLE_7 {
        if vms == 3 && size == bytes {
            let name = if rule == Rule::Rss { "rss*" } else { "vse*" };
            bars.push(stack(name, cells[0].value().unwrap_or(0.0), total));
        }
    }
    let rules = [
        (Rule::Rss, false, "rss"),
        (Rule::RssPlusPlus, false, "rss++"),
        (Rule::VsExtend, true, "vse"),
        (Rule::Adaptive, false, "adapt."),
        (Rule::Adaptive, true, "guard"),
    ];
    for (rule, guard, name) in rules {
        if let Some(answer) = found.of(rule, bytes, vms, policy, guard) {
            bars.push(stack(name, answer.throughput[0], answer.total()));
        }
    }
    bars
}

pub(crate) fn compare(found: &Comparison) -> String {
    let legend = legend(&[(FIRST, "VM1, of high priority"), (OTHERS, "the others")]);
    let mut body = grid("Targets", &text::targets_grid(found));
    for vms in [3, 6] {
        for policy in [Policy::Drop, Policy::Hold] {
            for bytes in SIZES.into_iter().filter(|bytes| *bytes > 64) {
                let name = format!("{bytes} bytes");
                let svg = Bars {
                    x_label: "rule".to_owned(),
                    y_label: format!("Mbit/s of {vms} VMs"),
                    groups: vec![Group { name, bars: throughput(found, vms, policy, bytes) }],
                }
                .svg();
                let title = format!("{vms} VMs, {bytes} bytes, no room: {}", policy_name(policy));
                let caption = "rss* and vse* are the paper's figures, which drop. guard: adaptive, \
                               and VM1's core does no tunnel work; vse is guarded too.";
                body += &figure(&title, caption, &svg, &legend);
            }
        }
    }
    body += &grid("All runs", &text::runs_grid(found));
    let about = "Decided by the product's own placement, with parameters of Table 4.";
    whole("VS-extend: the comparison", about, &body)
}

pub(crate) fn vary(all: &[Varied]) -> String {
    let bar = |v: &Varied, at: usize| {
        let value = v.over_rss[at];
        let moved = v.value.map(|value| format!(" = {value}")).unwrap_or_default();
        let title = format!("{}{moved}: {}", v.name, number(value));
        Bar { name: String::new(), parts: vec![Part::new(MODEL, value, title)] }
    };
    let mut body = String::new();
    for (at, bytes, least) in [(0, 1400, 1.50), (1, 8192, 6.87)] {
        let svg = Bars {
            x_label: "each parameter less and more by half; the first bar is as fitted".to_owned(),
            y_label: "adaptive (hold) over rss (drop)".to_owned(),
            groups: vec![Group {
                name: String::new(),
                bars: all.iter().map(|v| bar(v, at)).collect(),
            }],
        }
        .svg();
        let caption = format!("Needed: {least}. In the order of the table below.");
        body += &figure(&format!("3 VMs, {bytes} bytes"), &caption, &svg, "");
    }
    body += &grid("Each parameter less and more by half", &text::vary_grid(all));
    whole("VS-extend: moved parameters", "Parameters of Table 4, one moved at a time.", &body)
}
