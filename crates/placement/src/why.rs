//! Reasons of decisions.

use core::fmt;

use crate::share::Share;
use crate::{CoreIndex, EntryId};

/// The reason of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its number selects the core.
    Hash,
    /// The core is reserved for its priority.
    Reserved,
    /// This core had the least load of those that it may use.
    LeastLoaded,
    /// No other entry of high priority was there.
    OwnCore,
    /// An entry of high priority came to the core it was on.
    Displaced,
    /// A machine's vCPU is pinned to the core it was on, and another core is free.
    LeavesVcpu,
    /// A vCPU, or work of high priority, is on another thread of the physical core it was on.
    LeavesSibling,
    /// The core it was on is on another NUMA node than its packets.
    LeavesNode,
    /// The core it was on is excluded.
    Excluded,
    /// The core it was on had no room.
    Full,
    /// The two cores' loads differed by this much.
    Balance(Share),
    /// vCPUs starved on the core it was on, and no core has room: it goes to the core with the
    /// overflow.
    Starves,
    /// It is too much for one core: its delivery goes to another one.
    Split,
    /// One core is enough again.
    Joined,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash => f.write_str("by hash"),
            Self::Reserved => f.write_str("the core is reserved for its priority"),
            Self::LeastLoaded => f.write_str("least to do of those that it may use"),
            Self::OwnCore => f.write_str("high priority: no other of its kind is there"),
            Self::Displaced => f.write_str("made way for a high priority"),
            Self::LeavesVcpu => f.write_str("left a core with a pinned vCPU"),
            Self::LeavesSibling => {
                f.write_str("left a core whose sibling has a vCPU or a high priority")
            }
            Self::LeavesNode => f.write_str("left a core of another NUMA node"),
            Self::Excluded => f.write_str("left an excluded core"),
            Self::Full => f.write_str("left a core without room"),
            Self::Balance(gap) => write!(f, "the core it left had {gap} more to do"),
            Self::Starves => f.write_str("machines starved on the core it was on"),
            Self::Split => f.write_str("too much for one core: delivery is done elsewhere"),
            Self::Joined => f.write_str("one core is enough again"),
        }
    }
}

/// A change of the cores of an entry's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The entry.
    pub entry: EntryId,
    /// Core of all of its work, or of decapsulation if delivery is apart.
    pub core: CoreIndex,
    /// Core of its delivery, if apart.
    pub delivery: Option<CoreIndex>,
    /// The reason.
    pub why: Why,
}
