//! Claims of a peer on their way into the replica.
//!
//! ```text
//!                    SnapshotBegin           SnapshotEnd
//!     ┌─> Missing ───────────────> Snapshot ─────────────> Whole ─┐ Claims, Digest
//!     │      ▲                       │  ▲                   │  ▲──┘
//!     │      └── cut, new incarnation┘  └── SnapshotBegin ──┘
//!     └── new incarnation ──────────────────────────────────┘
//! ```
//!
//! Only a replica that is whole has a position to go on from after a cut. A snapshot that is cut
//! begins again.
//!
//! When the replica has no room for a claim, the following claims are not applied and nothing is
//! acked until another snapshot, which is asked for after a while. When a digest differs, claims
//! are applied meanwhile. The wait between two such requests doubles until a digest agrees.

use sluice_base::{HostId, Nanos};
use sluice_wire::fabric::{Claims, Have};

use super::{Counts, Error, Replica, Timing};
use crate::digest::Digest;

use super::convert;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The replica has no known position. It may have claims.
    Missing,
    /// A snapshot is being received.
    Snapshot,
    /// The replica has everything up to the position.
    Whole,
}

/// The receiving direction of a session. It outlives connections.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Owner of these vports: the host of the connection, whatever its messages say.
    owner: HostId,
    /// The latest incarnation of the peer that was heard of.
    incarnation: u64,
    state: State,
    /// Sequence of the last change that was applied.
    position: u64,
    /// Number of snapshots that began on this connection.
    round: u32,
    /// True if nothing is applied until a snapshot begins.
    stalled: bool,
    ack_owed: bool,
    /// Time at which another snapshot is to be asked for.
    resync_at: Option<Nanos>,
    /// Wait after that before asking once more.
    resync_wait: Nanos,
    /// Earliest time of the next request.
    resync_not_before: Nanos,
}

impl Inbound {
    pub(super) fn new(owner: HostId, timing: &Timing) -> Self {
        Self {
            owner,
            incarnation: 0,
            state: State::Missing,
            position: 0,
            round: 0,
            stalled: false,
            ack_owed: false,
            resync_at: None,
            resync_wait: timing.resync_min,
            resync_not_before: Nanos::ZERO,
        }
    }

    pub(super) const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn is_whole(&self) -> bool {
        self.state == State::Whole && !self.stalled
    }

    /// Returns the content of a Hello for this direction.
    pub(super) fn have(&self) -> Have {
        let sequence = if self.state == State::Whole { self.position } else { 0 };
        Have { incarnation: self.incarnation, sequence }
    }

    /// Notes that a connection begins, or ends.
    pub(super) fn cut(&mut self) {
        // A replica that is empty as of sequence zero is offered a snapshot, too.
        if self.state != State::Whole || self.position == 0 {
            (self.state, self.position) = (State::Missing, 0);
        }
        (self.round, self.stalled, self.ack_owed, self.resync_at) = (0, false, false, None);
    }

    /// Notes that the replica was emptied.
    pub(super) const fn forget(&mut self) {
        (self.state, self.position) = (State::Missing, 0);
    }

    /// Takes the incarnation of the peer.
    pub(super) fn hello(&mut self, incarnation: u64) -> Result<(), Error> {
        let known = self.incarnation.max(1);
        if incarnation < known {
            return Err(Error::StaleIncarnation { theirs: incarnation, known });
        }
        if incarnation > self.incarnation {
            self.incarnation = incarnation;
            (self.state, self.position) = (State::Missing, 0);
        }
        Ok(())
    }

    pub(super) fn begin<R: Replica>(&mut self, round: u32, to: &mut R) -> Result<(), Error> {
        if round != self.round.wrapping_add(1) {
            return Err(Error::WrongRound { theirs: round, ours: self.round });
        }
        (self.round, self.state, self.position) = (round, State::Snapshot, 0);
        (self.stalled, self.ack_owed, self.resync_at) = (false, true, None);
        to.begin_snapshot(self.owner);
        Ok(())
    }

    pub(super) fn end<R: Replica>(
        &mut self,
        up_to: u64,
        to: &mut R,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        if self.stalled {
            return Ok(());
        }
        if self.state != State::Snapshot || up_to < self.position {
            return Err(Error::EndWithoutBegin { up_to, at: self.position });
        }
        to.end_snapshot(self.owner);
        (self.state, self.position, self.ack_owed) = (State::Whole, up_to, true);
        counts.snapshots_received += 1;
        Ok(())
    }

    pub(super) fn claims<R: Replica>(
        &mut self,
        now: Nanos,
        claims: &Claims<'_>,
        to: &mut R,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        if self.stalled {
            return Ok(());
        }
        if self.state == State::Missing {
            return Err(Error::ClaimsWithoutSnapshot);
        }
        if claims.after != self.position || claims.up_to <= claims.after {
            let Claims { after, up_to, .. } = *claims;
            return Err(Error::Gap { after, up_to, at: self.position });
        }
        for record in claims.records.iter() {
            let (key, claim) = convert::change(&record);
            if key.mac.is_group() {
                return Err(Error::NoEndpoint(key));
            }
            match claim {
                None => to.withdraw(self.owner, key),
                Some(claim) => {
                    if to.claim(self.owner, &claim).is_err() {
                        counts.refused += 1;
                        self.refused(now);
                        return Ok(());
                    }
                }
            }
        }
        counts.records_received += u64::from(claims.records.count());
        (self.position, self.ack_owed) = (claims.up_to, true);
        Ok(())
    }

    /// Notes that the replica has no room: its state remains that of the position before.
    fn refused(&mut self, now: Nanos) {
        self.stalled = true;
        if self.state == State::Snapshot {
            self.state = State::Missing;
        }
        self.resync_not_before = self.resync_not_before.max(now.after(self.resync_wait));
        self.resync_at = Some(self.resync_not_before);
    }

    pub(super) fn digest<R: Replica>(
        &mut self,
        (at, theirs): (u64, Digest),
        now: Nanos,
        timing: &Timing,
        to: &R,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        if self.stalled {
            return Ok(());
        }
        if self.state != State::Whole || at != self.position {
            return Err(Error::DigestElsewhere { at, ours: self.position });
        }
        if to.digest(self.owner) == theirs {
            (self.resync_wait, self.resync_at) = (timing.resync_min, None);
            return Ok(());
        }
        counts.digests_differed += 1;
        self.resync_at.get_or_insert(now.max(self.resync_not_before));
        Ok(())
    }

    /// Returns the time at which there is a request to send, if nothing happens before.
    pub(super) const fn deadline(&self) -> Option<Nanos> {
        self.resync_at
    }

    pub(super) const fn ack_owed(&self) -> bool {
        self.ack_owed
    }

    /// Returns the applied position: round, sequence, and true if the replica is whole.
    pub(super) fn take_ack(&mut self) -> (u32, u64, bool) {
        self.ack_owed = false;
        (self.round, self.position, self.is_whole())
    }

    /// Returns the round that went wrong, if the request is due.
    pub(super) fn take_resync(&mut self, now: Nanos, timing: &Timing) -> Option<u32> {
        self.resync_at.take_if(|at| *at <= now)?;
        self.resync_not_before = now.after(self.resync_wait);
        self.resync_wait = Nanos(self.resync_wait.0.saturating_mul(2)).min(timing.resync_max);
        Some(self.round)
    }
}
