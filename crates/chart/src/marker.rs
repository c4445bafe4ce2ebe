//! Shapes of points.

use crate::svg::{Place, Svg, round};

/// The shape of a point, so that a line can be recognised without its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
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
    /// Draws the shape around a place.
    pub(crate) fn draw(self, svg: &mut Svg, (x, y): Place, class: &str, title: &str) {
        let from = |left: f64, up: f64| format!("M{} {}", round(x - left), round(y - up));
        let shape = match self {
            Self::Disc => from(4.5, 0.0) + "a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0",
            Self::Square => from(4.0, 4.0) + "h8v8h-8z",
            Self::Triangle => from(0.0, 5.5) + "l5.2 9h-10.4z",
            Self::Diamond => from(0.0, 5.6) + "l5.6 5.6l-5.6 5.6l-5.6 -5.6z",
        };
        svg.path(&format!("mark {class}"), &shape, title);
    }
}
