//! Session with one peer: this host tells the peer of its own vports, and the peer does likewise.
//!
//! ```text
//!            connected              Hello of the peer
//!     Idle ─────────────> Greeting ───────────────────> Up
//!      ▲                     │ anything else, silence    │ message out of place, silence
//!      │   Bye is sent       ▼                           │
//!      └───────────────── Closing <──────────────────────┘      disconnected, Bye: Idle at once
//! ```
//!
//! The caller owns the connection and the clock. It hands in received bytes ([`Session::stream`]),
//! takes out bytes to be sent when there is room for them ([`Session::write`]), and comes back at
//! [`Session::deadline`] ([`Session::tick`]). Messages do not queue up here: the next message
//! follows from the state when there is room to send it, so that a slow peer costs no memory, and
//! no peer waits for another.
//!
//! The caller knows the identity of the peer from the connection's certificate. A peer speaks of
//! its own vports only: no record names an owner, and a Hello that names another host ends the
//! connection. So does a Hello of an earlier incarnation than one that was seen.
//!
//! Of two hosts the one with the lower number connects. Both send their identity and their position
//! in the other's claims. Each direction goes on from there or begins with a snapshot (`inbound`,
//! `outbound`). A host that has nothing else to send sends `Alive`; a peer that is silent for too
//! long counts as hung. With [`Timing::DEFAULT`] that is detected within 0.3 s.
//!
//! Time may jump. If it goes back, the session's time stands still. A jump forwards passes at once;
//! little of it counts as the peer's silence, since it may be a pause of this process or its
//! machine.

mod convert;
mod error;
mod fragments;
mod inbound;
mod inspect;
mod outbound;
mod timing;

use alloc::sync::Arc;
use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Prng};
use sluice_wire::fabric::SMALL_SIZE_MAX;
use sluice_wire::fabric::{self, FRAGMENTS_VERSION, Have, Hello, Message, RPC_VERSION, Reason};

use crate::clock::Clock;
use crate::digest::Digest;
use crate::publisher::Publisher;
use crate::rpc::Rpc;
use crate::vport::{Claim, Key};
pub use error::Error;
use fragments::Fragments;
pub use fragments::{SendError, WAITING_BYTES_MAX, WAITING_MAX};
use inbound::Inbound;
use outbound::Outbound;
pub use timing::Timing;

/// Receiver of the claims of other hosts.
pub trait Replica {
    /// Begins a snapshot: all claims of `owner` follow. Existing claims stay until the end.
    fn begin_snapshot(&mut self, owner: HostId);

    /// Takes a claim of `owner`.
    ///
    /// # Errors
    /// [`NoRoom`]: the claim is not there, and an older one for the same vport may still be.
    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom>;

    /// Removes the claim of `owner` for a vport. There may be none.
    fn withdraw(&mut self, owner: HostId, key: Key);

    /// Ends a snapshot: removes claims that `owner` has not named since the last
    /// [`Self::begin_snapshot`].
    fn end_snapshot(&mut self, owner: HostId);

    /// Returns the digest of the claims of `owner`.
    fn digest(&self, owner: HostId) -> Digest;
}

/// A replica has no room for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Identity and behaviour of a session.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This host.
    pub own: HostId,
    /// The host that connections of this session are authenticated as.
    pub peer: HostId,
    /// The fabric that both belong to.
    pub fabric: [u8; 16],
    /// The versions to speak, oldest and newest: [`fabric::VERSIONS`].
    pub versions: (u8, u8),
    /// Times and bounds.
    pub timing: Timing,
}

/// Counters of a session, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were sent.
    pub records_sent: u64,
    /// Records that were applied.
    pub records_received: u64,
    /// Snapshots that were sent to the end.
    pub snapshots_sent: u64,
    /// Snapshots that were applied to the end.
    pub snapshots_received: u64,
    /// Digests of the peer that differ from the replica.
    pub digests_differed: u64,
    /// Snapshots that the peer asked for.
    pub resyncs: u64,
    /// Claims for which the replica had no room.
    pub refused: u64,
    /// Times that the peer was silent for too long.
    pub hung: u64,
    /// Connections that this side ended because of the peer's messages.
    pub errors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Idle,
    /// A connection; the peer has not sent its Hello.
    Greeting,
    /// A connection on which both sides have greeted.
    Up,
    /// A Bye is owed, and incoming messages do not count any more.
    Closing(Reason),
}

