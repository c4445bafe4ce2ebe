//! Kinds of ports.

use serde::{Deserialize, Serialize};

/// Kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// A TAP device, in a network namespace if one is named.
    Tap,
    /// A virtual machine's network card, by vhost-user.
    #[serde(rename = "vhost-user")]
    VhostUser,
    /// One end of a veth pair, in a network namespace if one is named, whose senders are held.
    Veth,
    /// One end of a veth pair, in a network namespace if one is named, whose frames the kernel
    /// forwards (`[chip]`).
    Kernel,
    /// Whole frames on a device: a link of a switch; on a host, plain machines behind it.
    L2,
}

impl PortKind {
    /// True if a port is a container's card: a device in its network namespace.
    #[must_use]
    pub const fn is_card(self) -> bool {
        matches!(self, Self::Tap | Self::Veth | Self::Kernel)
    }
}
