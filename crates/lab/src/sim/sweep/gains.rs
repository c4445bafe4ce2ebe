//! Gains of cells that ran one policy each.

use std::collections::BTreeMap;

use serde_json::Value;

use super::file::Line;
use crate::results::cell::gain;
use crate::view::{Series, text};

/// The key of a grid that says which policies a cell runs.
const POLICIES: &str = "sim.policies";

/// Adds to each cell without `LL` its gain over the cell that ran `LL` and differs in nothing else.
pub(super) fn add_gains(lines: &mut [Line]) {
    let gains: Vec<Vec<_>> = lines
        .iter()
        .map(|line| {
            let base = lines.iter().find(|other| runs_ll(other) && differ_in_policy(line, other));
            let base = base.filter(|_| !runs_ll(line));
            let own = line.rows.iter().filter(|row| row.measure == "pa.fct");
            own.filter_map(|row| {
                let is_base = |other: &&_| is_base_of(row, other);
                gain(row, base?.rows.iter().find(is_base)?)
            })
            .collect()
        })
        .collect();
    for (line, gains) in lines.iter_mut().zip(gains) {
        line.rows.extend(gains);
    }
}

fn runs_ll(line: &Line) -> bool {
    let policies = line.parameters.get(POLICIES).and_then(Value::as_array);
    policies.is_some_and(|policies| policies.iter().any(|policy| policy == "LL"))
}

fn differ_in_policy(a: &Line, b: &Line) -> bool {
    let others = |line: &Line| -> BTreeMap<String, Value> {
        let all = line.parameters.clone().into_iter();
        all.filter(|(key, _)| key != POLICIES).collect()
    };
    others(a) == others(b)
}

/// Whether a row has the completion times that another one's are a gain over.
fn is_base_of(row: &sluice_api::results::Row, base: &sluice_api::results::Row) -> bool {
    let mut series = Series::of(row);
    "LL".clone_into(&mut series.policy);
    base.measure == "pa.fct"
        && Series::of(base) == series
        && text(base, "size_packets") == text(row, "size_packets")
}
