//! A container's card whose frames the kernel forwards: a veth pair, one end of it a port of the
//! bridge.
//!
//! The pair outlives the process, and so does what the kernel forwards. It is found again by the
//! name of its switch end, which is made from the names of host and port, and by its alias.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use sluice_base::Mac;

use super::links;
use crate::device::{device, ioctl_socket};
use crate::error::OpenError;
use crate::netlink::Netlink;
use crate::netns;
use crate::sys::DeviceRequest;
use crate::tap::TapRoute;
use crate::veth::requests::{self, End};

/// A card that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardConfig {
    /// Name of the host.
    pub host: String,
    /// Name of the port.
    pub port: String,
    /// The device in the container.
    pub device: String,
    /// The container's network namespace; `None`: the caller's.
    pub netns: Option<PathBuf>,
    /// The MAC; `None` leaves it to the kernel.
    pub mac: Option<Mac>,
    /// IP addresses, with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes.
    pub routes: Vec<TapRoute>,
    /// The layer-3 MTU.
    pub mtu: u16,
}

/// The switch end of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCard {
    name: String,
}

/// Prefix of the names of switch ends.
const PREFIX: &str = "slp";

fn alias(host: &str, port: &str) -> String {
    format!("sluice {host} port {port}")
}

impl KernelCard {
    /// Makes a card, or finds it as an earlier process left it; then nothing in the container is
    /// changed.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &CardConfig) -> Result<Self, OpenError> {
        let name = Self::name_of(&config.host, &config.port);
        let failed = |what| OpenError::device(&config.device, what);
        let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
        if find(&mut netlink, &name, &alias(&config.host, &config.port))
            .map_err(failed("look for its switch end"))?
            .is_some()
        {
            return Ok(Self { name });
        }
        let made = make(&mut netlink, config, &name);
        if made.is_err() {
            _ = remove(&mut netlink, &name);
        }
        made.map(|()| Self { name })
    }

    /// Returns the name of a port's switch end: a hash, since a device has 15 bytes for its name.
    #[must_use]
    pub fn name_of(host: &str, port: &str) -> String {
        let hash = alias(host, port).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{PREFIX}{:012x}", hash >> 16)
    }

    /// Name of the switch end, in the namespace of the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Deletes the card of a port, if it has one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn delete(host: &str, port: &str) -> io::Result<()> {
        let name = Self::name_of(host, port);
        let mut netlink = Netlink::open()?;
        if find(&mut netlink, &name, &alias(host, port))?.is_some() {
            remove(&mut netlink, &name)?;
        }
        Ok(())
    }
}

/// Finds a device that was made here.
fn find(netlink: &mut Netlink, name: &str, alias: &str) -> io::Result<Option<u32>> {
    let found = match device(name) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        found => found?,
    };
    let (_, said) = netlink.name_and_alias(found.index)?;
    if said == alias {
        return Ok(Some(found.index));
    }
    Err(io::Error::other(format!("device {name} is there, and not this port's: delete it")))
}

fn remove(netlink: &mut Netlink, name: &str) -> io::Result<()> {
    match device(name) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        found => netlink.del_link(found?.index),
    }
}

fn make(netlink: &mut Netlink, config: &CardConfig, name: &str) -> Result<(), OpenError> {
    let failed = |what| OpenError::device(&config.device, what);
    if DeviceRequest::new(&config.device).is_none() {
        return Err(OpenError::BadName { device: config.device.clone() });
    }
    // A name of its own until it is where it belongs.
    let inner = format!("sli{}", &name[PREFIX.len()..]);
    let ends = [End { name, mac: None }, End { name: &inner, mac: config.mac }];
    requests::add_pair(netlink, ends, config.mtu).map_err(failed("make its pair"))?;
    let looked_up = "look its pair up";
    let own = device(name).map_err(failed(looked_up))?.index;
    let other = device(&inner).map_err(failed(looked_up))?.index;
    netlink
        .set_alias(own, &alias(&config.host, &config.port))
        .map_err(failed("give its switch end an alias"))?;
    requests::without_own_address(netlink, own).map_err(failed("set its pair up"))?;
    links::set_mtu_and_up(netlink, own, config.mtu).map_err(failed("set its pair up"))?;
    let namespace = netns::open(config.netns.as_deref().unwrap_or(Path::new(netns::OWN)))?;
    requests::move_link(netlink, other, namespace.as_fd(), &config.device)
        .map_err(failed("move it into its namespace"))?;
    netns::within(config.netns.as_deref(), || settle(config))
}

/// Configures the container's end, in its namespace.
fn settle(config: &CardConfig) -> Result<(), OpenError> {
    let failed = |what| OpenError::device(&config.device, what);
    let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
    let index = device(&config.device).map_err(failed("find it"))?.index;
    for &(ip, prefix) in &config.addresses {
        netlink.add_address(index, ip, prefix).map_err(failed("give it its IP address"))?;
    }
    let request = DeviceRequest::new(&config.device).expect("checked: it is a name");
    let socket = ioctl_socket().map_err(failed("open a socket for it"))?;
    request.set_up(socket.as_fd()).map_err(failed("set it up"))?;
    for route in &config.routes {
        netlink
            .add_route(index, route.ip, route.prefix, route.gateway)
            .map_err(failed("give it its route"))?;
    }
    Ok(())
}
