//! Workloads: traffic between stations, and its measurement.

mod aggregate;
mod background;
pub mod draw;
mod exchange;
mod permutation;
mod search;
mod waves;

pub use aggregate::{Aggregate, Aggregating};
pub use background::{Background, BackgroundTraffic, Carrier, Full};
pub use exchange::{Exchange, Exchanging};
pub use permutation::Permutation;
pub use search::{Search, Searching};
pub use waves::Waves;
