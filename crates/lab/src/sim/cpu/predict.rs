//! All cells of Tables 4 to 7, published and predicted side by side.

use sluice_sim::cpu::{Params, Policy};

use super::figure::{Basis, Figure, Published, Unit};
use super::params::Testbed;
use super::published::{Rule, SIZES, TABLE_4, TABLE_5, TABLE_5_JAIN, TABLE_6, TABLE_7, share};
use super::testbed::{self, Answer, Question, ask};

/// Row of a table: the context of its figures.
struct Line<'a> {
    table: u8,
    bytes: u64,
    vms: u16,
    mode: &'a str,
    basis: Basis,
}

impl Line<'_> {
    fn add(
        &self,
        all: &mut Vec<Figure>,
        of: impl Into<String>,
        unit: Unit,
        (published, predicted): (Published, f64),
    ) {
        all.push(Figure {
            table: self.table,
            bytes: self.bytes,
            vms: self.vms,
            mode: self.mode.to_owned(),
            of: of.into(),
            unit,
            published,
            predicted,
            basis: self.basis,
        });
    }
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
    let mut all = table_4(testbed, params)?;
    let mut later = Vec::new();
    for bytes in SIZES {
        let offered = testbed::whole(testbed.offered_bps(bytes)) / 1e6;
        for rule in [Rule::Default, Rule::Rss, Rule::VsExtend] {
            let two = ask(testbed, params, &question(rule, bytes, 2, seeds))?;
            table_5(&mut all, rule, bytes, &two);
            table_6(&mut later, rule, bytes, &two, offered);
        }
    }
    all.append(&mut later);
    for row in TABLE_7 {
        let (bytes, rule, _, _) = row;
        let mut question = question(rule, bytes, 3, seeds);
        table_7(&mut all, &row, Basis::Predicted, &ask(testbed, params, &question)?);
        if rule == Rule::VsExtend {
            question.is_guarded = false;
            table_7(&mut later, &row, Basis::Plain, &ask(testbed, params, &question)?);
        }
    }
    all.append(&mut later);
    Ok(all)
}

fn table_4(testbed: &Testbed, params: &Params) -> anyhow::Result<Vec<Figure>> {
    let mut all = Vec::new();
    for (case, row) in TABLE_4 {
        let vms = u16::try_from(case.cores().len())?;
        for (bytes, cell) in SIZES.into_iter().zip(row) {
            let mbps = testbed::table_4(testbed, params, case, bytes)?;
            let line = Line { table: 4, bytes, vms, mode: case.name(), basis: Basis::Fitted };
            line.add(&mut all, "all", Unit::Mbps, (cell.into(), mbps));
        }
    }
    Ok(all)
}

/// Adds each core's count and share, and Jain's index of RSS.
fn table_5(all: &mut Vec<Figure>, rule: Rule, bytes: u64, answer: &Answer) {
    // The testbed says which core has the work of `default`, and that of fragments under RSS.
    let is_given = rule == Rule::Default || (rule == Rule::Rss && bytes == 8192);
    let basis = if is_given { Basis::Given } else { Basis::Predicted };
    let line = Line { table: 5, bytes, vms: 2, mode: rule.name(), basis };
    let cells = TABLE_5.iter().find(|row| (row.0, row.1) == (bytes, rule)).map(|row| row.2);
    let sum: f64 = answer.pieces_per_second.iter().sum();
    for (core, cell) in cells.into_iter().flatten().enumerate() {
        let rate = answer.pieces_per_second[core];
        let known = share(bytes, rule, core).map_or(Published::Unknown, Published::Derived);
        let of = format!("core {core}");
        line.add(all, of.as_str(), Unit::Share, (known, 100.0 * rate / sum));
        let count = match Published::from(cell) {
            Published::Printed(value) if value > 0.0 => Published::Incomparable(value),
            other => other,
        };
        line.add(all, of, Unit::Count, (count, rate / 1e6));
    }
    if rule == Rule::Rss {
        for (_, jain) in TABLE_5_JAIN.iter().filter(|row| row.0 == bytes) {
            let pair = (Published::Derived(*jain), testbed::jain(&answer.pieces_per_second));
            line.add(all, "Jain", Unit::Jain, pair);
        }
    }
}

/// Adds each machine's loss, and what it receives: what is offered to it less the loss.
fn table_6(all: &mut Vec<Figure>, rule: Rule, bytes: u64, answer: &Answer, offered: f64) {
    let mut line = Line { table: 6, bytes, vms: 2, mode: rule.name(), basis: Basis::Predicted };
    let rows = TABLE_6.iter().filter(|row| (row.0, row.1) == (bytes, rule));
    for (_, _, loss) in rows {
        line.basis = Basis::Predicted;
        for (vm, percent) in loss.iter().enumerate() {
            let pair = (Published::Printed(*percent), answer.loss[vm]);
            line.add(all, format!("VM{}", vm + 1), Unit::Loss, pair);
        }
        line.basis = Basis::Repeated;
        let received = loss.map(|percent| offered * (1.0 - percent / 100.0));
        for (vm, mbps) in received.iter().enumerate() {
            let pair = (Published::Derived(*mbps), answer.throughput[vm]);
            line.add(all, format!("VM{}", vm + 1), Unit::Mbps, pair);
        }
        let pair = (Published::Derived(received.iter().sum()), answer.total());
        line.add(all, "all", Unit::Mbps, pair);
    }
}

type Row7 = (u64, Rule, f64, [super::published::Cell; 3]);

/// Adds each machine's throughput, the sum, and the sum of those that are not known one by one.
fn table_7(all: &mut Vec<Figure>, row: &Row7, basis: Basis, answer: &Answer) {
    let (bytes, rule, total, cells) = *row;
    let line = Line { table: 7, bytes, vms: 3, mode: rule.name(), basis };
    line.add(all, "all", Unit::Mbps, (Published::Printed(total), answer.total()));
    for (vm, cell) in cells.into_iter().enumerate() {
        let pair = (cell.into(), answer.throughput[vm]);
        line.add(all, format!("VM{}", vm + 1), Unit::Mbps, pair);
    }
    let known: f64 = cells.iter().filter_map(|cell| cell.value()).sum();
    let unknown: Vec<usize> = (0..cells.len()).filter(|vm| cells[*vm].value().is_none()).collect();
    if unknown.len() > 1 && unknown.len() < cells.len() {
        let names: Vec<String> = unknown.iter().map(|vm| format!("VM{}", vm + 1)).collect();
        let predicted = unknown.iter().map(|vm| answer.throughput[*vm]).sum();
        let pair = (Published::Derived(total - known), predicted);
        line.add(all, names.join(" and "), Unit::Mbps, pair);
    }
}
