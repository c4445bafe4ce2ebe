//! The lives of this host, and the next one if others know a later life than the present.
//!
//! An incarnation is a number that goes up with every start, and no clock determines it: a machine
//! may lose its disk, or start with the date of last year. Members remember. The Hello of each
//! names the incarnation of the other that it has heard of. A host that hears of a later one than
//! its own takes the next, and connects anew.
//!
//! A member that lies can make this host go on to a higher number, by so much and so often at most
//! that the numbers last for a century.

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::Plane;
use super::surface::Event;

/// Largest increment of one step. Incarnations were once milliseconds since 1970, below 2^41.
const SKIP_MAX: u64 = 1 << 41;
/// Shortest time between two steps.
const STEP_GAP: Nanos = Nanos::from_millis(1_000);

/// State of this host's own lives.
#[derive(Debug, Default)]
pub(super) struct Incarnations {
    /// The latest incarnation that a member knows, if it is later than the present one.
    outdone: Option<u64>,
    /// Time of the last step.
    stepped: Option<Nanos>,
}

impl Plane {
    /// Takes a later life of this host that a member may know.
    pub(super) fn hear_lives(&mut self, host: HostId) {
        let Some(known) = self.session(host).and_then(|session| session.take_outdone()) else {
            return;
        };
        self.outbox.event(Event::Outdone(host, known));
        let known = known.min(self.publisher.incarnation().saturating_add(SKIP_MAX));
        self.lives.outdone = self.lives.outdone.max(Some(known));
    }

    /// Returns a later incarnation of this host that a member knows: [`Self::reincarnate`] with a
    /// number above it is due. That number is to be remembered first.
    #[must_use]
    pub fn outdone(&self) -> Option<u64> {
        let now = self.clock.latest();
        let waits = self.lives.stepped.is_some_and(|at| now < at.after(STEP_GAP));
        self.lives.outdone.filter(|_| !waits)
    }

    /// Changes the incarnation of this host. The connections to the returned hosts are to be
    /// written to once more, and closed.
    ///
    /// # Panics
    /// If the incarnation is not later than the present one.
    pub fn reincarnate(&mut self, now: Nanos, incarnation: u64) -> Vec<HostId> {
        let now = self.clock.at(now);
        assert!(
            incarnation > self.publisher.incarnation(),
            "a life that is over does not come back"
        );
        self.lives = Incarnations { outdone: None, stepped: Some(now) };
        self.publisher.reincarnate(incarnation);
        self.liveness.reincarnate(now, incarnation);
        self.peers.close_all();
        self.hear(now);
        let members = self.peers.iter().filter(|(_, peer)| peer.session.is_some());
        members.map(|(host, _)| host).collect()
    }
}
