//! An address that is asked for: the body of a question about
//! [`Topic::OWNER`](super::Topic::OWNER).
//!
//! ```text
//!  | VNI, 3 | MAC, 6 | IPv4, 4, or IPv6, 16 |
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_base::{Mac, Vni};

use crate::Truncated;

const VNI_SIZE: usize = 3;
const MAC_SIZE: usize = 6;
/// The largest body in bytes.
pub const OWNER_SIZE_MAX: usize = VNI_SIZE + MAC_SIZE + 16;

/// An endpoint, and the address of it that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedFor {
    /// The network of the endpoint.
    pub vni: Vni,
    /// The MAC of the endpoint.
    pub mac: Mac,
    /// The IP address that is asked for.
    pub ip: IpAddr,
}

impl AskedFor {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Truncated`] if it has not the size of either form.
    pub fn parse(body: &[u8]) -> Result<Self, Truncated> {
        let (vni, rest) = body.split_first_chunk::<VNI_SIZE>().ok_or(Truncated)?;
        let (mac, ip) = rest.split_first_chunk::<MAC_SIZE>().ok_or(Truncated)?;
        let v4 = || ip.try_into().map(|ip: [u8; 4]| Ipv4Addr::from(ip).into());
        let v6 = || ip.try_into().map(|ip: [u8; 16]| Ipv6Addr::from(ip).into());
        let ip = v4().or_else(|_| v6()).map_err(|_| Truncated)?;
        let [high, middle, low] = *vni;
        let vni = Vni::new(u32::from_be_bytes([0, high, middle, low]));
        Ok(Self { vni: vni.expect("three bytes are 24 bits"), mac: Mac(*mac), ip })
    }

    /// Writes the body into the start of `out` and returns its size.
    pub fn emit(&self, out: &mut [u8; OWNER_SIZE_MAX]) -> usize {
        let (vni, rest) = out.split_at_mut(VNI_SIZE);
        let (mac, ip) = rest.split_at_mut(MAC_SIZE);
        vni.copy_from_slice(&self.vni.get().to_be_bytes()[1..]);
        mac.copy_from_slice(&self.mac.0);
        let size = match self.ip {
            IpAddr::V4(own) => {
                ip[..4].copy_from_slice(&own.octets());
                4
            }
            IpAddr::V6(own) => {
                ip.copy_from_slice(&own.octets());
                16
            }
        };
        VNI_SIZE + MAC_SIZE + size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_query_round_trips_other_sizes_refused() {
        let (vni, mac) = (Vni::new(0x01_02_03).unwrap(), Mac([2, 0, 0, 0, 0, 9]));
        for (ip, size) in [("10.0.0.1", 13), ("fe80::9", 25)] {
            let asked = AskedFor { vni, mac, ip: ip.parse().unwrap() };
            let mut out = [0; OWNER_SIZE_MAX];
            assert_eq!(asked.emit(&mut out), size);
            assert_eq!(&out[..4], &[1, 2, 3, 2]);
            assert_eq!(AskedFor::parse(&out[..size]), Ok(asked));
        }
        let bytes = [0; OWNER_SIZE_MAX + 1];
        for size in (0..=bytes.len()).filter(|size| ![13, 25].contains(size)) {
            assert_eq!(AskedFor::parse(&bytes[..size]), Err(Truncated));
        }
    }
}
