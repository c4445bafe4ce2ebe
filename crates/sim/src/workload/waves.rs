//! Partition-Aggregate as used to compare simulators: in each wave several aggregators are answered
//! by workers in other racks, each over a connection of its own.

use std::sync::Arc;

use sluice_base::{Nanos, Priority, Prng};

use crate::tcp::Config;
use crate::world::{Connect, ConnectionId, Notice, Workload, World};

/// Waves of answers.
#[derive(Debug)]
pub struct Waves {
    /// The TCP of all connections.
    pub tcp: Arc<Config>,
    /// Number of hosts. The first host of each rack is answered.
    pub hosts: u32,
    /// Hosts of a rack.
    pub rack: u32,
    /// Number of workers that answer each aggregator.
    pub workers: u32,
    /// Bytes of an answer.
    pub bytes: u64,
    /// Number of waves.
    pub waves: u32,
    /// Time between the beginnings of two waves.
    pub gap: Nanos,
    /// The priority of all frames.
    pub priority: Priority,
    random: Prng,
    begun: u32,
    /// Per connection: time at which its wave began.
    since: Vec<Nanos>,
    open: u64,
    /// Completion times of the answers.
    pub fct: Vec<Nanos>,
}

impl Waves {
    /// Returns waves for racks of 16: 16 answers of 20 KB to the first host of each, a wave per
    /// millisecond.
    #[must_use]
    pub fn new(tcp: Arc<Config>, hosts: u32, waves: u32, seed: u64) -> Self {
        Self {
            tcp,
            hosts,
            rack: 16,
            workers: 16,
            bytes: 20_000,
            waves,
            gap: Nanos::from_millis(1),
            priority: Priority::ZERO,
            random: Prng::stream(seed, "waves"),
            begun: 0,
            since: Vec::new(),
            open: 0,
            fct: Vec::new(),
        }
    }

    fn wave(&mut self, world: &mut World) {
        for aggregator in (0..self.hosts).step_by(self.rack as usize) {
            for _ in 0..self.workers {
                let from = self.worker_for(aggregator);
                let with = Connect {
                    from,
                    to: aggregator,
                    priority: self.priority,
                    flow: self.random.next_u64(),
                    handshake: true,
                };
                let id = world.connect(&self.tcp, &with).expect("all hosts are joined");
                let at = id.0 as usize;
                if at >= self.since.len() {
                    self.since.resize(at + 1, Nanos::ZERO);
                }
                self.since[at] = world.now();
                world.send(id.client(), self.bytes, 0);
                world.tell_acknowledged(id.client());
                self.open += 1;
            }
        }
        self.begun += 1;
        if self.begun < self.waves {
            world.at(world.now().after(self.gap), 0);
        }
    }

    /// Draws a host of another rack.
    fn worker_for(&mut self, aggregator: u32) -> u32 {
        let others = self.hosts - self.rack;
        let at = u32::try_from(self.random.below(u64::from(others))).expect("below the hosts");
        if at < aggregator { at } else { at + self.rack }
    }

    fn close(&mut self, world: &mut World, id: ConnectionId) {
        world.close(id);
        self.open -= 1;
    }
}

impl Workload for Waves {
    fn start(&mut self, world: &mut World) {
        self.wave(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            Notice::Time(_) => self.wave(world),
            Notice::Message { to, .. } => {
                let since = self.since[to.connection().0 as usize];
                self.fct.push(world.now().since(since));
            }
            Notice::Acknowledged(end) => self.close(world, end.connection()),
            Notice::Room(_) => {}
        }
    }

    fn is_done(&self) -> bool {
        self.begun == self.waves && self.open == 0
    }
}
