//! `make bench PART=dataplane`: frames between guests through a switch, with peers beside it.
//!
//! | file | content |
//! |---|---|
//! | `machine` | cores, huge pages, priority, and their release |
//! | `subject` | a switch and its guests |
//! | `ovs`, `testpmd`, `sluice` | the start of each of them |
//! | `measure` | the measures |
//!
//! Every round measures every group with every subject, and the first subject changes from round to
//! round: a drift of the machine's speed affects all of them alike. Every round is printed and
//! kept. A group or subject that cannot run here is reported, and the rest goes on.

mod machine;
mod measure;
mod ovs;
mod sluice;
mod subject;
mod testpmd;

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::Value;
use sluice_api::results::{Row, median};
use sluice_testkit::load::Report;

use self::machine::Machine;
use self::measure::GROUPS;
use self::subject::{RING_SIZE, SUBJECTS, Subject};
use crate::report;

/// Extent of the measurements.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds of each figure.
    pub(crate) rounds: usize,
    /// Time before each window, in milliseconds.
    pub(crate) settle_ms: u64,
    /// The window of each figure, in milliseconds.
    pub(crate) window_ms: u64,
    /// Only these groups of rows; all if there are none.
    pub(crate) only: Vec<String>,
    /// Only these subjects; all if there are none.
    pub(crate) subjects: Vec<String>,
}

/// Runs the part.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let groups = chosen(&GROUPS, &plan.only, "group")?;
    let named = SUBJECTS.map(|subject| (subject, subject.name()));
    let subjects = present(chosen(&named, &plan.subjects, "subject")?);
    if let Some(obstacle) = machine::obstacle() {
        eprintln!("SKIPPED all rows: {obstacle}");
        return report::finish("dataplane-part", Vec::new());
    }
    ensure!(!subjects.is_empty(), "there is nobody to measure");
    let machine = Machine::take()?;
    let mut cells = Cells::default();
    for round in 0..plan.rounds {
        for &group in &groups {
            for index in 0..subjects.len() {
                let subject = subjects[(index + round) % subjects.len()];
                if let Err(error) = group.measure(subject, &machine, plan, &mut cells) {
                    eprintln!("NO FIGURE of {} in round {}: {error:#}", subject.name(), round + 1);
                }
            }
        }
    }
    drop(machine);
    cells.show();
    let is_part = !plan.only.is_empty() || !plan.subjects.is_empty();
    // A partial run does not overwrite the results of a full one.
    report::finish(if is_part { "dataplane-part" } else { "dataplane" }, cells.rows())
}

/// Returns the entries with the given names, or all.
fn chosen<T: Copy>(all: &[(T, &str)], names: &[String], what: &str) -> anyhow::Result<Vec<T>> {
    for name in names {
        let known: Vec<&str> = all.iter().map(|&(_, known)| known).collect();
        ensure!(known.contains(&name.as_str()), "no {what} `{name}`; there are {known:?}");
    }
    let is_in = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(all.iter().filter(|(_, name)| is_in(name)).map(|&(one, _)| one).collect())
}

/// Returns the subjects that can run here; the others are reported.
fn present(subjects: Vec<Subject>) -> Vec<Subject> {
    let is_here = |subject: &Subject| match subject.obstacle() {
        None => {
            println!("{}: {}", subject.name(), version(*subject));
            true
        }
        Some(obstacle) => {
            eprintln!("SKIPPED {}: {obstacle}", subject.name());
            false
        }
    };
    subjects.into_iter().filter(is_here).collect()
}

fn version(subject: Subject) -> String {
    match subject {
        Subject::OvsDpdk => ovs::version(),
        Subject::Testpmd => testpmd::version(),
        Subject::Sluice => sluice::version(),
    }
}

/// One figure of one subject, with every round.
#[derive(Clone, Debug)]
struct Cell {
    row: Row,
    lost: u64,
    disordered: u64,
    offered: Vec<f64>,
}

/// All figures so far.
#[derive(Debug, Default)]
struct Cells {
    cells: BTreeMap<String, Cell>,
    order: Vec<String>,
}

/// A cell whose context is being built.
struct Naming<'a> {
    cells: &'a mut Cells,
    row: Row,
}

impl Cells {
    fn cell(&mut self, measure: &str, subject: Subject, unit: &str) -> Naming<'_> {
        let row = Row::new(measure, subject.name(), unit, Vec::new());
        Naming { cells: self, row }
    }

    /// Prints every round of every cell.
    fn show(&self) {
        for cell in self.order.iter().map(|key| &self.cells[key]) {
            let values: Vec<String> =
                cell.row.values.iter().map(|value| format!("{value:.4e}")).collect();
            let setting: Vec<String> =
                cell.row.context.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let (row, lost) = (&cell.row, cell.lost);
            println!(
                "{} {} {}: {} {}, lost {lost}, out of order {}",
                row.measure,
                row.subject,
                setting.join(" "),
                values.join(" "),
                row.unit,
                cell.disordered
            );
        }
    }

    /// Returns the rows of the results, with the context of each measure.
    fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| {
            let values = cell.row.values.clone();
            let mut row = Row::new(&cell.row.measure, &cell.row.subject, &cell.row.unit, values);
            row.context.clone_from(&cell.row.context);
            if cell.offered.is_empty() {
                return row;
            }
            row.with("offered", median(&cell.offered))
                .with("lost", cell.lost)
                .with("out_of_order", cell.disordered)
                .with("ring", RING_SIZE)
        };
        self.order.iter().map(|key| row(&self.cells[key])).collect()
    }
}

impl Naming<'_> {
    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.row = self.row.with(key, value);
        self
    }

    /// Adds a figure of a run, with the lost and offered frames of the run.
    fn add(self, value: f64, report: &Report) {
        let cell = self.find();
        cell.disordered += report.disordered();
        cell.take(value, Some((report.lost(), report.sent_rate())));
    }

    /// Adds a figure of a part of a run.
    fn add_of(self, value: f64, lost: u64, offered: u64) {
        self.find().take(value, Some((lost, offered)));
    }

    /// Adds a figure without a run.
    fn add_plain(self, value: f64) {
        self.find().take(value, None);
    }
}

impl<'a> Naming<'a> {
    fn find(self) -> &'a mut Cell {
        let context = serde_json::to_string(&self.row.context).unwrap_or_default();
        let key = format!("{} {} {context}", self.row.measure, self.row.subject);
        if !self.cells.cells.contains_key(&key) {
            self.cells.order.push(key.clone());
        }
        let row = self.row;
        self.cells.cells.entry(key).or_insert_with(|| Cell {
            row,
            lost: 0,
            disordered: 0,
            offered: Vec::new(),
        })
    }
}

impl Cell {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people, far below 2^53")]
    fn take(&mut self, value: f64, run: Option<(u64, u64)>) {
        self.row.values.push(value);
        if let Some((lost, offered)) = run {
            self.lost += lost;
            self.offered.push(offered as f64);
        }
    }
}
