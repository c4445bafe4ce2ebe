//! Ports that are added and deleted at run time.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::allowed::AllowedIp;

/// Place of a new port. A device, or the listening socket of a machine, is made, and is deleted
/// with the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A network namespace: its name below `/run/netns`, or a path.
    Netns(String),
    /// Network namespace of a process.
    Pid(u32),
    /// Device of this name on the host, for a bridge or a machine behind it.
    Tap(String),
    /// A virtual machine behind a vhost-user socket.
    Vm(VmSocket),
    /// The host itself, for access to the network.
    Host,
}

/// Socket of a virtual machine's card (vhost-user).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VmSocket {
    /// Absolute path of the socket.
    pub socket: String,
    /// True if the hypervisor listens there, and the port connects.
    #[serde(default, skip_serializing_if = "is_false")]
    pub client: bool,
}

/// Kind of the device of a new port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A TAP device.
    #[default]
    Tap,
    /// One end of a veth pair, whose senders are held.
    Veth,
    /// One end of a veth pair, whose frames the kernel forwards.
    Kernel,
    /// The card of a virtual machine. The place says it, so that it may be left out.
    #[serde(rename = "vhost-user")]
    VhostUser,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tap" => Ok(Self::Tap),
            "veth" => Ok(Self::Veth),
            "kernel" => Ok(Self::Kernel),
            "vhost-user" => Ok(Self::VhostUser),
            _ => Err(format!(
                "`{text}` is no kind of a port that is added; use `tap`, `veth`, `kernel` or \
                 `vhost-user`"
            )),
        }
    }
}

/// A port to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPort {
    /// Place of the port.
    pub place: Place,
    /// Kind of its device.
    #[serde(default, skip_serializing_if = "is_tap")]
    pub kind: Kind,
    /// Name of the network.
    pub vnet: String,
    /// Name of the port; absent: made from the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the device; absent: `eth0` in a namespace, `sl-NETWORK` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Addresses to which the endpoint is bound. The device gets them, except for one with a
    /// machine behind it ([`Place::Tap`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Cidr>,
    /// MAC to which the endpoint is bound; absent: one is made if there is an IP address, otherwise
    /// senders are learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Addresses that the endpoint may use beside its own, and that other ports may have as well:
    /// the port that announced one last has it.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// True if it takes its MAC and addresses over from ports of other hosts that are bound to
    /// them.
    #[serde(rename = "move", default, skip_serializing_if = "is_false")]
    pub moves: bool,
    /// True if the port is bound at this host only: other ports keep its addresses, and nobody
    /// sends to it, until it is changed. For a machine that is about to come.
    #[serde(default, skip_serializing_if = "is_false")]
    pub standby: bool,
    /// True if a port of this name, behind which a machine is, gets these addresses in place. A
    /// request's only: a port does not keep it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub change: bool,
    /// Sequence of its binding: above that of the port from which it was taken. The host fills it
    /// in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken: u32,
    /// Router of the device's default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub gateway: Option<IpAddr>,
    /// Further routes of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// MTU of the device; absent: that of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Attachment of a container network for which the port is; absent: it was added by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<Attachment>,
}

/// A container's interface in a network of its runtime: the key by which a CNI plugin finds what it
/// made (CNI 1.1 section 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Name of the runtime's network.
    pub network: String,
    /// The container, as its runtime calls it.
    pub container: String,
    /// The interface in the container.
    pub interface: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_tap(kind: &Kind) -> bool {
    matches!(kind, Kind::Tap)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A port that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Added {
    /// Name of the port.
    pub name: String,
    /// Network of the port.
    pub vnet: String,
    /// Device of the port; of a virtual machine, its socket.
    pub device: String,
    /// Network namespace of the device; absent: the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// MAC to which it is bound; absent: it learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Addresses to which it is bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Cidr>,
    /// Addresses that it may use beside them.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// Number of the port in the switch.
    pub number: u16,
}

/// The ports that were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AddedPorts {
    /// One row each, in the order in which they came.
    pub ports: Vec<PortState>,
}

/// A port that was added, and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortState {
    /// The port, with its defaults filled in.
    pub port: NewPort,
    /// True if it forwards; false if it waits for its namespace or its network.
    pub open: bool,
}

