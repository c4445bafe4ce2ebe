//! The file of a host whose fabric was made by command: what may differ between hosts.

use serde::{Deserialize, Serialize};

use super::{Buffers, Host, Link, Port, UnderlayKind};

/// The whole file. Networks, members and policies are the fabric's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// The host itself.
    pub host: Host,
    /// Underlay of the host; absent: that of the command that made the host a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<LocalUnderlay>,
    /// Buffers of the host; each has a default.
    #[serde(default)]
    pub buffers: Buffers,
    /// The local ports, beside those that are added at run time.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
}

/// The underlay of a host. Its address is the member's VTEP, which the fabric knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalUnderlay {
    /// Kind of the attachment: `l2`, or `udp`.
    #[serde(default = "l2")]
    pub kind: UnderlayKind,
    /// Device of the VTEP's address.
    pub device: String,
    /// Layer-3 MTU; default: the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Worker that serves it, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The link.
    #[serde(default)]
    pub link: Link,
}

impl LocalUnderlay {
    /// Returns an underlay of whole frames on a device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            kind: l2(),
            device: device.to_owned(),
            mtu: None,
            worker: None,
            link: Link::default(),
        }
    }
}

const fn l2() -> UnderlayKind {
    UnderlayKind::L2
}

/// Keys of `[host]` that the fabric has in place of the host.
pub const KEYS_OF_FABRIC: [&str; 5] =
    ["policy", "hold", "isolate_after_ms", "broadcasts_per_second", "unresolved_timeout_ms"];

/// Tables of a host's file that only a host without a fabric made by command has.
pub const TABLES_OF_FILE: [&str; 5] = ["fabric", "vnet", "peer", "vport", "class"];
