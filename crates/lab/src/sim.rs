//! The simulator's commands: scenarios of the lab and its own, run in one thread without root.
//!
//! ```text
//!  TOML ── scenario ──> experiment (cells: size x policy) ── simulate ──> rows ──> table, report
//!                                                                            └──> sweep, compare
//! ```
//!
//! A scenario with `[lab]` is the lab's: the same file runs in namespaces and in the simulator. A
//! scenario with `[sim]` describes a data centre that no machine of this size could build. Results
//! have the lab's format, so that statistics, table, charts and report are the lab's.
//!
//! A run asserts the promises of its policy: under `ZZ` (and under `LZ` without a virtual network)
//! no frame is dropped for congestion, and the audit of every virtual switch closes. Otherwise the
//! run fails, and prints the seed, the state and the command that repeats it.

pub mod cli;
mod compare;
pub mod cpu;
mod experiment;
mod from_lab;
mod markdown;
mod rows;
mod run;
mod scenario;
mod simulate;
mod sources;
mod sweep;
mod trace;

pub use compare::{CompareOptions, compare};
pub(crate) use compare::{Pair, share, with_processor};
pub use experiment::Overrides;
pub use run::{Options, Outcome, list, run};
pub use sweep::{Swept, draw, sweep};
