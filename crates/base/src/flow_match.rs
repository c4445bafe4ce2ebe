//! Selects flows by the fields that their frames have in common.

use alloc::string::{String, ToString as _};
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use crate::{Mac, Vni};

/// Protocol number of TCP in an IP header.
const TCP: u8 = 6;
/// Protocol number of UDP in an IP header.
const UDP: u8 = 17;

/// An IP prefix: an address and the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

impl IpPrefix {
    /// Returns `None` if the address has fewer bits than `length`, or if bits beyond the prefix are
    /// set.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let is_exact = match address {
            IpAddr::V4(v4) => length <= 32 && v4.to_bits() & !mask_v4(length) == 0,
            IpAddr::V6(v6) => length <= 128 && v6.to_bits() & !mask_v6(length) == 0,
        };
        is_exact.then_some(Self { address, length })
    }

    /// Returns its lowest address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that count, from the highest on.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns true if it is one address.
    #[must_use]
    pub const fn is_single(self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.length == 32,
            IpAddr::V6(_) => self.length == 128,
        }
    }

    /// Returns true if the prefix contains `address`.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                other.to_bits() & mask_v4(self.length) == own.to_bits()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                other.to_bits() & mask_v6(self.length) == own.to_bits()
            }
            _ => false,
        }
    }
}

/// Returns a mask of the highest `length` bits of an IPv4 address.
fn mask_v4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

/// Returns a mask of the highest `length` bits of an IPv6 address.
fn mask_v6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A selection of flows. Every field that is given has to match; without any, every flow matches.
///
/// MAC, address and port may belong to either end; address and port, if both are given, belong to
/// the same end. A fragment has no ports.
///
/// ```
/// # use sluice_base::FlowMatch;
/// let web: FlowMatch = "vni=5000,ip=10.0.0.0/24,proto=tcp,port=443".parse().unwrap();
/// assert_eq!(web.port, Some(443));
/// assert_eq!(web.to_string(), "vni=5000,ip=10.0.0.0/24,proto=tcp,port=443");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowMatch {
    /// Network of the flow.
    pub vni: Option<Vni>,
    /// Inner MAC of one end.
    pub mac: Option<Mac>,
    /// Prefix that holds the inner IP address of one end.
    pub ip: Option<IpPrefix>,
    /// Protocol in the inner IP header.
    pub protocol: Option<u8>,
    /// Port of one end; the protocol is TCP or UDP then.
    pub port: Option<u16>,
}

impl FlowMatch {
    /// Returns true if it may tell flows between the same two machines apart, by address, protocol
    /// or port.
    #[must_use]
    pub const fn parts_a_pair(&self) -> bool {
        self.ip.is_some() || self.protocol.is_some() || self.port.is_some()
    }
}

/// Error of parsing a match: the fault in the text, and the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseMatchError(String);

impl fmt::Display for ParseMatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParseMatchError {}

fn wrong(what: impl fmt::Display) -> ParseMatchError {
    ParseMatchError(what.to_string())
}

impl FromStr for FlowMatch {
    type Err = ParseMatchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                wrong(format_args!(
                    "`{part}` is not KEY=VALUE, as in vni=5000,ip=10.0.0.0/24,proto=tcp,port=443"
                ))
            })?;
            let is_second = match key {
                "vni" => all.vni.replace(vni(value)?).is_some(),
                "mac" => all.mac.replace(value.parse().map_err(wrong)?).is_some(),
                "ip" => all.ip.replace(prefix(value)?).is_some(),
                "proto" => all.protocol.replace(protocol(value)?).is_some(),
                "port" => all.port.replace(port(value)?).is_some(),
                _ => {
                    return Err(wrong(format_args!(
                        "`{key}` is none of vni, mac, ip, proto and port"
                    )));
                }
            };
            if is_second {
                return Err(wrong(format_args!("`{key}` is given twice in `{text}`")));
            }
        }
        if all.port.is_some() && !matches!(all.protocol, Some(TCP | UDP)) {
            return Err(wrong(format_args!("`{text}`: a port needs proto=tcp or proto=udp")));
        }
        Ok(all)
    }
}

fn vni(text: &str) -> Result<Vni, ParseMatchError> {
    text.parse()
        .ok()
        .and_then(Vni::new)
        .ok_or_else(|| wrong(format_args!("vni={text}: a number up to {} is wanted", Vni::MAX)))
}

fn prefix(text: &str) -> Result<IpPrefix, ParseMatchError> {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: Option<IpAddr> = address.parse().ok();
    let length = match (length, address) {
        ("", Some(IpAddr::V4(_))) => Some(32),
        ("", Some(IpAddr::V6(_))) => Some(128),
        (length, _) => length.parse().ok(),
    };
    address.zip(length).and_then(|(address, length)| IpPrefix::new(address, length)).ok_or_else(
        || {
            wrong(format_args!(
                "ip={text}: an address or a prefix is wanted, as 10.0.0.7 or 10.0.0.0/24, with no \
                 bit set behind the prefix"
            ))
        },
    )
}

fn protocol(text: &str) -> Result<u8, ParseMatchError> {
    match text {
        "tcp" => Ok(TCP),
        "udp" => Ok(UDP),
        _ => text.parse().map_err(|_| {
            wrong(format_args!("proto={text}: tcp, udp or a number up to 255 is wanted"))
        }),
    }
}

fn port(text: &str) -> Result<u16, ParseMatchError> {
    text.parse()
        .map_err(|_| wrong(format_args!("port={text}: a number up to {} is wanted", u16::MAX)))
}

impl fmt::Display for FlowMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut part = |f: &mut fmt::Formatter<'_>, key, value: &dyn fmt::Display| {
            let written = write!(f, "{comma}{key}={value}");
            comma = ",";
            written
        };
        if let Some(vni) = &self.vni {
            part(f, "vni", vni)?;
        }
        if let Some(mac) = &self.mac {
            part(f, "mac", mac)?;
        }
        if let Some(ip) = &self.ip {
            part(f, "ip", ip)?;
        }
        match self.protocol {
            Some(TCP) => part(f, "proto", &"tcp")?,
            Some(UDP) => part(f, "proto", &"udp")?,
            Some(other) => part(f, "proto", &other)?,
            None => {}
        }
        match &self.port {
            Some(port) => part(f, "port", port),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
