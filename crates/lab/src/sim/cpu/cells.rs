//! Cells of the paper's tables as rows of a result file, and back.
//!
//! Text, page and drawings are made of figures alone, so that a kept file gives what the command
//! gave that wrote it.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sluice_api::results::{Results, Row};

use super::figure::{Basis, Figure, Published, Unit};
use super::rows;

/// Returns measure, unit and the factor from a figure's unit to the row's.
const fn measure(unit: Unit) -> (&'static str, &'static str, f64) {
    match unit {
        Unit::Mbps => ("throughput", "bit/s", rows::MBIT),
        Unit::Loss => ("loss", "ratio", 0.01),
        Unit::Share => ("vs-extend.softirq_share", "ratio", 0.01),
        Unit::Jain => ("vs-extend.jain", "ratio", 1.0),
        Unit::Count => ("softirq", "count", 1e6),
    }
}

/// Returns the row of a figure.
pub(super) fn row(figure: &Figure) -> Row {
    let (name, unit, scale) = measure(figure.unit);
    let of = (figure.bytes, figure.mode.as_str(), figure.vms);
    let row = rows::cell(name, unit, vec![figure.predicted * scale], of);
    let of = figure.of.as_str();
    let row = match (of.strip_prefix("core "), of.strip_prefix("VM")) {
        (Some(core), _) => row.with("core", core),
        (None, Some(vm)) if vm.parse::<u16>().is_ok() => row.with("vm", vm),
        _ => row.with("vm", of),
    };
    let why = match (figure.published.why_not(), figure.error()) {
        (None, None) => Some("the paper's value is zero"),
        (why, _) => why,
    };
    row.with("table", figure.table)
        .with("of", of)
        .with("published", json!(figure.published.value().map(|value| value * scale)))
        .with("value", figure.published.word())
        .with("basis", figure.basis.word())
        .with("error", json!(figure.error().map(|percent| percent / 100.0)))
        .with("off", json!(figure.off().map(|off| off * scale)))
        .with("why_no_error", json!(why))
}

/// Returns the figures of a result file of `predict`.
///
/// # Errors
///
/// The file has no figure of a table, or a row of one that this program does not write.
pub(crate) fn figures(results: &Results) -> anyhow::Result<Vec<Figure>> {
    let rows = results.rows.iter().filter(|row| row.context.contains_key("basis"));
    let read = |row: &Row| {
        figure(row).with_context(|| {
            let context = json!(row.context);
            format!("{} {context}: no cell as `sluice sim cpu predict` writes it", row.measure)
        })
    };
    let all = rows.map(read).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!all.is_empty(), "no cells: give a result.json of `sluice sim cpu predict`");
    Ok(all)
}

fn figure(row: &Row) -> Option<Figure> {
    let text = |key: &str| row.context.get(key).and_then(Value::as_str);
    let number = |key: &str| row.context.get(key).and_then(Value::as_u64);
    let unit = Unit::ALL.into_iter().find(|unit| measure(*unit).0 == row.measure)?;
    let scale = measure(unit).2;
    let published = row.context.get("published").and_then(Value::as_f64);
    Some(Figure {
        table: number("table")?.try_into().ok()?,
        bytes: number("frame_bytes")?,
        vms: number("vms")?.try_into().ok()?,
        mode: text("mode")?.to_owned(),
        of: text("of")?.to_owned(),
        unit,
        published: Published::from_word(text("value")?, published.map(|value| value / scale))?,
        predicted: row.values.first()? / scale,
        basis: Basis::ALL.into_iter().find(|basis| Some(basis.word()) == text("basis"))?,
    })
}

#[cfg(test)]
mod tests;
