//! A container's network card as it is now. Whoever owns the container may have changed it since it
//! was made.

use std::net::IpAddr;
use std::path::Path;

use crate::device::{Device, device};
use crate::error::OpenError;
use crate::netlink::Netlink;
use crate::netns;

/// A device with its addresses and routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The device.
    pub device: Device,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Its routes in the main table: destination, length of its prefix, router.
    pub routes: Vec<(IpAddr, u8, Option<IpAddr>)>,
}

/// Looks at a device in the network namespace at `netns`, or in the caller's if there is none.
///
/// # Errors
/// [`OpenError`] if the namespace cannot be entered, or has no such device.
pub fn look(netns: Option<&Path>, name: &str) -> Result<Card, OpenError> {
    netns::within(netns, || {
        let failed = |what| OpenError::device(name, what);
        let device = device(name).map_err(failed("look it up"))?;
        let mut netlink = Netlink::open().map_err(failed("open netlink for it"))?;
        let addresses = netlink.addresses(device.index).map_err(failed("read its addresses"))?;
        let routes = netlink.routes(device.index).map_err(failed("read its routes"))?;
        Ok(Card { device, addresses, routes })
    })
}

#[cfg(test)]
mod tests;
