//! Workloads: who sends what to whom, and what is measured.

mod permutation;
mod waves;

pub use permutation::Permutation;
pub use waves::Waves;
