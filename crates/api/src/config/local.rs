//! The file of a host whose fabric was made by command: what may differ between hosts.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{Buffers, Chip, Evpn, Host, HttpApi, Link, Port, UnderlayKind, Vport};

/// The whole file. Networks, members and policies are the fabric's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// The host itself.
    pub host: Host,
    /// Underlay of the host; absent: that of the command that made the host a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<LocalUnderlay>,
    /// EVPN; absent: the host speaks to members of its fabric only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evpn: Option<Evpn>,
    /// HTTP interface of the host.
    #[serde(default, skip_serializing_if = "HttpApi::is_default")]
    pub api: HttpApi,
    /// The chip, which forwards frames of known addresses.
    #[serde(default, skip_serializing_if = "Chip::is_default")]
    pub chip: Chip,
    /// Buffers of the host; each has a default.
    #[serde(default)]
    pub buffers: Buffers,
    /// The local ports, beside those that are added at run time.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Endpoints of these ports; each names its port.
    #[serde(default, rename = "vport", skip_serializing_if = "Vec::is_empty")]
    pub vports: Vec<Vport>,
    /// Devices that lead to physical networks, whose VLANs are networks of the fabric.
    #[serde(default, rename = "trunk", skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<Trunk>,
    /// Hosts that are no members, or not yet.
    #[serde(default, rename = "foreign", skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Foreign>,
}

/// A device that leads to a physical network. The configuration of the fabric says which of its
/// VLANs are which networks; each of these is a port of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trunk {
    /// Name of the physical network, which hosts have in common.
    pub name: String,
    /// Device of this host.
    pub device: String,
    /// Worker that serves its ports, from 0; absent: the host chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u16>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
}

/// A host that does not speak the fabric's protocol: its endpoints are learned from its frames. The
/// entry has no effect while a member has its name or its VTEP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// Name of the host.
    pub name: String,
    /// Address of its VTEP.
    pub vtep: Ipv4Addr,
    /// Networks that it has; absent: all of the fabric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<String>,
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
pub const TABLES_OF_FILE: [&str; 4] = ["fabric", "vnet", "peer", "class"];
