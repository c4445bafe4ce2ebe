//! Charts as SVG: of lines, of stacked bars, and of the spread of measurements.
//!
//! A chart is a value with public fields and a method `svg`. [`Lines`] and [`Bars`] are elements
//! inside of a page: their colours are classes that the page's style sheet fills in, so that one
//! drawing serves light, dark and print. [`Spreads`] is a file of its own with its own style, and
//! so is what [`Bars::file`] and [`Lines::file`] return. Every mark has a `<title>` with its
//! numbers. (Chart libraries that draw SVG write fixed colours and no titles, so none is used.)
//!
//! ```text
//!   Lines  Bars  Spreads  legend
//!     └──┬───┘      │        │
//!      frame        │      marker
//!        │          │        │
//!      axis         └── svg ─┘
//! ```
//!
//! Text of any origin is escaped here; nothing else is checked.
#![forbid(unsafe_code)]

mod axis;
mod bars;
mod file;
mod frame;
mod legend;
mod lines;
mod marker;
mod number;
mod spreads;
mod svg;

pub use bars::{Bar, Bars, Group, Part};
pub use file::Key;
pub use legend::{bar_key, line_key};
pub use lines::{Level, Line, Lines, Point};
pub use marker::Marker;
pub use number::number;
pub use spreads::{Spread, Spreads};
pub use svg::escape;
