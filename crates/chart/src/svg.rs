//! Elements of a drawing. Numbers are rounded to a tenth of a unit, text is escaped.

use std::fmt::Write;

/// A place in the drawing, in its own units.
pub(crate) type Place = (f64, f64);

/// Elements of a drawing, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    elements: String,
}

/// End of a text that stands at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Adds a line of a class.
    pub(crate) fn line(&mut self, class: &str, from: Place, to: Place) {
        let ([x1, y1], [x2, y2]) = ([from.0, from.1].map(round), [to.0, to.1].map(round));
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1}\" x2=\"{x2}\" y1=\"{y1}\" y2=\"{y2}\"/>"
        ));
    }

    /// Adds lines that join these places.
    pub(crate) fn polyline(&mut self, class: &str, places: impl Iterator<Item = Place>) {
        let points: Vec<String> =
            places.map(|(x, y)| format!("{},{}", round(x), round(y))).collect();
        let points = points.join(" ");
        self.add(format_args!("<polyline class=\"{class}\" points=\"{points}\"/>"));
    }

    /// Adds a rectangle by its upper left corner and its size.
    pub(crate) fn rect(&mut self, class: &str, at: Place, size: (f64, f64), title: &str) {
        let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(round);
        self.open(format_args!(
            "rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        ));
        self.close("rect", title);
    }

    /// Adds a shape; `shape` is the value of the attribute `d`.
    pub(crate) fn path(&mut self, class: &str, shape: &str, title: &str) {
        self.open(format_args!("path class=\"{class}\" d=\"{shape}\""));
        self.close("path", title);
    }

    /// Adds a disc.
    pub(crate) fn disc(&mut self, class: &str, (x, y): Place, radius: f64) {
        let [x, y, radius] = [x, y, radius].map(round);
        self.add(format_args!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, class: &str, (x, y): Place, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let ([x, y], text) = ([x, y].map(round), escape(text));
        self.add(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>"));
    }

    /// Adds a text that reads upwards, with its middle at its place.
    pub(crate) fn text_upwards(&mut self, class: &str, (x, y): Place, text: &str) {
        let ([x, y], text) = ([x, y].map(round), escape(text));
        self.add(format_args!(
            "<text class=\"{class}\" transform=\"translate({x} {y}) rotate(-90)\" \
             text-anchor=\"middle\">{text}</text>"
        ));
    }

    /// Adds the elements of `other` as a group with a title.
    pub(crate) fn group(&mut self, title: &str, other: &Self) {
        let (title, elements) = (escape(title), &other.elements);
        self.add(format_args!("<g><title>{title}</title>{elements}</g>"));
    }

    /// Returns the elements as part of a page, in a drawing of this size. `label` is its text for
    /// those who do not see it.
    pub(crate) fn in_page(&self, (width, height): (f64, f64), label: &str) -> String {
        let (label, elements) = (escape(label), &self.elements);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\
             {elements}</svg>"
        )
    }

    /// Returns the elements as a small drawing beside a text, which says all that it shows.
    pub(crate) fn beside_text(&self, (width, height): (f64, f64)) -> String {
        format!("<svg viewBox=\"0 0 {width} {height}\">{}</svg>", self.elements)
    }

    /// Returns the elements as a file of its own with this style sheet.
    pub(crate) fn file(&self, (width, height): (f64, f64), title: &str, style: &str) -> String {
        let (title, elements) = (escape(title), &self.elements);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" \
             role=\"img\"><title>{title}</title><style>{style}</style>{elements}</svg>\n"
        )
    }

    fn open(&mut self, tag: std::fmt::Arguments<'_>) {
        self.add(format_args!("<{tag}"));
    }

    fn close(&mut self, tag: &str, title: &str) {
        if title.is_empty() {
            self.elements.push_str("/>");
        } else {
            self.add(format_args!("><title>{}</title></{tag}>", escape(title)));
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.elements.write_fmt(element).expect("a string takes all that is written");
    }
}

/// Rounds a coordinate to a tenth of a unit.
pub(crate) fn round(value: f64) -> f64 {
    let rounded = (value * 10.0).round() / 10.0;
    // Without the sign of a zero, which would be printed.
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// Escapes text for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
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
mod tests {
    use super::*;

    #[test]
    fn coordinates_round_to_tenths_without_needless_digits() {
        for (value, text) in [(12.04, "12"), (12.05, "12.1"), (-0.04, "0"), (740.0, "740")] {
            assert_eq!(round(value).to_string(), text);
        }
    }

    #[test]
    fn mark_without_title_is_closed_at_once() {
        let mut svg = Svg::default();
        svg.rect("bar a", (1.0, 2.0), (3.0, 4.5), "");
        svg.path("mark", "M0 0h1", "a & b");
        let expected = "<rect class=\"bar a\" x=\"1\" y=\"2\" width=\"3\" height=\"4.5\"/>\
                        <path class=\"mark\" d=\"M0 0h1\"><title>a &amp; b</title></path>";
        assert_eq!(svg.elements, expected);
    }
}
