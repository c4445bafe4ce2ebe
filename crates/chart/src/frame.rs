//! The frame of a chart with two axes: its size, its grid, its labels.

use crate::number::number;
use crate::svg::{Anchor, Svg};

/// Size of a drawing in its own units.
pub(crate) const WIDTH: f64 = 760.0;
pub(crate) const HEIGHT: f64 = 400.0;
/// Edges of the plot.
pub(crate) const LEFT: f64 = 64.0;
pub(crate) const RIGHT: f64 = WIDTH - 20.0;
pub(crate) const TOP: f64 = 14.0;
pub(crate) const BOTTOM: f64 = HEIGHT - 56.0;

/// Draws a value of the vertical axis with its grid line.
pub(crate) fn horizontal(svg: &mut Svg, value: f64, y: f64) {
    svg.line("grid", (LEFT, y), (RIGHT, y));
    svg.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, &number(value));
}

/// Draws a value of the horizontal axis with its grid line.
pub(crate) fn vertical(svg: &mut Svg, value: f64, x: f64) {
    svg.line("grid", (x, TOP), (x, BOTTOM));
    name(svg, &number(value), x);
}

/// Draws a name below the horizontal axis.
pub(crate) fn name(svg: &mut Svg, name: &str, x: f64) {
    svg.text("tick", (x, BOTTOM + 18.0), Anchor::Middle, name);
}

/// Draws the labels of both axes.
pub(crate) fn labels(svg: &mut Svg, x_label: &str, y_label: &str) {
    let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    svg.text("axis", (middle.0, HEIGHT - 10.0), Anchor::Middle, x_label);
    svg.text_upwards("axis", (16.0, middle.1), y_label);
}

/// Draws the labels of both axes, and returns the chart.
pub(crate) fn finish(mut svg: Svg, x_label: &str, y_label: &str) -> String {
    labels(&mut svg, x_label, y_label);
    svg.in_page((WIDTH, HEIGHT), y_label)
}
