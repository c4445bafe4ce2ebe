//! Charts as SVG elements inside of a page.
//!
//! Colours are classes that the page's style sheet fills in, so that one drawing serves light, dark
//! and print. Every mark has a `<title>` with its numbers. (Chart libraries that draw SVG write
//! fixed colours and no titles, so none is used.)

use std::fmt::Write;

/// Size of a drawing in its own units.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// Margins around the plot.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 56.0;

/// A chart of lines, both axes logarithmic.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Label below the horizontal axis.
    pub(crate) x_label: String,
    /// Label beside the vertical axis.
    pub(crate) y_label: String,
    /// The lines.
    pub(crate) lines: Vec<Line>,
    /// Horizontal levels to compare with.
    pub(crate) levels: Vec<Level>,
}

/// A line.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its CSS class, which decides its colour.
    pub(crate) class: String,
    /// True if the line is dashed.
    pub(crate) dashed: bool,
    /// Its marker.
    pub(crate) marker: Marker,
    /// Its points.
    pub(crate) points: Vec<Point>,
}

/// A point with its interval.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Both ends of the interval, if the point has one.
    pub(crate) interval: Option<(f64, f64)>,
    /// Tooltip of the point.
    pub(crate) title: String,
}

/// A horizontal level with a name.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) y: f64,
    pub(crate) name: String,
    /// True if the name stands below the line instead of above.
    pub(crate) below: bool,
}

/// The shape of a point, so that a line can be recognised without its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// A disc.
    Disc,
    /// A square.
    Square,
    /// A triangle.
    Triangle,
    /// A square on its corner.
    Diamond,
}

impl Marker {
    /// Draws the shape around a point.
    pub(crate) fn draw(self, x: f64, y: f64, class: &str, title: &str) -> String {
        let shape = match self {
            Self::Disc => format!("M{} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0", x - 4.5),
            Self::Square => format!("M{} {}h8v8h-8z", x - 4.0, y - 4.0),
            Self::Triangle => format!("M{x} {}l5.2 9h-10.4z", y - 5.5),
            Self::Diamond => format!("M{x} {}l5.6 5.6l-5.6 5.6l-5.6 -5.6z", y - 5.6),
        };
        format!(
            "<path class=\"mark {class}\" d=\"{shape}\"><title>{}</title></path>",
            escape(title)
        )
    }
}

/// A logarithmic axis over a range of the drawing.
struct LogAxis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl LogAxis {
    fn at(&self, value: f64) -> f64 {
        let part = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * part
    }

    /// Returns 1, 2 and 5 times each power of ten in the range.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(self.low.log10().floor());
        while decade <= self.high {
            for step in [1.0, 2.0, 5.0] {
                let tick = decade * step;
                if tick >= self.low * 0.999 && tick <= self.high * 1.001 {
                    ticks.push(tick);
                }
            }
            decade *= 10.0;
        }
        ticks
    }
}

impl Lines {
    /// Draws the chart; empty if there is no point.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        if points().next().is_none() {
            return String::new();
        }
        let x_axis = self.x_axis();
        let y_axis = self.y_axis();
        let mut out = open(&self.y_label);
        self.grid(&mut out, &x_axis, &y_axis);
        for level in &self.levels {
            let y = y_axis.at(level.y);
            let _ = write!(
                out,
                "<line class=\"level\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
        }
        for line in &self.lines {
            draw_line(&mut out, line, &x_axis, &y_axis);
        }
        // Drawn last, with a halo: a name can be read where a line crosses it.
        for level in &self.levels {
            let y = y_axis.at(level.y) + if level.below { 14.0 } else { -5.0 };
            let _ = write!(
                out,
                "<text class=\"level-name\" x=\"{}\" y=\"{y:.1}\">{}</text>",
                LEFT + 6.0,
                escape(&level.name)
            );
        }
        out + "</svg>"
    }

    fn x_axis(&self) -> LogAxis {
        let all: Vec<f64> = self.lines.iter().flat_map(|l| &l.points).map(|p| p.x).collect();
        let low = all.iter().copied().fold(f64::MAX, f64::min);
        let high = all.iter().copied().fold(f64::MIN, f64::max);
        // A margin, so that no mark lies on the frame; a large one if there is one place only.
        let air = if high > low { (high / low).powf(0.06) } else { 2.0 };
        LogAxis { low: low / air, high: high * air, from: LEFT, to: WIDTH - RIGHT }
    }

    fn y_axis(&self) -> LogAxis {
        let ends = |p: &Point| p.interval.map_or([p.y, p.y], |(low, high)| [low, high]);
        let values: Vec<f64> = self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .flat_map(ends)
            .chain(self.levels.iter().map(|level| level.y))
            .filter(|&value| value > 0.0)
            .collect();
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        LogAxis { low: low / 1.4, high: high * 1.4, from: HEIGHT - BOTTOM, to: TOP }
    }

    fn grid(&self, out: &mut String, x_axis: &LogAxis, y_axis: &LogAxis) {
        for tick in y_axis.ticks() {
            let y = y_axis.at(tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                number(tick)
            );
        }
        let mut places: Vec<f64> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for place in places {
            let x = x_axis.at(place);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 18.0,
                number(place)
            );
        }
        axis_labels(out, &self.x_label, &self.y_label);
    }
}

