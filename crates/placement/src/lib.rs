//! Placement of tunnel work on cores.
//!
//! Encapsulation, decapsulation and delivery take processor time, and a host has cores that run
//! virtual machines. On the wrong core that work and a machine take turns, and both are slow. This
//! crate chooses the core for the work of each *entry*: a flow, a bucket of flows that hash alike,
//! or a port.
//!
//! ```text
//!   cores, pinning ──┐
//!   load of a period ├─> Placement ── move ──> Table ── core ──> who dispatches a packet
//!   entries' work  ──┘    (why)                (order)
//! ```
//!
//! - [`Placement`] decides once a period. Every decision has a [`Why`].
//! - [`Table`] carries decisions out: it is consulted for every packet, in constant time, and moves
//!   an entry only when no packet of it is under way, so that packets stay in order.
//! - [`Mode`] names the rule: by hash, as assigned in advance, by the load at the first packet, or
//!   adaptive.
//!
//! Time, load and pinning are arguments. Shares of a core are whole millionths, so that the same
//! inputs give the same decisions on every machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod balance;
mod config;
mod cores;
mod elephants;
mod entries;
mod mode;
mod overflow;
mod placement;
mod rank;
mod repair;
mod share;
mod table;
mod why;

pub use config::{Config, ConfigError};
pub use cores::{Core, CoreLoad};
pub use entries::{EntryLoad, EntryState};
pub use mode::{Mode, ParseModeError};
pub use placement::Placement;
pub use share::Share;
pub use table::{Dispatch, Order, Table};
pub use why::{Move, Why};

/// A core, by its index in the list of cores that a [`Placement`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreIndex(pub u16);

/// A unit of work that is done on one core: a flow, a bucket of flows, or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl CoreIndex {
    /// Returns it as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl EntryId {
    /// Returns it as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for CoreIndex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "core {}", self.0)
    }
}
