//! Queries of a session's state.

use sluice_wire::fabric::Have;

use super::{Counts, Phase, Session};
use crate::publisher::Publisher;

impl Session {
    /// Returns the counters of questions and answers.
    #[must_use]
    pub const fn rpc_counts(&self) -> crate::rpc::Counts {
        self.rpc.counts()
    }

    /// Returns true if there is a connection on which both sides have greeted.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Returns true if the replica has all claims of the peer, as of some moment of its latest
    /// incarnation.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.inbound.is_whole()
    }

    /// Returns true if the peer was sent all claims of this host.
    #[must_use]
    pub fn is_done(&self, publisher: &Publisher) -> bool {
        self.phase == Phase::Up && self.outbound.is_done(publisher)
    }

    /// Returns the version that is spoken; zero before the first connection.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// Returns the position of this host in the peer's claims.
    #[must_use]
    pub fn have(&self) -> Have {
        self.inbound.have()
    }

    /// Returns the latest incarnation of the peer; zero if it was never heard of.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.inbound.incarnation()
    }

    /// Number of bytes of claims that were sent and not acknowledged.
    #[must_use]
    pub const fn flight_bytes(&self) -> usize {
        self.outbound.flight_bytes()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}
