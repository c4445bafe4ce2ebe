//! Own claims on their way to a peer.
//!
//! There is no queue: a peer is a cursor into the publisher's log, and the next claims are read
//! from there when the connection has room. Claims that were sent and not acknowledged are bounded
//! in bytes.
//!
//! A round is a snapshot and the changes that follow it. A snapshot is the log from its beginning.
//! It ends when there is nothing more to send at that moment, so that a vport that changed
//! meanwhile was named before unnamed vports are swept. A withdrawal made before the round began
//! need not be sent in it. When the publisher forgets a later withdrawal that was not sent yet,
//! another round begins.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos};
use sluice_wire::fabric::{CLAIMS_SIZE_MIN, ClaimsWriter, FRAME_SIZE_MAX, Have, Message};
use sluice_wire::fabric::{RECORD_SIZE_MAX, SEQUENCES_VERSION, SMALL_SIZE_MAX};

use super::{Counts, Error, Timing, convert, emit};
use crate::publisher::{Change, Publisher};

/// Frames of claims that may wait for their acknowledgement, beside the bound in bytes.
const FLIGHT_FRAMES_MAX: usize = 256;
/// The smallest frame of claims that can take any record.
pub(super) const CLAIMS_ROOM_MIN: usize = CLAIMS_SIZE_MIN + RECORD_SIZE_MAX;

/// A frame of claims that was sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    round: u32,
    up_to: u64,
    size: usize,
}

/// The sending direction of a session.
#[derive(Debug)]
pub(super) struct Outbound {
    peer: HostId,
    round: u32,
    /// Last sequence of the publisher when the round began; zero if the round is a delta.
    base: u64,
    /// Position in the log in this round.
    cursor: u64,
    /// Last sequence of the last message that had one.
    told: u64,
    snapshot: bool,
    begin_at: Option<Nanos>,
    begin_not_before: Nanos,
    flight: VecDeque<InFlight>,
    flight_bytes: usize,
    /// The last acknowledgement.
    acked: (u32, u64),
    digest_at: Nanos,
    /// True if the peer knows no sequences of addresses.
    is_plain: bool,
}

impl Outbound {
    pub(super) fn new(peer: HostId) -> Self {
        Self {
            peer,
            round: 0,
            base: 0,
            cursor: 0,
            told: 0,
            snapshot: false,
            begin_at: None,
            begin_not_before: Nanos::ZERO,
            flight: VecDeque::new(),
            flight_bytes: 0,
            acked: (0, 0),
            digest_at: Nanos::ZERO,
            is_plain: false,
        }
    }

    /// Starts with the position that the peer sent: a delta follows, or a snapshot.
    pub(super) fn start(&mut self, now: Nanos, have: Have, version: u8, publisher: &mut Publisher) {
        let Have { incarnation, sequence } = have;
        let known = incarnation == publisher.incarnation()
            && sequence > 0
            && (publisher.horizon()..=publisher.last()).contains(&sequence);
        let cursor = if known { sequence } else { 0 };
        let begin_not_before = self.begin_not_before;
        *self =
            Self { cursor, told: cursor, begin_not_before, digest_at: now, ..Self::new(self.peer) };
        self.acked = (0, cursor);
        self.is_plain = version < SEQUENCES_VERSION;
        self.begin_at = (!known).then_some(now);
        publisher.set_peer(self.peer, cursor);
    }

    #[cfg(test)]
    pub(super) const fn round(&self) -> u32 {
        self.round
    }

    #[cfg(test)]
    pub(super) const fn told(&self) -> u64 {
        self.told
    }

    pub(super) const fn flight_bytes(&self) -> usize {
        self.flight_bytes
    }

    /// Returns true if the peer has been sent everything.
    pub(super) fn is_done(&self, publisher: &Publisher) -> bool {
        self.begin_at.is_none() && !self.snapshot && self.cursor == publisher.last()
    }

    pub(super) fn acked(
        &mut self,
        (round, sequence, whole): (u32, u64, bool),
        publisher: &mut Publisher,
    ) -> Result<(), Error> {
        let sent = if round == self.round { self.cursor } else { u64::MAX };
        if round > self.round || sequence > sent || (round, sequence) < self.acked {
            return Err(Error::WrongAck { round, sequence, sent: self.cursor });
        }
        self.acked = (round, sequence);
        while let Some(first) = self.flight.front() {
            if (first.round, first.up_to) > self.acked {
                break;
            }
            self.flight_bytes -= first.size;
            self.flight.pop_front();
        }
        if whole && round == self.round {
            publisher.acked(self.peer, sequence);
        }
        Ok(())
    }

