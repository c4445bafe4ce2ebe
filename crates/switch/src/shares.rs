//! What is shared out among ports and networks, so that none takes it from the others: broadcasts,
//! and places for destinations that are not known.

use crate::config::SwitchConfig;
use crate::storm::Storms;
use crate::unresolved::Waits;

/// The accounts.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) storms: Storms,
    /// By network, and by input: destinations that wait to be resolved.
    pub(crate) waits: Waits,
}

impl Shares {
    pub(crate) fn new(config: &SwitchConfig, inputs: usize) -> Self {
        Self { storms: Storms::new(config), waits: Waits::new(config, inputs) }
    }
}
