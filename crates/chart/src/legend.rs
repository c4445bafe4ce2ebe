//! Entries of a legend, as elements of a page: a small drawing and a name.

use crate::marker::Marker;
use crate::svg::{Svg, escape};

/// Size of the drawing in its own units.
const SIZE: (f64, f64) = (28.0, 14.0);

/// Returns the entry of the bars of a class.
#[must_use]
pub fn bar_key(class: &str, name: &str) -> String {
    let mut svg = Svg::default();
    svg.rect(&format!("bar {class}"), (7.0, 1.0), (13.0, 12.0), "");
    entry(&svg, name)
}

/// Returns the entry of a line of a class.
#[must_use]
pub fn line_key(class: &str, dashed: bool, marker: Marker, name: &str) -> String {
    let mut svg = Svg::default();
    let middle = SIZE.1 / 2.0;
    svg.line(&line_class(class, dashed), (0.0, middle), (SIZE.0, middle));
    marker.draw(&mut svg, (SIZE.0 / 2.0, middle), class, name);
    entry(&svg, name)
}

/// Returns the classes of a line.
pub(crate) fn line_class(class: &str, dashed: bool) -> String {
    format!("line {class}{}", if dashed { " dashed" } else { "" })
}

fn entry(svg: &Svg, name: &str) -> String {
    format!("<span>{}{}</span>", svg.beside_text(SIZE), escape(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_classes_of_keys_are_shown() {
        let bar = bar_key("nic", "a <b>");
        assert!(bar.contains("class=\"bar nic\"") && bar.ends_with("</svg>a &lt;b&gt;</span>"));
        let line = line_key("ZZ", true, Marker::Square, "ZZ *");
        assert!(line.contains("class=\"line ZZ dashed\"") && line.contains("class=\"mark ZZ\""));
    }
}
