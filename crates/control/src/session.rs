//! One peer: what this host tells it of its own vports, and what it tells of its own.
//!
//! ```text
//!            connected              Hello of the peer
//!     Idle ─────────────> Greeting ───────────────────> Up
//!      ▲                     │ anything else, silence    │ message out of place, silence
//!      │   Bye is sent       ▼                           │
//!      └───────────────── Closing <──────────────────────┘      disconnected, Bye: Idle at once
//! ```
//!
//! The caller owns the connection and the clock. It hands in what was received
//! ([`Session::stream`]), takes out what is to be sent when there is room for it
//! ([`Session::write`]), and comes back at [`Session::deadline`] ([`Session::tick`]). Messages do
//! not queue up here: what to say follows from the state when there is room to say it, so that a
//! slow peer costs no memory, and no peer waits for another.
//!
//! Who the peer is, the caller knows from the connection's certificate. A peer speaks of its own
//! vports only: no record names an owner, and a Hello that names another host ends the connection.
//! A Hello of an earlier incarnation than one that was seen does, too.
//!
//! Of two hosts the one with the lower number connects. Both say who they are and what they have of
//! each other; each direction goes on from there or begins with a snapshot (`inbound`, `outbound`).
//! Whoever has nothing to say says `Alive`; a peer that is silent for too long counts as hung. With
//! [`Timing::DEFAULT`] that is found out within 0.3 s.
//!
//! Time may jump. Backwards, it stands still; forwards, it passes at once, which may take a
//! connection down and nothing more.

mod convert;
mod error;
mod inbound;
mod outbound;

use alloc::vec::Vec;

use sluice_base::{HostId, Nanos, Prng};
use sluice_wire::fabric::{self, Have, Hello, Message, RPC_VERSION, Reason, SMALL_SIZE_MAX};

use crate::clock::Clock;
use crate::digest::Digest;
use crate::publisher::Publisher;
use crate::rpc::Rpc;
use crate::vport::{Claim, Key};
pub use error::Error;
use inbound::Inbound;
use outbound::Outbound;

/// Where the claims of other hosts go.
pub trait Replica {
    /// All claims of `owner` follow. Those that are there stay until the end.
    fn begin_snapshot(&mut self, owner: HostId);

    /// `owner` has a vport, like this.
    ///
    /// # Errors
    /// [`NoRoom`]: the claim is not there, and an older one for the same vport may still be.
    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom>;

    /// `owner` has a vport no more. It may not be there.
    fn withdraw(&mut self, owner: HostId, key: Key);

    /// What `owner` has not claimed since the last [`Self::begin_snapshot`] is gone.
    fn end_snapshot(&mut self, owner: HostId);

    /// What the claims of `owner` are in sum.
    fn digest(&self, owner: HostId) -> Digest;
}

/// A replica has no room for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Times and bounds of a session.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Who has said nothing for so long says [`Message::Alive`].
    pub alive_after: Nanos,
    /// Who is not heard of for so long is hung. Several times [`Self::alive_after`].
    pub silence_max: Nanos,
    /// How often claims are compared.
    pub digest_every: Nanos,
    /// The first wait before connecting again; it doubles.
    pub retry_min: Nanos,
    /// The longest such wait.
    pub retry_max: Nanos,
    /// The first wait between two requests for a snapshot; it doubles.
    pub resync_min: Nanos,
    /// The longest such wait.
    pub resync_max: Nanos,
    /// How many bytes of claims may be sent and not acknowledged.
    pub flight_bytes_max: usize,
}

impl Timing {
    /// A peer that hangs is found out within 0.3 s even if one [`Message::Alive`] in two is late.
    pub const DEFAULT: Self = Self {
        alive_after: Nanos::from_millis(80),
        silence_max: Nanos::from_millis(250),
        digest_every: Nanos::from_millis(5_000),
        retry_min: Nanos::from_millis(50),
        retry_max: Nanos::from_millis(500),
        resync_min: Nanos::from_millis(1_000),
        resync_max: Nanos::from_millis(60_000),
        flight_bytes_max: 256 * 1024,
    };
}

/// Whose session this is, and how it behaves.
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

