//! Whole connections over a network of two ends: loss, properties and cases of other projects.

mod losses;
mod network;
mod properties;
mod small;
mod today;
