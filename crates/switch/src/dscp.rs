//! The maps between DSCP and priority: one for frames that come in, one for outer headers.

use sluice_base::Priority;

use crate::config::SwitchConfig;

/// Both maps of a configuration, ready for a lookup.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Dscp {
    by_priority: [u8; Priority::COUNT],
    priorities: [Priority; 64],
}

impl Dscp {
    /// Returns the maps of a configuration.
    pub(crate) const fn new(config: &SwitchConfig) -> Self {
        Self { by_priority: config.priority_to_dscp, priorities: config.dscp_to_priority }
    }

    /// Returns the DSCP of the outer headers of a priority.
    #[inline]
    pub(crate) const fn of(&self, priority: Priority) -> u8 {
        self.by_priority[priority.index()]
    }

    /// Returns the priorities by DSCP.
    #[inline]
    pub(crate) const fn priorities(&self) -> &[Priority; 64] {
        &self.priorities
    }
}
