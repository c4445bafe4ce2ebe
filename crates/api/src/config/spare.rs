//! Numbers of ports, networks and peers that may come while a host runs.

use super::{HostConfig, Role};

/// Default number of ports that may be added to a member of a fabric at run time.
const SPARE_PORTS_DEFAULT: u16 = 64;

impl HostConfig {
    /// Returns the number of ports that may be added at run time, at a time.
    #[must_use]
    pub fn spare_ports(&self) -> u16 {
        // Only a single worker supports them.
        let has_some = self.fabric.is_some() && self.host.workers <= 1;
        let default = if has_some { SPARE_PORTS_DEFAULT } else { 0 };
        self.host.spare_ports.unwrap_or(default)
    }

    /// Returns the number of networks that may come while the host runs.
    #[must_use]
    pub fn spare_vnets(&self) -> u16 {
        let default = match (self.host.role, self.fabric.is_some()) {
            (Role::Switch, _) => 0,
            (Role::Host, true) => 1_024,
            (Role::Host, false) => 64,
        };
        self.host.spare_vnets.unwrap_or(default)
    }

    /// Returns the number of peers that may come while the host runs; without an underlay there are
    /// none.
    #[must_use]
    pub fn spare_tunnels(&self) -> u16 {
        let default = if self.fabric.is_some() { 256 } else { 16 };
        match self.underlay {
            Some(_) => self.host.spare_tunnels.unwrap_or(default),
            None => 0,
        }
    }
}
