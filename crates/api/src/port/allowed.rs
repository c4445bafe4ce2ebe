//! Addresses that several bound ports may share.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sluice_base::IpPrefix;

/// Addresses that a bound port may use beside its own: one, or all of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AllowedIp(pub IpPrefix);

impl FromStr for AllowedIp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address or prefix, such as 10.0.0.7 or 10.0.0.0/24");
        let (ip, length) = match text.split_once('/') {
            Some((ip, length)) => (ip, Some(length)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let bits = super::bits(ip);
        let length = length.map_or(Ok(bits), str::parse::<u8>).map_err(|_| wrong())?;
        if length > bits {
            return Err(format!("`{text}`: a prefix of {length} bits is longer than the address"));
        }
        if ip.is_multicast() || ip.is_loopback() || (ip.is_unspecified() && length == bits) {
            return Err(format!("`{text}`: {ip} is not the address of one endpoint; use another"));
        }
        let (first, _) = super::ends(ip, length);
        IpPrefix::new(ip, length).map(Self).ok_or_else(|| {
            format!("`{text}`: {ip}/{length} has more bits; use {first}/{length}, or {ip} alone")
        })
    }
}

impl fmt::Display for AllowedIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_single() {
            true => write!(f, "{}", self.0.address()),
            false => write!(f, "{}", self.0),
        }
    }
}

impl TryFrom<String> for AllowedIp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AllowedIp> for String {
    fn from(allowed: AllowedIp) -> Self {
        allowed.to_string()
    }
}
