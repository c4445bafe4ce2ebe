//! Ports that come and go while a host runs.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a new port is attached to. In each case a TAP device is made, which goes with the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A network namespace: its name below `/run/netns`, or a path.
    Netns(String),
    /// The network namespace of a process.
    Pid(u32),
    /// A device of this name beside the host itself, for a bridge or a machine behind it.
    Tap(String),
    /// The host itself: a way out of the network.
    Host,
}

/// A port to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPort {
    /// What it is attached to.
    pub place: Place,
    /// The network.
    pub vnet: String,
    /// Its name; absent: made of the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the device; absent: `eth0` in a namespace, `sl-NETWORK` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The addresses of the endpoint, which it is bound to. The device gets them, but not one that
    /// a machine is behind ([`Place::Tap`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Cidr>,
    /// The MAC that the endpoint is bound to; absent: one is made if it has an IP address,
    /// otherwise whoever speaks is learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// A port that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// Its name.
    pub name: String,
    /// Its network.
    pub vnet: String,
    /// Its device.
    pub device: String,
    /// The network namespace that the device lies in; absent: the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The MAC that it is bound to; absent: it learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The addresses that it is bound to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Cidr>,
    /// Its number in the switch.
    pub number: u16,
}

/// A port that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Its name.
    pub name: String,
    /// Frames that ended with it, under `stopped`.
    pub frames: u64,
}

/// An IP address and the length of its prefix, as in `10.0.0.7/24`. Without a length it is that of
/// one address.
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
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if prefix > most {
            return Err(format!("`{text}`: a prefix of {prefix} bits is longer than the address"));
        }
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4([255; 4].into()) {
            return Err(format!("`{text}`: {ip} is not the address of one endpoint"));
        }
        Ok(Self { ip, prefix })
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

#[cfg(test)]
mod tests;
