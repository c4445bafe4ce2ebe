//! A chart of stacked bars in groups.

use crate::axis::nice_top;
use crate::file::{self, Key};
use crate::frame::{self, BOTTOM, LEFT, RIGHT, TOP};
use crate::number::count;
use crate::svg::{Anchor, Svg};

/// Height of the bars' names, above those of the groups.
const NAMES: f64 = 14.0;
/// Largest width of a bar.
const WIDTH_MAX: f64 = 46.0;
/// Room of a key in the legend of a file.
const KEY_ROOM: f64 = 220.0;

/// A chart of stacked bars in groups.
#[derive(Debug)]
pub struct Bars {
    /// Label below the horizontal axis.
    pub x_label: String,
    /// Label beside the vertical axis.
    pub y_label: String,
    /// The groups, left to right.
    pub groups: Vec<Group>,
}

/// Bars that stand together.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The bars, left to right.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its parts, from the bottom up.
    pub parts: Vec<Part>,
}

/// A part of a bar.
#[derive(Debug)]
pub struct Part {
    /// Its CSS class, which decides its colour.
    class: String,
    /// Its height on the vertical axis.
    value: f64,
    /// Its tooltip.
    title: String,
}

impl Part {
    /// Creates a part.
    #[must_use]
    pub fn new(class: &str, value: f64, title: String) -> Self {
        Self { class: class.to_owned(), value, title }
    }
}

impl Bars {
    /// Draws the chart as an element of a page; empty if there is no bar.
    #[must_use]
    pub fn svg(&self) -> String {
        let chart = self.draw();
        chart.map_or_else(String::new, |svg| frame::finish(svg, &self.x_label, &self.y_label))
    }

    /// Draws the chart as a file of its own, with a legend; empty if there is no bar. Parts whose
    /// class has no key are black.
    #[must_use]
    pub fn file(&self, title: &str, keys: &[Key<'_>]) -> String {
        let Some(svg) = self.draw() else { return String::new() };
        let rule = |class: &str, colour: &str| format!(".{class}{{fill:{colour}}}");
        file::finish(svg, (&self.x_label, &self.y_label), title, (keys, KEY_ROOM), rule)
    }

    fn draw(&self) -> Option<Svg> {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let most = bars.map(Bar::height).reduce(f64::max)?;
        let top = nice_top(most);
        let base = BOTTOM - NAMES;
        let height = base - TOP;
        let mut svg = Svg::default();
        for quarter in 0..=4 {
            let part = f64::from(quarter) / 4.0;
            frame::horizontal(&mut svg, top * part, base - height * part);
        }
        let slots: usize = self.groups.iter().map(|group| group.bars.len() + 1).sum();
        let slot = (RIGHT - LEFT) / count(slots);
        let mut x = LEFT + slot / 2.0;
        for group in &self.groups {
            let from = x;
            for bar in &group.bars {
                bar.draw(&mut svg, (x, slot), base, height / top);
                x += slot;
            }
            frame::name(&mut svg, &group.name, f64::midpoint(from, x));
            x += slot;
        }
        Some(svg)
    }
}

impl Bar {
    fn height(&self) -> f64 {
        self.parts.iter().map(|part| part.value).sum()
    }

    fn draw(&self, svg: &mut Svg, (x, slot): (f64, f64), base: f64, scale: f64) {
        let width = (slot * 0.8).min(WIDTH_MAX);
        let left = x + (slot - width) / 2.0;
        let mut y = base;
        for Part { class, value, title } in &self.parts {
            let height = value * scale;
            y -= height;
            svg.rect(&format!("bar {class}"), (left, y), (width, height), title);
        }
        let middle = x + slot / 2.0;
        if self.parts.iter().all(|part| part.value == 0.0) {
            svg.text("zero", (middle, base - 4.0), Anchor::Middle, "0");
        }
        svg.text("small", (middle, base + 13.0), Anchor::Middle, &self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(groups: Vec<Group>) -> Bars {
        Bars { x_label: String::new(), y_label: String::new(), groups }
    }

    fn bar(values: &[f64]) -> Bar {
        let part = |value: &f64| Part::new("c", *value, "t".into());
        Bar { name: "b".into(), parts: values.iter().map(part).collect() }
    }

    #[test]
    fn chart_without_bars_is_empty() {
        assert_eq!(chart(Vec::new()).svg(), "");
        assert_eq!(chart(vec![Group { name: "g".into(), bars: Vec::new() }]).svg(), "");
    }

    #[test]
    fn file_has_legend_and_colours() {
        let key = Key { class: "c", name: "a < b", light: "#123456", dark: "#abcdef" };
        let bars = vec![bar(&[1.0])];
        let file = chart(vec![Group { name: "g".into(), bars }]).file("t", &[key]);
        assert!(file.starts_with("<svg xmlns="), "{file}");
        for part in ["<title>t</title>", ">a &lt; b</text>", ".c{fill:#123456}", ".c{fill:#abcdef}"]
        {
            assert!(file.contains(part), "{part}: {file}");
        }
        assert_eq!(file.matches("class=\"bar c\"").count(), 2, "the bar and its key");
        assert_eq!(chart(Vec::new()).file("t", &[key]), "");
    }

    #[test]
    fn parts_of_bar_stand_on_each_other() {
        let bars = vec![bar(&[1.0, 3.0]), bar(&[])];
        let svg = chart(vec![Group { name: "g".into(), bars }]).svg();
        let height = BOTTOM - NAMES - TOP;
        for (part, y) in [(height / 4.0, TOP + height * 0.75), (height * 0.75, TOP)] {
            let place = format!("y=\"{y}\" width=\"46\" height=\"{part}\"");
            assert!(svg.contains(&place), "{place}: {svg}");
        }
        assert_eq!(svg.matches(">0</text>").count(), 2, "the axis and the empty bar");
    }
}
