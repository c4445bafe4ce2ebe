//! Endless flows from every host to one other host.

use std::sync::Arc;

use sluice_base::{Priority, Prng};

use crate::tcp::Config;
use crate::world::{Connect, Notice, Workload, World};

/// Endless flows from host `i` to host `i + shift`.
#[derive(Debug)]
pub struct Permutation {
    /// The TCP of all connections.
    pub tcp: Arc<Config>,
    /// Number of hosts.
    pub hosts: u32,
    /// Distance of the other host in numbers.
    pub shift: u32,
    /// The priority of all frames.
    pub priority: Priority,
    /// The seed of the paths.
    pub seed: u64,
}

/// More than a run can send.
const ENDLESS: u64 = 1 << 50;

impl Workload for Permutation {
    fn start(&mut self, world: &mut World) {
        let mut random = Prng::stream(self.seed, "permutation");
        for from in 0..self.hosts {
            let with = Connect {
                from,
                to: (from + self.shift) % self.hosts,
                priority: self.priority,
                flow: random.next_u64(),
                handshake: false,
            };
            let id = world.connect(&self.tcp, &with).expect("all hosts are joined");
            world.write(id.client(), ENDLESS);
        }
    }

    fn happened(&mut self, _world: &mut World, _notice: Notice) {}

    fn is_done(&self) -> bool {
        false
    }
}
