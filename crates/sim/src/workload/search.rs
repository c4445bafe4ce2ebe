//! Partition-Aggregate in three tiers, as a search engine answers a query ("Got Loss? Get zOVN!",
//! SIGCOMM 2013, section 5.3): a query goes to a random high-level aggregator, which asks one
//! mid-level aggregator in every rack; each of these asks all workers of its rack; the answers go
//! the same way back. Every message has the same size; connections stay open.
//!
//! ```text
//!   query ──> HLA ──> 16 MLA ──> 16 workers each
//!   done  <── HLA <── 16 MLA <── 16 workers each
//! ```
//!
//! Every host has three machines: a high-level aggregator, a mid-level one, a worker. Queries come
//! at random times, even if earlier ones are not done (an open loop).
//!
//! With clients a query comes from a random one of them over the network, and the answer goes back
//! to it. The time of a query is in both cases the aggregator's: from the query to its last answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_base::{Nanos, Priority, Prng};

use super::draw::exponential;
use crate::slab::Slab;
use crate::tcp::Config;
use crate::world::{Connect, ConnectionId, EndpointId, Notice, Workload, World};

/// Plan of the queries.
#[derive(Clone, Debug)]
pub struct Search {
    /// The TCP of all connections.
    pub tcp: Arc<Config>,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of clients: hosts behind the others, of which machine 0 asks; 0: queries begin at
    /// their aggregator.
    pub clients: u32,
    /// Hosts of a rack.
    pub rack: u32,
    /// Bytes of every message.
    pub bytes: u64,
    /// Mean time between two queries.
    pub gap: Nanos,
    /// Number of queries that are measured.
    pub queries: u32,
    /// Number of queries before the first one that counts.
    pub warm_up: u32,
    /// The priority of all frames.
    pub priority: Priority,
    /// The seed.
    pub seed: u64,
}

/// Machines of a host.
const ROLES: u32 = 3;
const HLA: u32 = 0;
const MLA: u32 = 1;
const WORKER: u32 = 2;

/// A question or an answer on its way, by tag: a part of a query.
#[derive(Clone, Copy, Debug)]
enum Step {
    AskMla,
    AskWorker,
    WorkerAnswers,
    MlaAnswers,
    AskHla,
    HlaAnswers,
}

/// Number of steps, rounded up to a power of two.
const STEPS: u32 = 8;

/// A query that is not done.
#[derive(Debug)]
struct Query {
    since: Nanos,
    counts: bool,
    hla: u32,
    client: Option<u32>,
    /// Number of racks whose answer is missing.
    missing: u32,
    /// Per rack: its mid-level aggregator and its number of workers that have not answered.
    racks: Vec<(u32, u32)>,
}

/// A search engine, running.
#[derive(Debug)]
pub struct Searching {
    plan: Search,
    random: Prng,
    /// Open connections between two machines, by the one that asks and the other.
    connections: BTreeMap<(u32, u32), ConnectionId>,
    queries: Slab<Query>,
    begun: u32,
    fct: Vec<Nanos>,
}

impl Searching {
    /// Creates the workload, ready to begin.
    #[must_use]
    pub fn new(plan: Search) -> Self {
        Self {
            random: Prng::stream(plan.seed, "search"),
            plan,
            connections: BTreeMap::new(),
            queries: Slab::default(),
            begun: 0,
            fct: Vec::new(),
        }
    }

    /// Returns the completion times of the queries that count, in the order in which they were
    /// done.
    #[must_use]
    pub fn completion_times(&self) -> &[Nanos] {
        &self.fct
    }

    const fn racks(&self) -> u32 {
        self.plan.hosts / self.plan.rack
    }

    fn draw(&mut self, bound: u32) -> u32 {
        u32::try_from(self.random.below(u64::from(bound))).expect("below its bound")
    }

