//! The rows of a part as a drawing: for each measure a bar per subject up to the median, a whisker
//! from the least to the greatest round, and a dot for every round.
//!
//! Rows of one unit share a scale and stand in one panel. Rows that would be too short to be seen
//! have a panel and a scale of their own. Rows with one subject are drawn as well: a bar alone
//! still shows the spread of its rounds.

use std::collections::BTreeMap;
use std::fmt::Write;

use sluice_api::results::Row;

/// Sizes in units of the drawing.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 12.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 12.0;
const GAP: f64 = 8.0;
/// Height of the label above the bars of a group.
const LABEL: f64 = 16.0;
const HEADING: f64 = 34.0;
const LEGEND: f64 = 34.0;
/// Subjects in a line of the legend, and the height of each line after the first one.
const LEGEND_LINE: usize = 5;
const LEGEND_STEP: f64 = 18.0;

/// Styles with as many colours as there are subjects in any part; light and dark.
const STYLE: &str = "
text{font:12px system-ui,sans-serif;fill:#222}.h{font-weight:600}.v{fill:#555}
.w{stroke:#222;stroke-width:1.5}.d{fill:#222}
.s0{fill:#2b6cb0}.s1{fill:#c05621}.s2{fill:#2f855a}
.s3{fill:#6b46c1}.s4{fill:#b83280}.s5{fill:#718096}.s6{fill:#b7791f}.s7{fill:#2c7a7b}
.s8{fill:#97266d}.s9{fill:#4a5568}
@media(prefers-color-scheme:dark){text{fill:#eee}.v{fill:#aaa}.w{stroke:#eee}.d{fill:#eee}
.s0{fill:#63b3ed}.s1{fill:#f6ad55}.s2{fill:#68d391}.s3{fill:#b794f4}.s4{fill:#f687b3}}";
const COLOURS: usize = 10;
/// Rows below this part of a panel's largest value are drawn in another panel.
const SEEN: f64 = 0.05;
/// Settings that are counts of events. They differ between subjects and would separate bars that
/// belong together.
const COUNTS: [&str; 4] = ["lost", "out_of_order", "offered", "bound"];

/// Draws the rows; `None` if there is no row.
pub(super) fn draw(name: &str, rows: &[Row]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let subjects = subjects(rows);
    let mut body = String::new();
    let mut y = legend(&mut body, name, &subjects);
    for (unit, mut groups) in by_unit(rows) {
        while !groups.is_empty() {
            let most = groups.iter().map(largest).fold(0.0, f64::max);
            let (seen, small) = groups.into_iter().partition(|group| largest(group) >= most * SEEN);
            y = panel(&mut body, y, (unit, most), &seen, &subjects);
            groups = small;
        }
    }
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" role=\"img\">\
         <title>{}</title><style>{STYLE}</style>{body}</svg>\n",
        escape(name)
    ))
}

/// Returns the subjects in the order in which they first appear.
fn subjects(rows: &[Row]) -> Vec<&str> {
    let mut subjects: Vec<&str> = Vec::new();
    for row in rows {
        if !subjects.contains(&row.subject.as_str()) {
            subjects.push(&row.subject);
        }
    }
    subjects
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

type Group<'a> = (String, Vec<&'a Row>);
type Groups<'a> = Vec<Group<'a>>;

fn largest(group: &Group<'_>) -> f64 {
    group.1.iter().flat_map(|row| &row.values).fold(0.0, |most, value| most.max(*value))
}

/// Groups rows of the same measure and setting, by unit.
fn by_unit(rows: &[Row]) -> BTreeMap<&str, Groups<'_>> {
    let mut units: BTreeMap<&str, Groups<'_>> = BTreeMap::new();
    for row in rows {
        let (groups, label) = (units.entry(&row.unit).or_default(), label(row));
        match groups.iter_mut().find(|group| group.0 == label) {
            Some(group) => group.1.push(row),
            None => groups.push((label, vec![row])),
        }
    }
    units
}

fn legend(body: &mut String, name: &str, subjects: &[&str]) -> f64 {
    text(body, (LEFT, 20.0), "h", name);
    for (at, subject) in subjects.iter().enumerate() {
        let in_line = subjects.len().min(LEGEND_LINE);
        let (line, column) = (at / LEGEND_LINE, at % LEGEND_LINE);
        let x = 200.0 + column as f64 * (690.0 / in_line as f64).min(138.0);
        let y = line as f64 * LEGEND_STEP;
        rectangle(body, (x, y + 10.0, 12.0, 12.0), at);
        text(body, (x + 18.0, y + 20.0), "", subject);
    }
    let lines_more = subjects.len().saturating_sub(1) / LEGEND_LINE;
    LEGEND + lines_more as f64 * LEGEND_STEP
}

/// Draws rows of one unit whose largest value is given; returns the lower end of the panel.
fn panel(
    body: &mut String,
    top: f64,
    (unit, most): (&str, f64),
    groups: &Groups<'_>,
    subjects: &[&str],
) -> f64 {
    let scale = if most > 0.0 { (WIDTH - LEFT - RIGHT) / most } else { 0.0 };
    text(body, (LEFT, top + 20.0), "h", &format!("{unit}, up to {}", super::human(most)));
    let mut y = top + HEADING;
    for (label, rows) in groups {
        text(body, (LEFT, y + LABEL - 4.0), "", label);
        y += LABEL;
        for row in rows {
            let colour = subjects.iter().position(|subject| *subject == row.subject).unwrap_or(0);
            bar(body, y, row, scale, colour);
            y += BAR;
        }
        y += GAP;
    }
    y + GAP
}

fn bar(body: &mut String, y: f64, row: &Row, scale: f64, colour: usize) {
    let at = |value: f64| LEFT + value.max(0.0) * scale;
    let (low, high) = row
        .values
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
    let _ = write!(
        body,
        "<g><title>{}: {} / {} / {} {}</title>",
        escape(&row.subject),
        super::human(low),
        super::human(row.median),
        super::human(high),
        escape(&row.unit)
    );
    rectangle(body, (LEFT, y + 1.0, row.median.max(0.0) * scale, BAR - 2.0), colour);
    let middle = y + BAR / 2.0;
    let _ = write!(body, "<path class=\"w\" d=\"M{:.1} {middle:.1}H{:.1}\"/>", at(low), at(high));
    for value in &row.values {
        let _ = write!(
            body,
            "<circle class=\"d\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"2\"/>",
            at(*value)
        );
    }
    body.push_str("</g>");
    text(body, (at(high) + 6.0, middle + 4.0), "v", &super::human(row.median));
}

fn rectangle(body: &mut String, (x, y, width, height): (f64, f64, f64, f64), colour: usize) {
    let colour = colour.min(COLOURS - 1);
    let _ = write!(body, "<rect class=\"s{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" ");
    let _ = write!(body, "width=\"{width:.1}\" height=\"{height:.1}\"/>");
}

fn text(body: &mut String, (x, y): (f64, f64), class: &str, text: &str) {
    let _ =
        write!(body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measure: &str, subject: &str, unit: &str, values: &[f64]) -> Row {
        Row::new(measure, subject, unit, values.to_vec()).with("bytes", 64)
    }

    #[test]
    fn every_round_of_every_row_is_drawn() {
        let rows = [
            row("rate", "ours", "M/s", &[2.0, 4.0, 3.0]),
            row("rate", "<theirs>", "M/s", &[1.0]),
            row("late", "ours", "us", &[7.0]),
        ];
        let drawing = draw("part", &rows).unwrap();
        assert_eq!(drawing.matches("<circle").count(), 5);
        assert_eq!(drawing.matches("<text class=\"h\"").count(), 3, "a name and two units");
        // One row of labels for both subjects, and one for the other measure.
        assert_eq!(drawing.matches("bytes 64").count(), 2);
        assert!(drawing.contains("&lt;theirs&gt;") && !drawing.contains("<theirs>"));
        assert!(drawing.contains("ours: 2.0000 / 3.0000 / 4.0000 M/s"), "{drawing}");
    }

    #[test]
    fn chart_largest_value_fills_panel_half_fills_half() {
        let rows = [row("rate", "a", "M/s", &[10.0]), row("rate", "b", "M/s", &[5.0])];
        let drawing = draw("part", &rows).unwrap();
        let whole = WIDTH - LEFT - RIGHT;
        assert!(drawing.contains(&format!("width=\"{whole:.1}\"")));
        assert!(drawing.contains(&format!("width=\"{:.1}\"", whole / 2.0)));
    }

    #[test]
    fn chart_value_below_visible_width_gets_separate_panel() {
        let rows = [
            row("rate", "a", "M/s", &[100.0]),
            row("some", "a", "M/s", &[6.0]),
            row("rest", "a", "M/s", &[4.0, 2.0]),
            row("none", "a", "M/s", &[0.0]),
        ];
        let drawing = draw("part", &rows).unwrap();
        for heading in ["M/s, up to 100", "M/s, up to 4", "M/s, up to 0"] {
            assert!(drawing.contains(heading), "{heading}: {drawing}");
        }
        let whole = WIDTH - LEFT - RIGHT;
        assert!(drawing.contains(&format!("width=\"{:.1}\"", whole * 0.06)), "{drawing}");
        assert_eq!(drawing.matches("<circle").count(), 5);
    }

    #[test]
    fn zeros_and_nothing_are_no_error() {
        assert_eq!(draw("part", &[]), None);
        assert!(draw("part", &[row("lost", "a", "frames", &[0.0, 0.0])]).is_some());
    }
}