fn draw_line(out: &mut String, line: &Line, x_axis: &LogAxis, y_axis: &LogAxis) {
    let place = |point: &Point| (x_axis.at(point.x), y_axis.at(point.y));
    let path: Vec<String> = line
        .points
        .iter()
        .map(|point| {
            let (x, y) = place(point);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let dashed = if line.dashed { " dashed" } else { "" };
    let class = &line.class;
    let path = path.join(" ");
    let _ = write!(out, "<polyline class=\"line {class}{dashed}\" points=\"{path}\"/>");
    for point in &line.points {
        let (x, y) = place(point);
        if let Some((low, high)) = point.interval {
            let (low, high) = (y_axis.at(low), y_axis.at(high));
            let (left, right) = (x - 4.0, x + 4.0);
            let _ = write!(
                out,
                "<path class=\"interval {class}\" d=\"M{x:.1} {low:.1}V{high:.1}\
                 M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
            );
        }
        out.push_str(&line.marker.draw(x, y, class, &point.title));
    }
}

/// A chart of stacked bars in groups.
#[derive(Debug)]
pub(crate) struct Bars {
    /// Label below the horizontal axis.
    pub(crate) x_label: String,
    /// Label beside the vertical axis.
    pub(crate) y_label: String,
    /// The groups, left to right.
    pub(crate) groups: Vec<Group>,
}

/// Bars that stand together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// From the bottom: class, height, title.
    pub(crate) parts: Vec<(String, f64, String)>,
}

impl Bars {
    /// Draws the chart; empty if there is no bar.
    pub(crate) fn svg(&self) -> String {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        let sums: Vec<f64> = bars.map(|bar| bar.parts.iter().map(|part| part.1).sum()).collect();
        if sums.is_empty() {
            return String::new();
        }
        let top = nice_top(sums.iter().copied().fold(0.0, f64::max));
        let height = HEIGHT - BOTTOM - TOP - 14.0;
        let base = HEIGHT - BOTTOM - 14.0;
        let mut out = open(&self.y_label);
        for step in 0..=4 {
            let value = top * f64::from(step) / 4.0;
            let y = base - height * f64::from(step) / 4.0;
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                number(value)
            );
        }
        let slots: usize = self.groups.iter().map(|group| group.bars.len() + 1).sum();
        let slot = (WIDTH - LEFT - RIGHT) / f64::from(u32::try_from(slots).unwrap_or(u32::MAX));
        let mut x = LEFT + slot / 2.0;
        for group in &self.groups {
            let from = x;
            for bar in &group.bars {
                draw_bar(&mut out, bar, (x, slot), base, height / top);
                x += slot;
            }
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                f64::midpoint(from, x),
                HEIGHT - BOTTOM + 18.0,
                escape(&group.name)
            );
            x += slot;
        }
        axis_labels(&mut out, &self.x_label, &self.y_label);
        out + "</svg>"
    }
}

fn draw_bar(out: &mut String, bar: &Bar, (x, slot): (f64, f64), base: f64, scale: f64) {
    let width = (slot * 0.8).min(46.0);
    let left = x + (slot - width) / 2.0;
    let mut y = base;
    for (class, value, title) in &bar.parts {
        let height = value * scale;
        y -= height;
        let _ = write!(
            out,
            "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{}</title></rect>",
            escape(title)
        );
    }
    let middle = x + slot / 2.0;
    if bar.parts.iter().all(|part| part.1 == 0.0) {
        let _ = write!(
            out,
            "<text class=\"zero\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">0</text>",
            base - 4.0
        );
    }
    let _ = write!(
        out,
        "<text class=\"small\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        base + 13.0,
        escape(&bar.name)
    );
}

fn open(label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", escape(label))
}

fn axis_labels(out: &mut String, x_label: &str, y_label: &str) {
    let (middle_x, middle_y) = (f64::midpoint(LEFT, WIDTH - RIGHT), (HEIGHT - BOTTOM + TOP) / 2.0);
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"{middle_x}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text class=\"axis\" transform=\"translate(16 {middle_y}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        HEIGHT - 10.0,
        escape(x_label),
        escape(y_label)
    );
}

/// Returns the next of 1, 2, 3, 4, 6, 8 or 10 times a power of ten.
fn nice_top(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0];
    let fitting = steps.into_iter().find(|step| step * decade >= value * 0.999);
    fitting.unwrap_or(10.0) * decade
}

/// Formats a number without needless digits.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Escapes text for HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
