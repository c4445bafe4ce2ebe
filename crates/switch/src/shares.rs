//! Resources shared among ports and networks, with a limit for each: broadcasts, and places for
//! unknown destinations.

use crate::config::SwitchConfig;
use crate::storm::Storms;
use crate::unresolved::Waits;

/// The accounts.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) storms: Storms,
    /// Destinations that wait to be resolved, by network and by input.
    pub(crate) waits: Waits,
}

impl Shares {
    pub(crate) fn new(config: &SwitchConfig, inputs: usize) -> Self {
        Self { storms: Storms::new(config), waits: Waits::new(config, inputs) }
    }
}
