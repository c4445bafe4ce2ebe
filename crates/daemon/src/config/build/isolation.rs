//! Times of receiver isolation, and longest holds of senders.

use sluice_api::config::{HoldTime, Role};
use sluice_base::{Nanos, Priority};
use sluice_switch::{Hold, IsolationConfig};

use super::{Builder, limit};

impl Builder<'_> {
    /// Returns the times of isolation. A physical switch cannot tell senders to hold. It waits for
    /// the hosts to isolate their receivers: their time, and that of a wire that is paused once
    /// more meanwhile.
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

    /// Returns the hold contract by priority: the port's, that of the priority, or the host's.
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
