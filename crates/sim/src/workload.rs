//! Workloads: traffic between stations, and its measurement.

mod aggregate;
mod background;
pub mod draw;
mod exchange;
mod permutation;
mod search;
mod sources;
mod waves;

pub use aggregate::{Aggregate, Aggregating};
pub use background::{Background, BackgroundTraffic, Carrier, Full};
pub use exchange::{Exchange, Exchanging};
pub use permutation::Permutation;
pub use search::{Search, Searching};
pub use sources::{Gaps, Source, SourceCounts, Sources};
pub use waves::Waves;

/// Frames in the ring of a VM at which a datagram finds no room.
const RING_FRAMES: usize = 64;