/// The device of a port as it is now, in its namespace: its owner may have changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Card {
    /// Name of the device.
    pub device: String,
    /// Its MAC.
    pub mac: String,
    /// Its MTU.
    pub mtu: u32,
    /// True if it is set up.
    pub up: bool,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<CardAddress>,
    /// Its routes in the main table.
    pub routes: Vec<Route>,
}

/// An address of a device with the length of its prefix; the kernel may have made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CardAddress {
    /// The address.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub ip: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
}

/// A port that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deleted {
    /// Name of the port.
    pub name: String,
    /// Frames that were dropped with it, under `stopped`.
    pub frames: u64,
}

/// The address of an endpoint and the length of its network's prefix, as in `10.0.0.7/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    /// The address.
    pub ip: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address with a prefix, such as 10.0.0.7/24");
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Err(format!(
                "`{text}` has no prefix; say the length of its network's, as in {ip}/{}, or \
                 {ip}/{} for an address without a network",
                if ip.is_ipv4() { 24 } else { 64 },
                bits(ip),
            ));
        }
        let (ip, prefix) = split(text).ok_or_else(wrong)?;
        if prefix > bits(ip) {
            return Err(format!("`{text}`: a prefix of {prefix} bits is longer than the address"));
        }
        if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || ip == BROADCAST {
            return Err(format!("`{text}`: {ip} is not the address of one endpoint; use another"));
        }
        // RFC 3021 section 2.1 and RFC 6164 section 5: of two addresses both may be endpoints'.
        if bits(ip) - prefix >= 2 {
            let (first, last) = ends(ip, prefix);
            if ip == first {
                let what = if ip.is_ipv4() { "the network itself" } else { "any router of it" };
                return Err(format!(
                    "`{text}`: {ip} is the address of {what}, not of one endpoint; use one \
                     behind it"
                ));
            }
            if ip.is_ipv4() && ip == last {
                return Err(format!(
                    "`{text}`: {ip} is the broadcast address of its network; use one before it"
                ));
            }
        }
        Ok(Self { ip, prefix })
    }
}

/// The limited broadcast (RFC 919 section 7).
const BROADCAST: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

const fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Splits `ADDRESS/PREFIX`, without a check of the parts.
fn split(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = text.split_once('/')?;
    Some((ip.parse().ok()?, prefix.parse().ok()?))
}

/// Returns the first and the last address of a prefix.
fn ends(ip: IpAddr, prefix: u8) -> (IpAddr, IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            let ip = ip.to_bits();
            (Ipv4Addr::from(ip & !rest).into(), Ipv4Addr::from(ip | rest).into())
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            let ip = ip.to_bits();
            (Ipv6Addr::from(ip & !rest).into(), Ipv6Addr::from(ip | rest).into())
        }
    }
}

impl Cidr {
    /// Returns true if an address is in its network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.ip.is_ipv4() == ip.is_ipv4() && ends(self.ip, self.prefix) == ends(ip, self.prefix)
    }
}

/// A route: a destination, and a router unless it is on-link, as in `10.9.0.0/16` or
/// `10.9.0.0/16,10.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Route {
    /// The first address of the destination.
    pub ip: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// The router.
    pub gateway: Option<IpAddr>,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no route, such as 10.9.0.0/16 or 10.9.0.0/16,10.0.0.1");
        let (to, gateway) = match text.split_once(',') {
            Some((to, gateway)) => (to, Some(gateway)),
            None => (text, None),
        };
        let (ip, prefix) = split(to).ok_or_else(wrong)?;
        let gateway = gateway.map(str::parse::<IpAddr>).transpose().map_err(|_| wrong())?;
        if prefix > bits(ip) || gateway.is_some_and(|via| via.is_ipv4() != ip.is_ipv4()) {
            return Err(wrong());
        }
        let (first, _) = ends(ip, prefix);
        if ip != first {
            return Err(format!("`{text}`: {ip}/{prefix} has more bits; use {first}/{prefix}"));
        }
        Ok(Self { ip, prefix, gateway })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, ",{gateway}"))
    }
}

impl TryFrom<String> for Route {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Route> for String {
    fn from(route: Route) -> Self {
        route.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

mod allowed;

#[cfg(test)]
mod tests;
