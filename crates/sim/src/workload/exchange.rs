//! Questions and answers between two stations, one after the other, over one open connection: an
//! echo with small messages, the fetching of a file with a large answer.

use std::sync::Arc;

use sluice_base::{Nanos, Priority};

use crate::tcp::Config;
use crate::world::{Connect, ConnectionId, Notice, Workload, World};

/// Plan of the questions.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The TCP of the connection.
    pub tcp: Arc<Config>,
    /// The station that asks.
    pub from: u32,
    /// The station that answers.
    pub to: u32,
    /// Bytes of a question.
    pub request_bytes: u64,
    /// Bytes of an answer.
    pub response_bytes: u64,
    /// Number of questions.
    pub rounds: u32,
    /// Time from an answer to the next question.
    pub gap: Nanos,
    /// The priority of all frames.
    pub priority: Priority,
    /// Number that picks among equal paths.
    pub flow: u64,
}

/// Questions and answers, running.
#[derive(Debug)]
pub struct Exchanging {
    plan: Exchange,
    connection: Option<ConnectionId>,
    since: Nanos,
    times: Vec<Nanos>,
}

/// Tags of messages.
const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;

impl Exchanging {
    /// Creates the workload, ready to begin.
    #[must_use]
    pub const fn new(plan: Exchange) -> Self {
        Self { plan, connection: None, since: Nanos::ZERO, times: Vec::new() }
    }

    /// Returns the times from question to answer so far, in their order.
    #[must_use]
    pub fn completion_times(&self) -> &[Nanos] {
        &self.times
    }

    fn ask(&mut self, world: &mut World) {
        let Some(connection) = self.connection else { return };
        self.since = world.now();
        world.send(connection.client(), self.plan.request_bytes, REQUEST);
    }
}

impl Workload for Exchanging {
    fn start(&mut self, world: &mut World) {
        let with = Connect {
            from: self.plan.from,
            to: self.plan.to,
            priority: self.plan.priority,
            flow: self.plan.flow,
            handshake: false,
        };
        let id = world.connect(&self.plan.tcp, &with).expect("all stations are joined");
        self.connection = Some(id);
        self.ask(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Message { to, tag: REQUEST } => {
                world.send(to, self.plan.response_bytes, RESPONSE);
            }
            Notice::Message { .. } => {
                self.times.push(world.now().since(self.since));
                if !self.is_done() {
                    world.at(world.now().after(self.plan.gap), 0);
                }
            }
            Notice::Time(_) => self.ask(world),
            Notice::Acknowledged(_) | Notice::Room(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.times.len() >= self.plan.rounds as usize
    }
}
