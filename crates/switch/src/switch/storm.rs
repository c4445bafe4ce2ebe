//! Storm control: limits the broadcasts of a port and of a network.
//!
//! A broadcast costs as many frames as it has receivers, and copies share one bounded pool. So
//! broadcasts from an access port are limited per port, and broadcasts through tunnels per network:
//! a tenant with a broadcast storm takes neither time nor copies from others. Broadcasts beyond the
//! limit end under `storm_limit`. Multicast is not limited here: its copies are bounded as all
//! copies are.
//!
//! Each budget is one moment, as in `shaper.rs`: `next = max(next, now - burst) + interval`.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Buf, Nanos};

use crate::config::SwitchConfig;
use crate::switch::Switch;

/// Unused time that counts: the burst is what the rate allows in it.
const BURST: Nanos = Nanos::from_millis(100);

/// The budgets.
#[derive(Debug)]
pub(crate) struct Storms {
    /// The time that a frame costs; zero: there is no limit.
    interval: Nanos,
    by_port: Box<[Nanos]>,
    by_vnet: Box<[Nanos]>,
}

impl Storms {
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        let rate = config.isolation.map_or(0, |isolation| isolation.broadcasts_per_second);
        let interval = 1_000_000_000_u64.checked_div(rate.into()).map_or(Nanos::ZERO, Nanos);
        let some = usize::from(rate > 0);
        Self {
            interval,
            by_port: vec![Nanos::ZERO; config.ports.len() * some].into(),
            by_vnet: vec![Nanos::ZERO; config.vnet_places() * some].into(),
        }
    }

    /// Gives a network that comes a full budget.
    pub(crate) fn restart_vnet(&mut self, vnet: usize) {
        if let Some(next) = self.by_vnet.get_mut(vnet) {
            *next = Nanos::ZERO;
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Returns true if a broadcast is beyond the budget of its port, or of its network if it came
    /// through a tunnel. Otherwise charges it to the budget.
    pub(crate) fn is_storm(&mut self, now: Nanos, slot: u32) -> bool {
        let s = self.slots.get(slot);
        let input = self.ingress.input(s.input());
        let storms = &mut self.storms;
        let next = if input.is_from_underlay() {
            storms.by_vnet.get_mut(usize::from(s.vnet()))
        } else {
            storms.by_port.get_mut(usize::from(input.port()))
        };
        // Control's own frames have no budget, and need none.
        let Some(next) = next else { return false };
        if *next > now {
            return true;
        }
        *next = Nanos(next.0.max(now.0.saturating_sub(BURST.0)) + storms.interval.0);
        false
    }
}
