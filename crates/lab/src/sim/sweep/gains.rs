//! Gains of cells that ran one policy each.

use serde_json::Value;
use sluice_api::results::Row;

use super::differ::{POLICIES, differ_in_policy};
use super::file::Line;
use crate::results::gain;
use crate::view::{Series, text};

/// Adds to each cell without `LL` its gain over the cell that ran `LL` and differs in nothing else.
pub(super) fn add_gains(lines: &mut [Line]) {
    let gains: Vec<Vec<Row>> = lines.iter().map(|line| gains_of(line, lines)).collect();
    for (line, gains) in lines.iter_mut().zip(gains) {
        line.rows.extend(gains);
    }
}

fn gains_of(line: &Line, lines: &[Line]) -> Vec<Row> {
    // A cell that ran `LL` has its own gains.
    if runs_ll(line) {
        return Vec::new();
    }
    let is_base = |other: &&Line| runs_ll(other) && differ_in_policy(line, other);
    let Some(base) = lines.iter().find(is_base) else { return Vec::new() };
    let own = line.rows.iter().filter(|row| row.measure == "pa.fct");
    own.filter_map(|row| gain(row, base.rows.iter().find(|other| is_base_of(row, other))?))
        .collect()
}

fn runs_ll(line: &Line) -> bool {
    let policies = line.parameters.get(POLICIES).and_then(Value::as_array);
    policies.is_some_and(|policies| policies.iter().any(|policy| policy == "LL"))
}

/// Returns true if `base` has the completion times that `row` is compared with.
fn is_base_of(row: &Row, base: &Row) -> bool {
    let mut series = Series::of(row);
    "LL".clone_into(&mut series.policy);
    base.measure == "pa.fct"
        && Series::of(base) == series
        && text(base, "size_packets") == text(row, "size_packets")
}