/// Action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// None, but [`Session::write`] may have something to send.
    Nothing,
    /// Connect; [`Session::connected`] or [`Session::disconnected`] follows.
    Connect,
    /// Close the connection: the peer was silent for too long.
    Hung,
}

/// State of one peer.
#[derive(Debug)]
pub struct Session {
    config: Config,
    rng: Prng,
    clock: Clock,
    phase: Phase,
    version: u8,
    hello_owed: bool,
    /// Time at which the connection came up.
    since: Nanos,
    said_at: Nanos,
    heard_at: Nanos,
    /// Time of the last call that came with a time.
    looked_at: Nanos,
    /// Time of the next attempt to connect; `None` while an attempt is under way, or if the peer
    /// connects.
    retry_at: Option<Nanos>,
    retry_wait: Nanos,
    inbound: Inbound,
    outbound: Outbound,
    rpc: Rpc,
    fragments: Fragments,
    /// A later incarnation of this host that the peer knows.
    outdone: Option<u64>,
    counts: Counts,
}

impl Session {
    /// Creates a session without a connection. The seed spreads attempts to connect.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            rng: Prng::new(seed),
            clock: Clock::default(),
            phase: Phase::Idle,
            version: 0,
            hello_owed: false,
            since: Nanos::ZERO,
            said_at: Nanos::ZERO,
            heard_at: Nanos::ZERO,
            looked_at: Nanos::ZERO,
            retry_at: (config.own < config.peer).then_some(Nanos::ZERO),
            retry_wait: config.timing.retry_min,
            inbound: Inbound::new(config.peer, &config.timing),
            outbound: Outbound::new(config.peer),
            rpc: Rpc::new(),
            fragments: Fragments::new(),
            outdone: None,
            counts: Counts::default(),
        }
    }

    /// Notes a connection, authenticated as the peer's. It replaces an earlier one.
    pub fn connected(&mut self, now: Nanos) {
        if self.phase != Phase::Idle {
            self.disconnected(now);
        }
        let now = self.clock.at(now);
        (self.phase, self.hello_owed, self.retry_at) = (Phase::Greeting, true, None);
        (self.since, self.said_at, self.heard_at, self.looked_at) = (now, now, now, now);
        self.inbound.cut();
    }

    /// Notes that the connection is gone, or an attempt failed. Nothing happens if that is known.
    pub fn disconnected(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        if self.phase == Phase::Idle && self.retry_at.is_some() {
            return;
        }
        self.idle(now);
    }

    fn idle(&mut self, now: Nanos) {
        let timing = &self.config.timing;
        // A connection that lasted longer than the wait before it ends the doubling.
        let lasted = self.phase != Phase::Idle && now.since(self.since) > self.retry_wait;
        let wait = if lasted { timing.retry_min } else { self.retry_wait };
        let half = wait.0 / 2;
        let jittered = Nanos(half + self.rng.below(half + 1));
        self.retry_at = (self.config.own < self.config.peer).then_some(now.after(jittered));
        self.retry_wait = Nanos(wait.0.saturating_mul(2)).min(timing.retry_max);
        (self.phase, self.hello_owed) = (Phase::Idle, false);
        self.inbound.cut();
        self.rpc.down();
        self.fragments.down();
    }

    /// Begins to end the connection in good order. [`Self::write`] says so to the peer.
    pub fn close(&mut self) {
        self.close_as(Reason::Leaving);
    }

    /// Begins to end the connection because the peer is a member no more.
    pub fn dismiss(&mut self) {
        self.close_as(Reason::NotMember);
    }

    fn close_as(&mut self, reason: Reason) {
        if self.phase != Phase::Idle {
            self.phase = Phase::Closing(reason);
        }
    }

    /// Takes the whole messages at the start of `bytes` and returns their size. The rest is to be
    /// handed in again when there is more.
    ///
    /// # Errors
    /// The connection is to be ended: [`Self::write`] once more, and then close it.
    pub fn stream<R: Replica>(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        publisher: &mut Publisher,
        replica: &mut R,
    ) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            match Message::parse(&bytes[used..]) {
                Ok(None) => return Ok(used),
                Ok(Some((message, size))) => {
                    self.received(now, &message, publisher, replica)?;
                    used += size;
                }
                Err(malformed) => return Err(self.fail(now, Error::Malformed(malformed))),
            }
        }
    }

    /// Takes one message. Without a connection, and on one that is being closed, nothing happens.
    ///
    /// # Errors
    /// The connection is to be ended: [`Self::write`] once more, and then close it.
    pub fn received<R: Replica>(
        &mut self,
        now: Nanos,
        message: &Message<'_>,
        publisher: &mut Publisher,
        replica: &mut R,
    ) -> Result<(), Error> {
        let inside = self.look(now);
        let taken = match self.phase {
            Phase::Idle | Phase::Closing(_) => return Ok(()),
            Phase::Greeting => self.greeted(inside, message, publisher),
            Phase::Up => self.told(inside, message, publisher, replica),
        };
        self.heard_at = inside;
        taken.map_err(|error| self.fail(now, error))
    }

    fn fail(&mut self, now: Nanos, error: Error) -> Error {
        let now = self.clock.at(now);
        if let Error::Bye(_) = error {
            self.idle(now);
        } else if self.phase != Phase::Idle {
            self.counts.errors += 1;
            self.phase = Phase::Closing(error.reason());
        }
        error
    }

    fn greeted(
        &mut self,
        now: Nanos,
        message: &Message<'_>,
        publisher: &mut Publisher,
    ) -> Result<(), Error> {
        let hello = match message {
            Message::Hello(hello) => hello,
            Message::Bye { reason } => return Err(Error::Bye(*reason)),
            _ => return Err(Error::NoHello),
        };
        if hello.fabric != self.config.fabric {
            return Err(Error::WrongFabric);
        }
        if hello.host != self.config.peer {
            return Err(Error::WrongHost(hello.host));
        }
        let Have { incarnation, .. } = hello.have;
        self.outdone = Some(incarnation).filter(|known| *known > publisher.incarnation());
        let version = hello.common_version(self.config.versions);
        self.version = version.ok_or(Error::NoCommonVersion { theirs: hello.versions })?;
        self.inbound.hello(hello.incarnation)?;
        self.outbound.start(now, hello.have, self.version, publisher);
        self.phase = Phase::Up;
        self.rpc.up(self.version >= RPC_VERSION);
        self.fragments.up(self.version >= FRAGMENTS_VERSION);
        Ok(())
    }

    fn told<R: Replica>(
        &mut self,
        now: Nanos,
        message: &Message<'_>,
        publisher: &mut Publisher,
        replica: &mut R,
    ) -> Result<(), Error> {
        let (timing, counts) = (&self.config.timing, &mut self.counts);
        match *message {
            Message::Hello(_) => Err(Error::SecondHello),
            Message::Claims(ref claims) => self.inbound.claims(now, claims, replica, counts),
            Message::SnapshotBegin { round } => self.inbound.begin(round, replica),
            Message::SnapshotEnd { up_to } => self.inbound.end(up_to, replica, counts),
            Message::Digest { at, count, sum } => {
                self.inbound.digest((at, Digest { count, sum }), now, timing, replica, counts)
            }
            Message::Ack { round, sequence, whole } => {
                self.outbound.acked((round, sequence, whole), publisher)
            }
            Message::Resync { round } => self.outbound.resync(now, round, timing, counts),
            Message::Alive => Ok(()),
            Message::Bye { reason } => Err(Error::Bye(reason)),
            Message::Ask(_) | Message::Answer(_) if self.version < RPC_VERSION => {
                Err(Error::NotSpoken { version: self.version })
            }
            Message::Fragment(_) | Message::FragmentAck { .. } if !self.fragments.is_up() => {
                Err(Error::NotSpoken { version: self.version })
            }
            Message::Fragment(ref fragment) => self.fragments.take(fragment),
            Message::FragmentAck { taken } => self.fragments.acked(taken),
            Message::Ask(ref ask) => {
                self.rpc.asked(now, ask);
                Ok(())
            }
            Message::Answer(ref answer) => {
                self.rpc.answered(now, answer);
                Ok(())
            }
        }
    }

    /// Appends the messages to be sent now to `out`, up to `budget` bytes, and returns their size.
    /// A budget below [`SMALL_SIZE_MAX`] bytes has room for nothing. Appended bytes must be sent,
    /// in order, or the connection closed.
    pub fn write(
        &mut self,
        now: Nanos,
        publisher: &Publisher,
        budget: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let now = self.look(now);
        let size_before = out.len();
        if self.phase == Phase::Idle || budget < SMALL_SIZE_MAX {
            return 0;
        }
        if let Phase::Closing(reason) = self.phase {
            // A peer that is refused has to hear which of its incarnations is known here.
            let asks = reason == Reason::StaleIncarnation && self.hello_owed;
            if asks && budget >= 2 * SMALL_SIZE_MAX {
                emit(&Message::Hello(self.hello(publisher)), out);
            }
            emit(&Message::Bye { reason }, out);
            self.idle(now);
            return out.len() - size_before;
        }
        if self.hello_owed {
            emit(&Message::Hello(self.hello(publisher)), out);
            self.hello_owed = false;
        }
        if self.phase == Phase::Up {
            self.write_up(now, publisher, (budget, size_before), out);
        }
        if out.len() > size_before {
            self.said_at = now;
        }
        out.len() - size_before
    }

    /// Writes messages of a session that is up, in this order: holds, acknowledgements, fragments,
    /// claims, and one frame of questions and answers.
    fn write_up(
        &mut self,
        now: Nanos,
        publisher: &Publisher,
        (budget, size_before): (usize, usize),
        out: &mut Vec<u8>,
    ) {
        let left = |out: &Vec<u8>| budget - (out.len() - size_before);
        let timing = &self.config.timing;
        // Urgent frames are bounded, and go before all else.
        while self.rpc.urgent_size(now).is_some_and(|size| size <= left(out)) {
            self.rpc.write(now, left(out), out);
        }
        if self.inbound.ack_owed() && left(out) >= SMALL_SIZE_MAX {
            let (round, sequence, whole) = self.inbound.take_ack();
            emit(&Message::Ack { round, sequence, whole }, out);
        }
        if self.fragments.ack_owed() && left(out) >= SMALL_SIZE_MAX {
            emit(&Message::FragmentAck { taken: self.fragments.take_ack() }, out);
        }
        if left(out) >= SMALL_SIZE_MAX
            && let Some(round) = self.inbound.take_resync(now, timing)
        {
            emit(&Message::Resync { round }, out);
        }
        // One frame of questions and answers, if it waits and fits, for each write of claims:
        // neither keeps the other away.
        let talk = self.rpc.frame_size(now).filter(|&size| size <= left(out)).unwrap_or(0);
        let claims_at = self.outbound.deadline(publisher, timing.flight_bytes_max);
        let share = self.fragments.share(left(out) - talk, claims_at.is_some_and(|at| at <= now));
        self.fragments.write(share, out);
        let budget = left(out) - talk;
        let size = self.outbound.write(now, publisher, timing, budget, out, &mut self.counts);
        if size == 0 {
            // Claims that wait did not fit.
            self.fragments.write(budget, out);
        }
        self.rpc.write(now, talk, out);
        if out.len() == size_before && now >= self.said_at.after(timing.alive_after) {
            emit(&Message::Alive, out);
        }
    }

    fn hello(&self, publisher: &Publisher) -> Hello {
        Hello {
            versions: self.config.versions,
            fabric: self.config.fabric,
            host: self.config.own,
            incarnation: publisher.incarnation(),
            have: self.inbound.have(),
        }
    }

    /// Moves to `now` of the caller's clock and returns the session's time. The caller comes at
    /// least every [`Timing::alive_after`] while there is a connection. Of a longer pause no more
    /// counts as the peer's silence: this process did not run, and the peer, which may share the
    /// processors, perhaps did not either.
    fn look(&mut self, now: Nanos) -> Nanos {
        let now = self.clock.at(now);
        let before = core::mem::replace(&mut self.looked_at, now);
        let pause = Nanos(now.since(before).0.saturating_sub(self.config.timing.alive_after.0));
        self.heard_at = self.heard_at.after(pause).min(now);
        now
    }

    /// Returns the action that is due. Call this at [`Self::deadline`], and as often as you like.
    pub fn tick(&mut self, now: Nanos) -> Due {
        let now = self.look(now);
        if self.phase == Phase::Idle {
            if self.retry_at.is_some_and(|at| at <= now) {
                self.retry_at = None;
                return Due::Connect;
            }
        } else if now >= self.heard_at.after(self.config.timing.silence_max) {
            self.counts.hung += 1;
            self.idle(now);
            return Due::Hung;
        }
        self.rpc.expire(now);
        Due::Nothing
    }

    /// Returns the time at which [`Self::tick`] or [`Self::write`] has something to do, if nothing
    /// happens before: nothing is received, claimed or withdrawn. A moment that has passed means
    /// now.
    #[must_use]
    pub fn deadline(&self, publisher: &Publisher) -> Option<Nanos> {
        let timing = &self.config.timing;
        let at = match self.phase {
            Phase::Idle => self.retry_at,
            Phase::Closing(_) => Some(Nanos::ZERO),
            Phase::Greeting | Phase::Up if self.hello_owed => Some(Nanos::ZERO),
            Phase::Greeting => Some(self.silence_due()),
            Phase::Up if self.inbound.ack_owed() => Some(Nanos::ZERO),
            Phase::Up if self.fragments.ack_owed() || self.fragments.is_ready() => {
                Some(Nanos::ZERO)
            }
            Phase::Up => {
                let silence = self.silence_due();
                let alive = self.said_at.after(timing.alive_after);
                let data = self.outbound.deadline(publisher, timing.flight_bytes_max);
                let talk = self.rpc.frame_size(self.clock.latest()).map(|_| Nanos::ZERO);
                let times = [self.inbound.deadline(), data, talk.or(self.rpc.expires_at())];
                times.into_iter().flatten().chain([silence, alive]).min()
            }
        };
        at.map(|at| self.clock.outside(at))
    }

    /// Returns the time at which [`Self::tick`] has something to do; [`Self::write`] may have so
    /// earlier. Wait for this time as long as the connection takes no bytes.
    #[must_use]
    pub fn tick_at(&self) -> Option<Nanos> {
        let silence = self.silence_due();
        let at = match self.phase {
            Phase::Idle => self.retry_at,
            _ => Some(self.rpc.expires_at().map_or(silence, |at| at.min(silence))),
        };
        at.map(|at| self.clock.outside(at))
    }

    /// Returns the time at which the peer counts as hung, or at which its silence is to be looked
    /// at before.
    fn silence_due(&self) -> Nanos {
        let timing = &self.config.timing;
        self.heard_at.after(timing.silence_max).min(self.looked_at.after(timing.alive_after))
    }

    /// Notes that the replica has lost the peer's claims: the next connection begins with a
    /// snapshot. Nothing happens while the peer is connected.
    pub fn forget_claims(&mut self) {
        if self.phase == Phase::Idle {
            self.inbound.forget();
        }
    }

    /// Returns the questions and answers of the two sides, and the session's time, which counts for
    /// them.
    pub fn rpc(&mut self, now: Nanos) -> (&mut Rpc, Nanos) {
        let now = self.clock.at(now);
        (&mut self.rpc, now)
    }

    /// Sends a message to the peer. It arrives whole, after those sent before it, or not at all:
    /// the end of the connection loses it.
    ///
    /// # Errors
    /// Nothing is sent.
    pub fn send(&mut self, message: Arc<[u8]>) -> Result<(), SendError> {
        self.fragments.send(message)
    }

    /// Returns the next message of the peer. Take all: there are as many as came.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        self.fragments.received()
    }

    /// Returns true if there is a connection to a peer that takes messages.
    #[must_use]
    pub fn takes_messages(&self) -> bool {
        self.fragments.is_up()
    }

    /// Returns, once, a later incarnation of this host that the peer knows: the peer takes nothing
    /// of an earlier one.
    pub const fn take_outdone(&mut self) -> Option<u64> {
        self.outdone.take()
    }
}

/// Appends a message other than claims.
fn emit(message: &Message<'_>, out: &mut Vec<u8>) {
    let mut frame = [0; SMALL_SIZE_MAX];
    let size = message.emit(&mut frame);
    out.extend_from_slice(&frame[..size]);
}

const _: () = assert!(fabric::VERSIONS.0 <= fabric::VERSIONS.1);

#[cfg(test)]
mod tests;
