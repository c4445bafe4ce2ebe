//! When receivers are isolated, and for how long they may hold their senders.

use sluice_api::config::{HoldTime, Role};
use sluice_base::{Nanos, Priority};
use sluice_switch::{Hold, IsolationConfig};

use super::{Builder, limit};

impl Builder<'_> {
    /// A physical switch can tell no sender to hold. It waits for hosts that isolate theirs: their
    /// time, and that of a wire that is paused once more while they do.
    pub(super) fn isolation(&self) -> Option<IsolationConfig> {
        let ms = u64::from(self.config.host.isolate_after_ms);
        let times = match self.config.host.role {
            Role::Host => 1,
            Role::Switch => 3,
        };
        (ms > 0).then(|| IsolationConfig {
            patience: Nanos::from_millis(ms * times),
            broadcasts_per_second: self.config.host.broadcasts_per_second,
            ..IsolationConfig::new(limit(self.config.buffers.reserve))
        })
    }

    /// The hold contract by priority: the port's, that of the priority, or the host's.
    pub(super) fn hold(&self, of_port: Option<HoldTime>) -> [Hold; Priority::COUNT] {
        let mut holds = [self.config.host.hold; Priority::COUNT];
        for class in &self.config.classes {
            holds[usize::from(class.priority)] = class.hold.unwrap_or(self.config.host.hold);
        }
        holds.map(|hold| match of_port.unwrap_or(hold) {
            HoldTime::Forever => Hold::Forever,
            HoldTime::Ms(ms) => Hold::For(Nanos::from_millis(ms.into())),
        })
    }
}
