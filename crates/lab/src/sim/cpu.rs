//! The paper on VS-extend, in the simulator's model of a host's cores.
//!
//! ```text
//!  Table 4 ── fit ──> params.toml (frozen) ─┬─ predict ──> all cells beside the paper's ── draw
//!                                           ├─ compare ──> rss++ and adaptive
//!                                           └─ vary ─────> the same, each parameter +- 50 %
//! ```
//!
//! Only Table 4 decides parameters. All other values are either given by the paper for its testbed,
//! or assumed; `experiments/vs-extend/params.toml` tells them apart.

mod cells;
pub mod cli;
pub(crate) mod compare;
pub(crate) mod figure;
pub(crate) mod fit;
mod kept;
mod params;
pub(crate) mod predict;
pub(crate) mod published;
mod rows;
mod summary;
mod testbed;
pub(crate) mod text;
pub(crate) mod vary;

#[cfg(test)]
mod tests;
