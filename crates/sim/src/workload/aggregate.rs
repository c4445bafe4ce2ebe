//! Partition-Aggregate in two tiers: an aggregator asks all workers at once and waits for all
//! answers, over connections that stay open. The worker that is asked first changes from question
//! to question, because its frames find the shortest queues.

use std::sync::Arc;

use sluice_base::{Nanos, Priority, Prng};

use crate::tcp::Config;
use crate::world::{Connect, ConnectionId, Notice, Workload, World};

/// Plan of the questions.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The TCP of all connections.
    pub tcp: Arc<Config>,
    /// The station that asks.
    pub aggregator: u32,
    /// The stations that answer.
    pub workers: Vec<u32>,
    /// Bytes of a question.
    pub request_bytes: u64,
    /// Bytes of an answer.
    pub response_bytes: u64,
    /// Number of questions.
    pub queries: u32,
    /// Questions before the first one that counts.
    pub warm_up: u32,
    /// Time from the last answer to the next question.
    pub gap: Nanos,
    /// The priority of all frames.
    pub priority: Priority,
    /// The seed of the paths.
    pub seed: u64,
}

/// Partition-Aggregate, running.
#[derive(Debug)]
pub struct Aggregating {
    plan: Aggregate,
    connections: Vec<ConnectionId>,
    since: Nanos,
    missing: usize,
    asked: u32,
    fct: Vec<Nanos>,
}

/// Tags of messages.
const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;

impl Aggregating {
    /// Creates the workload, ready to begin.
    #[must_use]
    pub fn new(plan: Aggregate) -> Self {
        Self {
            plan,
            connections: Vec::new(),
            since: Nanos::ZERO,
            missing: 0,
            asked: 0,
            fct: Vec::new(),
        }
    }

    /// Returns the completion times of the questions so far that count, in their order.
    #[must_use]
    pub fn completion_times(&self) -> &[Nanos] {
        &self.fct
    }

    fn ask(&mut self, world: &mut World) {
        self.since = world.now();
        let count = self.connections.len();
        self.missing = count;
        let first = self.asked as usize % count;
        self.asked += 1;
        for connection in self.connections.iter().cycle().skip(first).take(count) {
            world.send(connection.client(), self.plan.request_bytes, REQUEST);
        }
    }
}

impl Workload for Aggregating {
    fn start(&mut self, world: &mut World) {
        let mut random = Prng::stream(self.plan.seed, "aggregate");
        for worker in &self.plan.workers {
            let with = Connect {
                from: self.plan.aggregator,
                to: *worker,
                priority: self.plan.priority,
                flow: random.next_u64(),
                handshake: true,
            };
            let id = world.connect(&self.plan.tcp, &with).expect("all stations are joined");
            self.connections.push(id);
        }
        self.ask(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Message { to, tag: REQUEST } => {
                world.send(to, self.plan.response_bytes, RESPONSE);
            }
            Notice::Message { .. } => {
                self.missing -= 1;
                if self.missing > 0 {
                    return;
                }
                if self.asked > self.plan.warm_up {
                    self.fct.push(world.now().since(self.since));
                }
                if !self.is_done() {
                    world.at(world.now().after(self.plan.gap), 0);
                }
            }
            Notice::Time(_) => self.ask(world),
            Notice::Acknowledged(_) | Notice::Room(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.fct.len() >= self.plan.queries as usize
    }
}
