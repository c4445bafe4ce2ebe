//! Whole connections over a network of two ends: loss, properties and the cases of others.

mod losses;
mod network;
mod properties;
mod small;