/// What has happened in a session, since it was made.
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
    /// Claims that the replica had no room for.
    pub refused: u64,
    /// Times that the peer was silent for too long.
    pub hung: u64,
    /// Connections that this side ended over what the peer said.
    pub errors: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Idle,
    /// A connection; the peer has not said who it is.
    Greeting,
    /// Both know each other.
    Up,
    /// A Bye is owed, and nothing that comes counts any more.
    Closing(Reason),
}

/// What it is time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Due {
    /// Nothing, but [`Session::write`] may have something to send.
    Nothing,
    /// To connect; [`Session::connected`] or [`Session::disconnected`] follows.
    Connect,
    /// To close the connection: the peer was silent for too long.
    Hung,
}

/// The state of one peer.
#[derive(Debug)]
pub struct Session {
    config: Config,
    rng: Prng,
    clock: Clock,
    phase: Phase,
    version: u8,
    hello_owed: bool,
    /// When the connection came up.
    since: Nanos,
    said_at: Nanos,
    heard_at: Nanos,
    /// When to connect; `None` while an attempt is under way, or if it is the peer that connects.
    retry_at: Option<Nanos>,
    retry_wait: Nanos,
    inbound: Inbound,
    outbound: Outbound,
    rpc: Rpc,
    /// A later incarnation of this host that the peer knows.
    outdone: Option<u64>,
    counts: Counts,
}

