//! Printing, drawing and keeping results.

mod chart;

use std::fs;
use std::path::Path;

use anyhow::Context;
use comfy_table::Table;
use sluice_api::results::{Results, Row};

/// Prints the rows and writes `target/bench/NAME.json` and `NAME.svg`.
pub(crate) fn finish(name: &str, mut rows: Vec<Row>) -> anyhow::Result<()> {
    // A row without any value was not measured.
    rows.retain(|row| !row.values.is_empty());
    let mut table = Table::new();
    table.set_header(["measure", "subject", "min", "median", "max", "unit", "setting"]);
    for row in &rows {
        let (min, max) = row
            .values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let setting: Vec<String> =
            row.context.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.add_row([
            row.measure.clone(),
            row.subject.clone(),
            human(min),
            human(row.median),
            human(max),
            row.unit.clone(),
            setting.join(" "),
        ]);
    }
    println!("{table}");
    let results = Results {
        name: name.to_owned(),
        commit: crate::machine::commit(),
        machine: crate::machine::describe(),
        rows,
    };
    let path = Path::new("target/bench").join(format!("{name}.json"));
    fs::create_dir_all("target/bench").context("cannot make target/bench")?;
    fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{} rows in {}", results.rows.len(), path.display());
    if let Some(drawing) = chart::draw(name, &results.rows) {
        let path = path.with_extension("svg");
        fs::write(&path, drawing).with_context(|| format!("cannot write {}", path.display()))?;
        println!("drawn in {}", path.display());
    }
    Ok(())
}

fn human(value: f64) -> String {
    if value >= 1e6 {
        format!("{:.2} M", value / 1e6)
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.4}")
    }
}

/// Returns the distribution-free interval of a median from order statistics, at 95 %.
pub(crate) fn interval_of_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n < 6 {
        return (sorted[0], sorted[n - 1]);
    }
    // Ranks n/2 -+ 0.98 sqrt(n), from the normal approximation of the binomial distribution.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let half = 0.98 * (n as f64).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below n")]
    let half = half.ceil() as usize;
    (sorted[(n / 2).saturating_sub(half)], sorted[(n / 2 + half).min(n - 1)])
}
