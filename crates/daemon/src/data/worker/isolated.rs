//! Log of isolated receivers, by name: an operator should hear of them without asking.

use std::collections::BTreeMap;

use sluice_base::{PortId, Priority};
use sluice_host::{Host, inspect};
use sluice_ports::FrameBuf;
use sluice_switch::IsolatedState;

use super::Attached;
use crate::sys::log::say;

/// State that was logged last.
#[derive(Debug, Default)]
pub(super) struct Isolated {
    said: BTreeMap<(PortId, Priority), bool>,
    changes: u64,
}

impl Isolated {
    /// Logs the changes since the last turn. Without changes the cost is one comparison.
    pub(super) fn tell(&mut self, host: &Host<FrameBuf>, ports: &[Attached]) {
        let changes = host.switch().isolation_changes();
        if changes != self.changes {
            self.changes = changes;
            self.say_changes(host, ports);
        }
    }

    #[cold]
    fn say_changes(&mut self, host: &Host<FrameBuf>, ports: &[Attached]) {
        let name = |port: PortId| {
            let here = ports.iter().find(|attached| attached.id == port);
            here.map_or_else(|| port.to_string(), |attached| attached.name.clone())
        };
        let states: Vec<IsolatedState> = host.switch().isolated().collect();
        self.said.retain(|&(port, priority), _| {
            let stays = states.iter().any(|one| (one.port, one.priority) == (port, priority));
            if !stays {
                say!("port {}: priority {priority} is isolated no more", name(port));
            }
            stays
        });
        for state in states {
            let key = (state.port, state.priority);
            let before = self.said.insert(key, state.stuck);
            if before == Some(state.stuck) {
                continue;
            }
            let isolation = inspect::isolation(host.switch(), state);
            let endpoints: Vec<String> =
                isolation.endpoints.iter().map(ToString::to_string).collect();
            let who = format!("port {} ({})", name(state.port), endpoints.join(" "));
            let (priority, waiting) = (state.priority, isolation.waiting.len());
            match (before, state.stuck) {
                (None, false) => say!(
                    "{who}: priority {priority} is isolated: it holds more than its share, and \
                     {waiting} senders wait; `sluice show pauses` names them"
                ),
                (_, true) => say!(
                    "{who}: priority {priority} is stuck for longer than its hold: what comes \
                     ends as receiver_stuck until it takes a frame"
                ),
                (Some(_), false) => say!("{who}: priority {priority} takes frames again"),
            }
        }
    }
}
