//! The topology: hosts, switches, and cables between them.
//!
//! A cable is two links, one each way; cable `i` has the links `2 i` (from `a` to `b`) and
//! `2 i + 1` (back), so that the way back of a link differs in its last bit.

use sluice_base::{BitRate, Nanos};

mod build;
mod routes;

pub use build::{FatTree, LeafSpine};
pub use routes::{HOPS_MAX, Path, Routes};

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The other direction of the cable.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Returns an index into tables by link.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// End of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A host's network card.
    Host(u32),
    /// A physical switch.
    Switch(u32),
}

/// A cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// One end.
    pub a: Node,
    /// The other end.
    pub b: Node,
    /// The rate of each direction.
    pub rate: BitRate,
    /// Time of a bit from end to end.
    pub delay: Nanos,
}

/// Hosts, switches and cables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Number of hosts. Each has one cable.
    pub hosts: u32,
    /// Number of switches.
    pub switches: u32,
    /// The cables.
    pub cables: Vec<Cable>,
}

/// A topology that cannot be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// A cable ends at a host or switch that does not exist.
    NoSuchNode(Node),
    /// A host has no cable, or more than one, or one that does not lead to a switch.
    HostCables {
        /// The host.
        host: u32,
        /// Its cables.
        cables: u32,
    },
    /// A rate of zero.
    NoRate {
        /// The cable, by its place in the list.
        cable: usize,
    },
    /// Two hosts that no path joins.
    NotJoined {
        /// One of them.
        from: u32,
        /// The other.
        to: u32,
    },
    /// A path with more links than [`HOPS_MAX`].
    TooLong {
        /// First host of the path.
        from: u32,
        /// Last host of the path.
        to: u32,
    },
}

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchNode(Node::Host(h)) => {
                write!(f, "a cable ends at host {h}, which is not there")
            }
            Self::NoSuchNode(Node::Switch(s)) => {
                write!(f, "a cable ends at switch {s}, which is not there")
            }
            Self::HostCables { host, cables } => write!(
                f,
                "host {host} has {cables} cables to switches; every host needs exactly one"
            ),
            Self::NoRate { cable } => write!(f, "cable {cable} has a rate of zero"),
            Self::NotJoined { from, to } => {
                write!(f, "no path leads from host {from} to host {to}")
            }
            Self::TooLong { from, to } => {
                write!(f, "the path from host {from} to host {to} has more than {HOPS_MAX} links")
            }
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// Number of links: two per cable.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.cables.len() * 2
    }

    /// Returns the link of a cable, from `a` to `b` or back.
    #[must_use]
    pub fn link(cable: usize, back: bool) -> LinkId {
        let first = u32::try_from(cable * 2).expect("fewer than 2^31 cables");
        LinkId(first + u32::from(back))
    }

    /// Returns the nodes at which a link begins and ends.
    #[must_use]
    pub fn ends(&self, link: LinkId) -> (Node, Node) {
        let cable = &self.cables[link.index() / 2];
        if link.0 & 1 == 0 { (cable.a, cable.b) } else { (cable.b, cable.a) }
    }

    /// Iterates over every link with its cable.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Cable)> + '_ {
        self.cables
            .iter()
            .enumerate()
            .flat_map(|(at, cable)| [(Self::link(at, false), cable), (Self::link(at, true), cable)])
    }
}

#[cfg(test)]
mod tests;
