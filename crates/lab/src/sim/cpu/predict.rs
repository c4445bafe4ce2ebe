//! Tables 5, 6 and 7, published and predicted side by side.

use sluice_api::results::median;
use sluice_sim::cpu::{Params, Policy};

use super::params::Testbed;
use super::published::{
    Rule, SIZES, TABLE_5_JAIN, TABLE_5_PROPOSAL, TABLE_5_RSS_8192, TABLE_6, TABLE_7,
};
use super::testbed::{Answer, Question, ask};

/// A figure of the paper beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) table: u8,
    pub(crate) bytes: u64,
    pub(crate) vms: u16,
    pub(crate) rule: Rule,
    /// Subject of the figure: `VM1`, `core 2`, `all`, `Jain`.
    pub(crate) of: String,
    pub(crate) unit: &'static str,
    pub(crate) published: f64,
    pub(crate) predicted: f64,
    /// False if the figure follows from the testbed's parameters and is no prediction.
    pub(crate) is_counted: bool,
}

impl Figure {
    /// Returns the error relative to the published value, in hundredths; none if that value is
    /// zero.
    pub(crate) fn error(&self) -> Option<f64> {
        let far = (self.predicted - self.published).abs();
        (self.published > 0.0).then(|| 100.0 * far / self.published)
    }
}

/// Returns the median error of the counted figures of a table, and their number; `None`: of all
/// tables.
pub(crate) fn median_error(figures: &[Figure], table: Option<u8>) -> (f64, usize) {
    let of_table = |figure: &&Figure| table.is_none_or(|table| figure.table == table);
    let counted = figures.iter().filter(|figure| figure.is_counted).filter(of_table);
    let errors: Vec<f64> = counted.filter_map(Figure::error).collect();
    (median(&errors), errors.len())
}

/// Returns the median error of the losses in Table 6, in percentage points.
pub(crate) fn median_points(figures: &[Figure]) -> f64 {
    let loss = figures.iter().filter(|figure| figure.table == 6);
    median(&loss.map(|f| (f.predicted - f.published).abs()).collect::<Vec<_>>())
}

fn question(rule: Rule, bytes: u64, vms: u16, seeds: u64) -> Question {
    let has_priority = vms > 2;
    // The seed matters much only if a hash decides.
    let seeds = if rule == Rule::Rss { seeds } else { seeds.min(4) };
    Question {
        rule,
        bytes,
        vms,
        has_priority,
        is_guarded: has_priority,
        policy: Policy::Drop,
        seeds,
    }
}

/// Returns all figures, in the order of the tables.
pub(crate) fn figures(
    testbed: &Testbed,
    params: &Params,
    seeds: u64,
) -> anyhow::Result<Vec<Figure>> {
    let mut all = Vec::new();
    let mut later = Vec::new();
    for bytes in SIZES {
        for rule in [Rule::Default, Rule::Rss, Rule::VsExtend] {
            let two = ask(testbed, params, &question(rule, bytes, 2, seeds))?;
            table_5(&mut all, rule, bytes, &two);
            for (_, _, loss) in TABLE_6.iter().filter(|row| (row.0, row.1) == (bytes, rule)) {
                for (vm, published) in loss.iter().enumerate() {
                    let of = format!("VM{}", vm + 1);
                    let figure = (of, "%", *published, two.loss[vm], true);
                    later.push(make(6, rule, bytes, 2, figure));
                }
            }
        }
    }
    all.append(&mut later);
    for (bytes, rule, total, first) in TABLE_7 {
        let three = ask(testbed, params, &question(rule, bytes, 3, seeds))?;
        let sum = ("all".to_owned(), "Mbit/s", total, three.total(), true);
        all.push(make(7, rule, bytes, 3, sum));
        let first = first.map(|published| {
            make(
                7,
                rule,
                bytes,
                3,
                ("VM1".to_owned(), "Mbit/s", published, three.throughput[0], true),
            )
        });
        all.extend(first);
    }
    Ok(all)
}

type Values = (String, &'static str, f64, f64, bool);

fn make(table: u8, rule: Rule, bytes: u64, vms: u16, values: Values) -> Figure {
    let (of, unit, published, predicted, is_counted) = values;
    Figure { table, bytes, vms, rule, of, unit, published, predicted, is_counted }
}

fn table_5(all: &mut Vec<Figure>, rule: Rule, bytes: u64, answer: &Answer) {
    let mut add = |of: &str, unit, published, predicted, is_counted| {
        all.push(make(5, rule, bytes, 2, (of.to_owned(), unit, published, predicted, is_counted)));
    };
    match rule {
        Rule::Default => add("core 3", "%", 100.0, answer.softirq[3], false),
        Rule::Rss => {
            let is_fragments = bytes == 8192;
            for (_, jain) in TABLE_5_JAIN.iter().filter(|row| row.0 == bytes) {
                add("Jain", "", *jain, answer.jain(), !is_fragments);
            }
            if is_fragments {
                add("core 0", "%", TABLE_5_RSS_8192, answer.softirq[0], false);
            }
        }
        // The paper's figure is available for one size only.
        Rule::VsExtend if bytes == 1400 => {
            for (core, published) in TABLE_5_PROPOSAL.iter().enumerate() {
                let is_counted = *published > 0.0;
                add(&format!("core {core}"), "%", *published, answer.softirq[core], is_counted);
            }
        }
        _ => {}
    }
}
