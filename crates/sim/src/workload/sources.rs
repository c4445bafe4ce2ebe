//! UDP sources: each sends datagrams of one size from one station to another, at constant or at
//! random gaps.
//!
//! A source is an open loop: nothing that happens in the network changes the time of its next
//! datagram, so that the arrivals at its first link are the process that was asked for. With
//! virtual networks a datagram that finds [`RING_FRAMES`] frames in the ring of its VM is refused,
//! as a socket that does not block refuses it (EAGAIN). Without them frames wait at the network
//! card, whose queue has no limit: a load above the link's rate makes it ever longer.

use sluice_base::{Nanos, Priority, Prng};

use super::RING_FRAMES;
use super::draw::exponential;
use crate::world::{Connect, ConnectionId, Notice, Workload, World};

/// Distribution of the gaps between the datagrams of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Every gap is the mean.
    Constant,
    /// Gaps are exponential, independent of each other: the datagrams are a Poisson process.
    Poisson,
}

/// A source of datagrams.
#[derive(Clone, Debug)]
pub struct Source {
    /// The station that sends.
    pub from: u32,
    /// The station that receives.
    pub to: u32,
    /// Payload bytes of a datagram, at least 1.
    pub bytes: u32,
    /// Distribution of the gaps.
    pub gaps: Gaps,
    /// Mean gap between the beginnings of two datagrams.
    pub gap: Nanos,
    /// Time of the first datagram.
    pub first: Nanos,
    /// Number of datagrams after which the source ends; `u64::MAX`: never.
    pub datagrams: u64,
    /// The priority of all frames.
    pub priority: Priority,
}

/// Datagrams of one source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Datagrams handed to the network.
    pub sent: u64,
    /// Datagrams that found the ring of their VM full, and were not sent.
    pub refused: u64,
    /// Datagrams that reached the other station.
    pub arrived: u64,
}

/// A source that runs.
#[derive(Debug)]
struct Running {
    source: Source,
    random: Prng,
    /// The connection, from the start of the run.
    connection: Option<ConnectionId>,
    sent: u64,
    refused: u64,
}

impl Running {
    /// Returns true if all datagrams were sent or refused.
    const fn has_ended(&self) -> bool {
        self.sent + self.refused >= self.source.datagrams
    }

    fn bytes_arrived(&self, world: &World) -> u64 {
        self.connection.map_or(0, |connection| world.datagram_bytes(connection.server()))
    }

    fn next_gap(&mut self) -> Nanos {
        match self.source.gaps {
            Gaps::Constant => self.source.gap,
            Gaps::Poisson => exponential(&mut self.random, self.source.gap),
        }
    }
}

/// Sources of datagrams, running. The workload is done when all of them have ended.
#[derive(Debug)]
pub struct Sources {
    sources: Vec<Running>,
}

impl Sources {
    /// Creates the workload, ready to begin. Each source draws from a stream of its own.
    ///
    /// # Panics
    /// If a datagram has no payload.
    #[must_use]
    pub fn new(sources: Vec<Source>, seed: u64) -> Self {
        let run = |(at, source): (usize, Source)| {
            assert!(source.bytes > 0, "datagrams are counted by their bytes");
            let random = Prng::stream(seed, &format!("source {at}"));
            Running { source, random, connection: None, sent: 0, refused: 0 }
        };
        Self { sources: sources.into_iter().enumerate().map(run).collect() }
    }

    /// Returns the counts of each source, in the order in which they were given.
    #[must_use]
    pub fn counts(&self, world: &World) -> Vec<SourceCounts> {
        let of = |running: &Running| SourceCounts {
            sent: running.sent,
            refused: running.refused,
            arrived: running.bytes_arrived(world) / u64::from(running.source.bytes),
        };
        self.sources.iter().map(of).collect()
    }

    /// Returns the sum of the counts of all sources.
    #[must_use]
    pub fn total(&self, world: &World) -> SourceCounts {
        let add = |sum: SourceCounts, of: SourceCounts| SourceCounts {
            sent: sum.sent + of.sent,
            refused: sum.refused + of.refused,
            arrived: sum.arrived + of.arrived,
        };
        self.counts(world).into_iter().fold(SourceCounts::default(), add)
    }

    /// Returns the payload bytes that have arrived from each source.
    #[must_use]
    pub fn bytes_arrived(&self, world: &World) -> Vec<u64> {
        self.sources.iter().map(|running| running.bytes_arrived(world)).collect()
    }

    /// Sends the datagram of a source that is due, and schedules the next one.
    fn send(&mut self, world: &mut World, at: u32) {
        let running = &mut self.sources[at as usize];
        let connection = running.connection.expect("made at the start");
        if world.ring_frames(connection.client()) < RING_FRAMES {
            running.sent += 1;
            world.send_datagram(connection.client(), running.source.bytes);
        } else {
            running.refused += 1;
        }
        if !running.has_ended() {
            let gap = running.next_gap();
            world.at(world.now().after(gap), at);
        }
    }
}

impl Workload for Sources {
    fn start(&mut self, world: &mut World) {
        for (at, running) in (0_u32..).zip(&mut self.sources) {
            let source = &running.source;
            let with = Connect {
                from: source.from,
                to: source.to,
                priority: source.priority,
                flow: running.random.next_u64(),
                handshake: false,
            };
            let connection = world.connect_datagrams(&with).expect("all stations are joined");
            running.connection = Some(connection);
            if !running.has_ended() {
                world.at(world.now().after(source.first), at);
            }
        }
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        if let Notice::Time(at) = notice {
            self.send(world, at);
        }
    }

    fn is_done(&self) -> bool {
        self.sources.iter().all(Running::has_ended)
    }
}
