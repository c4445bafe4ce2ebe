//! A chart as a file of its own: with a legend, and its colours on light and on dark ground.

use crate::frame::{self, HEIGHT, LEFT, WIDTH};
use crate::number::count;
use crate::svg::{Anchor, Svg};

/// Height of the legend.
const LEGEND: f64 = 24.0;
/// Style without the keys.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}.grid{stroke:#ddd}";

/// The colours of a class in a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The CSS class of marks.
    pub class: &'a str,
    /// Its name in the legend.
    pub name: &'a str,
    /// Its colour as CSS writes it, on light ground.
    pub light: &'a str,
    /// The same on dark ground.
    pub dark: &'a str,
}

/// Returns a chart with its labels and its legend as a file. A key has so much `room`; `rule` is
/// the style of a class that has a colour.
pub(crate) fn finish(
    mut svg: Svg,
    (x_label, y_label): (&str, &str),
    title: &str,
    (keys, room): (&[Key<'_>], f64),
    rule: fn(&str, &str) -> String,
) -> String {
    frame::labels(&mut svg, x_label, y_label);
    for (at, key) in keys.iter().enumerate() {
        let x = LEFT + count(at) * room;
        svg.rect(&format!("bar {}", key.class), (x, HEIGHT + 4.0), (12.0, 12.0), "");
        svg.text("", (x + 18.0, HEIGHT + 14.0), Anchor::Start, key.name);
    }
    let rules = |colour: for<'k> fn(&'k Key<'_>) -> &'k str| {
        keys.iter().map(|key| rule(key.class, colour(key))).collect::<String>()
    };
    let (light, dark) = (rules(|key| key.light), rules(|key| key.dark));
    let style = format!(
        "{STYLE}{light}@media(prefers-color-scheme:dark){{text{{fill:#eee}}\
         .grid{{stroke:#444}}{dark}}}"
    );
    svg.file((WIDTH, HEIGHT + LEGEND), title, &style)
}
