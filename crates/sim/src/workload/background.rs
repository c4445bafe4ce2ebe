//! Background traffic: every station sends flows of random sizes to random other stations at random
//! times, at a given load.
//!
//! Sizes come from a published distribution; flows begin as a Poisson process. A TCP flow has a
//! connection of its own. A UDP flow has no congestion control: its datagrams leave at a steady
//! rate until all are sent, unless the station's ring is full. A full ring blocks the socket, which
//! sends again when the ring is half empty; sockets that are blocked take turns, first come first
//! served. With [`Full::Drop`] the sender drops the datagram instead, and counts it.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority, Prng};

use super::RING_FRAMES;
use super::draw::{Sizes, exponential};
use crate::slab::Slab;
use crate::tcp::Config;
use crate::world::{Connect, ConnectionId, Notice, Workload, World};

/// Transport of flows.
#[derive(Clone, Debug)]
pub enum Carrier {
    /// TCP with this configuration.
    Tcp(Arc<Config>),
    /// Datagrams of so many bytes, sent at this rate while a flow lasts.
    Udp {
        /// Payload bytes of a datagram.
        bytes: u32,
        /// The rate of a flow, in bits of payload.
        rate: BitRate,
        /// Fate of a datagram that finds its machine's ring full.
        full: Full,
    },
}

/// Fate of a datagram that finds its machine's ring full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The socket blocks, and sends again when the ring is half empty.
    #[default]
    Wait,
    /// The sender drops it, and goes on at its rate.
    Drop,
}

/// Plan of the traffic.
#[derive(Clone, Debug)]
pub struct Background {
    /// Transport of its flows.
    pub carrier: Carrier,
    /// Sizes of its flows.
    pub sizes: Sizes,
    /// The stations that send and receive.
    pub stations: Vec<u32>,
    /// Mean time between two flows of one station.
    pub gap: Nanos,
    /// The priority of all frames.
    pub priority: Priority,
    /// The seed.
    pub seed: u64,
}

impl Background {
    /// Returns the gap that gives each station this part, in percent, of a link.
    #[must_use]
    pub fn gap_for(sizes: &Sizes, link: BitRate, percent: u32) -> Nanos {
        let time = link.time_for(ByteCount(sizes.mean()));
        Nanos(time.0.saturating_mul(100) / u64::from(percent.max(1)))
    }
}

/// A UDP flow that has not ended.
#[derive(Debug)]
struct Stream {
    connection: ConnectionId,
    /// The station that sends the flow.
    from: u32,
    left: u64,
}

/// Background traffic, running.
#[derive(Debug)]
pub struct BackgroundTraffic {
    plan: Background,
    random: Vec<Prng>,
    streams: Slab<Stream>,
    /// By station: streams that are blocked, the longest first.
    blocked: Vec<VecDeque<u32>>,
    flows: u64,
    refused: u64,
}

/// First token of a stream; tokens below are stations.
const STREAMS: u32 = 1 << 24;

impl BackgroundTraffic {
    /// Creates the workload, ready to begin.
    #[must_use]
    pub fn new(plan: Background) -> Self {
        let random = plan
            .stations
            .iter()
            .map(|station| Prng::stream(plan.seed, &format!("background {station}")))
            .collect();
        let blocked = vec![VecDeque::new(); plan.stations.len()];
        Self { plan, random, streams: Slab::default(), blocked, flows: 0, refused: 0 }
    }

    /// Number of flows that have begun.
    #[must_use]
    pub const fn flows(&self) -> u64 {
        self.flows
    }

    /// Number of datagrams that their senders dropped, because the ring was full.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of UDP flows that have not sent all datagrams yet.
    #[must_use]
    pub fn flows_open(&self) -> usize {
        self.streams.iter().count()
    }