    /// Takes a request for a snapshot. A snapshot that is about to begin, or has begun meanwhile,
    /// is the answer to all requests made before it.
    pub(super) fn resync(
        &mut self,
        now: Nanos,
        round: u32,
        timing: &Timing,
        counts: &mut Counts,
    ) -> Result<(), Error> {
        if round > self.round {
            return Err(Error::WrongRound { theirs: round, ours: self.round });
        }
        if round == self.round && self.begin_at.is_none() {
            counts.resyncs += 1;
            let at = now.max(self.begin_not_before);
            self.begin_at = Some(at);
            self.begin_not_before = at.after(timing.resync_min);
        }
        Ok(())
    }

    /// Returns the time at which there is something to send, if nothing happens before; `None` for
    /// not before an event.
    pub(super) fn deadline(&self, publisher: &Publisher, flight_max: usize) -> Option<Nanos> {
        let all_read = self.cursor == publisher.last();
        let room = self.room(flight_max) >= CLAIMS_ROOM_MIN;
        let ready = if all_read { self.snapshot } else { room };
        if ready || self.missed_a_withdrawal(publisher) {
            return Some(Nanos::ZERO);
        }
        self.begin_at.or(all_read.then_some(self.digest_at))
    }

    fn room(&self, flight_max: usize) -> usize {
        let free = flight_max.max(CLAIMS_ROOM_MIN).saturating_sub(self.flight_bytes);
        if self.flight.len() < FLIGHT_FRAMES_MAX { free } else { 0 }
    }

    fn missed_a_withdrawal(&self, publisher: &Publisher) -> bool {
        publisher.horizon() > self.cursor.max(self.base)
    }

    /// Appends messages to be sent, up to `budget` bytes, and returns their size.
    pub(super) fn write(
        &mut self,
        now: Nanos,
        publisher: &Publisher,
        timing: &Timing,
        budget: usize,
        out: &mut Vec<u8>,
        counts: &mut Counts,
    ) -> usize {
        let size_before = out.len();
        if self.missed_a_withdrawal(publisher) && self.begin_at.is_none() {
            self.begin_at = Some(now);
        }
        loop {
            let left = budget - (out.len() - size_before);
            if left < SMALL_SIZE_MAX {
                break;
            }
            if self.begin_at.is_some_and(|at| at <= now) {
                self.begin(publisher, out);
            } else if self.cursor < publisher.last() {
                let room = left.min(self.room(timing.flight_bytes_max)).min(FRAME_SIZE_MAX);
                if room < CLAIMS_ROOM_MIN {
                    break;
                }
                self.write_claims(publisher, room, out, counts);
            } else if self.snapshot {
                emit(&Message::SnapshotEnd { up_to: self.cursor }, out);
                (self.snapshot, self.told, self.digest_at) = (false, self.cursor, now);
                counts.snapshots_sent += 1;
            } else if self.is_done(publisher) && self.digest_at <= now {
                let digest =
                    if self.is_plain { publisher.plain_digest() } else { publisher.digest() };
                let (count, sum) = (digest.count, digest.sum);
                emit(&Message::Digest { at: self.cursor, count, sum }, out);
                self.digest_at = now.after(timing.digest_every);
            } else {
                break;
            }
        }
        out.len() - size_before
    }

    fn begin(&mut self, publisher: &Publisher, out: &mut Vec<u8>) {
        self.round += 1;
        emit(&Message::SnapshotBegin { round: self.round }, out);
        (self.base, self.cursor, self.told) = (publisher.last(), 0, 0);
        (self.snapshot, self.begin_at) = (true, None);
    }

    fn write_claims(
        &mut self,
        publisher: &Publisher,
        room: usize,
        out: &mut Vec<u8>,
        counts: &mut Counts,
    ) {
        let start = out.len();
        out.resize(start + room, 0);
        let mut writer = ClaimsWriter::new(&mut out[start..]);
        let mut up_to = publisher.last();
        for (sequence, change) in publisher.after(self.cursor) {
            if matches!(change, Change::Withdrawn(_)) && sequence <= self.base {
                continue;
            }
            if !writer.push(&convert::record(change)) {
                // The next message begins with this one.
                up_to = sequence - 1;
                break;
            }
        }
        let count = writer.count();
        let size = if count == 0 { 0 } else { writer.finish(self.told, up_to) };
        out.truncate(start + size);
        self.cursor = up_to;
        if count > 0 {
            self.told = up_to;
            counts.records_sent += u64::from(count);
            self.flight_bytes += size;
            self.flight.push_back(InFlight { round: self.round, up_to, size });
        }
    }
}
