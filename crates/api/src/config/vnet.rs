//! Networks of a host.

use serde::{Deserialize, Serialize};

use super::Port;
use crate::hold::HoldTime;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vnet {
    /// Name of the network.
    pub name: String,
    /// VNI; absent on a physical switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// MTU of its members; default: the rest that the underlay leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Service rate of each of its ports without one of its own, in Mbit/s; absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Priority of frames without one, at ports without one of their own; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Hold contract of its ports without one of their own; absent: those of the priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
}

impl Vnet {
    /// Makes a network with defaults.
    #[must_use]
    pub fn new(name: &str, vni: Option<u32>) -> Self {
        let name = name.to_owned();
        Self { name, vni, mtu: None, service_mbps: None, priority: None, hold: None }
    }

    /// Returns a port with the values that the network has for it.
    #[must_use]
    pub fn complete(&self, port: &Port) -> Port {
        Port {
            service_mbps: port.service_mbps.or(self.service_mbps),
            priority: if port.priority == 0 { self.priority.unwrap_or(0) } else { port.priority },
            hold: port.hold.or(self.hold),
            ..port.clone()
        }
    }
}