impl Session {
    /// A session without a connection. The seed spreads attempts to connect.
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
            retry_at: (config.own < config.peer).then_some(Nanos::ZERO),
            retry_wait: config.timing.retry_min,
            inbound: Inbound::new(config.peer, &config.timing),
            outbound: Outbound::new(config.peer),
            rpc: Rpc::new(),
            outdone: None,
            counts: Counts::default(),
        }
    }

    /// There is a connection, authenticated as the peer's. It takes the place of one before.
    pub fn connected(&mut self, now: Nanos) {
        if self.phase != Phase::Idle {
            self.disconnected(now);
        }
        let now = self.clock.at(now);
        (self.phase, self.hello_owed, self.retry_at) = (Phase::Greeting, true, None);
        (self.since, self.said_at, self.heard_at) = (now, now, now);
        self.inbound.cut();
    }

    /// The connection is gone, or an attempt failed. Nothing happens if it is known.
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
    }

    /// The connection is to be ended in good order. [`Self::write`] says so to the peer.
    pub fn close(&mut self) {
        if self.phase != Phase::Idle {
            self.phase = Phase::Closing(Reason::Leaving);
        }
    }

    /// Takes the whole messages at the start of `bytes` and returns how many bytes these were. The
    /// rest is to be handed in again when there is more.
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
        let inside = self.clock.at(now);
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

    /// Appends what is to be sent now to `out`, up to `budget` bytes, and returns how many these
    /// are. Less than [`SMALL_SIZE_MAX`] bytes are room for nothing. What was appended must be
    /// sent, in order, or the connection closed.
    pub fn write(
        &mut self,
        now: Nanos,
        publisher: &Publisher,
        budget: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let now = self.clock.at(now);
        let size_before = out.len();
        let left = |out: &Vec<u8>| budget - (out.len() - size_before);
        if self.phase == Phase::Idle || budget < SMALL_SIZE_MAX {
            return 0;
        }
        if let Phase::Closing(reason) = self.phase {
            // Who is refused has to hear which of its lives is known here.
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
            let timing = &self.config.timing;
            // What is urgent is bounded, and goes before all else.
            while self.rpc.urgent_size(now).is_some_and(|size| size <= left(out)) {
                self.rpc.write(now, left(out), out);
            }
            if self.inbound.ack_owed() && left(out) >= SMALL_SIZE_MAX {
                let (round, sequence, whole) = self.inbound.take_ack();
                emit(&Message::Ack { round, sequence, whole }, out);
            }
            if left(out) >= SMALL_SIZE_MAX
                && let Some(round) = self.inbound.take_resync(now, timing)
            {
                emit(&Message::Resync { round }, out);
            }
            // One frame of questions and answers, if it waits and fits, for each time that claims
            // are written: neither keeps the other away.
            let talk = self.rpc.frame_size(now).filter(|&size| size <= left(out)).unwrap_or(0);
            let budget = left(out) - talk;
            self.outbound.write(now, publisher, timing, budget, out, &mut self.counts);
            self.rpc.write(now, talk, out);
            if out.len() == size_before && now >= self.said_at.after(timing.alive_after) {
                emit(&Message::Alive, out);
            }
        }
        if out.len() > size_before {
            self.said_at = now;
        }
        out.len() - size_before
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

    /// Says what it is time for. Call it at [`Self::deadline`], and as often as you like.
    pub fn tick(&mut self, now: Nanos) -> Due {
        let now = self.clock.at(now);
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

    /// When [`Self::tick`] or [`Self::write`] has something to do, if nothing happens before:
    /// nothing is received, claimed or withdrawn. A moment that has passed means now.
    #[must_use]
    pub fn deadline(&self, publisher: &Publisher) -> Option<Nanos> {
        let timing = &self.config.timing;
        let at = match self.phase {
            Phase::Idle => self.retry_at,
            Phase::Closing(_) => Some(Nanos::ZERO),
            Phase::Greeting | Phase::Up if self.hello_owed => Some(Nanos::ZERO),
            Phase::Greeting => Some(self.heard_at.after(timing.silence_max)),
            Phase::Up if self.inbound.ack_owed() => Some(Nanos::ZERO),
            Phase::Up => {
                let silence = self.heard_at.after(timing.silence_max);
                let alive = self.said_at.after(timing.alive_after);
                let data = self.outbound.deadline(publisher, timing.flight_bytes_max);
                let talk = self.rpc.frame_size(self.clock.latest()).map(|_| Nanos::ZERO);
                let times = [self.inbound.deadline(), data, talk.or(self.rpc.expires_at())];
                times.into_iter().flatten().chain([silence, alive]).min()
            }
        };
        at.map(|at| self.clock.outside(at))
    }

    /// When [`Self::tick`] has something to do; [`Self::write`] may have so earlier. It is what to
    /// wait for as long as the connection takes nothing.
    #[must_use]
    pub fn tick_at(&self) -> Option<Nanos> {
        let silence = self.heard_at.after(self.config.timing.silence_max);
        let at = match self.phase {
            Phase::Idle => self.retry_at,
            _ => Some(self.rpc.expires_at().map_or(silence, |at| at.min(silence))),
        };
        at.map(|at| self.clock.outside(at))
    }

    /// What the replica had of the peer's claims is no longer there: the next connection begins
    /// with a snapshot. Nothing happens while the peer is there.
    pub fn forget_claims(&mut self) {
        if self.phase == Phase::Idle {
            self.inbound.forget();
        }
    }

    /// Questions and answers between the two. What is done with them counts from `now` on.
    pub fn rpc(&mut self, now: Nanos) -> (&mut Rpc, Nanos) {
        let now = self.clock.at(now);
        (&mut self.rpc, now)
    }

    /// What has happened between the two in questions and answers.
    #[must_use]
    pub const fn rpc_counts(&self) -> crate::rpc::Counts {
        self.rpc.counts()
    }

    /// Whether the peer is there and both know each other.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Whether the replica has all claims of the peer, as of some moment of its latest incarnation.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.inbound.is_whole()
    }

    /// Whether the peer was sent all claims of this host.
    #[must_use]
    pub fn is_done(&self, publisher: &Publisher) -> bool {
        self.phase == Phase::Up && self.outbound.is_done(publisher)
    }

    /// The version that is spoken; zero before the first connection.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// What this host has of the peer's claims.
    #[must_use]
    pub fn have(&self) -> Have {
        self.inbound.have()
    }

    /// The latest incarnation of the peer; zero if it was never heard of.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.inbound.incarnation()
    }

    /// The incarnation of this host that the peer knows, once, if it is a later one than this: the
    /// peer takes nothing of an earlier one.
    pub const fn take_outdone(&mut self) -> Option<u64> {
        self.outdone.take()
    }

    /// How many bytes of claims were sent and not acknowledged.
    #[must_use]
    pub const fn flight_bytes(&self) -> usize {
        self.outbound.flight_bytes()
    }

    /// What has happened.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// Appends a message that is not claims.
fn emit(message: &Message<'_>, out: &mut Vec<u8>) {
    let mut frame = [0; SMALL_SIZE_MAX];
    let size = message.emit(&mut frame);
    out.extend_from_slice(&frame[..size]);
}

const _: () = assert!(fabric::VERSIONS.0 <= fabric::VERSIONS.1);

#[cfg(test)]
mod tests;