    fn begin(&mut self, world: &mut World, at: u32) {
        let random = &mut self.random[at as usize];
        let others = self.plan.stations.len() as u64 - 1;
        let other = usize::try_from(random.below(others)).expect("below the stations");
        let to = self.plan.stations[other + usize::from(other >= at as usize)];
        let bytes = self.plan.sizes.draw(random);
        let with = Connect {
            from: self.plan.stations[at as usize],
            to,
            priority: self.plan.priority,
            flow: random.next_u64(),
            handshake: false,
        };
        self.flows += 1;
        match self.plan.carrier.clone() {
            Carrier::Tcp(config) => {
                let id = world.connect(&config, &with).expect("all stations are joined");
                world.tell_acknowledged(id.client());
                world.write(id.client(), bytes);
            }
            Carrier::Udp { .. } => {
                let connection = world.connect_datagrams(&with).expect("all stations are joined");
                let place = self.streams.insert(Stream { connection, from: at, left: bytes });
                self.datagram(world, place);
            }
        }
        self.next_flow(world, at);
    }

    fn next_flow(&mut self, world: &mut World, at: u32) {
        let gap = exponential(&mut self.random[at as usize], self.plan.gap);
        world.at(world.now().after(gap), at);
    }

    /// Sends a stream's next datagram, which is due. It waits behind the streams that are blocked.
    fn datagram(&mut self, world: &mut World, place: u32) {
        let stream = self.streams.get_mut(place);
        let (from, client) = (stream.from, stream.connection.client());
        let blocked = &mut self.blocked[from as usize];
        if blocked.is_empty() && world.ring_frames(client) < RING_FRAMES {
            self.send(world, place);
            return;
        }
        if let Carrier::Udp { full: Full::Drop, .. } = self.plan.carrier {
            self.refused += 1;
            self.pass(world, place, false);
            return;
        }
        blocked.push_back(place);
        if blocked.len() == 1 {
            world.tell_room(client, RING_FRAMES / 2, from);
        }
    }

    /// Lets blocked streams send: the ring of a station is half empty.
    fn unblock(&mut self, world: &mut World, from: u32) {
        while let Some(&place) = self.blocked[from as usize].front() {
            let client = self.streams.get_mut(place).connection.client();
            if world.ring_frames(client) >= RING_FRAMES {
                world.tell_room(client, RING_FRAMES / 2, from);
                return;
            }
            self.blocked[from as usize].pop_front();
            self.send(world, place);
        }
    }

    /// Sends a stream's next datagram.
    fn send(&mut self, world: &mut World, place: u32) {
        self.pass(world, place, true);
    }

    /// Takes a stream's next datagram, which is sent or dropped, and ends the stream or schedules
    /// the next one.
    fn pass(&mut self, world: &mut World, place: u32, is_sent: bool) {
        let Carrier::Udp { bytes, rate, .. } = self.plan.carrier else { return };
        let stream = self.streams.get_mut(place);
        let size = stream.left.min(u64::from(bytes));
        stream.left -= size;
        let size = u32::try_from(size).expect("not more than a datagram");
        if is_sent {
            world.send_datagram(stream.connection.client(), size);
        }
        if stream.left > 0 {
            let gap = rate.time_for(ByteCount(u64::from(bytes)));
            world.at(world.now().after(gap), STREAMS + place);
        } else {
            // Datagrams that are still on their way end unseen: no workload waits for them.
            world.close(self.streams.remove(place).connection);
        }
    }
}

impl Workload for BackgroundTraffic {
    fn start(&mut self, world: &mut World) {
        for at in 0..self.plan.stations.len() {
            self.next_flow(world, u32::try_from(at).expect("fewer than 2^24 stations"));
        }
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Time(token) if token >= STREAMS => self.datagram(world, token - STREAMS),
            Notice::Time(at) => self.begin(world, at),
            Notice::Acknowledged(end) => world.close(end.connection()),
            Notice::Room(from) => self.unblock(world, from),
            Notice::Message { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        false
    }
}
