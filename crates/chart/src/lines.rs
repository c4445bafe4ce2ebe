//! A chart of lines, both axes logarithmic.

use crate::axis::LogAxis;
use crate::file::{self, Key};
use crate::frame::{self, BOTTOM, LEFT, RIGHT, TOP};
use crate::legend::line_class;
use crate::marker::Marker;
use crate::svg::{Anchor, Place, Svg, round};

/// Room of a key in the legend of a file.
const KEY_ROOM: f64 = 160.0;

/// A chart of lines, both axes logarithmic.
#[derive(Debug)]
pub struct Lines {
    /// Label below the horizontal axis.
    pub x_label: String,
    /// Label beside the vertical axis.
    pub y_label: String,
    /// The lines.
    pub lines: Vec<Line>,
    /// Horizontal levels to compare with.
    pub levels: Vec<Level>,
}

/// A line.
#[derive(Debug)]
pub struct Line {
    /// Its CSS class, which decides its colour.
    pub class: String,
    /// True if the line is dashed.
    pub dashed: bool,
    /// Its marker.
    pub marker: Marker,
    /// Its points.
    pub points: Vec<Point>,
}

/// A point with its interval.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its value on the horizontal axis.
    pub x: f64,
    /// Its value on the vertical axis.
    pub y: f64,
    /// Both ends of the interval, if the point has one.
    pub interval: Option<(f64, f64)>,
    /// Tooltip of the point.
    pub title: String,
}

/// A horizontal level with a name.
#[derive(Debug)]
pub struct Level {
    /// Its value on the vertical axis.
    pub y: f64,
    /// Its name.
    pub name: String,
    /// True if the name stands below the line instead of above.
    pub below: bool,
}

impl Lines {
    /// Draws the chart; empty if there is no point.
    #[must_use]
    pub fn svg(&self) -> String {
        let chart = self.draw();
        chart.map_or_else(String::new, |svg| frame::finish(svg, &self.x_label, &self.y_label))
    }

    /// Draws the chart as a file of its own, with a legend; empty if there is no point. Lines whose
    /// class has no key are not seen.
    #[must_use]
    pub fn file(&self, title: &str, keys: &[Key<'_>]) -> String {
        let Some(svg) = self.draw() else { return String::new() };
        let rule = |class: &str, colour: &str| {
            format!(
                ".{class}{{fill:{colour}}}polyline.{class}{{fill:none;stroke:{colour};\
                 stroke-width:2}}polyline.{class}.dashed{{stroke-dasharray:6 4}}"
            )
        };
        file::finish(svg, (&self.x_label, &self.y_label), title, (keys, KEY_ROOM), rule)
    }

    fn draw(&self) -> Option<Svg> {
        self.points().next()?;
        let (x_axis, y_axis) = (self.x_axis(), self.y_axis());
        let mut svg = Svg::default();
        self.grid(&mut svg, &x_axis, &y_axis);
        for level in &self.levels {
            let y = y_axis.at(level.y);
            svg.line("level", (LEFT, y), (RIGHT, y));
        }
        for line in &self.lines {
            line.draw(&mut svg, |point| (x_axis.at(point.x), y_axis.at(point.y)), &y_axis);
        }
        // Drawn last, with a halo: a name can be read where a line crosses it.
        for level in &self.levels {
            let y = y_axis.at(level.y) + if level.below { 14.0 } else { -5.0 };
            svg.text("level-name", (LEFT + 6.0, y), Anchor::Start, &level.name);
        }
        Some(svg)
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.lines.iter().flat_map(|line| &line.points)
    }

    fn x_axis(&self) -> LogAxis {
        let (low, high) = ends(self.points().map(|point| point.x));
        // A margin, so that no mark lies on the frame; a large one if there is one place only.
        let air = if high > low { (high / low).powf(0.06) } else { 2.0 };
        LogAxis { low: low / air, high: high * air, from: LEFT, to: RIGHT }
    }

    fn y_axis(&self) -> LogAxis {
        let both = |p: &Point| p.interval.map_or([p.y, p.y], |(low, high)| [low, high]);
        let levels = self.levels.iter().map(|level| level.y);
        let values = self.points().flat_map(both).chain(levels);
        let (low, high) = ends(values.filter(|&value| value > 0.0));
        LogAxis { low: low / 1.4, high: high * 1.4, from: BOTTOM, to: TOP }
    }

    fn grid(&self, svg: &mut Svg, x_axis: &LogAxis, y_axis: &LogAxis) {
        for tick in y_axis.ticks() {
            frame::horizontal(svg, tick, y_axis.at(tick));
        }
        let mut places: Vec<f64> = self.points().map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for place in places {
            frame::vertical(svg, place, x_axis.at(place));
        }
    }
}

/// Returns the least and the greatest value.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

impl Line {
    fn draw(&self, svg: &mut Svg, place: impl Fn(&Point) -> Place, y_axis: &LogAxis) {
        let class = &self.class;
        svg.polyline(&line_class(class, self.dashed), self.points.iter().map(&place));
        for point in &self.points {
            let (x, y) = place(point);
            if let Some((low, high)) = point.interval {
                let [low, high] = [low, high].map(|value| round(y_axis.at(value)));
                let [x, left, right] = [x, x - 4.0, x + 4.0].map(round);
                let shape = format!("M{x} {low}V{high}M{left} {low}H{right}M{left} {high}H{right}");
                svg.path(&format!("interval {class}"), &shape, "");
            }
            self.marker.draw(svg, (x, y), class, &point.title);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_without_points_is_empty() {
        let (x_label, y_label) = (String::new(), String::new());
        let chart = Lines { x_label, y_label, lines: Vec::new(), levels: Vec::new() };
        assert_eq!(chart.svg(), "");
    }

    #[test]
    fn file_has_lines_of_its_colours() {
        let point = |x| Point { x, y: 3.0, interval: None, title: String::new() };
        let (class, marker) = ("c".to_owned(), Marker::Disc);
        let points = vec![point(1.0), point(4.0)];
        let lines = vec![Line { class, dashed: false, marker, points }];
        let chart = Lines { x_label: "x".into(), y_label: "y".into(), lines, levels: Vec::new() };
        let key = Key { class: "c", name: "a", light: "#123456", dark: "#abcdef" };
        let file = chart.file("t", &[key]);
        for part in ["<title>t</title>", ">a</text>", "fill:none;stroke:#123456", "#abcdef"] {
            assert!(file.contains(part), "{part}: {file}");
        }
        let none = Lines { lines: Vec::new(), ..chart };
        assert_eq!(none.file("t", &[key]), "");
    }

    #[test]
    fn names_cannot_break_the_page() {
        let title = "<b>&\"".to_owned();
        let point = Point { x: 4.0, y: 3.0, interval: Some((2.0, 4.0)), title };
        let (class, marker) = ("LL".to_owned(), Marker::Disc);
        let chart = Lines {
            x_label: "<x>".to_owned(),
            y_label: "y".to_owned(),
            lines: vec![Line { class, dashed: true, marker, points: vec![point] }],
            levels: vec![Level { y: 19.1, name: "<l>".to_owned(), below: false }],
        };
        let svg = chart.svg();
        assert!(svg.contains("&lt;b&gt;&amp;&quot;") && svg.contains("&lt;x&gt;"));
        assert!(!svg.contains("<b>") && !svg.contains("<l>") && !svg.contains("NaN"));
    }
}
