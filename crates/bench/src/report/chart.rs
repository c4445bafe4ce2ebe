//! The rows of a part as a drawing: a bar per subject for each measure and setting.

use sluice_api::results::Row;
use sluice_chart::{Spread, Spreads};

/// Settings that are counts of events. They differ between subjects and would separate bars that
/// belong together.
const COUNTS: [&str; 4] = ["lost", "out_of_order", "offered", "bound"];

/// Draws the rows; `None` if there is no row.
pub(super) fn draw(name: &str, rows: &[Row]) -> Option<String> {
    let spreads = rows.iter().map(spread).collect();
    Spreads { title: name, spreads, print: super::human }.svg()
}

fn spread(row: &Row) -> Spread<'_> {
    let Row { subject, unit, values, median, .. } = row;
    Spread { label: label(row), subject, unit, values, median: *median }
}

/// Returns the measure and its setting. Fractions and large numbers are results beside the figure,
/// and stand in the table only.
fn label(row: &Row) -> String {
    let is_setting = |value: &serde_json::Value| {
        value.as_f64().is_none_or(|number| number < 1e5 && number.fract() == 0.0)
    };
    let setting: Vec<String> = row
        .context
        .iter()
        .filter(|(key, value)| is_setting(value) && !COUNTS.contains(&key.as_str()))
        .map(|(key, value)| match value.as_str() {
            Some(text) => format!("{key} {text}"),
            None => format!("{key} {value}"),
        })
        .collect();
    format!("{} {}", row.measure, setting.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, values: &[f64]) -> Row {
        Row::new("rate", subject, "M/s", values.to_vec()).with("bytes", 64)
    }

    #[test]
    fn subjects_of_one_setting_share_label() {
        let ours = row("ours", &[2.0, 4.0, 3.0]).with("lost", 7).with("share", 0.5);
        let drawing = draw("part", &[ours, row("theirs", &[1.0])]).unwrap();
        assert_eq!(drawing.matches(">rate bytes 64<").count(), 1, "{drawing}");
        assert!(drawing.contains("ours: 2.0000 / 3.0000 / 4.0000 M/s"), "{drawing}");
    }

    #[test]
    fn part_without_rows_has_no_drawing() {
        assert_eq!(draw("part", &[]), None);
    }
}
