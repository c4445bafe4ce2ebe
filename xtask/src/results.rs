//! `cargo xtask results FILE...`: checks result files against the one results format.
//!
//! Charts and tables are drawn from these files only, so a row with a wrong unit, a forgotten
//! setting or a median of something else must not get into one.

mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Largest relative difference of a stated median from ours: digits lost in printing.
const MEDIAN_ERROR_MAX: f64 = 1e-9;

/// Checks the files. Returns `false` if one of them is wrong.
pub(crate) fn run(files: &[PathBuf]) -> Result<bool> {
    let mut good = true;
    for path in files {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let value: Value =
            serde_json::from_str(&text).with_context(|| format!("{name} is no JSON"))?;
        let problems = check(&value);
        for problem in &problems {
            println!("error: {name}: {problem}");
        }
        good &= problems.is_empty();
        let rows = value["rows"].as_array().map_or(0, Vec::len);
        println!("{name}: {}, {rows} rows", if problems.is_empty() { "ok" } else { "FAILED" });
    }
    Ok(good)
}

/// Returns the problems of a result file.
fn check(file: &Value) -> Vec<String> {
    let Some(object) = file.as_object() else {
        return vec!["it must be an object with name, commit, machine and rows".to_owned()];
    };
    let mut problems = wrong_keys(object, &["name", "commit", "machine", "rows"]);
    problems.extend(["name", "commit", "machine"].into_iter().filter_map(|key| {
        let empty = object.get(key)?.as_str().is_none_or(str::is_empty);
        empty.then(|| format!("`{key}` must be a text that is not empty"))
    }));
    match object.get("rows").map(Value::as_array) {
        Some(Some(rows)) if rows.is_empty() => {
            problems.push("`rows` is empty: nothing was measured".to_owned());
        }
        Some(Some(rows)) => {
            for (index, row) in rows.iter().enumerate() {
                let place = format!("rows[{index}]");
                problems.extend(check_row(row).into_iter().map(|text| format!("{place}: {text}")));
            }
        }
        Some(None) => problems.push("`rows` must be a list".to_owned()),
        None => {}
    }
    problems
}

fn check_row(row: &Value) -> Vec<String> {
    let Some(row) = row.as_object() else { return vec!["it must be an object".to_owned()] };
    const KEYS: [&str; 6] = ["measure", "subject", "unit", "values", "median", "context"];
    let mut problems = wrong_keys(row, &KEYS);
    let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("subject").is_empty() {
        problems.push("`subject` must be `sluice` or the peer's name".to_owned());
    }
    match table::find(text("measure")) {
        Some(measure) => {
            if text("unit") != measure.unit {
                problems.push(format!(
                    "`{}` is measured in {}, not in {:?}",
                    measure.name,
                    measure.unit,
                    text("unit")
                ));
            }
            problems.extend(check_context(row.get("context"), measure));
        }
        None => problems.push(format!(
            "unknown measure {:?}: use one of the table, or add it in xtask/src/results/table.rs \
             and in the design's table of results",
            text("measure")
        )),
    }
    problems.extend(check_values(row.get("values"), row.get("median")));
    problems
}

fn check_context(context: Option<&Value>, measure: &table::Measure) -> Vec<String> {
    let Some(context) = context.and_then(Value::as_object) else {
        return vec!["`context` must be an object".to_owned()];
    };
    // `null` means that a setting is unknown there, such as the audit of a peer's switch.
    let missing = |keys: &[&str]| -> Vec<String> {
        let missing = keys.iter().filter(|key| !context.contains_key(**key));
        missing.map(|key| format!("`context` of `{}` needs `{key}`", measure.name)).collect()
    };
    match measure.or.map(missing) {
        Some(problems) if problems.is_empty() => problems,
        _ => missing(measure.context),
    }
}

fn check_values(values: Option<&Value>, stated: Option<&Value>) -> Option<String> {
    let numbers = values?.as_array().map(|values| values.iter().map(Value::as_f64));
    let Some(numbers) = numbers.and_then(Iterator::collect) else {
        return Some("`values` must be a list of numbers".to_owned());
    };
    let Some(median) = median(numbers) else {
        return Some("`values` is empty: leave the row out if nothing was measured".to_owned());
    };
    let stated = stated.and_then(Value::as_f64);
    let agrees = stated.is_some_and(|stated| {
        (stated - median).abs() <= MEDIAN_ERROR_MAX * median.abs().max(stated.abs())
    });
    (!agrees).then(|| format!("`median` is {stated:?}, the median of `values` is {median}"))
}

/// Returns the median; for an even number of values the mean of the middle two; `None` for no
/// values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(*upper);
    }
    Some(f64::midpoint(values[values.len() / 2 - 1], *upper))
}

/// Returns errors about missing and unknown keys.
fn wrong_keys(object: &Map<String, Value>, keys: &[&str]) -> Vec<String> {
    let missing = keys.iter().filter(|key| !object.contains_key(**key));
    let missing = missing.map(|key| format!("`{key}` is missing"));
    let unknown = object.keys().filter(|key| !keys.contains(&key.as_str()));
    let unknown = unknown.map(|key| format!("`{key}` does not belong there"));
    missing.chain(unknown).collect()
}

#[cfg(test)]
mod tests;
