//! The lives of this host: what happens when others know it in a later one.
//!
//! An incarnation is a number that goes up with every start, and no clock says what it is: a
//! machine may lose its disk, or start with the date of last year. Members remember. Each says in
//! its Hello which incarnation of the other it has heard of; a host that hears of a later one than
//! its own takes the next, and connects anew.
//!
//! A member that lies can make this host go on to a higher number, by so much and so often at most
//! that the numbers last for a century.

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};

use super::Plane;
use super::surface::Event;

/// The most that one step may skip. Incarnations were once milliseconds since 1970, below 2^41.
const SKIP_MAX: u64 = 1 << 41;
/// The shortest time between two steps.
const STEP_GAP: Nanos = Nanos::from_millis(1_000);

/// What is known of this host's own lives.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// The latest that a member knows, if it is later than this one.
    outdone: Option<u64>,
    /// When the last step was taken.
    stepped: Option<Nanos>,
}

impl Plane {
    /// A member may have said that it knows a later life of this host.
    pub(super) fn hear_lives(&mut self, host: HostId) {
        let Some(known) = self.session(host).and_then(|session| session.take_outdone()) else {
            return;
        };
        self.outbox.event(Event::Outdone(host, known));
        let known = known.min(self.publisher.incarnation().saturating_add(SKIP_MAX));
        self.lives.outdone = self.lives.outdone.max(Some(known));
    }

    /// A later incarnation of this host that a member knows: [`Self::reincarnate`] with a number
    /// above it is due. That number is to be remembered first.
    #[must_use]
    pub fn outdone(&self) -> Option<u64> {
        let now = self.clock.latest();
        let waits = self.lives.stepped.is_some_and(|at| now < at.after(STEP_GAP));
        self.lives.outdone.filter(|_| !waits)
    }

    /// This host is in another incarnation from now on. The connections to the hosts that are
    /// returned are to be written to once more, and closed.
    ///
    /// # Panics
    /// If it is no later one.
    pub fn reincarnate(&mut self, now: Nanos, incarnation: u64) -> Vec<HostId> {
        let now = self.clock.at(now);
        assert!(
            incarnation > self.publisher.incarnation(),
            "a life that is over does not come back"
        );
        self.lives = Lives { outdone: None, stepped: Some(now) };
        self.publisher.reincarnate(incarnation);
        self.liveness.reincarnate(now, incarnation);
        self.peers.close_all();
        self.hear(now);
        let members = self.peers.iter().filter(|(_, peer)| peer.session.is_some());
        members.map(|(host, _)| host).collect()
    }
}
