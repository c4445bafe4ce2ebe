//! A drawing of measurements: for each a bar up to the median, a whisker from the least to the
//! greatest value, and a dot for every value.
//!
//! Measurements of one unit share a scale and stand in one panel. Those that would be too short to
//! be seen have a panel and a scale of their own. A bar alone still shows the spread of its values.

use std::collections::BTreeMap;

use crate::number::count;
use crate::svg::{Anchor, Svg, round};

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
/// Left edge of the legend, and the room of a subject in it.
const LEGEND_LEFT: f64 = 200.0;
const LEGEND_ROOM: f64 = 138.0;

/// Style with ten colours for subjects; light and dark.
const STYLE: &str = "
text{font:12px system-ui,sans-serif;fill:#222}.h{font-weight:600}.v{fill:#555}
.w{stroke:#222;stroke-width:1.5}.d{fill:#222}
.s0{fill:#2b6cb0}.s1{fill:#c05621}.s2{fill:#2f855a}
.s3{fill:#6b46c1}.s4{fill:#b83280}.s5{fill:#718096}.s6{fill:#b7791f}.s7{fill:#2c7a7b}
.s8{fill:#97266d}.s9{fill:#4a5568}
@media(prefers-color-scheme:dark){text{fill:#eee}.v{fill:#aaa}.w{stroke:#eee}.d{fill:#eee}
.s0{fill:#63b3ed}.s1{fill:#f6ad55}.s2{fill:#68d391}.s3{fill:#b794f4}.s4{fill:#f687b3}}";
const COLOURS: usize = 10;
/// Measurements below this part of a panel's largest value are drawn in another panel.
const SEEN: f64 = 0.05;

/// A drawing of measurements, as a file of its own.
#[derive(Debug)]
pub struct Spreads<'a> {
    /// Its title.
    pub title: &'a str,
    /// The measurements; those with one label and unit stand together.
    pub spreads: Vec<Spread<'a>>,
    /// Prints a value.
    pub print: fn(f64) -> String,
}

/// A measurement.
#[derive(Clone, Debug)]
pub struct Spread<'a> {
    /// Text above its group.
    pub label: String,
    /// The thing that was measured: it has a colour.
    pub subject: &'a str,
    /// Unit of the values.
    pub unit: &'a str,
    /// All values.
    pub values: &'a [f64],
    /// Their median.
    pub median: f64,
}

/// Measurements of one label.
type Group<'a> = Vec<&'a Spread<'a>>;

impl Spreads<'_> {
    /// Draws the measurements; `None` if there are none.
    #[must_use]
    pub fn svg(&self) -> Option<String> {
        if self.spreads.is_empty() {
            return None;
        }
        let mut svg = Svg::default();
        let subjects = self.subjects();
        let mut y = self.legend(&mut svg, &subjects);
        for (unit, mut groups) in self.by_unit() {
            while !groups.is_empty() {
                let most = groups.iter().map(largest).fold(0.0, f64::max);
                let (seen, small): (Vec<_>, Vec<_>) =
                    groups.into_iter().partition(|group| largest(group) >= most * SEEN);
                y = self.panel(&mut svg, y, (unit, most), &seen, &subjects);
                groups = small;
            }
        }
        Some(svg.file((WIDTH, y), self.title, STYLE))
    }

    /// Returns the subjects in the order in which they first appear.
    fn subjects(&self) -> Vec<&str> {
        let mut subjects: Vec<&str> = Vec::new();
        for spread in &self.spreads {
            if !subjects.contains(&spread.subject) {
                subjects.push(spread.subject);
            }
        }
        subjects
    }

    /// Groups measurements of one label, by unit.
    fn by_unit(&self) -> BTreeMap<&str, Vec<Group<'_>>> {
        let mut units: BTreeMap<&str, Vec<Group<'_>>> = BTreeMap::new();
        for spread in &self.spreads {
            let groups = units.entry(spread.unit).or_default();
            match groups.iter_mut().find(|group| group[0].label == spread.label) {
                Some(group) => group.push(spread),
                None => groups.push(vec![spread]),
            }
        }
        units
    }

    /// Draws the title and the subjects; returns the lower end of the legend.
    fn legend(&self, svg: &mut Svg, subjects: &[&str]) -> f64 {
        svg.text("h", (LEFT, 20.0), Anchor::Start, self.title);
        for (at, subject) in subjects.iter().enumerate() {
            let x = LEGEND_LEFT + count(at % LEGEND_LINE) * LEGEND_ROOM;
            let y = count(at / LEGEND_LINE) * LEGEND_STEP;
            svg.rect(&colour(at), (x, y + 10.0), (12.0, 12.0), "");
            svg.text("", (x + 18.0, y + 20.0), Anchor::Start, subject);
        }
        LEGEND + count(subjects.len().saturating_sub(1) / LEGEND_LINE) * LEGEND_STEP
    }

    /// Draws groups of one unit whose largest value is given; returns the lower end of the panel.
    fn panel(
        &self,
        svg: &mut Svg,
        top: f64,
        (unit, most): (&str, f64),
        groups: &[Group<'_>],
        subjects: &[&str],
    ) -> f64 {
        let scale = if most > 0.0 { (WIDTH - LEFT - RIGHT) / most } else { 0.0 };
        let heading = format!("{unit}, up to {}", (self.print)(most));
        svg.text("h", (LEFT, top + 20.0), Anchor::Start, &heading);
        let mut y = top + HEADING;
        for group in groups {
            svg.text("", (LEFT, y + LABEL - 4.0), Anchor::Start, &group[0].label);
            y += LABEL;
            for spread in group {
                let subject = subjects.iter().position(|subject| *subject == spread.subject);
                self.bar(svg, y, spread, scale, subject.unwrap_or(0));
                y += BAR;
            }
            y += GAP;
        }
        y + GAP
    }

    fn bar(&self, svg: &mut Svg, y: f64, spread: &Spread<'_>, scale: f64, subject: usize) {
        let at = |value: f64| LEFT + value.max(0.0) * scale;
        let (low, high) = spread
            .values
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
        let mut bar = Svg::default();
        let width = at(spread.median) - LEFT;
        bar.rect(&colour(subject), (LEFT, y + 1.0), (width, BAR - 2.0), "");
        let middle = y + BAR / 2.0;
        let [from, line, to] = [at(low), middle, at(high)].map(round);
        bar.path("w", &format!("M{from} {line}H{to}"), "");
        for value in spread.values {
            bar.disc("d", (at(*value), middle), 2.0);
        }
        let [low, median, most] = [low, spread.median, high].map(self.print);
        let title = format!("{}: {low} / {median} / {most} {}", spread.subject, spread.unit);
        svg.group(&title, &bar);
        svg.text("v", (at(high) + 6.0, middle + 4.0), Anchor::Start, &median);
    }
}

/// Returns the largest value of a group.
fn largest(group: &Group<'_>) -> f64 {
    group.iter().flat_map(|spread| spread.values).fold(0.0, |most, value| most.max(*value))
}

/// Returns the class of a subject by its number.
fn colour(subject: usize) -> String {
    format!("s{}", subject.min(COLOURS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread<'a>(label: &str, subject: &'a str, values: &'a [f64]) -> Spread<'a> {
        let median = values[values.len() / 2];
        Spread { label: label.to_owned(), subject, unit: "M/s", values, median }
    }

    fn draw(spreads: Vec<Spread<'_>>) -> Option<String> {
        Spreads { title: "part", spreads, print: |value| value.to_string() }.svg()
    }

    const WHOLE: f64 = WIDTH - LEFT - RIGHT;

    #[test]
    fn every_value_of_every_measurement_is_drawn() {
        let late = Spread { unit: "us", ..spread("late", "ours", &[7.0]) };
        let drawing = draw(vec![
            spread("rate", "ours", &[2.0, 3.0, 4.0]),
            spread("rate", "<theirs>", &[1.0]),
            late,
        ])
        .unwrap();
        assert_eq!(drawing.matches("<circle").count(), 5);
        assert_eq!(drawing.matches("<text class=\"h\"").count(), 3, "a name and two units");
        assert_eq!(drawing.matches(">rate<").count(), 1, "one label for both subjects");
        assert!(drawing.contains("&lt;theirs&gt;") && !drawing.contains("<theirs>"));
        assert!(drawing.contains("ours: 2 / 3 / 4 M/s"), "{drawing}");
    }

    #[test]
    fn chart_largest_value_fills_panel_half_fills_half() {
        let drawing =
            draw(vec![spread("rate", "a", &[10.0]), spread("rate", "b", &[5.0])]).unwrap();
        assert!(drawing.contains(&format!("width=\"{WHOLE}\"")));
        assert!(drawing.contains(&format!("width=\"{}\"", WHOLE / 2.0)));
    }

    #[test]
    fn chart_value_below_visible_width_gets_separate_panel() {
        let drawing = draw(vec![
            spread("rate", "a", &[100.0]),
            spread("some", "a", &[6.0]),
            spread("rest", "a", &[4.0, 2.0]),
            spread("none", "a", &[0.0]),
        ])
        .unwrap();
        for heading in ["M/s, up to 100", "M/s, up to 4", "M/s, up to 0"] {
            assert!(drawing.contains(heading), "{heading}: {drawing}");
        }
        assert!(drawing.contains(&format!("width=\"{}\"", round(WHOLE * 0.06))), "{drawing}");
        assert_eq!(drawing.matches("<circle").count(), 5);
    }

    #[test]
    fn zeros_and_nothing_are_no_error() {
        assert_eq!(draw(Vec::new()), None);
        assert!(draw(vec![spread("lost", "a", &[0.0, 0.0])]).is_some());
    }
}