    /// Sends a message between two machines. `back`: the connection was opened by the receiver.
    fn send(&mut self, world: &mut World, from: u32, to: u32, back: bool, tag: u32) {
        let key = if back { (to, from) } else { (from, to) };
        let id = match self.connections.get(&key) {
            Some(id) => *id,
            None => {
                let with = Connect {
                    from: key.0,
                    to: key.1,
                    priority: self.plan.priority,
                    flow: self.random.next_u64(),
                    handshake: false,
                };
                let id = world.connect(&self.plan.tcp, &with).expect("all stations are joined");
                self.connections.insert(key, id);
                id
            }
        };
        let end = if back { id.server() } else { id.client() };
        world.send(end, self.plan.bytes, tag);
    }

    fn begin(&mut self, world: &mut World) {
        let hla = self.draw(self.plan.hosts) * ROLES + HLA;
        let clients = self.plan.clients;
        let client = (clients > 0).then(|| (self.plan.hosts + self.draw(clients)) * ROLES);
        let rack = self.plan.rack;
        let racks = (0..self.racks())
            .map(|r| ((r * rack + self.draw(rack)) * ROLES + MLA, rack))
            .collect::<Vec<_>>();
        self.begun += 1;
        let at = self.queries.insert(Query {
            since: world.now(),
            counts: self.begun > self.plan.warm_up,
            hla,
            client,
            missing: self.racks(),
            racks,
        });
        match client {
            Some(client) => self.send(world, client, hla, false, self.tag(at, 0, Step::AskHla)),
            None => self.fan_out(world, at),
        }
        let gap = exponential(&mut self.random, self.plan.gap);
        world.at(world.now().after(gap), 0);
    }

    /// Asks one mid-level aggregator of every rack.
    fn fan_out(&mut self, world: &mut World, at: u32) {
        let now = world.now();
        let query = self.queries.get_mut(at);
        query.since = now;
        let hla = query.hla;
        for r in 0..self.racks() {
            let mla = self.queries.get_mut(at).racks[r as usize].0;
            self.send(world, hla, mla, false, self.tag(at, r, Step::AskMla));
        }
    }

    fn tag(&self, query: u32, rack: u32, step: Step) -> u32 {
        (query * self.racks() + rack) * STEPS + step as u32
    }

    fn step(&mut self, world: &mut World, to: EndpointId, tag: u32) {
        let part = tag / STEPS;
        let (at, rack, step) = (part / self.racks(), part % self.racks(), tag % STEPS);
        if step == Step::HlaAnswers as u32 {
            // The query is done, and its place may be another's.
            return;
        }
        if step == Step::AskHla as u32 {
            self.fan_out(world, at);
            return;
        }
        let query = self.queries.get_mut(at);
        let (hla, mla) = (query.hla, query.racks[rack as usize].0);
        if step == Step::AskMla as u32 {
            for worker in 0..self.plan.rack {
                let worker = (rack * self.plan.rack + worker) * ROLES + WORKER;
                self.send(world, mla, worker, false, self.tag(at, rack, Step::AskWorker));
            }
        } else if step == Step::AskWorker as u32 {
            world.send(to, self.plan.bytes, self.tag(at, rack, Step::WorkerAnswers));
        } else if step == Step::WorkerAnswers as u32 {
            let missing = self.missing_workers(at, rack);
            *missing -= 1;
            if *missing == 0 {
                self.send(world, mla, hla, true, self.tag(at, rack, Step::MlaAnswers));
            }
        } else {
            self.answered(world, at);
        }
    }

    fn missing_workers(&mut self, query: u32, rack: u32) -> &mut u32 {
        &mut self.queries.get_mut(query).racks[rack as usize].1
    }

    /// Notes that a rack has answered.
    fn answered(&mut self, world: &mut World, at: u32) {
        let query = self.queries.get_mut(at);
        query.missing -= 1;
        if query.missing == 0 {
            let query = self.queries.remove(at);
            if query.counts {
                self.fct.push(world.now().since(query.since));
            }
            if let Some(client) = query.client {
                self.send(world, query.hla, client, true, self.tag(at, 0, Step::HlaAnswers));
            }
        }
    }
}

impl Workload for Searching {
    fn start(&mut self, world: &mut World) {
        self.begin(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Time(_) => self.begin(world),
            Notice::Message { to, tag } => self.step(world, to, tag),
            Notice::Acknowledged(_) | Notice::Room(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.fct.len() >= self.plan.queries as usize
    }
}
